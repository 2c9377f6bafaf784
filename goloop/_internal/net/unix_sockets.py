"""Unix-domain streams.

create_unix_connection and create_unix_server are the running version's own: they are
written against the loop's public methods and `_create_connection_transport`, so they
run on any loop, and so is the end of a server.  Only what they keep in the loop is provided
here.
"""

from __future__ import annotations

import asyncio.unix_events
import socket
import types

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


def _written_in(cls: type, function: Any) -> Any:
    """The function as if its source stood in that class: there its super() begins."""
    code = function.__code__
    closure = tuple(
        types.CellType(cls) if name == "__class__" else cell
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True)
    )
    return types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, closure
    )


# From 3.13 on it also removes the server's path.  Tools that watch for blocking calls
# (blockbuster) know asyncio's function by its file and name, and let it ask for the inode.
if "_stop_serving" in vars(_Unix):
    UnixSockets._stop_serving = _written_in(  # type: ignore[method-assign]
        UnixSockets, vars(_Unix)["_stop_serving"]
    )
