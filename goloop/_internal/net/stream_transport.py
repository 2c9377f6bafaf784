"""The transport of a stream socket: Python's part of it, and the sockets that it is made over.

C has the code that runs for each packet (pybridge/core/streams). This module has what runs once a
connection: the socket object, the entries of get_extra_info(), and the waiter of sendfile().
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import socket
from asyncio import constants
from collections.abc import Callable

from ... import _core
from .. import system
from ..loop import arg_errors
from ..loop.base import CoreLoop
from . import transport_info

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ProtocolFactory = Callable[[], asyncio.BaseProtocol]

# The slot of the C type, which the Python property of the same name replaces.
_extra_slot: Any = vars(_core.StreamTransport)["_extra"]
_extra_of: Callable[[Any], Any] = _extra_slot.__get__
_INTERNET_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_TCP_PROTOCOLS = (socket.IPPROTO_TCP, 0)
# Set by process/shared_sockets.py, which few programs import: the class of its sockets. Any,
# because that module imports this one.
shared_socket_class: Any = None
_LAZY_EXTRA_NAMES = frozenset({"socket", "sockname", "peername"})
_NO_FDS_RECEIVED = (
    "passing descriptors needs a protocol whose class has fds_received() when the connection is "
    "made: a protocol that only sends needs one that closes all received descriptors"
)


def is_tcp(sock: socket.socket) -> bool:
    """Return true for a TCP socket, which gets TCP_NODELAY, also if its `proto` is 0.

    asyncio sets the option only if `proto` is IPPROTO_TCP.
    """
    return (
        sock.family in _INTERNET_FAMILIES
        and sock.type == socket.SOCK_STREAM
        and sock.proto in _TCP_PROTOCOLS
    )


def passes_fds(sock: socket.socket, protocol: object) -> bool:
    """Return true if the connection passes file descriptors (SCM_RIGHTS) along with its bytes."""
    possible = sock.family == socket.AF_UNIX and system.of_fd(sock.fileno()).passes_fds
    return possible and transport_info.receives_fds(protocol)


def set_nodelay(sock: socket.socket) -> None:
    """Set TCP_NODELAY if the socket is a TCP socket."""
    if is_tcp(sock):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def shared_socket(sock: socket.socket) -> Any:
    """Return `sock` if it is a SharedSocket, which belongs to a shared listener, else None."""
    if shared_socket_class is not None and isinstance(sock, shared_socket_class):
        return sock
    return None


def socket_from_fd(number: int) -> socket.socket:
    """Return a new socket object that owns an fd."""
    return system.of_fd(number).socket_class(fileno=number)


def adopt_fd(number: int) -> socket.socket:
    """Return a new non-blocking socket that owns the fd; if that fails, close the fd."""
    sock = None
    try:
        sock = socket_from_fd(number)
        sock.setblocking(False)
    except BaseException:
        if sock is None:
            os.close(number)
        else:
            sock.close()
        raise
    return sock


class StreamTransport(_core.StreamTransport):
    """A connected stream socket as an asyncio.Transport.

    An accepted connection has no Python socket object, and no Python objects for its addresses,
    until the program requests them. The socket object is then created once, and owns the
    descriptor from that moment.
    """

    # Attributes that loop.start_tls() and loop.sendfile() read from a transport.
    _start_tls_compatible = True
    _sendfile_compatible = constants._SendfileMode.TRY_NATIVE

    def __init__(
        self,
        loop: CoreLoop,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[Any] | None = None,
        extra: dict[str, Any] | None = None,
        server: Any = None,
        context: contextvars.Context | None = None,
    ) -> None:
        """Create the transport of a connected socket, and schedule connection_made().

        Sets TCP_NODELAY on a TCP socket. `waiter` gets its result after connection_made(). `extra`
        has entries for get_extra_info(), to which those of the socket are added. `server` is the
        server of an accepted connection. `context` is the context of the callbacks; None: a copy of
        the current one. Raises RuntimeError if another transport has the fd.
        """
        loop._ensure_fd_no_transport(sock)
        entries = transport_info.add_socket_info(
            extra, transport_info.TransportSocket(sock, self), sock
        )
        set_nodelay(sock)
        super().__init__(loop, sock, protocol, waiter, entries, server, context)

    _fatal_error = transport_info.fatal_error

    def _read_ready_cb(self) -> None:
        """Do nothing: C does the work of this asyncio callback for a readable socket.

        CPython's own TLS tests check that the attribute exists.
        """

    def __repr__(self) -> str:
        return transport_info.socket_transport_repr(self, self._queued > 0, self._queued)

    # ---- passing descriptors needs DescriptorTransport: selector_transports.py

    def send_fds(self, data: object, fds: object) -> None:
        """Raise TypeError: this connection cannot pass descriptors."""
        if hasattr(self._protocol, "_app_transport"):
            raise TypeError(transport_info.NO_TLS)
        if not self._could_pass_fds():
            raise TypeError("only Unix streams can pass descriptors: use create_unix_connection()")
        raise TypeError(_NO_FDS_RECEIVED)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set a new protocol, which gets all events from now on.

        Raises TypeError for a protocol that receives descriptors, if this is a Unix stream.
        """
        if transport_info.receives_fds(protocol) and self._could_pass_fds():
            raise TypeError(_NO_FDS_RECEIVED)
        super().set_protocol(protocol)

    def _could_pass_fds(self) -> bool:
        """Return true for a Unix stream of a system that can pass descriptors."""
        is_unix = isinstance(self.get_extra_info("sockname"), (str, bytes))
        return is_unix and system.of_fd(self._sock_fd).passes_fds

    # ---- extra info

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Get optional transport information: 'peername', 'sockname', 'socket'.

        The entry of an accepted connection is created on first use.
        """
        extra = _extra_of(self)
        if name not in extra and name in _LAZY_EXTRA_NAMES and self._lazy:
            extra[name] = self._make_extra_entry(name)
        return extra.get(name, default)

    @property
    def _extra(self) -> Any:
        """The dict of get_extra_info(), with all entries created; asyncio's name."""
        if self._lazy:
            for name in ("socket", "sockname", "peername"):
                self.get_extra_info(name)
            self._lazy = False
        return _extra_of(self)

    @_extra.setter
    def _extra(self, extra: Any) -> None:
        """Replace the dict of get_extra_info(); missing entries are then not created."""
        self._lazy = False
        _extra_slot.__set__(self, extra)

    def _make_extra_entry(self, name: str) -> Any:
        """Create the extra-info entry 'socket', 'sockname' or 'peername'; no address is None."""
        if name == "socket":
            return transport_info.TransportSocket(self._socket_for_own_use(), self)
        found = self._raw_name(name == "peername")
        if found is None and (sock := self._socket()) is not None:
            # C has no address for a family that only Python's socket module can decode.
            found = transport_info.name_or_none(
                sock.getpeername if name == "peername" else sock.getsockname
            )
        return found

    def _socket(self) -> socket.socket | None:
        """Return the socket object, creating it on first use; None if the transport is closed."""
        fd = self._fd
        if self._owner is None and fd >= 0:
            sock = socket_from_fd(fd)
            adopted = False
            try:
                sock.setblocking(False)
                adopted = self._adopt(sock)
            finally:
                if not adopted:  # another thread adopted one first, or closed the transport
                    sock.detach()
        owner: socket.socket | None = self._owner
        return owner

    def _socket_for_own_use(self) -> socket.socket:
        """Return the socket for a caller that neither sends on it nor passes it to the program.

        If the transport is closed, return a new closed socket.
        """
        return self._socket() or self._closed_socket()

    def _closed_socket(self) -> socket.socket:
        """Return a closed socket of the right family, for get_extra_info() after the end."""
        name = self._raw_name(False)
        if isinstance(name, tuple):
            family = socket.AF_INET6 if len(name) == 4 else socket.AF_INET
        else:
            family = socket.AF_INET if name is None else socket.AF_UNIX
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.close()
        return sock

    @property
    def _sock(self) -> socket.socket | None:
        """The socket object, or None after the end.

        Reading it flushes queued writes, and from then on the socket counts as exposed.
        """
        # Code that has the socket itself may send on it or shut it down as soon as write()
        # has returned.
        sock = self._socket()
        self._exposed = True
        self._flush()
        return sock

    # ---- sendfile() waits until the write queue is empty

    def _make_empty_waiter(self) -> asyncio.Future[None]:
        """Flush, and return a future that is done when all written bytes are in the kernel.

        write() raises RuntimeError until _reset_empty_waiter(). Raises RuntimeError if a waiter
        exists already, or if the transport or its loop is closed.
        """
        if self._empty_waiter is not None:
            raise RuntimeError("Empty waiter is already set")
        if self._loop is None:
            raise RuntimeError("the transport is closed")
        self._loop._check_closed()
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._empty_waiter = waiter
        self._flush()
        if not self._queued and not waiter.done():
            waiter.set_result(None)
        return waiter

    def _reset_empty_waiter(self) -> None:
        """Drop the future of _make_empty_waiter()."""
        self._empty_waiter = None


arg_errors.use_asyncio_names(StreamTransport)
