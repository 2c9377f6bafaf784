"""sendfile and sock_sendfile: a file to a socket within the kernel.

BaseEventLoop checks the arguments, and falls back to reading and sending if these methods raise
SendfileNotAvailableError.

loop.sendfile() on a native transport first waits until all queued bytes are sent, pauses reading
as asyncio does, and prevents writes. The file is then sent through a duplicate of the fd, which
can be watched independently of the transport's fd.
"""

from __future__ import annotations

import asyncio.unix_events
import errno
import io
import os
import socket
from collections.abc import Awaitable, Callable

from .sockets import Sockets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# True if the file's position is set even if nothing was sent: in newer patch releases,
# because their helper no longer has the number of sent bytes as a parameter.
_update: Any = asyncio.unix_events._UnixSelectorEventLoop._sock_sendfile_update_filepos  # type: ignore[attr-defined]
_ALWAYS_SEEKS = _update.__code__.co_argcount == 3

# The maximum of one call: a call without a limit would not end while its reader keeps pace.
_LARGEST = 4 << 20


class _TransportSender:
    """A file that is being sent through a transport, which may end meanwhile.

    The transport's empty waiter reports its end: `_make_empty_waiter()` was awaited before, and
    while a waiter exists all writes are refused.
    """

    def __init__(self, loop: Sendfile, transport: Any) -> None:
        """Install the first empty waiter of a transport whose queue is empty."""
        self._loop = loop
        self._transport = transport
        self._waiter: asyncio.Future[None] | None = None
        self._install_empty_waiter()

    def _install_empty_waiter(self) -> None:
        """Install a new empty waiter, which is done when the connection ends."""
        self._transport._empty_waiter = end = self._loop.create_future()
        end.add_done_callback(self._on_empty)

    def _on_empty(self, end: asyncio.Future[None]) -> None:
        """Fail the wait for writability if the connection has ended, else install a new waiter."""
        # Without an exception the waiter only reports that earlier writes are sent.
        lost = end.exception() is not None or self._transport._loop is None
        if not lost and self._transport._empty_waiter is end:
            self._install_empty_waiter()
        elif lost and self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(ConnectionError("Connection is closed by peer"))

    async def until_writable(self, sock: socket.socket) -> None:
        """Wait until `sock`, a duplicate of the transport's socket, is writable.

        Raises ConnectionError if the connection has ended or ends meanwhile.
        """
        if self._transport._loop is None:
            raise ConnectionError("Connection is closed by peer")
        fd = sock.fileno()
        self._waiter = self._loop._wait_writable(sock)
        try:
            await self._waiter
        finally:
            self._loop._forget_wait(fd, self._waiter)
            self._waiter = None


class Sendfile(Sockets):
    """The native parts of sendfile and sock_sendfile."""

    async def _sock_sendfile_native(
        self, sock: socket.socket, file: Any, offset: int, count: int | None
    ) -> int:
        """Send a file through a socket by os.sendfile(): a hook of asyncio's sock_sendfile()."""
        return await self._send_file(sock, file, offset, count, self._until_writable)

    async def _sendfile_native(self, transp: Any, file: Any, offset: int, count: int | None) -> int:
        """Send a file through a transport by os.sendfile(); asyncio's sendfile() calls this hook.

        Waits until the queued writes are sent. Reading is paused and write() raises until the file
        is sent. Returns the number of bytes. Raises SendfileNotAvailableError before the first
        byte, ConnectionError if the connection ends.
        """
        resume = transp.is_reading()
        transp.pause_reading()
        await transp._make_empty_waiter()
        try:
            self._check_sendfile_params(transp.get_extra_info("socket"), file, offset, count)
            # Not dup() of get_extra_info('socket'), which marks the socket as exposed.
            with transp._socket_for_own_use().dup() as sock:
                sock.setblocking(False)
                sending = _TransportSender(self, transp)
                return await self._send_file(sock, file, offset, count, sending.until_writable)
        finally:
            transp._reset_empty_waiter()
            if resume:
                transp.resume_reading()

    async def _send_file(
        self,
        sock: socket.socket,
        file: Any,
        offset: int,
        count: int | None,
        until_writable: Callable[[socket.socket], Awaitable[object]],
    ) -> int:
        """Send a file by os.sendfile() and return the number of bytes.

        `count` None means: to the end of the file. `until_writable(sock)` waits while the kernel's
        buffer is full. At the end, also on an error, the file's position is after the sent bytes.
        Raises SendfileNotAvailableError if nothing was sent, so that asyncio reads and sends the
        file itself, or else OSError.
        """
        try:
            source = file.fileno()
            size = os.fstat(source).st_size
        except (AttributeError, io.UnsupportedOperation, OSError) as exc:
            raise asyncio.SendfileNotAvailableError("not a regular file") from exc
        block = count or size
        if not block:
            return 0
        sent = 0
        try:
            while not count or sent < count:
                if count:
                    block = count - sent
                self._flush_deferred_sends()
                try:
                    n = os.sendfile(sock.fileno(), source, offset + sent, min(block, _LARGEST))
                except (BlockingIOError, InterruptedError):
                    n = -1
                except OSError as exc:
                    if sent == 0:
                        # Probably a file that cannot be mapped; reading and sending works.
                        raise asyncio.SendfileNotAvailableError("os.sendfile call failed") from exc
                    if exc.errno == errno.ENOTCONN and not isinstance(exc, ConnectionError):
                        raise ConnectionError("socket is not connected", errno.ENOTCONN) from exc
                    raise
                if n == 0:
                    break
                if n > 0:
                    sent += n
                    self._count("bytes_sent", n)
                # Wait after a success, too: a fast peer must not block other connections.
                await until_writable(sock)
        finally:
            if sent or _ALWAYS_SEEKS:
                os.lseek(source, offset + sent, os.SEEK_SET)
        return sent
