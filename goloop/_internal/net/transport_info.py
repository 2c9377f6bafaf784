"""Names, repr and socket of transports, and checks of a protocol's methods.

asyncio's transports send within write(), so the bytes have been sent when code uses the socket
afterwards; goloop's queue the writes of one iteration. get_extra_info('socket') of a stream
transport returns a `TransportSocket`, which flushes queued writes before each use of the socket
that can show them, such as shutdown, or setting an option. A caller that gets the descriptor's
number, a duplicate or the socket itself from it may send by itself at any time: from then on
each write() sends immediately.
"""

from __future__ import annotations

import errno
import socket
import weakref
from asyncio import trsock
from asyncio.log import logger
from collections.abc import Callable

from ... import _core
from ..loop.debugging import as_handled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NO_TLS = "TLS connections cannot pass descriptors: use a Unix stream without ssl"

# The slot of asyncio's class that refers to the socket; all of its methods read it.
_socket_slot: Any = vars(trsock.TransportSocket)["_sock"]
_socket_of: Callable[[trsock.TransportSocket], socket.socket] = _socket_slot.__get__


def name_or_none(ask: Callable[[], Any]) -> Any:
    """Return the result of getsockname() or getpeername(), or None if it raises OSError."""
    try:
        return ask()
    except OSError:
        return None


def add_socket_info(
    extra: dict[str, Any] | None, entry: Any, sock: socket.socket
) -> dict[str, Any]:
    """Add 'socket', 'sockname' and 'peername' in asyncio's order, and return the dict.

    An existing 'peername' is kept. Without `extra` the dict is a new one.
    """
    if extra is None:
        extra = {}
    extra["socket"] = entry
    extra["sockname"] = name_or_none(sock.getsockname)
    if "peername" not in extra:
        extra["peername"] = name_or_none(sock.getpeername)
    return extra


def repr_head(transport: Any) -> str:
    """Return the beginning of a repr: the class, and "closed" or "closing"."""
    state = " closed" if transport._fd < 0 else " closing" if transport._closing else ""
    return type(transport).__name__ + state


def fatal_error(self: Any, exc: BaseException, message: str = "Fatal error on transport") -> None:
    """Report an exception that ends a transport, and abort it: `_fatal_error` of each transport.

    Does nothing if the transport has ended. As in asyncio an OSError is only logged, in debug mode;
    for a read pipe this applies to EIO only, which a terminal reports when its other side is
    closed. All other exceptions are passed to the loop's exception handler.
    """
    loop = self._loop
    if loop is None:  # the transport has ended
        return
    try:
        reads = isinstance(self, _core.ReadPipeTransport)
        if isinstance(exc, OSError) and (not reads or exc.errno == errno.EIO):
            if loop.get_debug():
                logger.debug("%r: %s", self, message, exc_info=exc)
        else:
            report = {
                "message": message,
                "exception": exc,
                "transport": self,
                "protocol": self._protocol,
            }
            as_handled(exc, loop.call_exception_handler, report)
    finally:  # also if the report fails
        self._force_close(exc)


def socket_transport_repr(transport: Any, writing: bool, size: int) -> str:
    """Return the repr of a transport over a socket, in asyncio's format."""
    words = f"{repr_head(transport)} fd={transport._sock_fd}"
    loop = transport._loop
    if loop is not None and not loop.is_closed():
        words += f" read={'polling' if transport._receives else 'idle'}"
        words += f" write=<{'polling' if writing else 'idle'}, bufsize={size}>"
    return f"<{words}>"


def receives_fds(protocol: object) -> bool:
    """Return true if a protocol receives descriptors: its class has `fds_received()`."""
    return hasattr(type(protocol), "fds_received")


class TransportSocket(trsock.TransportSocket):
    """A socket whose transport flushes queued writes before a use of it that can show them.

    Addresses and the kind of the socket do not depend on written bytes, and are asked often: httpx
    asks for several of each idle connection at each request.
    """

    __slots__ = ("_family", "_transport")

    def __init__(self, sock: socket.socket, transport: _core.StreamTransport) -> None:
        """Wrap the socket of a transport, to which a weak reference is stored."""
        self._transport = weakref.ref(transport)
        self._family = sock.family
        _socket_slot.__set__(self, sock)

    def __repr__(self) -> str:
        # asyncio's text, without calling fileno() of this class, which counts as exposing.
        return repr(trsock.TransportSocket(_socket_of(self)))

    # ---- not dependent on written bytes

    @property
    def family(self) -> int:
        """The socket's address family."""
        return self._family

    @property
    def type(self) -> int:
        """The socket's type."""
        return _socket_of(self).type

    @property
    def proto(self) -> int:
        """The socket's protocol."""
        return _socket_of(self).proto

    def getpeername(self) -> Any:
        """Return the peer's address."""
        return _socket_of(self).getpeername()

    def getsockname(self) -> Any:
        """Return the socket's own address."""
        return _socket_of(self).getsockname()

    def get_inheritable(self) -> bool:
        """Return true if a new program inherits the descriptor."""
        return _socket_of(self).get_inheritable()

    # ---- after a flush

    def shutdown(self, how: int) -> None:
        """Shut down one or both halves of the connection."""
        self._flushed_socket().shutdown(how)

    def getsockopt(self, *args: Any, **kwargs: Any) -> Any:
        """Send the pending writes, and return the value of a socket option."""
        return self._flushed_socket().getsockopt(*args, **kwargs)

    def setsockopt(self, *args: Any, **kwargs: Any) -> None:
        """Set a socket option."""
        self._flushed_socket().setsockopt(*args, **kwargs)

    def _flushed_socket(self) -> socket.socket:
        """Return the socket after a flush."""
        transport = self._transport()
        if transport is not None:
            transport._flush()
        return _socket_of(self)

    # ---- from then on each write() sends immediately

    def fileno(self) -> int:
        """Return the descriptor's number."""
        return self._socket_for_program().fileno()

    def dup(self) -> socket.socket:
        """Return a socket with a duplicate of the descriptor."""
        return self._socket_for_program().dup()

    @property
    def _sock(self) -> socket.socket:
        """The socket; all other methods of asyncio's class ask for it."""
        return self._socket_for_program()

    def _socket_for_program(self) -> socket.socket:
        """Return the socket for a caller that may use it later, after the first time's flush."""
        transport = self._transport()
        if transport is not None and not transport._exposed:
            transport._exposed = True
            transport._flush()
        return _socket_of(self)
