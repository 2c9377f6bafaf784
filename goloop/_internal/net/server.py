"""Servers: the listener of each listening socket, and asyncio's Server with a limit and a pause."""

from __future__ import annotations

import asyncio
import asyncio.selector_events
import contextvars
import functools
import inspect
import operator
import os
import socket
import sys
import weakref
from asyncio import trsock
from asyncio.log import logger
from collections.abc import Awaitable, Callable, Iterator

from ... import _core
from ..loop.base import CoreLoop
from . import transport_info
from .stream_transport import (
    ProtocolFactory,
    StreamTransport,
    adopt_fd,
    is_tcp,
    shared_socket,
    socket_from_fd,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SelectorEventLoop: Any = asyncio.selector_events.BaseSelectorEventLoop
# Since 3.14 and in late releases of 3.13 asyncio makes `backlog` + 1 accept() calls per iteration.
_accept_code = _SelectorEventLoop._accept_connection.__code__
_ONE_EXTRA_ACCEPT = sys.version_info >= (3, 14) or 1 in _accept_code.co_consts


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
        super().__init__(loop, sock, context, max_accepts, deliver is None and is_tcp(sock))

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
        sock = adopt_fd(self._detach())
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
        sock = adopt_fd(self._detach())
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
        sock = socket_from_fd(self._accepted_fd)
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
        if len(sockets) == 1 and shared_socket(sockets[0]) is None:
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


def with_limit(create: Any) -> Any:
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
