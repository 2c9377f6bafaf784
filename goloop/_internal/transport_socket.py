"""What get_extra_info('socket') of a stream transport gives.

asyncio's transports send within write(), so that whoever looks at the socket
afterwards finds the bytes gone; goloop's collect what one iteration writes.  This
asyncio.trsock.TransportSocket sends what waits before the socket is used for anything:
shut down, duplicated, asked for its number, given an option.
"""

from __future__ import annotations

import weakref
from asyncio import trsock

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

    from .. import _core

# Where asyncio's class keeps the socket, which all of its methods ask for.
_slot: Any = vars(trsock.TransportSocket)["_sock"]


class TransportSocket(trsock.TransportSocket):
    """A socket whose transport sends what was written before each use of it."""

    __slots__ = ("_transport",)

    def __init__(self, sock: socket.socket, transport: _core.StreamTransport) -> None:
        self._transport = weakref.ref(transport)
        _slot.__set__(self, sock)

    @property
    def _sock(self) -> socket.socket:
        transport = self._transport()
        if transport is not None:
            transport._flush()
        sock: socket.socket = _slot.__get__(self)
        return sock
