"""asyncio's own transports over the loop's watches, where the native ones would not do.

Datagram transports of families whose addresses only Python's socket module knows, and streams over
a socket with methods of its own: they call these methods.

So it is with descriptors over Unix streams, `fds_received()` of a protocol and `send_fds()` of its
transport: the object in the place of the socket, `FdPassingSocket`, knows before which byte each
descriptor goes.  The transport queues, splits and sends bytes as it does without.
"""

from __future__ import annotations

import array
import asyncio.selector_events
import errno
import os
import socket
import weakref
from asyncio import BufferedProtocol, sslproto
from collections import deque
from collections.abc import Callable, Iterable

from .transport_info import NO_TLS, has_buffer_methods, takes_fds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_selector_events: Any = asyncio.selector_events
_SelectorDatagramTransport: Any = _selector_events._SelectorDatagramTransport
_SelectorSocketTransport: Any = _selector_events._SelectorSocketTransport

# The most that Linux takes with one message: SCM_MAX_FD of net/scm.h.
_MOST = 253
# For as many descriptors, and for credentials, a label and a pidfd, where a program asks for these.
_ROOM = socket.CMSG_SPACE(_MOST * 4) + 1024
_CLOSE_ON_EXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
# What brings the sender's pidfd (SO_PASSPIDFD, Linux 6.5), which is a descriptor, too.
_SCM_PIDFD = 4


class SelectorTransportMixin:
    """What looked into a selector, or wants more of the loop than its watches."""

    _closing: bool
    _loop: Any
    _sock: Any
    _sock_fd: int
    _buffer: Any
    is_reading: Callable[[], bool]
    get_write_buffer_size: Callable[[], int]

    # From 3.15 on asyncio gives the loop the transport's context along; None for datagrams.
    _context: Any = None

    def _within(self, callback: Callable[..., object]) -> tuple[Any, ...]:
        return (callback,) if self._context is None else (self._context.run, callback)

    def _add_reader(self, fd: int, callback: Callable[..., object], *args: object) -> None:
        if self.is_reading():
            self._loop._add_reader(fd, *self._within(callback), *args)

    def _add_writer(self, fd: int, callback: Callable[..., object], *args: object) -> None:
        self._loop._add_writer(fd, *self._within(callback), *args)

    def __repr__(self) -> str:
        words = [type(self).__name__]
        if self._sock is None:
            words.append("closed")
        elif self._closing:
            words.append("closing")
        words.append(f"fd={self._sock_fd}")
        if self._loop is not None and not self._loop.is_closed():
            words.append("read=polling" if self.is_reading() else "read=idle")
            state = "polling" if self._buffer else "idle"
            words.append(f"write=<{state}, bufsize={self.get_write_buffer_size()}>")
        return f"<{' '.join(words)}>"


class OtherDatagramTransport(SelectorTransportMixin, _SelectorDatagramTransport):  # type: ignore[misc]
    """asyncio's datagram transport."""

    if _SelectorDatagramTransport.is_reading is asyncio.ReadTransport.is_reading:
        # asyncio's first releases of 3.11: it reads until it closes.
        def is_reading(self) -> bool:
            return not self._closing


class OtherStreamTransport(SelectorTransportMixin, _SelectorSocketTransport):  # type: ignore[misc]
    """asyncio's stream transport."""

    def _unexposed(self) -> Any:
        return self._sock

    def set_protocol(self, protocol: Any) -> None:
        _SelectorSocketTransport.set_protocol(self, protocol)
        # asyncio looks at the class alone.
        if not isinstance(protocol, BufferedProtocol) and has_buffer_methods(protocol):
            self._read_ready_cb = self._read_ready__get_buffer


# ---- descriptors over Unix streams ---------------------------------------------------------------


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def _copies(fds: Iterable[int]) -> list[int]:
    """Duplicates of all, or none and the error."""
    copies: list[int] = []
    try:
        for fd in fds:
            copies.append(os.dup(fd))
    except BaseException:
        _close(copies)
        raise
    return copies


def _ints(data: bytes) -> list[int]:
    whole = array.array("i")
    whole.frombytes(data[: len(data) // whole.itemsize * whole.itemsize])
    return whole.tolist()


class FdPassingSocket:
    """A connected Unix stream socket for asyncio's transport; all else is the socket's own.

    A message with descriptors is sent apart: no call sends bytes that were written before or
    behind it together with it.
    """

    def __init__(self, loop: Any, sock: socket.socket) -> None:
        self._loop = loop
        self._sock = sock
        self._sent = 0
        # Before which byte, of all that are sent here; how long the message is; the descriptors.
        self._waiting: deque[tuple[int, int, list[int]]] = deque()
        self.transport: weakref.ref[DescriptorTransport] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def add(self, queued: int, length: int, fds: list[int]) -> None:
        """So many bytes from now a message of that length begins, and takes these along."""
        self._waiting.append((self._sent + queued, length, fds))

    # ---- what the transport calls

    def send(self, data: Any) -> int:
        self._loop._flush_deferred_sends()
        if not self._waiting:
            sent = self._sock.send(data)
        else:
            begins, length, fds = self._waiting[0]
            before = begins - self._sent
            view = memoryview(data).cast("B")
            if before > 0:
                sent = self._sock.send(view[:before])
            else:
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
                sent = self._sock.sendmsg([view[:length]], [rights])
                self._waiting.popleft()
                _close(fds)
        self._sent += sent
        self._loop._count("bytes_sent", sent)
        return sent

    def sendmsg(self, buffers: Iterable[Any]) -> int:
        pieces = list(buffers)
        if self._waiting:
            # Empty pieces are there in older releases: python/cpython#155888.
            return self.send(next(piece for piece in pieces if len(piece)))
        self._loop._flush_deferred_sends()
        sent = self._sock.sendmsg(pieces)
        self._sent += sent
        self._loop._count("bytes_sent", sent)
        return sent

    def recv(self, size: int) -> bytes:
        data, ancillary, flags, _ = self._sock.recvmsg(size, _ROOM, _CLOSE_ON_EXEC)
        self._received(len(data), ancillary, flags)
        return data

    def recv_into(self, buffer: Any) -> int:
        size, ancillary, flags, _ = self._sock.recvmsg_into([buffer], _ROOM, _CLOSE_ON_EXEC)
        self._received(size, ancillary, flags)
        return size

    def close(self) -> None:
        while self._waiting:
            _close(self._waiting.popleft()[2])
        self._sock.close()

    def _received(self, size: int, ancillary: list[tuple[int, int, bytes]], flags: int) -> None:
        """Gives the protocol what came with bytes; BlockingIOError where it gets no bytes then."""
        self._loop._count("bytes_received", size)
        fds: list[int] = []
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds += _ints(data)
            elif level == socket.SOL_SOCKET and kind == _SCM_PIDFD:
                _close(fd for fd in _ints(data) if fd >= 0)
        lost = bool(flags & socket.MSG_CTRUNC)
        if fds or lost:
            transport = self.transport() if self.transport is not None else None
            if transport is None:
                _close(fds)
            elif not transport._fds_came(fds, lost):
                # As where another has read: the transport waits for more, unless it is closed.
                raise BlockingIOError


class DescriptorTransport(OtherStreamTransport):
    """A Unix stream whose protocol has `fds_received()`."""

    _sock: FdPassingSocket

    def __init__(self, loop: Any, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        carrier = FdPassingSocket(loop, sock)
        super().__init__(loop, carrier, *args, **kwargs)
        carrier.transport = weakref.ref(self)

    def send_fds(self, data: Any, fds: Iterable[int]) -> None:
        """Write bytes, and send descriptors with the first of them.

        They arrive in order with everything else that is written.  Duplicates are made at once:
        the caller may close its own when this returns.  asyncio has no such method.  Since 0.3.0.

        Args:
            data: The bytes; one at least, because a descriptor cannot travel alone.
            fds: The numbers of open descriptors, 253 at most.

        Raises:
            TypeError: The connection is under TLS, which carries no descriptors.
            ValueError: There is no byte, or there are too many descriptors.
            OSError: One is not open, or the process has no room for its duplicate; nothing is sent.
        """
        if isinstance(self._protocol, sslproto.SSLProtocol):
            raise TypeError(NO_TLS)
        # What write() refuses, it refuses here in its words, and what it drops is dropped.
        acceptable = isinstance(data, (bytes, bytearray, memoryview))
        if not acceptable or self._eof or self._conn_lost or self._empty_waiter is not None:
            self.write(data)
            return
        data, fds = bytes(data), list(fds)
        if not data:
            raise ValueError("descriptors travel with bytes: data must have one at least")
        if len(fds) > _MOST:
            raise ValueError(
                f"at most {_MOST} descriptors go with one message, not {len(fds)}: "
                "send the others with the next one"
            )
        if fds:
            copies = _copies(fds)
            self._sock.add(self.get_write_buffer_size(), len(data), copies)
        self.write(data)

    def _fds_came(self, fds: list[int], lost: bool) -> bool:
        """Whether the bytes that they came with are the protocol's next."""
        protocol = self._protocol
        if not takes_fds(protocol):
            _close(fds)
            return True
        if lost:
            _close(fds)
            exc = OSError(
                errno.EMFILE,
                "descriptors from the peer were lost, as this process may open no more: raise its "
                "limit (ulimit -n), or close those that came before",
            )
            report = {"message": str(exc), "exception": exc}
            self._loop.call_exception_handler({**report, "transport": self, "protocol": protocol})
            self._force_close(exc)
            return False
        try:
            protocol.fds_received(fds)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            self._fatal_error(exc, "Fatal error: protocol.fds_received() call failed.")
        return not self._closing
