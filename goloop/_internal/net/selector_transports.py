"""asyncio's own transports, over add_reader and add_writer, for cases without a native one.

These are datagram transports of families whose addresses only Python's socket module can decode,
and streams over a socket with overridden methods, which must be called.

Unix streams that pass descriptors (`fds_received()` of a protocol and `send_fds()` of its
transport) use them too: the transport has a `FdPassingSocket` instead of its socket, which records
before which byte each descriptor is sent. The transport queues, splits and sends bytes as usual.
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

from ... import _core
from .transport_info import NO_TLS, receives_fds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_selector_events: Any = asyncio.selector_events
_SelectorDatagramTransport: Any = _selector_events._SelectorDatagramTransport
_SelectorSocketTransport: Any = _selector_events._SelectorSocketTransport

# The maximum of descriptors per message on Linux: SCM_MAX_FD of net/scm.h.
_MAX_FDS = 253
# Room for that many descriptors, and for credentials, a security label and a pidfd, which a program
# may enable.
_ANCILLARY_SIZE = socket.CMSG_SPACE(_MAX_FDS * 4) + 1024
_CLOSE_ON_EXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
# The message type of the sender's pidfd (SO_PASSPIDFD, Linux 6.5), which is a descriptor, too.
_SCM_PIDFD = 4


class SelectorTransportMixin:
    """Overrides the methods with which asyncio's selector transports use loop._selector."""

    _closing: bool
    _loop: Any
    _sock: Any
    _sock_fd: int
    _buffer: Any
    is_reading: Callable[[], bool]
    get_write_buffer_size: Callable[[], int]

    # From 3.15 on asyncio passes the transport's context to the loop; None for datagrams.
    _context: Any = None

    def _in_context(self, callback: Callable[..., object]) -> tuple[Any, ...]:
        """Return the callback and its first arguments, so that it runs in the context."""
        return (callback,) if self._context is None else (self._context.run, callback)

    def _add_reader(self, fd: int, callback: Callable[..., object], *args: object) -> None:
        """Watch the fd for input, unless reading is paused; overrides asyncio's method."""
        if self.is_reading():
            self._loop._add_reader(fd, *self._in_context(callback), *args)

    def _add_writer(self, fd: int, callback: Callable[..., object], *args: object) -> None:
        """Watch the fd for writability; overrides asyncio's use of the selector."""
        self._loop._add_writer(fd, *self._in_context(callback), *args)

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
    """asyncio's datagram transport over the loop's watches."""

    if _SelectorDatagramTransport.is_reading is asyncio.ReadTransport.is_reading:
        # The first releases of 3.11 have no is_reading(): the transport reads until it is closed.
        def is_reading(self) -> bool:
            """Return true until the transport closes."""
            return not self._closing


class OtherStreamTransport(SelectorTransportMixin, _SelectorSocketTransport):  # type: ignore[misc]
    """asyncio's stream transport over the loop's watches."""

    def _socket_for_own_use(self) -> Any:
        """Return the socket, as StreamTransport._socket_for_own_use() does."""
        return self._sock

    def set_protocol(self, protocol: Any) -> None:
        """Set a protocol; one with the two buffer methods is served as a BufferedProtocol."""
        _SelectorSocketTransport.set_protocol(self, protocol)
        # asyncio's method recognizes buffered protocols by their class only.
        if not isinstance(protocol, BufferedProtocol) and _core._has_buffer_methods(protocol):
            self._read_ready_cb = self._read_ready__get_buffer


# ---- descriptors over Unix streams ---------------------------------------------------------------


def _close_fds(fds: Iterable[int]) -> None:
    """Close all descriptors."""
    for fd in fds:
        os.close(fd)


def _duplicate_fds(fds: Iterable[int]) -> list[int]:
    """Return duplicates of all descriptors; on an error close them again and raise it."""
    copies: list[int] = []
    try:
        for fd in fds:
            copies.append(os.dup(fd))
    except BaseException:
        _close_fds(copies)
        raise
    return copies


def _decode_fds(data: bytes) -> list[int]:
    """Decode the descriptors of an SCM_RIGHTS message."""
    whole = array.array("i")
    whole.frombytes(data[: len(data) // whole.itemsize * whole.itemsize])
    return whole.tolist()


class FdPassingSocket:
    """Passes descriptors for asyncio's transport, which has it instead of its Unix stream socket.

    A message with descriptors is sent by a call of its own, without bytes that were written
    before or after it. All other attributes are those of the socket.
    """

    def __init__(self, loop: Any, sock: socket.socket) -> None:
        """Wrap a socket; the caller sets `transport` as soon as the transport exists."""
        self._loop = loop
        self._sock = sock
        self._sent = 0
        # For each message: the position of its first byte in the stream, its length, descriptors.
        self._waiting: deque[tuple[int, int, list[int]]] = deque()
        self.transport: weakref.ref[DescriptorTransport] | None = None

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the socket that this object stands for."""
        return getattr(self._sock, name)

    def add(self, queued: int, length: int, fds: list[int]) -> None:
        """Send `fds` with the message of `length` bytes that begins after `queued` more bytes."""
        self._waiting.append((self._sent + queued, length, fds))

    # ---- called by the transport

    def send(self, data: Any) -> int:
        """Send the bytes before the next message with descriptors, or else that message.

        Returns the number of bytes that were sent.
        """
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
                _close_fds(fds)
        self._sent += sent
        self._loop._count("bytes_sent", sent)
        return sent

    def sendmsg(self, buffers: Iterable[Any]) -> int:
        """Send buffers; if a message with descriptors is queued, only the first non-empty one.

        Returns the number of bytes that were sent.
        """
        pieces = list(buffers)
        if self._waiting:
            # Older releases pass empty buffers: python/cpython#155888.
            return self.send(next(piece for piece in pieces if len(piece)))
        self._loop._flush_deferred_sends()
        sent = self._sock.sendmsg(pieces)
        self._sent += sent
        self._loop._count("bytes_sent", sent)
        return sent

    def recv(self, size: int) -> bytes:
        """Receive bytes, and deliver the descriptors that came with them.

        Raises BlockingIOError if the bytes must be dropped, which the transport handles as a
        socket without data. So does recv_into().
        """
        data, ancillary, flags, _ = self._sock.recvmsg(size, _ANCILLARY_SIZE, _CLOSE_ON_EXEC)
        self._received(len(data), ancillary, flags)
        return data

    def recv_into(self, buffer: Any) -> int:
        """Receive bytes into a buffer and deliver their descriptors; return the number of bytes."""
        size, ancillary, flags, _ = self._sock.recvmsg_into(
            [buffer], _ANCILLARY_SIZE, _CLOSE_ON_EXEC
        )
        self._received(size, ancillary, flags)
        return size

    def close(self) -> None:
        """Close the descriptors that were not sent, and the socket."""
        while self._waiting:
            _close_fds(self._waiting.popleft()[2])
        self._sock.close()

    def _received(self, size: int, ancillary: list[tuple[int, int, bytes]], flags: int) -> None:
        """Count the bytes and deliver received descriptors to the transport; close pidfds.

        Raises BlockingIOError if the bytes must be dropped. Without a transport the descriptors
        are closed.
        """
        self._loop._count("bytes_received", size)
        fds: list[int] = []
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds += _decode_fds(data)
            elif level == socket.SOL_SOCKET and kind == _SCM_PIDFD:
                _close_fds(fd for fd in _decode_fds(data) if fd >= 0)
        lost = bool(flags & socket.MSG_CTRUNC)
        if fds or lost:
            transport = self.transport() if self.transport is not None else None
            if transport is None:
                _close_fds(fds)
            elif not transport._deliver_fds(fds, lost):
                # The transport handles it as "no data": it waits for more unless it is closed.
                raise BlockingIOError


class DescriptorTransport(OtherStreamTransport):
    """A Unix stream whose protocol has `fds_received()`."""

    _sock: FdPassingSocket

    def __init__(self, loop: Any, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        """Wrap the socket in an FdPassingSocket; pass the other arguments to asyncio's class."""
        fd_socket = FdPassingSocket(loop, sock)
        super().__init__(loop, fd_socket, *args, **kwargs)
        fd_socket.transport = weakref.ref(self)

    def send_fds(self, data: Any, fds: Iterable[int]) -> None:
        """Write bytes, and send descriptors with the first of them.

        The message arrives in order with all other writes. The descriptors are duplicated
        immediately, so the caller may close its own when this returns. On a lost connection the
        data is dropped, as by write(). asyncio has no such method. Since 0.3.0.

        Args:
            data: The bytes, at least one, because a descriptor cannot be sent without bytes.
            fds: The numbers of at most 253 open descriptors.

        Raises:
            TypeError: The connection uses TLS, which cannot pass descriptors, or `data` is not
                bytes-like.
            ValueError: `data` is empty, or there are too many descriptors.
            RuntimeError: write_eof() was called, or sendfile() uses the transport.
            OSError: A descriptor is not open, or cannot be duplicated; nothing is sent.
        """
        if isinstance(self._protocol, sslproto.SSLProtocol):
            raise TypeError(NO_TLS)
        # write() raises its own errors, and drops data of a lost connection.
        acceptable = isinstance(data, (bytes, bytearray, memoryview))
        if not acceptable or self._eof or self._conn_lost or self._empty_waiter is not None:
            self.write(data)
            return
        data, fds = bytes(data), list(fds)
        if not data:
            raise ValueError("data must have at least one byte, because descriptors need a message")
        if len(fds) > _MAX_FDS:
            raise ValueError(
                f"at most {_MAX_FDS} descriptors can be sent with one message, got {len(fds)}: "
                "send the remaining ones with another message"
            )
        if fds:
            copies = _duplicate_fds(fds)
            self._sock.add(self.get_write_buffer_size(), len(data), copies)
        self.write(data)

    def _deliver_fds(self, fds: list[int], lost: bool) -> bool:
        """Pass descriptors to the protocol; return true if it may get the bytes that follow.

        Without fds_received() they are closed. `lost`: the kernel has dropped some, so all are
        closed, and the connection is aborted with a reported OSError. An exception of
        fds_received() aborts the connection, too.
        """
        protocol = self._protocol
        if not receives_fds(protocol):
            _close_fds(fds)
            return True
        if lost:
            _close_fds(fds)
            exc = OSError(
                errno.EMFILE,
                "descriptors from the peer were lost, because this process may open no more: raise "
                "its limit (ulimit -n), or close received descriptors",
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
