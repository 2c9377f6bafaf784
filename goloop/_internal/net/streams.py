"""Stream connections: the methods by which BaseEventLoop creates transports and servers.

create_connection, create_server, connect_accepted_socket and start_tls are inherited from
BaseEventLoop. They call the methods of this module to create a transport over a connected
socket (`_make_socket_transport`), to create one with TLS (`_make_ssl_transport`), and to start
and stop accepting connections.
"""

from __future__ import annotations

import asyncio
import asyncio.selector_events
import asyncio.unix_events
import contextvars
import functools
import inspect
import operator
import os
import socket
import ssl
import sys
import types
import weakref
from asyncio import constants, trsock
from asyncio.log import logger
from collections.abc import Awaitable, Callable, Iterator

from ... import _core
from ..loop import arg_errors
from ..loop.base import CoreLoop
from . import datagrams, pipes, selector_transports, transport_info
from . import tls as tls_module
from .tls import TLSProtocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..process.shared_sockets import SharedSocket

ProtocolFactory = Callable[[], asyncio.BaseProtocol]

_HANDSHAKE_TIMEOUT: float = constants.SSL_HANDSHAKE_TIMEOUT
_SHUTDOWN_TIMEOUT: float = constants.SSL_SHUTDOWN_TIMEOUT


# The slot of the C type, which the Python property of the same name replaces.
_extra_slot: Any = vars(_core.StreamTransport)["_extra"]
_extra_of: Callable[[Any], Any] = _extra_slot.__get__
_INTERNET_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_TCP_PROTOCOLS = (socket.IPPROTO_TCP, 0)
# The socket methods that asyncio calls and native code replaces: for streams, and for listeners.
_STREAM_METHODS = frozenset({"fileno", "recv", "recv_into", "send", "sendmsg", "shutdown"})
_LISTENER_METHODS = frozenset({"fileno", "accept"})
_SIMULATED = 1 << 24  # the lowest fd of simulated kernels, see goloop/testing/simulated
# Set by the modules that few programs import, process/shared_sockets.py and testing/simulated:
# the classes of their sockets.
shared_socket_class: type[SharedSocket] | None = None
simulated_socket_class: Any = None
_SelectorEventLoop: Any = asyncio.selector_events.BaseSelectorEventLoop
# Since 3.14 and in late releases of 3.13 asyncio makes `backlog` + 1 accept() calls per iteration.
_accept_code = _SelectorEventLoop._accept_connection.__code__
_ONE_EXTRA_ACCEPT = sys.version_info >= (3, 14) or 1 in _accept_code.co_consts
_LAZY_EXTRA_NAMES = frozenset({"socket", "sockname", "peername"})
_NO_FDS_RECEIVED = (
    "passing descriptors needs a protocol whose class has fds_received() when the connection is "
    "made: a protocol that only sends needs one that closes all received descriptors"
)


def _is_tcp(sock: socket.socket) -> bool:
    """Return true for a TCP socket, which gets TCP_NODELAY, also if its `proto` is 0.

    asyncio sets the option only if `proto` is IPPROTO_TCP.
    """
    return (
        sock.family in _INTERNET_FAMILIES
        and sock.type == socket.SOCK_STREAM
        and sock.proto in _TCP_PROTOCOLS
    )


def _passes_fds(sock: socket.socket, protocol: object) -> bool:
    """Return true if the connection passes file descriptors (SCM_RIGHTS) along with its bytes."""
    unix = sock.family == socket.AF_UNIX and sock.fileno() < _SIMULATED
    return unix and transport_info.receives_fds(protocol)


def _set_nodelay(sock: socket.socket) -> None:
    """Set TCP_NODELAY if the socket is a TCP socket."""
    if _is_tcp(sock):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _shared_socket(sock: socket.socket) -> SharedSocket | None:
    """Return `sock` if it belongs to a shared listener, else None."""
    if shared_socket_class is not None and isinstance(sock, shared_socket_class):
        return sock
    return None


def _socket_from_fd(number: int) -> socket.socket:
    """Return a new socket object that owns an fd; a simulated socket if the fd is simulated."""
    if number < _SIMULATED:
        return socket.socket(fileno=number)
    simulated: socket.socket = simulated_socket_class(fileno=number)
    return simulated


def _adopt_fd(number: int) -> socket.socket:
    """Return a new non-blocking socket that owns the fd; if that fails, close the fd."""
    sock = None
    try:
        sock = _socket_from_fd(number)
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
        _set_nodelay(sock)
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
        if not self._is_unix():
            raise TypeError("only Unix streams can pass descriptors: use create_unix_connection()")
        raise TypeError(_NO_FDS_RECEIVED)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set a new protocol, which gets all events from now on.

        Raises TypeError for a protocol that receives descriptors, if this is a Unix stream.
        """
        if transport_info.receives_fds(protocol) and self._is_unix():
            raise TypeError(_NO_FDS_RECEIVED)
        super().set_protocol(protocol)

    def _is_unix(self) -> bool:
        """Return true if the connection has a Unix address and is not simulated."""
        named = isinstance(self.get_extra_info("sockname"), (str, bytes))
        return named and self._sock_fd < _SIMULATED

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
            return transport_info.TransportSocket(self._unexposed(), self)
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
            sock = _socket_from_fd(fd)
            adopted = False
            try:
                sock.setblocking(False)
                adopted = self._adopt(sock)
            finally:
                if not adopted:  # another thread adopted one first, or closed the transport
                    sock.detach()
        owner: socket.socket | None = self._owner
        return owner

    def _unexposed(self) -> socket.socket:
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


class Listener(_core.Listener):
    """Creates a protocol and a transport for each connection that a listening socket accepts.

    If several loops share the socket, `deliver` is called instead, with a socket object and the
    peer's address. If the program has replaced methods of socket.socket, the loop's
    `_accept_shared` is called instead.
    """

    def __init__(
        self,
        loop: CoreLoop,
        sock: socket.socket,
        factory: ProtocolFactory,
        server: Any,
        backlog: int,
        context: contextvars.Context,
        deliver: Callable[[socket.socket, Any], object] | None = None,
    ) -> None:
        """Start to accept on a listening socket, with callbacks in `context`.

        `deliver(socket, address)` gets each connection, if it is passed, instead of a new
        transport.
        """
        self._loop: Any = loop
        self._sock = sock
        self._factory = factory
        self._server = server
        self._deliver = deliver
        max_accepts = min(max(backlog + _ONE_EXTRA_ACCEPT, 1), 2**31 - 1)
        self._unix = sock.family == socket.AF_UNIX
        super().__init__(loop, sock, context, max_accepts, deliver is None and _is_tcp(sock))

    # ---- called by C, once for each connection

    def _accepted(self, context: contextvars.Context, error: int, replaced: bool) -> None:
        """Create the protocol and the transport of one accepted connection.

        `context` is a copy for this connection alone. `error` is the errno of setting TCP_NODELAY,
        or 0. If `replaced` (the program has replaced methods of socket.socket) or if there is a
        `deliver`, the connection is only delivered as a socket object. Errors are reported by
        the loop's _report_accept_error(), except SystemExit and KeyboardInterrupt.
        """
        protocol: asyncio.BaseProtocol | None = None
        loop = self._loop
        try:
            if replaced or self._deliver is not None:
                self._deliver_socket()
                return
            if loop._debug:
                self._log_connection()
            # As in asyncio the protocol is created first, even if the connection has failed.
            protocol = self._factory()
            if error:
                raise OSError(error, os.strerror(error))
            if self._unix and transport_info.receives_fds(protocol):
                self._make_fd_transport(protocol, context)
            else:
                self._take(StreamTransport, protocol, self._server, context)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            loop._report_accept_error(exc, protocol)

    def detach_unstarted(self) -> None:
        """Detach the connections that wait for connection_made() from the closing server.

        asyncio would not have accepted them yet. They are served, but the server does not wait
        until they end.
        """
        for transport in self._loop._all_transports():
            ours = isinstance(transport, _core.StreamTransport) and transport._awaits_made()
            if ours and transport._server is self._server:
                self._server._detach(*((transport,) if sys.version_info >= (3, 13) else ()))
                transport._server = None

    def _deliver_socket(self) -> None:
        """Deliver the connection as a socket object, to `deliver` or to the loop."""
        peer = self._peer
        sock = _adopt_fd(self._detach())
        if peer is None:
            peer = transport_info.name_or_none(sock.getpeername)
        if self._deliver is not None:
            self._deliver(sock, peer)
        else:
            self._loop._accept_shared(self._factory, self._server, sock, peer)

    def _make_fd_transport(
        self, protocol: asyncio.BaseProtocol, context: contextvars.Context
    ) -> None:
        """Create the Python transport of an accepted connection that passes descriptors.

        The transport registers itself with the loop, which keeps it alive. On an error the socket
        is closed.
        """
        sock = _adopt_fd(self._detach())
        created = False
        try:
            extra = {"peername": transport_info.name_or_none(sock.getpeername)}
            self._loop._make_stream(sock, protocol, None, extra, self._server, context)
            created = True
        finally:
            if not created:
                sock.close()

    def _log_connection(self) -> None:
        """Log the new connection, with asyncio's text for debug mode."""
        sock = _socket_from_fd(self._accepted_fd)
        try:
            peer = self._peer or transport_info.name_or_none(sock.getpeername)
            logger.debug("%r got a new connection from %r: %r", self._server, peer, sock)
        finally:
            sock.detach()

    def _failed(self, error: int, goes_on: bool) -> None:
        """Report a failed accept() to the exception handler; `goes_on`: it will be retried."""
        report: dict[str, Any] = {"exception": OSError(error, os.strerror(error))}
        if goes_on:
            report["message"] = "socket.accept() out of system resource"
            report["socket"] = trsock.TransportSocket(self._sock)
        else:
            report["message"] = "Exception in callback of a listener: accept failed"
        self._loop.call_exception_handler(report)

    def __repr__(self) -> str:
        return f"<Listener {'on' if self._open else 'stopped, of'} {self._sock!r}>"


class ServerClients:
    """The set of a server's connections since Python 3.13, replacing its WeakSet.

    A weak reference and its entry in the set cost more than 130 bytes per connection. Streams of
    this loop are only counted instead: the loop has a list of them, and each refers to its
    server. All other transports are in the WeakSet.
    """

    def __init__(self, loop: CoreLoop, server: Any, others: weakref.WeakSet[Any]) -> None:
        """Create the set; `others` is asyncio's WeakSet, for transports that are not native."""
        self._loop: Any = loop
        self._server = weakref.ref(server)
        self._others = others
        self._count = 0

    def add(self, transport: Any) -> None:
        """Count a native transport of this loop; add any other one to the WeakSet."""
        if not isinstance(transport, _core.StreamTransport) or transport._loop is not self._loop:
            self._others.add(transport)
        elif not transport._counted:
            transport._counted = True
            self._count += 1

    def discard(self, transport: Any) -> None:
        """Remove a transport, if it was added."""
        # By the time the server is notified of its end, the transport's loop is None.
        if isinstance(transport, _core.StreamTransport) and transport._counted:
            transport._counted = False
            self._count -= 1
        else:
            self._others.discard(transport)

    def _has(self, transport: Any) -> bool:
        """Return true for a native transport that is counted for this server."""
        ours = isinstance(transport, _core.StreamTransport) and transport._counted
        return ours and transport._server is self._server()

    def copy(self) -> Any:
        """Return a snapshot of the connections, in an order independent of memory addresses."""
        found = dict.fromkeys(each for each in self._loop._all_transports() if self._has(each))
        found.update(dict.fromkeys(self._others))
        return found.keys()

    def __contains__(self, transport: object) -> bool:
        """Return true for a connection of this server."""
        return self._has(transport) or transport in self._others

    def __iter__(self) -> Iterator[Any]:
        """Iterate over a snapshot of the connections."""
        return iter(self.copy())

    def __len__(self) -> int:
        """Return the number of connections."""
        return self._count + len(self._others)


class Server(asyncio.Server):
    """asyncio's Server, which can also pause accepting and limit its connections.

    `create_server()`, `create_unix_server()` and asyncio's `start_server()` return it. While it
    does not accept, new connections wait in the kernel's queue of length `backlog`, and
    open connections are served. All methods must be called in the loop's thread, and not by a
    protocol factory, which runs during an accept. Since 0.3.0.
    """

    _loop: Any
    _pause_requested = False
    _limit: int | None = None

    def close(self) -> None:
        """Stop accepting, as asyncio's Server does; open connections are served to their end."""
        for sock in self._listening():
            if sock in self._loop._listeners:
                self._loop._listeners[sock].detach_unstarted()
        super().close()

    def pause_accepting(self) -> None:
        """Stop accepting until `resume_accepting()`; new connections wait, none is refused."""
        self._pause_requested = True
        self._update_accepting()

    def resume_accepting(self) -> None:
        """Accept again, waiting connections first; does nothing if the server is closed."""
        self._pause_requested = False
        self._update_accepting()

    def is_accepting(self) -> bool:
        """Return true if connections are accepted: false while paused, full or not serving."""
        return self.is_serving() and self._may_accept()

    @property
    def max_connections(self) -> int | None:
        """The limit of simultaneous connections; None, the default, is no limit.

        A server with several listening sockets, or with a shared one, may accept a few more.
        Setting it raises ValueError for a number below 1.
        """
        return self._limit

    @max_connections.setter
    def max_connections(self, limit: int | None) -> None:
        """Set the limit and restart listening; ValueError if it is less than 1.

        Open connections are not closed.
        """
        if limit is not None:
            limit = operator.index(limit)
            if limit < 1:
                raise ValueError(f"max_connections must be >= 1 or None, got {limit}")
        self._limit = limit
        self.__class__ = Server if limit is None else _Limited
        # The number of accepts per iteration is fixed when listening begins: restart it.
        for sock in self._listening():
            self._loop._restart_listening(sock)
        self._update_accepting()

    def _listening(self) -> Any:
        """Return the listening sockets; () once the server is closed."""
        return tuple(getattr(self, "_sockets", None) or ())

    def _is_full(self) -> bool:
        """Return false: a server without `max_connections` is never full."""
        return False

    def _may_accept(self) -> bool:
        """Return true if the program has not paused accepting and the limit is not reached."""
        return not self._pause_requested and not self._is_full()

    def _update_accepting(self) -> None:
        """Pause or resume all listening sockets, as _may_accept() says."""
        wanted = self._may_accept()
        for sock in self._listening():
            if wanted:
                self._loop._resume_listening(sock)
            else:
                self._loop._pause_listening(sock)


class _Limited(Server):
    """A Server with `max_connections`; a class of its own, so that others do not count."""

    _clients: Any
    _active_count: int

    def _is_full(self) -> bool:
        """Return true if the number of connections has reached the limit."""
        count = len(self._clients) if sys.version_info >= (3, 13) else self._active_count
        return self._limit is not None and count >= self._limit

    def _attach(self, *transport: Any) -> None:
        """Count a new connection, as asyncio's Server does; pause accepting at the limit."""
        inherited: Any = super()
        inherited._attach(*transport)
        if not self._is_full():
            return
        sockets = self._listening()
        if len(sockets) == 1 and _shared_socket(sockets[0]) is None:
            self._update_accepting()  # the listener accepts one per iteration, so none is pending
        else:
            # Later: other sockets may have accepted in this iteration, and stopping closes those.
            self._loop.call_soon(self._update_accepting)

    def _detach(self, *transport: Any) -> None:
        """Count the end of a connection; resume accepting if the limit was reached before."""
        was_full = self._is_full()
        inherited: Any = super()
        inherited._detach(*transport)
        if was_full and not self._loop.is_closed():
            self._update_accepting()


for _class in (Server, _Limited):
    _class.__name__ = _class.__qualname__ = "Server"


async def _create_limited(creating: Awaitable[Any], limit: int | None, start_serving: bool) -> Any:
    """Await the new server, set its limit, start serving if requested, and return the server.

    `creating` creates it without serving, so the limit holds for the first connection. On an error
    the server is closed.
    """
    server = await creating
    try:
        server.__class__ = Server
        if limit is not None:
            server.max_connections = limit
        if start_serving:
            await server.start_serving()
    except BaseException:
        server.close()
        raise
    return server


def _with_limit(create: Any) -> Any:
    """Return a wrapper of asyncio's `create_server` or `create_unix_server`.

    The wrapper also accepts `max_connections`.
    """

    # Not a coroutine function: wrong arguments raise TypeError at the call, as with asyncio's.
    @functools.wraps(create)
    def create_with_limit(
        self: Any,
        *args: Any,
        max_connections: int | None = None,
        start_serving: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Return the coroutine that creates the server; it checks `max_connections`."""
        if max_connections is None and start_serving:
            return create(self, *args, **kwargs)
        creating = create(self, *args, start_serving=False, **kwargs)
        return _create_limited(creating, max_connections, start_serving)

    shown: Any = create_with_limit
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(shown)
    else:
        shown._is_coroutine = vars(asyncio.coroutines)["_is_coroutine"]
    signature = inspect.signature(create)
    last = inspect.Parameter("max_connections", inspect.Parameter.KEYWORD_ONLY, default=None)
    # Programs may read the docstring; for Unix only asyncio's abstract class has one.
    shown.__doc__ = create.__doc__ or getattr(asyncio.AbstractEventLoop, create.__name__).__doc__
    shown.__signature__ = signature.replace(parameters=[*signature.parameters.values(), last])
    return create_with_limit


class Streams(CoreLoop):
    """Creates transports of connected sockets, and listens."""

    if not TYPE_CHECKING:
        create_server = _with_limit(asyncio.base_events.BaseEventLoop.create_server)

    # asyncio's own methods, for listening sockets with replaced methods.
    _accept_connection = _SelectorEventLoop._accept_connection
    _accept_connection2 = _SelectorEventLoop._accept_connection2

    # Active listeners by their listening socket.
    _listeners: dict[socket.socket, Listener]
    # Functions that start listening, by socket; and the sockets of servers that are paused.
    _serving: dict[socket.socket, Callable[[], None]]
    _paused: set[socket.socket]

    def _init_streams(self) -> None:
        """Create the loop's tables of listeners, listening sockets and paused sockets."""
        self._listeners = {}
        self._serving = {}
        self._paused = set()

    def _make_socket_transport(
        self,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[Any] | None = None,
        *,
        extra: dict[str, Any] | None = None,
        server: Any = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Transport:
        """Create and return the transport of a connected socket: asyncio's hook."""
        made: asyncio.Transport = self._make_stream(sock, protocol, waiter, extra, server, context)
        return made

    def _make_stream(
        self,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[Any] | None,
        extra: dict[str, Any] | None,
        server: Any,
        context: contextvars.Context | None,
    ) -> Any:
        """Create and return the transport of a connected socket.

        It is the native one; but a DescriptorTransport if the protocol of a Unix socket receives
        descriptors, or an OtherStreamTransport if the program has replaced methods of the socket.
        These two, which are subclasses of asyncio's, ignore `context` before Python 3.15. Raises
        RuntimeError if another transport has the fd.
        """
        passes_fds = _passes_fds(sock, protocol)
        if not passes_fds and _STREAM_METHODS.isdisjoint(_core.replaced_methods(sock)):
            return StreamTransport(self, sock, protocol, waiter, extra, server, context)
        self._ensure_fd_no_transport(sock)
        _set_nodelay(sock)
        named: dict[str, Any] = {"extra": extra, "server": server}
        if sys.version_info >= (3, 15):
            named["context"] = context
        transport: Any
        if passes_fds:
            transport = selector_transports.DescriptorTransport
        else:
            transport = selector_transports.OtherStreamTransport
        return transport(self, sock, protocol, waiter, **named)

    def _make_ssl_transport(
        self,
        rawsock: socket.socket,
        protocol: asyncio.BaseProtocol,
        sslcontext: ssl.SSLContext | None,
        waiter: asyncio.Future[Any] | None = None,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        extra: dict[str, Any] | None = None,
        server: Any = None,
        ssl_handshake_timeout: float | None = _HANDSHAKE_TIMEOUT,
        ssl_shutdown_timeout: float | None = _SHUTDOWN_TIMEOUT,
        context: contextvars.Context | None = None,
    ) -> asyncio.Transport:
        """Create the transport of a TLS connection over a socket; asyncio calls this hook.

        Returns the application's transport; TLSProtocol and the stream below it are created, too.
        """
        self._ensure_fd_no_transport(rawsock)
        tls: Any = TLSProtocol(
            self,
            protocol,
            sslcontext,
            waiter,
            server_side,
            server_hostname,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
        )
        self._make_stream(rawsock, tls, None, extra, server, context)
        transport: asyncio.Transport = tls._app_transport
        return transport

    def _start_serving(
        self,
        protocol_factory: ProtocolFactory,
        sock: socket.socket,
        sslcontext: ssl.SSLContext | None = None,
        server: Any = None,
        backlog: int = 100,
        ssl_handshake_timeout: float | None = _HANDSHAKE_TIMEOUT,
        ssl_shutdown_timeout: float | None = _SHUTDOWN_TIMEOUT,
        context: contextvars.Context | None = None,
    ) -> None:
        """Accept connections on `sock`; asyncio's hook for a server that starts to serve.

        Each connection gets a copy of `context`; None, as before Python 3.15, means the current
        context. asyncio's server object becomes a goloop Server. If it is paused or full, the
        socket is only marked as paused, and _resume_listening() calls this method again. A socket
        with replaced methods is served by asyncio's own method instead of a native Listener.
        """
        if context is None:
            context = contextvars.copy_context()
        if type(server) is asyncio.Server:
            server.__class__ = Server
        self._serving[sock] = functools.partial(
            self._start_serving, protocol_factory, sock, sslcontext, server, backlog,
            ssl_handshake_timeout, ssl_shutdown_timeout, context,
        )  # fmt: skip
        if isinstance(server, Server) and not server._may_accept():
            # New connections wait in the kernel's queue until the server accepts again.
            self._mark_paused(sock)
            return
        if not _LISTENER_METHODS.isdisjoint(_core.replaced_methods(sock)):
            options: dict[str, Any] = {"context": context} if sys.version_info >= (3, 15) else {}
            if getattr(server, "_limit", None) is not None:
                backlog = 1
            _SelectorEventLoop._start_serving(
                self, protocol_factory, sock, sslcontext, server, backlog,
                ssl_handshake_timeout, ssl_shutdown_timeout, **options,
            )  # fmt: skip
            return
        if getattr(server, "_limit", None) is not None:
            backlog = 0  # accepts once per iteration, so that the limit is never exceeded
        clients = getattr(server, "_clients", None)
        if type(clients) is weakref.WeakSet and not clients:
            server._clients = ServerClients(self, server, clients)
        factory = protocol_factory
        if sslcontext is not None:
            factory = self._tls_factory(
                protocol_factory, sslcontext, ssl_handshake_timeout, ssl_shutdown_timeout
            )
        deliver: Callable[[socket.socket, Any], object] | None = None
        shared = _shared_socket(sock)
        if shared is not None:
            deliver = shared.register_loop(
                self, server, context, functools.partial(self._accept_shared, factory, server)
            )
        self._listeners[sock] = Listener(self, sock, factory, server, backlog, context, deliver)
        if shared is not None:
            shared.start_assigning()

    def _accept_shared(
        self,
        factory: ProtocolFactory,
        server: Any,
        connection: socket.socket,
        address: Any,
    ) -> None:
        """Create the protocol and the transport of a connection that is passed as a socket.

        It came from a shared listener, where any loop may have accepted it, or from a Listener
        while methods of socket.socket are replaced. On an error the connection is closed and the
        error reported, as in Listener._accepted().
        """
        protocol: asyncio.BaseProtocol | None = None
        created = False
        try:
            if self._debug:
                logger.debug("%r got a new connection from %r: %r", server, address, connection)
            protocol = factory()
            context = contextvars.copy_context()
            extra = {"peername": address}
            self._make_stream(connection, protocol, None, extra, server, context)
            created = True
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            self._report_accept_error(exc, protocol)
        finally:
            if not created:
                connection.close()

    def _report_accept_error(
        self, exc: BaseException, protocol: asyncio.BaseProtocol | None
    ) -> None:
        """Report a failed accepted connection to the exception handler; in debug mode only."""
        if not self._debug:  # asyncio reports it in debug mode only
            return
        report: dict[str, Any] = {
            "message": "Error on transport creation for incoming connection",
            "exception": exc,
        }
        if protocol is not None:
            report["protocol"] = protocol
        self.call_exception_handler(report)

    def _tls_factory(
        self,
        protocol_factory: ProtocolFactory,
        sslcontext: ssl.SSLContext,
        ssl_handshake_timeout: float | None,
        ssl_shutdown_timeout: float | None,
    ) -> Callable[[], TLSProtocol]:
        """Return a factory of TLS protocols, each with an application protocol above it."""

        def make() -> TLSProtocol:
            """Return the TLS protocol of one accepted connection."""
            protocol = protocol_factory()
            waiter = self.create_future()
            tls: Any = TLSProtocol(
                self,
                protocol,
                sslcontext,
                waiter,
                True,
                ssl_handshake_timeout=ssl_handshake_timeout,
                ssl_shutdown_timeout=ssl_shutdown_timeout,
            )
            tls.await_handshake = functools.partial(self._await_handshake, protocol, waiter)
            made: TLSProtocol = tls
            return made

        return make

    async def start_tls(
        self,
        transport: Any,
        protocol: asyncio.BaseProtocol,
        sslcontext: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
    ) -> Any:
        """Put TLS between a transport and its protocol; return the new transport.

        Timeouts are in seconds; None is asyncio's default. Raises TypeError for a context or a
        transport of the wrong type. If the handshake fails, the transport is closed and the
        error, such as ssl.SSLError, is raised.
        """
        if not isinstance(sslcontext, ssl.SSLContext):
            raise TypeError(
                f"sslcontext is expected to be an instance of ssl.SSLContext, got {sslcontext!r}"
            )
        if not getattr(transport, "_start_tls_compatible", False):
            raise TypeError(f"transport {transport!r} is not supported by start_tls()")
        waiter = self.create_future()
        tls: Any = tls_module.TLSProtocol(
            self,
            protocol,
            sslcontext,
            waiter,
            server_side,
            server_hostname,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
            call_connection_made=False,
        )
        if server_side and isinstance(protocol, asyncio.StreamReaderProtocol):
            tls_module.move_unread_bytes(protocol, tls)
        if getattr(transport, "_protocol_paused", False) and transport.get_protocol() is protocol:
            # The transport's resume_writing() will be a call of the TLS protocol's, which passes it
            # on. In asyncio the protocol stays paused for good.
            tls._app_writing_paused = True
        # Bytes that arrive from now on stay unread until the engine has the transport.
        transport.pause_reading()
        transport.set_protocol(tls)
        made = self.call_soon(tls.connection_made, transport)
        resumed = self.call_soon(transport.resume_reading)
        try:
            await waiter
        except BaseException:
            transport.close()
            made.cancel()
            resumed.cancel()
            raise
        finally:
            # The future's exception would keep itself alive through its traceback.
            del waiter
        return tls._app_transport

    def _discard_handshake_tasks(self) -> None:
        """Discard the handshake tasks of connections that came just before the loop is closed.

        A task that the program has not cancelled becomes garbage. It is discarded without the
        warning of a pending task, because the program did not create it. Does nothing if
        asyncio.all_tasks() raises.
        """
        try:
            tasks = asyncio.all_tasks(self)
        except Exception:
            return  # all_tasks() compares every task, and one of another loop may be broken
        for task in tasks:
            waiting: Any = task
            coroutine = waiting.get_coro() if isinstance(task, asyncio.Task) else None
            if getattr(coroutine, "cr_code", None) is Streams._await_handshake.__code__:
                waiting._log_destroy_pending = False
                if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                    coroutine.close()

    async def _await_handshake(
        self, protocol: asyncio.BaseProtocol, waiter: asyncio.Future[None], transport: Any
    ) -> None:
        """Wait until an accepted connection's handshake ends; the body of a task.

        If the handshake fails or the task is cancelled, the transport is closed, and in debug mode
        the exception is passed to the exception handler. Only SystemExit and KeyboardInterrupt are
        raised.
        """
        try:
            try:
                await waiter
            except BaseException:
                transport.close()
                raise
            finally:
                # The future's exception would keep the protocol alive through its traceback.
                del waiter
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            # asyncio reports the failure in debug mode only.
            if self._debug:
                self.call_exception_handler(
                    {
                        "message": "Error on transport creation for incoming connection",
                        "exception": exc,
                        "protocol": protocol,
                        "transport": transport,
                    }
                )

    def _stop_serving(self, sock: socket.socket) -> None:
        """Close a socket of a server that ends, even if it never listened."""
        self._serving.pop(sock, None)
        self._clear_paused(sock)
        self._stop_listening(sock)
        sock.close()

    def _stop_listening(self, sock: socket.socket) -> None:
        """Stop accepting on a socket and deregister it from the loop; the socket stays open."""
        listener = self._listeners.pop(sock, None)
        if listener is not None:
            listener.stop()
            shared = _shared_socket(sock)
            if shared is not None:
                shared.deregister_loop()
        else:
            self._remove_reader(sock.fileno())

    def _pause_listening(self, sock: socket.socket) -> None:
        """Stop accepting on a socket until _resume_listening(), if it is served and not paused."""
        if sock in self._serving and sock not in self._paused:
            self._mark_paused(sock)
            self._stop_listening(sock)

    def _mark_paused(self, sock: socket.socket) -> None:
        """Record that a socket is paused, and count the pause in the metrics."""
        self._paused.add(sock)
        self._count("listeners_paused")
        self._count("accept_pauses")

    def _resume_listening(self, sock: socket.socket) -> None:
        """Accept again on a socket, if it is paused."""
        if self._clear_paused(sock):
            self._serving[sock]()

    def _clear_paused(self, sock: socket.socket) -> bool:
        """Record that a socket is no longer paused; return true if it was paused."""
        was_paused = sock in self._paused
        if was_paused:
            self._paused.remove(sock)
            self._count("listeners_paused", -1)
        return was_paused

    def _restart_listening(self, sock: socket.socket) -> None:
        """Stop and start accepting on a socket, so that a changed limit takes effect."""
        if sock in self._serving and sock not in self._paused:
            self._stop_listening(sock)
            self._serving[sock]()

    def _discard_listeners(self) -> None:
        """Discard the listeners of a closing loop; they end with the reactor."""
        for sock in self._listeners:
            shared = _shared_socket(sock)
            if shared is not None:
                shared.deregister_loop()
        self._listeners.clear()
        self._serving.clear()
        for sock in tuple(self._paused):
            self._clear_paused(sock)


# ---- Unix-domain streams -------------------------------------------------------------------------
#
# create_unix_connection and create_unix_server are those of the running Python version. They call
# only the loop's public methods and `_create_connection_transport`, so they run on any loop; the
# same is true of a server's end. This class provides only the attributes that they store in a loop.

_unix_events: Any = asyncio.unix_events
_Unix: Any = _unix_events._UnixSelectorEventLoop


class UnixSockets(Streams):
    """Unix-domain connections and servers."""

    # The inode of the path that a server has bound and removes when it closes, from 3.13 on.
    _unix_server_sockets: dict[socket.socket, int]

    def _init_unix_sockets(self) -> None:
        """Create asyncio's table of Unix listening sockets, whose paths are removed at the end."""
        self._unix_server_sockets = {}

    if not TYPE_CHECKING:
        create_unix_connection = _Unix.create_unix_connection
        create_unix_server = _with_limit(_Unix.create_unix_server)


def _rebind_super(cls: type, function: Any) -> Any:
    """Return a copy of a method in which super() without arguments refers to `cls`."""
    code = function.__code__
    closure = tuple(
        types.CellType(cls) if name == "__class__" else cell
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True)
    )
    return types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, closure
    )


# From 3.13 on _stop_serving also removes the server's path. Tools that detect blocking calls
# (blockbuster) allow asyncio's function, by its file and name, to read the inode.
if "_stop_serving" in vars(_Unix):
    UnixSockets._stop_serving = _rebind_super(  # type: ignore[method-assign]
        UnixSockets, vars(_Unix)["_stop_serving"]
    )


class OtherTransports(CoreLoop):
    """Creates the transports of datagrams and pipes, whose modules are imported at the first one.

    The methods are asyncio's hooks.
    """

    # Asyncio's own datagram transports by fd; they register themselves here.
    _transports: weakref.WeakValueDictionary[int, Any]

    def _init_datagrams(self) -> None:
        """Create the loop's table of open datagram transports."""
        self._transports = weakref.WeakValueDictionary()

    def _make_datagram_transport(
        self,
        sock: socket.socket,
        protocol: asyncio.DatagramProtocol,
        address: Any = None,
        waiter: asyncio.Future[Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> asyncio.DatagramTransport:
        """Create and return a datagram transport, for create_datagram_endpoint()."""
        return datagrams.make_transport(self, sock, protocol, address, waiter, extra)

    def _make_read_pipe_transport(
        self,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> asyncio.ReadTransport:
        """Create and return the transport of connect_read_pipe()."""
        return pipes.make_reader(self, pipe, protocol, waiter, extra)

    def _make_write_pipe_transport(
        self,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> asyncio.WriteTransport:
        """Create and return the transport of connect_write_pipe()."""
        return pipes.make_writer(self, pipe, protocol, waiter, extra)
