"""The sock_* methods, for sockets that the program owns.

sock_recv, sock_recv_into and sock_sendall of plain sockets are native. They call the methods of
this module for any other object, for a size that is not an int up to 256 KiB, and in debug mode.
Each method tries its system call, waits until the socket is ready, and tries again. The coroutine
makes the system call itself when it is resumed, never a callback on its behalf, so that
cancelling it in between loses no connection and no datagram. The exception is a socket that is
closed while the loop does not run: its call is made before the close (EarlyCall).
"""

from __future__ import annotations

import asyncio.base_events
import asyncio.selector_events
import contextlib
import functools
import socket
import sys
from collections.abc import Callable, Iterable

from ... import _core
from ..loop.base import CoreLoop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    _Method = TypeVar("_Method", bound=Callable[..., object])

_base_events: Any = asyncio.base_events
_check_ssl_socket: Callable[[object], None] = _base_events._check_ssl_socket

# Received descriptors are close-on-exec, which is Python's rule for new descriptors (PEP 446).
_CLOSE_ON_EXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)

_selector_loop: Any = asyncio.selector_events.BaseSelectorEventLoop
# The most bytes that one native sock_recv receives.
_LARGEST = 256 * 1024

# connect() to a Unix listener with a full backlog fails with EAGAIN, and no event reports
# room in the backlog. So connect is retried after these delays, in seconds.
_FIRST_RETRY = 0.001
_LONGEST_RETRY = 0.05


class EarlyCall:
    """The call of a coroutine that waits for a ready socket, in case the socket is closed first.

    When a loop has stopped, a close() takes effect at once. asyncio has made the call by then, when
    it polled, so the coroutine gets the result of a call that is made before the close. Without
    it the peer of a socket with unread data would get a reset.
    """

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], Any]) -> None:
        """Take the call that the coroutine makes when the socket is ready."""
        self._call = call

    def __call__(self) -> None:
        """Make the call now; C calls this before the socket is closed."""
        try:
            result = self._call()
        except (BlockingIOError, InterruptedError):
            return
        except BaseException as exc:
            self._call = functools.partial(_raise, exc)
        else:
            self._call = lambda: result

    def outcome(self) -> Callable[[], Any]:
        """Return the call, or a function with the result or the exception of the early call."""
        return self._call


def _late_call(sock: socket.socket, method: str, *args: Any) -> Callable[[], Any]:
    """Return a function that calls the method which the socket has then, as asyncio does."""
    return lambda: getattr(sock, method)(*args)


def _raise(exc: BaseException) -> None:
    raise exc


def _nothing() -> None:
    """Do nothing: the default of a wait."""


def _named_like_native(function: _Method) -> _Method:
    """Give a coroutine function the name of the native method that calls it, as in asyncio."""
    function.__name__ = function.__name__[1:]
    function.__qualname__ = f"BaseSelectorEventLoop.{function.__name__}"
    return function


class Sockets(CoreLoop):
    """The sock_* methods that are not native, and asyncio's add_reader, add_writer and so on.

    asyncio's methods check that no transport has the descriptor, and call the native _add_reader,
    _add_writer, _remove_reader and _remove_writer.
    """

    add_reader = _selector_loop.add_reader
    add_writer = _selector_loop.add_writer
    remove_reader = _selector_loop.remove_reader
    remove_writer = _selector_loop.remove_writer

    def _check_sock(self, sock: socket.socket) -> None:
        """Raise TypeError for an SSL socket, and in debug mode ValueError for a blocking one."""
        _check_ssl_socket(sock)
        if self._debug and sock.gettimeout() != 0:
            raise ValueError("the socket must be non-blocking")

    async def _until_readable(
        self, sock: socket.socket, call: Callable[[], Any] = _nothing
    ) -> Callable[[], Any]:
        """Wait until the socket is readable; afterwards the fd is not registered and may be closed.

        Returns the function to call next: `call`, or its outcome if the socket was closed.
        Raises RuntimeError if a transport has the fd.
        Call this after an `except` block, not inside it: otherwise the exception of a cancelled
        wait would have the block's exception as its context.
        """
        fd = sock.fileno()
        self._ensure_fd_no_transport(fd)
        early = EarlyCall(call)
        waiter = self._wait_readable(sock, early)
        try:
            await waiter
        finally:
            self._forget_wait(fd, waiter)
        return early.outcome()

    async def _until_writable(
        self, sock: socket.socket, call: Callable[[], Any] = _nothing
    ) -> Callable[[], Any]:
        """Wait until the socket is writable; afterwards the fd is not registered.

        Returns the function to call next: `call`, or its outcome if the socket was closed.
        Raises RuntimeError if a transport has the fd.
        """
        fd = sock.fileno()
        self._ensure_fd_no_transport(fd)
        early = EarlyCall(call)
        waiter = self._wait_writable(sock, early)
        try:
            await waiter
        finally:
            self._forget_wait(fd, waiter)
        return early.outcome()

    @_named_like_native
    async def _sock_recv(self, sock: socket.socket, n: int) -> bytes:
        """Receive up to `n` bytes; C calls this for sockets and sizes that it does not serve."""
        self._check_sock(sock)
        # A stream keeps the data that was not received for the next call, a datagram socket drops
        # it.
        is_long = type(n) is int and _LARGEST < n <= sys.maxsize
        if is_long and not _core.replaced_methods(sock) and sock.type == socket.SOCK_STREAM:
            return await _core.Loop.sock_recv(self, sock, _LARGEST)
        call: Callable[[], bytes] = _late_call(sock, "recv", n)
        while True:
            try:
                return call()
            except (BlockingIOError, InterruptedError):
                pass
            call = await self._until_readable(sock, call)

    @_named_like_native
    async def _sock_recv_into(self, sock: socket.socket, buf: Any) -> int:
        """Receive into a buffer, return the number of bytes; C calls this for unusual sockets."""
        self._check_sock(sock)
        call: Callable[[], int] = _late_call(sock, "recv_into", buf)
        while True:
            try:
                return call()
            except (BlockingIOError, InterruptedError):
                pass
            call = await self._until_readable(sock, call)

    @_named_like_native
    async def _sock_sendall(self, sock: socket.socket, data: Any) -> None:
        """Send all bytes by the socket's send(), for sockets that C does not serve."""
        self._check_sock(sock)
        self._flush_deferred_sends()
        try:
            sent = sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        rest = memoryview(data).cast("B")
        while sent < len(rest):
            call = await self._until_writable(sock, _late_call(sock, "send", rest[sent:]))
            self._flush_deferred_sends()
            with contextlib.suppress(BlockingIOError, InterruptedError):
                sent += call()

    async def sock_accept(self, sock: socket.socket) -> tuple[socket.socket, Any]:
        """Accept a connection; return (socket, address); the new socket is non-blocking."""
        self._check_sock(sock)
        sock.fileno()  # raises asyncio's error for an object that is not a socket
        call: Callable[[], tuple[socket.socket, Any]] = _late_call(sock, "accept")
        while True:
            try:
                connection, address = call()
            except (BlockingIOError, InterruptedError):
                pass
            else:
                connection.setblocking(False)
                return connection, address
            call = await self._until_readable(sock, call)

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Connect a socket to a remote address; a host name is resolved first.

        Raises OSError. A Unix listener with a full backlog is tried again until it has room.
        """
        self._check_sock(sock)
        if sock.family in (socket.AF_INET, getattr(socket, "AF_INET6", socket.AF_INET)):
            resolved = await self._ensure_resolved(
                address, family=sock.family, type=sock.type, proto=sock.proto, loop=self
            )
            address = resolved[0][4]
        delay = _FIRST_RETRY
        while True:
            self._flush_deferred_sends()
            try:
                sock.connect(address)
            except (BlockingIOError, InterruptedError):
                pass
            else:
                return
            if sock.family != socket.AF_UNIX:
                break
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_RETRY)
        call = _late_call(sock, "getsockopt", socket.SOL_SOCKET, socket.SO_ERROR)
        while True:
            error = (await self._until_writable(sock, call))()
            if error == 0:
                return
            try:
                raise OSError(error, f"Connect call failed {address}")
            except (BlockingIOError, InterruptedError):
                continue

    async def sock_recvfrom(self, sock: socket.socket, bufsize: int) -> tuple[bytes, Any]:
        """Receive a datagram; return (bytes, address)."""
        self._check_sock(sock)
        call: Callable[[], tuple[bytes, Any]] = _late_call(sock, "recvfrom", bufsize)
        while True:
            try:
                data, address = call()
            except (BlockingIOError, InterruptedError):
                pass
            else:
                self._count("bytes_received", len(data))
                return data, address
            call = await self._until_readable(sock, call)

    async def sock_recvfrom_into(
        self, sock: socket.socket, buf: Any, nbytes: int = 0
    ) -> tuple[int, Any]:
        """Receive a datagram into a buffer; return (length, address)."""
        self._check_sock(sock)
        if not nbytes:
            nbytes = len(buf)
        call: Callable[[], tuple[int, Any]] = _late_call(sock, "recvfrom_into", buf, nbytes)
        while True:
            try:
                length, address = call()
            except (BlockingIOError, InterruptedError):
                pass
            else:
                self._count("bytes_received", length)
                return length, address
            call = await self._until_readable(sock, call)

    async def sock_sendto(self, sock: socket.socket, data: Any, address: Any) -> int:
        """Send a datagram; return the number of bytes sent."""
        self._check_sock(sock)
        call: Callable[[], int] = _late_call(sock, "sendto", data, address)
        while True:
            self._flush_deferred_sends()
            try:
                sent = call()
            except (BlockingIOError, InterruptedError):
                pass
            else:
                self._count("bytes_sent", sent)
                return sent
            call = await self._until_writable(sock, call)

    async def sock_recvmsg(
        self, sock: socket.socket, bufsize: int, ancbufsize: int = 0, flags: int = 0
    ) -> tuple[bytes, list[tuple[int, int, bytes]], int, Any]:
        """Receive a message and its ancillary data, as `socket.socket.recvmsg` does.

        Received descriptors are not inheritable and belong to the caller. If `ancbufsize` is too
        small, the kernel closes the descriptors that have no room and sets MSG_CTRUNC. A cancelled
        call has received nothing. asyncio has no such method. Since 0.3.0.

        Args:
            sock: A non-blocking socket.
            bufsize: The maximum number of bytes to receive.
            ancbufsize: Bytes for ancillary data: `socket.CMSG_SPACE(4 * n)` for n descriptors.
            flags: The flags of recvmsg(2).

        Returns:
            The bytes, a list of (level, type, data), the message's flags, and the sender's address.
        """
        self._check_sock(sock)
        call: Callable[[], Any] = _late_call(
            sock, "recvmsg", bufsize, ancbufsize, flags | _CLOSE_ON_EXEC
        )
        while True:
            try:
                data, ancillary, found, address = call()
            except (BlockingIOError, InterruptedError):
                pass
            else:
                self._count("bytes_received", len(data))
                # Linux returns MSG_CMSG_CLOEXEC among the message's flags.
                return data, ancillary, found & ~(_CLOSE_ON_EXEC & ~flags), address
            call = await self._until_readable(sock, call)

    async def sock_sendmsg(
        self,
        sock: socket.socket,
        buffers: Iterable[Any],
        ancdata: Iterable[tuple[int, int, Any]] = (),
        flags: int = 0,
        address: Any = None,
    ) -> int:
        """Send a message with ancillary data, as `socket.socket.sendmsg` does.

        The descriptors of `ancdata` remain the caller's, which may close them afterwards. A
        stream socket may accept only a part of the bytes, but then has accepted all ancillary
        data. asyncio has no such method. Since 0.3.0.

        Args:
            sock: A non-blocking socket.
            buffers: The bytes, as a sequence of buffers.
            ancdata: Tuples of (level, type, data).
            flags: The flags of sendmsg(2).
            address: The destination of a datagram, if the socket is not connected.

        Returns:
            The number of bytes sent.
        """
        self._check_sock(sock)
        # The arguments may be iterators, and sendmsg() may be called more than once.
        buffers, ancdata = list(buffers), list(ancdata)
        call: Callable[[], int] = _late_call(sock, "sendmsg", buffers, ancdata, flags, address)
        while True:
            self._flush_deferred_sends()
            try:
                sent = call()
            except (BlockingIOError, InterruptedError):
                pass
            else:
                self._count("bytes_sent", sent)
                return sent
            call = await self._until_writable(sock, call)
