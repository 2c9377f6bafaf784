"""Unix-domain streams.

create_unix_connection and create_unix_server are the running version's own: they are
written against the loop's public methods and `_create_connection_transport`, so they
run on any loop.  Only what they keep in the loop is provided here.
"""

from __future__ import annotations

import asyncio.unix_events
import os
import socket
from asyncio.log import logger

from .streams import Streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_unix_events: Any = asyncio.unix_events
_Unix: Any = _unix_events._UnixSelectorEventLoop


class UnixSockets(Streams):
    """Unix-domain connections and servers."""

    # Inode of the path that a server has bound and removes at its end (3.13 on).
    _unix_server_sockets: dict[socket.socket, int]

    def _init_unix_sockets(self) -> None:
        self._unix_server_sockets = {}

    if not TYPE_CHECKING:
        create_unix_connection = _Unix.create_unix_connection
        create_unix_server = _Unix.create_unix_server

    def _stop_serving(self, sock: socket.socket) -> None:
        inode = self._unix_server_sockets.pop(sock, None)
        path = sock.getsockname() if inode is not None else None
        super()._stop_serving(sock)
        if path is None:
            return
        try:
            # Another server may have put its own socket there meanwhile.
            if os.stat(path).st_ino == inode:
                os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as err:
            logger.error("Unable to clean up listening UNIX socket %r: %r", path, err)
