"""The sock_* methods, on a user's own socket.

sock_recv, sock_recv_into and sock_sendall of plain sockets are native, and call what is
here for any other object, for a size that is no int up to 256 KiB, and in debug mode.  Each
tries its system call, waits until the socket is ready, and tries again.  The
system call is made by the coroutine itself once it goes on, never on its behalf by a
callback: whoever cancels in between loses no connection and no datagram.
"""

from __future__ import annotations

import asyncio.base_events
import contextlib
import socket
import sys
from collections.abc import Callable

from ... import _core
from ..loop.base import CoreLoop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    _Method = TypeVar("_Method", bound=Callable[..., object])

_base_events: Any = asyncio.base_events
_check_ssl_socket: Callable[[object], None] = _base_events._check_ssl_socket

# The most bytes that one native sock_recv receives.
_LARGEST = 256 * 1024

# A Unix socket whose peer's backlog is full gives EAGAIN and never tells when there
# is room, so connect is tried again after these delays, in seconds.
_FIRST_RETRY = 0.001
_LONGEST_RETRY = 0.05


def _public(function: _Method) -> _Method:
    """Gives a coroutine function the name of the native method that calls it, as asyncio has it."""
    function.__name__ = function.__name__[1:]
    function.__qualname__ = f"BaseSelectorEventLoop.{function.__name__}"
    return function


class Sockets(CoreLoop):
    """The sock_* methods that are not native."""

    def _check_sock(self, sock: socket.socket) -> None:
        _check_ssl_socket(sock)
        if self._debug and sock.gettimeout() != 0:
            raise ValueError("the socket must be non-blocking")

    async def _until_readable(self, sock: socket.socket) -> None:
        """Waits; leaves no trace on the fd, which may be closed next."""
        fd = sock.fileno()
        self._ensure_fd_no_transport(fd)
        waiter = self._wait_readable(sock)
        try:
            await waiter
        finally:
            self._forget_wait(fd, waiter)

    async def _until_writable(self, sock: socket.socket) -> None:
        fd = sock.fileno()
        self._ensure_fd_no_transport(fd)
        waiter = self._wait_writable(sock)
        try:
            await waiter
        finally:
            self._forget_wait(fd, waiter)

    @_public
    async def _sock_recv(self, sock: socket.socket, n: int) -> bytes:
        self._check_sock(sock)
        # A stream gives its rest to the next call. A message does not.
        is_long = type(n) is int and _LARGEST < n <= sys.maxsize
        if is_long and not _core.replaced_methods(sock) and sock.type == socket.SOCK_STREAM:
            return await _core.Loop.sock_recv(self, sock, _LARGEST)
        while True:
            try:
                return sock.recv(n)
            except (BlockingIOError, InterruptedError):
                await self._until_readable(sock)

    @_public
    async def _sock_recv_into(self, sock: socket.socket, buf: Any) -> int:
        self._check_sock(sock)
        while True:
            try:
                return sock.recv_into(buf)
            except (BlockingIOError, InterruptedError):
                await self._until_readable(sock)

    @_public
    async def _sock_sendall(self, sock: socket.socket, data: Any) -> None:
        self._check_sock(sock)
        try:
            sent = sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        rest = memoryview(data).cast("B")
        while sent < len(rest):
            await self._until_writable(sock)
            with contextlib.suppress(BlockingIOError, InterruptedError):
                sent += sock.send(rest[sent:])

    async def sock_accept(self, sock: socket.socket) -> tuple[socket.socket, Any]:
        """Accept a connection; returns (socket, address)."""
        self._check_sock(sock)
        sock.fileno()  # what is no socket is told first by this, as in asyncio
        while True:
            try:
                connection, address = sock.accept()
            except (BlockingIOError, InterruptedError):
                await self._until_readable(sock)
            else:
                connection.setblocking(False)
                return connection, address

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Connect a socket to a remote address."""
        self._check_sock(sock)
        if sock.family in (socket.AF_INET, getattr(socket, "AF_INET6", socket.AF_INET)):
            resolved = await self._ensure_resolved(
                address, family=sock.family, type=sock.type, proto=sock.proto, loop=self
            )
            address = resolved[0][4]
        delay = _FIRST_RETRY
        while True:
            try:
                sock.connect(address)
            except (BlockingIOError, InterruptedError):
                if sock.family == socket.AF_UNIX:
                    await asyncio.sleep(delay)
                    delay = min(2 * delay, _LONGEST_RETRY)
                    continue
                break
            return
        while True:
            await self._until_writable(sock)
            error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error == 0:
                return
            try:
                raise OSError(error, f"Connect call failed {address}")
            except (BlockingIOError, InterruptedError):
                continue

    async def sock_recvfrom(self, sock: socket.socket, bufsize: int) -> tuple[bytes, Any]:
        """Receive a datagram; returns (bytes, address)."""
        self._check_sock(sock)
        while True:
            try:
                data, address = sock.recvfrom(bufsize)
            except (BlockingIOError, InterruptedError):
                await self._until_readable(sock)
            else:
                self._count("bytes_received", len(data))
                return data, address

    async def sock_recvfrom_into(
        self, sock: socket.socket, buf: Any, nbytes: int = 0
    ) -> tuple[int, Any]:
        """Receive a datagram into a buffer; returns (length, address)."""
        self._check_sock(sock)
        if not nbytes:
            nbytes = len(buf)
        while True:
            try:
                length, address = sock.recvfrom_into(buf, nbytes)
            except (BlockingIOError, InterruptedError):
                await self._until_readable(sock)
            else:
                self._count("bytes_received", length)
                return length, address

    async def sock_sendto(self, sock: socket.socket, data: Any, address: Any) -> int:
        """Send a datagram; returns the number of bytes sent."""
        self._check_sock(sock)
        while True:
            try:
                sent = sock.sendto(data, address)
            except (BlockingIOError, InterruptedError):
                await self._until_writable(sock)
            else:
                self._count("bytes_sent", sent)
                return sent
