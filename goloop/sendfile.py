"""sock_sendfile: a file to a socket within the kernel.

BaseEventLoop checks the arguments and falls back to reading and sending where this
raises SendfileNotAvailableError.  loop.sendfile() on a transport takes that fallback.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import socket
import sys
from typing import Any

from .sockets import Sockets

# The most that one call may ask for without an OverflowError on any platform.
_LARGEST = sys.maxsize // 2 + 1


class Sendfile(Sockets):
    """The native half of sock_sendfile."""

    async def _sock_sendfile_native(
        self, sock: socket.socket, file: Any, offset: int, count: int | None
    ) -> int:
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
                try:
                    n = os.sendfile(sock.fileno(), source, offset + sent, min(block, _LARGEST))
                except (BlockingIOError, InterruptedError):
                    await self._until_writable(sock.fileno())
                    continue
                except OSError as exc:
                    if sent == 0:
                        # Most likely no file that can be mapped; sending it by hand works.
                        raise asyncio.SendfileNotAvailableError("os.sendfile call failed") from exc
                    if exc.errno == errno.ENOTCONN and not isinstance(exc, ConnectionError):
                        raise ConnectionError("socket is not connected", errno.ENOTCONN) from exc
                    raise
                if n == 0:
                    break
                sent += n
                # A fast peer must not keep the other callbacks waiting.
                await asyncio.sleep(0)
        finally:
            if sent:
                os.lseek(source, offset + sent, os.SEEK_SET)
        return sent
