"""What get_extra_info('socket') of a stream transport gives.

asyncio's transports send within write(), so that whoever looks at the socket
afterwards finds the bytes gone; goloop's collect what one iteration writes.  This
asyncio.trsock.TransportSocket sends what waits before the socket is used for anything:
shut down, given an option, asked for its names.  A caller that gets the number from it, a duplicate
or the socket itself may send by that at any time: from then on each write() sends at once.
"""

from __future__ import annotations

import sys
import weakref
from asyncio import trsock

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

    from ... import _core

# Where asyncio's class keeps the socket, which all of its methods ask for.
_slot: Any = vars(trsock.TransportSocket)["_sock"]

# The methods of asyncio's class that have done with the socket when they return are all but these.
_HAND_OUT = frozenset({"fileno", "dup"})


class TransportSocket(trsock.TransportSocket):
    """A socket whose transport sends what was written before each use of it."""

    __slots__ = ("_transport",)

    def __init__(self, sock: socket.socket, transport: _core.StreamTransport) -> None:
        self._transport = weakref.ref(transport)
        _slot.__set__(self, sock)

    def __repr__(self) -> str:
        # asyncio's words, whose fileno() would hand the number out.
        return repr(trsock.TransportSocket(_slot.__get__(self)))

    @property
    def _sock(self) -> socket.socket:
        transport = self._transport()
        if transport is not None:
            asking = sys._getframe(1)
            if asking.f_globals is not vars(trsock) or asking.f_code.co_name in _HAND_OUT:
                transport._exposed = True
            transport._flush()
        sock: socket.socket = _slot.__get__(self)
        return sock
