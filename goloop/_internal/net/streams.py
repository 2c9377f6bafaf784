"""Stream connections: where BaseEventLoop asks its subclass for transports and servers.

create_connection, create_server, connect_accepted_socket and start_tls are inherited;
they come here for a transport over a connected socket (`_make_socket_transport`), for
the same under TLS (`_make_ssl_transport`), and to start and stop accepting.
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
from . import transport_info  # for C too, which imports nothing amid a call
from .tls import TLSProtocol

# What not every program needs is imported where it is used: selector_transports.py.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..process.shared_sockets import SharedSocket

ProtocolFactory = Callable[[], asyncio.BaseProtocol]

_HANDSHAKE_TIMEOUT: float = constants.SSL_HANDSHAKE_TIMEOUT
_SHUTDOWN_TIMEOUT: float = constants.SSL_SHUTDOWN_TIMEOUT


# What is behind the property of the same name here.
_extra_slot: Any = vars(_core.StreamTransport)["_extra"]
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_TCP = (socket.IPPROTO_TCP, 0)
# What asyncio calls of a socket, and native code stands in for: in a stream, and in listening.
_STREAM = frozenset({"fileno", "recv", "recv_into", "send", "sendmsg", "shutdown"})
_LISTENER = frozenset({"fileno", "accept"})
_SIMULATED = 1 << 24  # the first descriptor of simulated kernels: goloop/testing/simulated
_SelectorEventLoop: Any = asyncio.selector_events.BaseSelectorEventLoop
# In a turn asyncio tries one accept more than `backlog` since 3.14, and in late releases of 3.13.
_accept_code = _SelectorEventLoop._accept_connection.__code__
_ONE_MORE = sys.version_info >= (3, 14) or 1 in _accept_code.co_consts
_MADE_WHEN_ASKED = frozenset({"socket", "sockname", "peername"})
_NO_METHOD = (
    "descriptors need a protocol whose class has fds_received() when the connection is made: "
    "if it sends only, one that closes what comes"
)


def _is_tcp(sock: socket.socket) -> bool:
    """Whether it gets TCP_NODELAY; asyncio leaves Nagle on where `sock.proto` is 0."""
    return sock.family in _INTERNET and sock.type == socket.SOCK_STREAM and sock.proto in _TCP


def _carries_fds(sock: socket.socket, protocol: object) -> bool:
    """Whether descriptors come and go with the bytes of a connection."""
    unix = sock.family == socket.AF_UNIX and sock.fileno() < _SIMULATED
    return unix and transport_info.takes_fds(protocol)


def _set_nodelay(sock: socket.socket) -> None:
    if _is_tcp(sock):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _as_shared(sock: socket.socket) -> SharedSocket | None:
    """The socket, if it is one of a shared listener's: none is where nothing has made one."""
    module: Any = sys.modules.get("goloop._internal.process.shared_sockets")
    shared: Any = sock
    return shared if isinstance(sock, getattr(module, "SharedSocket", ())) else None


def _socket_of(number: int) -> socket.socket:
    if number < _SIMULATED:
        return socket.socket(fileno=number)
    from ...testing.simulated import sockets

    return sockets.Socket(fileno=number)


def _socket_taken(number: int) -> socket.socket:
    """A non-blocking socket that owns a descriptor, which is closed where none can be made."""
    sock = None
    try:
        sock = _socket_of(number)
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

    An accepted connection has no Python socket, and none of its names as Python objects,
    until somebody asks. Then the socket object is made, once, and owns the descriptor
    from there on.
    """

    # What loop.start_tls and loop.sendfile ask a transport for.
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
        exposed: bool = False,
    ) -> None:
        loop._ensure_fd_no_transport(sock)
        entries = transport_info.with_names(extra, transport_info.TransportSocket(sock, self), sock)
        _set_nodelay(sock)
        super().__init__(loop, sock, protocol, waiter, entries, server, context, exposed)

    _fatal_error = transport_info.fatal_error

    def _read_ready_cb(self) -> None:
        """asyncio's callback for a readable socket: reading is native, so there is nothing to do.

        CPython's own tests of TLS ask whether there is one.
        """

    def __repr__(self) -> str:
        return transport_info.described(self, self._queued > 0, self._queued)

    # ---- descriptors go by another transport: selector_transports.py

    def send_fds(self, data: object, fds: object) -> None:
        """Refuse, with a TypeError: this connection carries no descriptors."""
        if hasattr(self._protocol, "_app_transport"):
            raise TypeError(transport_info.NO_TLS)
        if not self._is_unix():
            raise TypeError("only Unix streams carry descriptors: use create_unix_connection()")
        raise TypeError(_NO_METHOD)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set a new protocol."""
        if transport_info.takes_fds(protocol) and self._is_unix():
            raise TypeError(_NO_METHOD)
        super().set_protocol(protocol)

    def _is_unix(self) -> bool:
        named = isinstance(self.get_extra_info("sockname"), (str, bytes))
        return named and self._sock_fd < _SIMULATED

    # ---- extra info

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Get optional transport information: 'peername', 'sockname', 'socket'."""
        extra = _extra_slot.__get__(self)
        if self._lazy and name in _MADE_WHEN_ASKED and name not in extra:
            extra[name] = self._entry(name)
        if name == "socket":
            self._flush()
        return extra.get(name, default)

    @property
    def _extra(self) -> Any:
        if self._lazy:
            for name in ("socket", "sockname", "peername"):
                self.get_extra_info(name)
            self._lazy = False
        return _extra_slot.__get__(self)

    @_extra.setter
    def _extra(self, extra: Any) -> None:
        self._lazy = False
        _extra_slot.__set__(self, extra)

    def _entry(self, name: str) -> Any:
        if name == "socket":
            return transport_info.TransportSocket(self._unexposed(), self)
        found = self._raw_name(name == "peername")
        if found is None and (sock := self._socket()) is not None:
            # A family that only Python's socket module knows.
            found = transport_info.asked(
                sock.getpeername if name == "peername" else sock.getsockname
            )
        return found

    def _socket(self) -> socket.socket | None:
        """The socket object, made if need be; None where the transport was closed before."""
        number = self._number
        if self._owner is None and number >= 0:
            sock = _socket_of(number)
            adopted = False
            try:
                sock.setblocking(False)
                adopted = self._adopt(sock)
            finally:
                if not adopted:  # another thread was faster, or closed the transport
                    sock.detach()
        owner: socket.socket | None = self._owner
        return owner

    def _unexposed(self) -> socket.socket:
        """The socket, for a caller that neither sends on it nor gives it away."""
        return self._socket() or self._closed_socket()

    def _closed_socket(self) -> socket.socket:
        """One of the right family, where a lost connection is asked for its socket."""
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
        # Whoever has the socket itself may send on it, or shut it down, as soon as write()
        # has returned.
        sock = self._socket()
        self._exposed = True
        self._flush()
        return sock

    # ---- sendfile: nothing is in the queue any more

    def _make_empty_waiter(self) -> asyncio.Future[None]:
        """Return a future that is done when all written bytes are in the kernel.

        Writing is refused until _reset_empty_waiter().
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
        self._empty_waiter = None


arg_errors.named_as(StreamTransport)


class Listener(_core.Listener):
    """Makes a protocol and a transport of each connection that a listening socket accepts.

    Where several loops share the socket `give` is called instead, with a socket object and its
    peer's name, and so is the loop's `_accept_shared` where a program has replaced methods of
    socket.socket.
    """

    def __init__(
        self,
        loop: CoreLoop,
        sock: socket.socket,
        factory: ProtocolFactory,
        server: Any,
        backlog: int,
        context: contextvars.Context,
        give: Callable[[socket.socket, Any], object] | None = None,
    ) -> None:
        self._loop: Any = loop
        self._sock = sock
        self._factory = factory
        self._server = server
        # Accepted in this iteration: no protocol has heard of them yet.
        self._fresh: list[Any] = []
        self._give = give
        most = min(max(backlog + _ONE_MORE, 1), 2**31 - 1)
        self._unix = sock.family == socket.AF_UNIX
        super().__init__(loop, sock, context, most, give is None and _is_tcp(sock))

    # ---- called by C, once for each connection

    def _accepted(self, context: contextvars.Context, error: int, replaced: bool) -> None:
        """In the context, a copy for this connection alone.  `error`: of TCP_NODELAY, or 0."""
        protocol: asyncio.BaseProtocol | None = None
        loop = self._loop
        try:
            if replaced or self._give is not None:
                self._accepted_socket()
                return
            if loop._debug:
                self._log()
            # As in asyncio the protocol is made first, whatever is wrong with the connection.
            protocol = self._factory()
            if error:
                raise OSError(error, os.strerror(error))
            if self._unix and transport_info.takes_fds(protocol):
                self._take_with_fds(protocol, context)
            else:
                if not self._fresh:
                    loop.call_soon(self._fresh.clear)  # ahead of all that connection_made() does
                self._fresh.append(self._take(StreamTransport, protocol, self._server, context))
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            loop._not_accepted(exc, protocol)

    def leave_server(self) -> None:
        """The server closes before connection_made() of connections that were accepted.

        asyncio would not have accepted them yet: they are served, but the server does not wait
        for their end.
        """
        for transport in self._fresh:
            if transport._server is not None:
                self._server._detach(*((transport,) if sys.version_info >= (3, 13) else ()))
                transport._server = None

    def _accepted_socket(self) -> None:
        peer = self._peer
        sock = _socket_taken(self._detach())
        if peer is None:
            peer = transport_info.asked(sock.getpeername)
        if self._give is not None:
            self._give(sock, peer)
        else:
            self._loop._accept_shared(self._factory, self._server, sock, peer)

    def _take_with_fds(self, protocol: asyncio.BaseProtocol, context: contextvars.Context) -> None:
        sock = _socket_taken(self._detach())
        taken = False
        try:
            extra = {"peername": transport_info.asked(sock.getpeername)}
            self._loop._make_stream(sock, protocol, None, extra, self._server, context, False)
            taken = True
        finally:
            if not taken:
                sock.close()

    def _log(self) -> None:
        sock = _socket_of(self._number)
        try:
            peer = self._peer or transport_info.asked(sock.getpeername)
            logger.debug("%r got a new connection from %r: %r", self._server, peer, sock)
        finally:
            sock.detach()

    def _failed(self, error: int, goes_on: bool) -> None:
        report: dict[str, Any] = {"exception": OSError(error, os.strerror(error))}
        if goes_on:
            report["message"] = "socket.accept() out of system resource"
            report["socket"] = trsock.TransportSocket(self._sock)
        else:
            report["message"] = "Exception in callback of a listener: accept failed"
        self._loop.call_exception_handler(report)

    def __repr__(self) -> str:
        return f"<Listener {'on' if self._open else 'stopped, of'} {self._sock!r}>"


class Clients:
    """The connections of a server since Python 3.13, in the place of its WeakSet.

    A weak reference and its entry there cost more than 130 bytes for each connection.  The loop
    knows its transports, and these know their server.  What is no stream of this loop is kept by
    the WeakSet.
    """

    def __init__(self, loop: CoreLoop, server: Any, others: weakref.WeakSet[Any]) -> None:
        self._loop: Any = loop
        self._server = weakref.ref(server)
        self._others = others
        self._count = 0

    def add(self, transport: Any) -> None:
        if not isinstance(transport, _core.StreamTransport) or transport._loop is not self._loop:
            self._others.add(transport)
        elif not transport._counted:
            transport._counted = True
            self._count += 1

    def discard(self, transport: Any) -> None:
        # The server is told behind the end, and the transport has no loop any more.
        if isinstance(transport, _core.StreamTransport) and transport._counted:
            transport._counted = False
            self._count -= 1
        else:
            self._others.discard(transport)

    def _has(self, transport: Any) -> bool:
        ours = isinstance(transport, _core.StreamTransport) and transport._counted
        return ours and transport._server is self._server()

    def copy(self) -> Any:
        """A set of them, in an order that does not depend on addresses."""
        found = dict.fromkeys(each for each in self._loop._all_transports() if self._has(each))
        found.update(dict.fromkeys(self._others))
        return found.keys()

    def __contains__(self, transport: object) -> bool:
        return self._has(transport) or transport in self._others

    def __iter__(self) -> Iterator[Any]:
        return iter(self.copy())

    def __len__(self) -> int:
        return self._count + len(self._others)


class Server(asyncio.Server):
    """asyncio's Server, which can stop accepting for a while, and limit its connections.

    What `create_server()`, `create_unix_server()` and asyncio's `start_server()` return, also
    before it serves.  Where it does not accept, connections wait in the kernel's queue, whose
    length is `backlog`, and open ones go on.  All of it belongs to the loop's thread, and to
    callbacks and tasks: not to what makes a protocol, amid accepting.  Since 0.3.0.
    """

    _loop: Any
    _pause_asked = False
    _limit: int | None = None

    def close(self) -> None:
        """Accept no more, as asyncio's; open connections go on."""
        for sock in self._listening():
            if sock in self._loop._listeners:
                self._loop._listeners[sock].leave_server()
        super().close()

    def pause_accepting(self) -> None:
        """Accept no connection until `resume_accepting()`; nobody is refused meanwhile."""
        self._pause_asked = True
        self._accept_or_not()

    def resume_accepting(self) -> None:
        """Accept again, first what has waited; it changes nothing for a closed server."""
        self._pause_asked = False
        self._accept_or_not()

    def is_accepting(self) -> bool:
        """Whether connections are accepted: not while paused, full, or not serving."""
        return self.is_serving() and self._may_accept()

    @property
    def max_connections(self) -> int | None:
        """The most connections at a time, or None for no limit, which is the default.

        A server with several listening sockets, or a shared one, may accept a few more.
        """
        return self._limit

    @max_connections.setter
    def max_connections(self, limit: int | None) -> None:
        if limit is not None:
            limit = operator.index(limit)
            if limit < 1:
                raise ValueError(f"max_connections must be positive, or None: {limit}")
        self._limit = limit
        self.__class__ = Server if limit is None else _Limited
        # How many are accepted in an iteration is chosen when listening begins.
        for sock in self._listening():
            self._loop._listen_anew(sock)
        self._accept_or_not()

    def _listening(self) -> Any:
        return tuple(getattr(self, "_sockets", None) or ())

    def _is_full(self) -> bool:
        return False

    def _may_accept(self) -> bool:
        return not self._pause_asked and not self._is_full()

    def _accept_or_not(self) -> None:
        wanted = self._may_accept()
        for sock in self._listening():
            if wanted:
                self._loop._resume_listening(sock)
            else:
                self._loop._pause_listening(sock)


class _Limited(Server):
    """One with `max_connections`: others don't pay for the counting."""

    _clients: Any
    _active_count: int

    def _is_full(self) -> bool:
        count = len(self._clients) if sys.version_info >= (3, 13) else self._active_count
        return self._limit is not None and count >= self._limit

    def _attach(self, *transport: Any) -> None:
        inherited: Any = super()
        inherited._attach(*transport)
        if not self._is_full():
            return
        sockets = self._listening()
        if len(sockets) == 1 and _as_shared(sockets[0]) is None:
            self._accept_or_not()  # it has accepted this one, and no other yet
        else:
            # Not at once: others may have accepted in this iteration, and would be closed.
            self._loop.call_soon(self._accept_or_not)

    def _detach(self, *transport: Any) -> None:
        was_full = self._is_full()
        inherited: Any = super()
        inherited._detach(*transport)
        if was_full and not self._loop.is_closed():
            self._accept_or_not()


for _class in (Server, _Limited):
    _class.__name__ = _class.__qualname__ = "Server"


async def _create_limited(creating: Awaitable[Any], limit: int | None, start_serving: bool) -> Any:
    """The server that is being created, whose limit is there before its first connection."""
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
    """asyncio's `create_server` or `create_unix_server`, with `max_connections`."""

    # No coroutine function of its own: a wrong call raises at once, as of asyncio's.
    @functools.wraps(create)
    def with_limit(
        self: Any,
        *args: Any,
        max_connections: int | None = None,
        start_serving: bool = True,
        **kwargs: Any,
    ) -> Any:
        if max_connections is None and start_serving:
            return create(self, *args, **kwargs)
        creating = create(self, *args, start_serving=False, **kwargs)
        return _create_limited(creating, max_connections, start_serving)

    shown: Any = with_limit
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(shown)
    else:
        shown._is_coroutine = vars(asyncio.coroutines)["_is_coroutine"]
    asked = inspect.signature(create)
    last = inspect.Parameter("max_connections", inspect.Parameter.KEYWORD_ONLY, default=None)
    # A program may look for one; of Unix's asyncio has it in the abstract class alone.
    shown.__doc__ = create.__doc__ or getattr(asyncio.AbstractEventLoop, create.__name__).__doc__
    shown.__signature__ = asked.replace(parameters=[*asked.parameters.values(), last])
    return with_limit


class Streams(CoreLoop):
    """Transports of connected sockets, and listening."""

    if not TYPE_CHECKING:
        create_server = _with_limit(asyncio.base_events.BaseEventLoop.create_server)

    # asyncio's own, for listening sockets whose methods are not the original ones.
    _accept_connection = _SelectorEventLoop._accept_connection
    _accept_connection2 = _SelectorEventLoop._accept_connection2

    # By listening socket.
    _listeners: dict[socket.socket, Listener]
    # How to listen again, by the listening sockets of servers; those that are paused.
    _serving: dict[socket.socket, Callable[[], None]]
    _paused: set[socket.socket]
    # Sockets that create_connection has made and nobody else has.
    _own_sockets: weakref.WeakSet[socket.socket]

    def _init_streams(self) -> None:
        self._listeners = {}
        self._serving = {}
        self._paused = set()
        self._own_sockets = weakref.WeakSet()

    async def _connect_sock(self, *args: Any, **kwargs: Any) -> socket.socket:
        inherited: Any = super()
        connecting = inherited._connect_sock(*args, **kwargs)
        # As there: the frame of a traceback must not hold the exceptions that are among these.
        del inherited, args, kwargs
        try:
            sock: socket.socket = await connecting
        finally:
            del connecting
        self._own_sockets.add(sock)
        return sock

    def _is_exposed(self, sock: socket.socket) -> bool:
        """Whether others have the socket, and may use it behind the transport's back."""
        exposed = sock not in self._own_sockets
        if not exposed:
            self._own_sockets.remove(sock)
        return exposed

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
        exposed = self._is_exposed(sock)
        made: asyncio.Transport = self._make_stream(
            sock, protocol, waiter, extra, server, context, exposed
        )
        return made

    def _make_stream(
        self,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[Any] | None,
        extra: dict[str, Any] | None,
        server: Any,
        context: contextvars.Context | None,
        exposed: bool,
    ) -> Any:
        """The native transport, or asyncio's where the socket's own methods have to be called."""
        carries_fds = _carries_fds(sock, protocol)
        if not carries_fds and _STREAM.isdisjoint(_core.replaced_methods(sock)):
            return StreamTransport(self, sock, protocol, waiter, extra, server, context, exposed)
        self._ensure_fd_no_transport(sock)
        _set_nodelay(sock)
        named: dict[str, Any] = {"extra": extra, "server": server}
        if sys.version_info >= (3, 15):
            named["context"] = context
        transport: Any
        if carries_fds:
            from .selector_transports import DescriptorTransport as transport
        else:
            from .selector_transports import OtherStreamTransport as transport
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
        exposed = server is None and self._is_exposed(rawsock)
        self._make_stream(rawsock, tls, None, extra, server, context, exposed)
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
        """Accepts on `sock`; each connection gets a copy of the context, which is the
        server's from Python 3.15 on, and before that the one in which it began to serve."""
        if context is None:
            context = contextvars.copy_context()
        if type(server) is asyncio.Server:
            server.__class__ = Server
        self._serving[sock] = functools.partial(
            self._start_serving, protocol_factory, sock, sslcontext, server, backlog,
            ssl_handshake_timeout, ssl_shutdown_timeout, context,
        )  # fmt: skip
        if isinstance(server, Server) and not server._may_accept():
            # Connections wait in the kernel's queue until the server accepts.
            self._note_paused(sock)
            return
        if not _LISTENER.isdisjoint(_core.replaced_methods(sock)):
            options: dict[str, Any] = {"context": context} if sys.version_info >= (3, 15) else {}
            if getattr(server, "_limit", None) is not None:
                backlog = 1
            _SelectorEventLoop._start_serving(
                self, protocol_factory, sock, sslcontext, server, backlog,
                ssl_handshake_timeout, ssl_shutdown_timeout, **options,
            )  # fmt: skip
            return
        if getattr(server, "_limit", None) is not None:
            backlog = 0  # one in an iteration: none is accepted beyond the limit
        clients = getattr(server, "_clients", None)
        if type(clients) is weakref.WeakSet and not clients:
            server._clients = Clients(self, server, clients)
        factory = protocol_factory
        if sslcontext is not None:
            factory = self._tls_factory(
                protocol_factory, sslcontext, ssl_handshake_timeout, ssl_shutdown_timeout
            )
        give: Callable[[socket.socket, Any], object] | None = None
        shared = _as_shared(sock)
        if shared is not None:
            give = shared.join(
                self, server, context, functools.partial(self._accept_shared, factory, server)
            )
        self._listeners[sock] = Listener(self, sock, factory, server, backlog, context, give)
        if shared is not None:
            shared.joined()

    def _accept_shared(
        self,
        factory: ProtocolFactory,
        server: Any,
        connection: socket.socket,
        address: Any,
    ) -> None:
        """One connection of a shared listener, in its context; any loop may have accepted it.

        What the native listener does with others.
        """
        protocol: asyncio.BaseProtocol | None = None
        taken = False
        try:
            if self._debug:
                logger.debug("%r got a new connection from %r: %r", server, address, connection)
            protocol = factory()
            context = contextvars.copy_context()
            extra = {"peername": address}
            self._make_stream(connection, protocol, None, extra, server, context, False)
            taken = True
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            self._not_accepted(exc, protocol)
        finally:
            if not taken:
                connection.close()

    def _not_accepted(self, exc: BaseException, protocol: asyncio.BaseProtocol | None) -> None:
        if not self._debug:  # asyncio is silent about it then
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
        """What makes TLS and the application's protocol above it, for an accepted connection."""

        def make() -> TLSProtocol:
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

    def _forget_handshakes(self) -> None:
        """The loop is being closed.  A connection that came in its last moments is no mistake.

        What nobody has cancelled is garbage: without a word, as the tasks are not the program's.
        """
        try:
            tasks = asyncio.all_tasks(self)
        except Exception:
            return  # it asks every task there is, and one of another loop's may be broken
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
        """Until an accepted connection's handshake is over; in a task, which all_tasks() shows."""
        try:
            try:
                await waiter
            except BaseException:
                transport.close()
                raise
            finally:
                # Its exception would keep the protocol alive through the traceback.
                del waiter
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            # asyncio is silent about it where it is not in debug mode.
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
        """The server has done with this socket, whether it ever listened or not."""
        self._serving.pop(sock, None)
        self._clear_paused(sock)
        self._stop_listening(sock)
        sock.close()

    def _stop_listening(self, sock: socket.socket) -> None:
        listener = self._listeners.pop(sock, None)
        if listener is not None:
            listener.stop()
            shared = _as_shared(sock)
            if shared is not None:
                shared.leave()
        else:
            self._remove_reader(sock.fileno())

    def _pause_listening(self, sock: socket.socket) -> None:
        if sock in self._serving and sock not in self._paused:
            self._note_paused(sock)
            self._stop_listening(sock)

    def _note_paused(self, sock: socket.socket) -> None:
        self._paused.add(sock)
        self._count("listeners_paused")
        self._count("accept_pauses")

    def _resume_listening(self, sock: socket.socket) -> None:
        if self._clear_paused(sock):
            self._serving[sock]()

    def _clear_paused(self, sock: socket.socket) -> bool:
        was_paused = sock in self._paused
        if was_paused:
            self._paused.remove(sock)
            self._count("listeners_paused", -1)
        return was_paused

    def _listen_anew(self, sock: socket.socket) -> None:
        if sock in self._serving and sock not in self._paused:
            self._stop_listening(sock)
            self._serving[sock]()

    def _forget_listeners(self) -> None:
        """The loop is being closed: the listeners end with the reactor."""
        for sock in self._listeners:
            shared = _as_shared(sock)
            if shared is not None:
                shared.leave()
        self._listeners.clear()
        self._serving.clear()
        for sock in tuple(self._paused):
            self._clear_paused(sock)


# ---- Unix-domain streams -------------------------------------------------------------------------
#
# create_unix_connection and create_unix_server are the running version's own: they are
# written against the loop's public methods and `_create_connection_transport`, so they
# run on any loop, and so is the end of a server.  Only what they keep in the loop is provided
# here.

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
        create_unix_server = _with_limit(_Unix.create_unix_server)


def _rebind_super(cls: type, function: Any) -> Any:
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
    UnixSockets._stop_serving = _rebind_super(  # type: ignore[method-assign]
        UnixSockets, vars(_Unix)["_stop_serving"]
    )
