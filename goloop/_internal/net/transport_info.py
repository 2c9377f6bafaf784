"""What transports tell about themselves, names, repr and socket, and what they ask of a protocol.

asyncio's transports send within write(), so that whoever looks at the socket
afterwards finds the bytes gone; goloop's collect what one iteration writes.  What
get_extra_info('socket') of a stream transport gives, `TransportSocket`, sends what waits
before the socket is used for anything: shut down, given an option, asked for its names.
A caller that gets the number from it, a duplicate or the socket itself may send by that at
any time: from then on each write() sends at once.
"""

from __future__ import annotations

import errno
import socket
import sys
import weakref
from asyncio import trsock
from asyncio.log import logger
from collections.abc import Callable

from ... import _core
from ..loop.debugging import as_handled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NO_TLS = "TLS carries no descriptors: send them by a Unix stream without ssl"

# Where asyncio's class keeps the socket, which all of its methods ask for.
_slot: Any = vars(trsock.TransportSocket)["_sock"]

# The methods of asyncio's class that have done with the socket when they return are all but these.
_HAND_OUT = frozenset({"fileno", "dup"})


def asked(ask: Callable[[], Any]) -> Any:
    """What socket.getsockname() or getpeername() says; None where it raises OSError."""
    try:
        return ask()
    except OSError:
        return None


def with_names(extra: dict[str, Any] | None, entry: Any, sock: socket.socket) -> dict[str, Any]:
    """Extra info with its three entries, in asyncio's order; a peername of the caller's stays."""
    if extra is None:
        extra = {}
    extra["socket"] = entry
    extra["sockname"] = asked(sock.getsockname)
    if "peername" not in extra:
        extra["peername"] = asked(sock.getpeername)
    return extra


def head(transport: Any) -> str:
    """The class, and whether it is closed or closing: how each repr begins."""
    state = " closed" if transport._number < 0 else " closing" if transport._closing else ""
    return type(transport).__name__ + state


def fatal_error(self: Any, exc: BaseException, message: str = "Fatal error on transport") -> None:
    """Tells of an exception that ends a transport, and ends it: `_fatal_error` of each.

    Of an OSError asyncio tells in debug mode only; of a pipe that is read, of EIO alone: a terminal
    whose other side is gone says so, and that is no more than an end.
    """
    loop = self._loop
    if loop is None:  # it has ended
        return
    reads = isinstance(self, _core.ReadPipeTransport)
    if isinstance(exc, OSError) and (not reads or exc.errno == errno.EIO):
        if loop.get_debug():
            logger.debug("%r: %s", self, message, exc_info=exc)
    else:
        told = {"message": message, "exception": exc, "transport": self, "protocol": self._protocol}
        as_handled(exc, loop.call_exception_handler, told)
    self._force_close(exc)


def described(transport: Any, writing: bool, size: int) -> str:
    """The repr of a transport over a socket, as asyncio's."""
    words = f"{head(transport)} fd={transport._sock_fd}"
    loop = transport._loop
    if loop is not None and not loop.is_closed():
        words += f" read={'polling' if transport._receives else 'idle'}"
        words += f" write=<{'polling' if writing else 'idle'}, bufsize={size}>"
    return f"<{words}>"


def has_buffer_methods(protocol: object) -> bool:
    """Whether a protocol that is none of asyncio's BufferedProtocols gets its bytes as they do.

    uvloop asks for the methods, and so do programs that come from it: a class with get_buffer() and
    buffer_updated() alone gets its data by them here, where asyncio fails because there is no
    data_received().
    """
    if hasattr(protocol, "data_received"):
        return False
    return hasattr(protocol, "get_buffer") and hasattr(protocol, "buffer_updated")


def takes_fds(protocol: object) -> bool:
    """Whether a protocol asks for descriptors: its class has `fds_received()`."""
    return hasattr(type(protocol), "fds_received")


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
