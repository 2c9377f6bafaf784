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
import socket
import ssl
import sys
import types
import weakref
from asyncio import constants
from asyncio.log import logger
from collections.abc import Callable

from ... import _core
from ..loop.base import CoreLoop
from ..tls import protocol as tls_module
from ..tls.protocol import TLSProtocol
from . import datagrams, pipes, selector_transports
from .server import Listener, Server, ServerClients, with_limit
from .stream_transport import (
    ProtocolFactory,
    StreamTransport,
    passes_fds,
    set_nodelay,
    shared_socket,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_HANDSHAKE_TIMEOUT: float = constants.SSL_HANDSHAKE_TIMEOUT
_SHUTDOWN_TIMEOUT: float = constants.SSL_SHUTDOWN_TIMEOUT
# The socket methods that asyncio calls and native code replaces: for streams, and for listeners.
_STREAM_METHODS = frozenset({"fileno", "recv", "recv_into", "send", "sendmsg", "shutdown"})
_LISTENER_METHODS = frozenset({"fileno", "accept"})
_SelectorEventLoop: Any = asyncio.selector_events.BaseSelectorEventLoop


class Streams(CoreLoop):
    """Creates transports of connected sockets, and listens."""

    if not TYPE_CHECKING:
        create_server = with_limit(asyncio.base_events.BaseEventLoop.create_server)

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
        takes_fds = passes_fds(sock, protocol)
        if not takes_fds and _STREAM_METHODS.isdisjoint(_core.replaced_methods(sock)):
            return StreamTransport(self, sock, protocol, waiter, extra, server, context)
        self._ensure_fd_no_transport(sock)
        set_nodelay(sock)
        named: dict[str, Any] = {"extra": extra, "server": server}
        if sys.version_info >= (3, 15):
            named["context"] = context
        transport: Any
        if takes_fds:
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
        shared = shared_socket(sock)
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
            shared = shared_socket(sock)
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
            shared = shared_socket(sock)
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
        create_unix_server = with_limit(_Unix.create_unix_server)


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
