"""goloop.SharedListener: one listening address that several loops of a process serve.

shared_sockets.py chooses the loop for each connection.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from asyncio.trsock import TransportSocket
from collections.abc import Callable

from .shared_sockets import Address

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl as _ssl
    from types import TracebackType
    from typing import Any


class SharedListener:
    """A listening address that several event loops of a process serve together.

    Create it once, and call `create_server()` or `start_server()` in each loop. A connection is
    assigned to the loop with the fewest open connections that is not blocked. If a loop's server
    closes, or if a callback blocks the loop, its assigned connections that are not started yet go
    to another loop. While no loop serves, connections wait in the kernel's queue. Every loop
    should be goloop's; another loop serves only the connections that it accepts itself. May be
    used from any thread, and as a context manager that closes it. Since 0.3.0.

    Args:
        host: The name or address to listen on; None is all interfaces.
        port: The port; 0 lets the system choose one.
        family: AF_INET or AF_INET6, to use only one of them.
        path: The path of a Unix socket to listen on instead. A socket that an ended process has
            left there is replaced, one in use is not; `close()` removes the path.
        sock: A bound socket to use instead; `close()` closes it.
        backlog: The length of the kernel's queue of connections that are not accepted yet.
        reuse_port: Let other sockets listen on this address, too (SO_REUSEPORT).

    Raises:
        ValueError: No address, more than one of host with port, path and sock, or a socket that is
            not a stream socket.
        OSError: The address cannot be used; EADDRINUSE if another socket uses it.
    """

    def __init__(
        self,
        host: str | None = None,
        port: int | None = None,
        *,
        family: int = socket.AF_UNSPEC,
        path: str | os.PathLike[str] | None = None,
        sock: socket.socket | None = None,
        backlog: int = 100,
        reuse_port: bool = False,
    ) -> None:
        """Bind the address and listen; the class describes the arguments and exceptions."""
        addresses_given = [host is not None or port is not None, path is not None, sock is not None]
        if sum(addresses_given) > 1:
            raise ValueError("host/port, path and sock can not be specified at the same time")
        self._backlog = backlog
        self._path: tuple[str, int] | None = None
        if sock is not None:
            if sock.type != socket.SOCK_STREAM:
                raise ValueError(f"A Stream Socket was expected, got {sock!r}")
            sockets = [sock]
        elif path is not None:
            sockets = [_bind_path(os.fspath(path))]
        elif addresses_given[0]:
            sockets = _bind_host(host, port, family, reuse_port)
        else:
            raise ValueError("Neither host/port, path nor sock were specified")
        self._addresses = [Address(each) for each in sockets]
        try:
            for each in sockets:
                each.setblocking(False)
                each.listen(backlog)
            if path is not None and _is_file_path(os.fspath(path)):
                self._path = os.fspath(path), os.stat(path).st_ino
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} sockets={self.sockets!r}>"

    @property
    def sockets(self) -> tuple[TransportSocket, ...]:
        """The listening sockets, like those of a server; empty once the listener is closed."""
        sockets = (address.sock for address in self._addresses)
        return tuple(TransportSocket(sock) for sock in sockets if sock.fileno() >= 0)

    def share(self) -> list[socket.socket]:
        """Return listening sockets for a server in one loop.

        Frameworks accept them: uvicorn's `Server.serve(sockets=...)`, aiohttp's `SockSite`,
        `loop.create_server(sock=...)`. Each loop needs its own; its server closes them.

        Returns:
            One socket for each address; one in total, unless `host` has several addresses.

        Raises:
            RuntimeError: The listener is closed.
        """
        if not self.sockets:
            raise RuntimeError(f"{self!r} is closed")
        shared: list[socket.socket] = []
        try:
            for address in self._addresses:
                shared.append(address.duplicate_socket())
        except BaseException:
            for sock in shared:
                sock.close()
            raise
        return shared

    async def create_server(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        *,
        ssl: _ssl.SSLContext | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
        start_serving: bool = True,
        max_connections: int | None = None,
    ) -> asyncio.Server:
        """Serve on this address with the running loop, as `loop.create_server()` does.

        Args:
            protocol_factory: Returns the protocol of each connection that this loop gets.
            ssl: The context for TLS; None is no TLS.
            ssl_handshake_timeout: Seconds for a TLS handshake; None is 60.
            ssl_shutdown_timeout: Seconds for the TLS shutdown; None is 30.
            start_serving: Start to accept connections immediately.
            max_connections: Limit of this loop's connections, which a few may exceed; None is no
                limit.

        Returns:
            asyncio's Server. Its `close()` ends the service of this loop only.

        Raises:
            RuntimeError: The listener is closed.
            OSError: The process has no descriptors left.
            ValueError: `max_connections` is less than 1.
        """
        shared = self.share()
        loop: Any = asyncio.get_running_loop()
        try:
            server: asyncio.Server = await loop.create_server(
                protocol_factory,
                sock=shared[0],
                backlog=self._backlog,
                ssl=ssl,
                ssl_handshake_timeout=ssl_handshake_timeout,
                ssl_shutdown_timeout=ssl_shutdown_timeout,
                start_serving=False,
                max_connections=max_connections,
            )
        except BaseException:
            for sock in shared:
                sock.close()
            raise
        # asyncio has no public call that serves several existing sockets.
        sockets: list[socket.socket] = server._sockets  # type: ignore[attr-defined]
        sockets.extend(shared[1:])
        if start_serving:
            try:
                await server.start_serving()
            except BaseException:
                server.close()
                raise
        return server

    async def start_server(
        self,
        client_connected_cb: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any],
        *,
        limit: int = 2**16,
        ssl: _ssl.SSLContext | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
        start_serving: bool = True,
        max_connections: int | None = None,
    ) -> asyncio.Server:
        """Serve with streams on this address in the running loop, like `asyncio.start_server()`.

        Args:
            client_connected_cb: Called with the reader and writer of each connection that this
                loop gets; may be a coroutine function.
            limit: The limit of the reader's buffer, in bytes.
            ssl: The context for TLS; None is no TLS.
            ssl_handshake_timeout: Seconds for a TLS handshake; None is 60.
            ssl_shutdown_timeout: Seconds for the TLS shutdown; None is 30.
            start_serving: Start to accept connections immediately.
            max_connections: Limit of this loop's connections, which a few may exceed; None is no
                limit.

        Returns:
            asyncio's Server. Its `close()` ends the service of this loop only.

        Raises:
            RuntimeError: The listener is closed.
            OSError: The process has no descriptors left.
            ValueError: `max_connections` is less than 1.
        """
        loop = asyncio.get_running_loop()

        def factory() -> asyncio.StreamReaderProtocol:
            """Return the stream protocol of one connection."""
            reader = asyncio.StreamReader(limit=limit, loop=loop)
            return asyncio.StreamReaderProtocol(reader, client_connected_cb, loop=loop)

        return await self.create_server(
            factory,
            ssl=ssl,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
            start_serving=start_serving,
            max_connections=max_connections,
        )

    def close(self) -> None:
        """Close the listening sockets and remove the socket's path: no further loop can serve.

        Loops that already serve continue until their servers are closed. When the last of these
        servers is closed, the address is free.
        """
        for address in self._addresses:
            address.close()
        path, self._path = self._path, None
        if path is not None:
            # Another program may have bound its own socket to the path.
            try:
                if os.stat(path[0]).st_ino == path[1]:
                    os.unlink(path[0])
            except FileNotFoundError:
                pass

    def __enter__(self) -> SharedListener:
        """Return the listener."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the listener."""
        self.close()


SharedListener.__module__ = "goloop"


def _bind_host(
    host: str | None, port: int | None, family: int, reuse_port: bool
) -> list[socket.socket]:
    """Return bound sockets for all addresses of a host, as asyncio's create_server does.

    Addresses of a family that the system lacks are skipped. Raises OSError if an address cannot
    be bound or none is left.
    """
    infos = socket.getaddrinfo(host or None, port, family, socket.SOCK_STREAM, 0, socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for kind, socktype, proto, _, where in dict.fromkeys(infos):
            try:
                sock = socket.socket(kind, socktype, proto)
            except OSError:  # the kernel may lack a family that the resolver returns
                continue
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
            if reuse_port:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, True)
            if kind == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, True)
            try:
                sock.bind(where)
            except OSError as exc:
                if exc.errno == errno.EADDRNOTAVAIL:  # the family is not enabled
                    sockets.pop().close()
                    continue
                text = (exc.strerror or "").lower()
                raise OSError(
                    exc.errno, f"error while attempting to bind on address {where!r}: {text}"
                ) from None
        if not sockets:
            raise OSError(f"could not bind on any address out of {[info[4] for info in infos]!r}")
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _is_file_path(path: str) -> bool:
    """Return true if a Unix socket's path is in the file system, and not abstract."""
    return not path.startswith("\0")


def _bind_path(path: str) -> socket.socket:
    """Return a bound Unix socket; a socket at the path that is not in use is removed first.

    Raises OSError, with asyncio's message for a path in use.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if _is_file_path(path):
            try:
                if stat.S_ISSOCK(os.stat(path).st_mode) and not _is_socket_in_use(path):
                    os.remove(path)
            except FileNotFoundError:
                pass
        sock.bind(path)
    except OSError as exc:
        sock.close()
        if exc.errno == errno.EADDRINUSE:
            raise OSError(errno.EADDRINUSE, f"Address {path!r} is already in use") from None
        raise
    except BaseException:
        sock.close()
        raise
    return sock


def _is_socket_in_use(path: str) -> bool:
    """Return true unless the process that bound the path has closed its socket.

    A stream server does not notice the question: a datagram socket cannot connect to it, which is
    the error EPROTOTYPE.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(path)
        except ConnectionRefusedError:
            return False
        except FileNotFoundError:
            raise
        except OSError:
            return True
    return True
