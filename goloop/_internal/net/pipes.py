"""Pipes: the native transports of their two ends.

connect_read_pipe and connect_write_pipe are inherited and create their transports here, and so
does the subprocess transport for a child's pipes.

A program that passes a file to connect_write_pipe can also use the file directly, and so can other
code: a print() or a child with the same stdout may write to it just after the transport's
write(). So write() sends to such a pipe immediately, as in asyncio. Only writes to a child's stdin
are queued until the next turn, because no other code has that pipe.

stdin and stdout may be the same socket (inetd, ssh's ProxyCommand, socat). Received data then
belongs to the reader, and does not mean that the writer's peer has closed.

A socket with message boundaries gets asyncio's own transports: its messages may be as long as
those that asyncio reads, and no two of them may be joined.
"""

from __future__ import annotations

import asyncio
import asyncio.unix_events
import contextlib
import os
import socket
import stat
from asyncio import base_subprocess, futures

from ... import _core
from ..loop import arg_errors
from ..loop.base import CoreLoop
from .transport_info import fatal_error, repr_head

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_set_result: Any = futures._set_result_unless_cancelled  # type: ignore[attr-defined]
_unix_events: Any = asyncio.unix_events


def _is_pipe_or_socket(pipe: Any, refusal: str) -> bool:
    """Return true for a FIFO or a socket, false for a character device; else raise ValueError."""
    mode = os.fstat(pipe.fileno()).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        return True
    if not stat.S_ISCHR(mode):
        raise ValueError(refusal)
    return False


def _has_message_boundaries(pipe: Any) -> bool:
    """Return true if the file is a socket of another type than SOCK_STREAM."""
    fd = pipe.fileno()
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        return False
    sock = socket.socket(fileno=fd)
    try:
        return sock.type != socket.SOCK_STREAM
    finally:
        sock.detach()


def _socket_identity(pipe: Any) -> tuple[int, int] | None:
    """Return the device and inode of a pipe's file if that is a socket, else None."""
    status = os.fstat(pipe.fileno())
    return (status.st_dev, status.st_ino) if stat.S_ISSOCK(status.st_mode) else None


def _transports_of_socket(loop: CoreLoop, pipe: Any, kind: Any) -> list[Any]:
    """Return the loop's open transports of the class `kind` that have the same socket."""
    sock = _socket_identity(pipe)
    if sock is None:
        return []
    found = []
    for transport in loop._all_transports():
        if isinstance(transport, kind) and transport._fileno is not None:
            with contextlib.suppress(OSError):
                if _socket_identity(transport._pipe) == sock:
                    found.append(transport)
    return found


def _pipe_repr(transport: Any, polled: str) -> str:
    """Return the repr of a pipe transport; `polled` is its state while the loop runs."""
    fd = transport._fileno
    if transport._fd < 0:
        state = "closed"
    elif transport._loop is None or transport._loop.is_closed():
        state = "open"
    else:
        state = polled
    return f"<{repr_head(transport)} fd={fd} {state}>"


class ReadPipeTransport(_core.ReadPipeTransport):
    """The read end of a pipe as an asyncio.ReadTransport."""

    def __init__(
        self,
        loop: CoreLoop,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        """Create the transport of a file object; ValueError for a file that is not pollable.

        Adds the entry "pipe" to `extra`, and sets the result of `waiter` in the next iteration.
        """
        entries = {} if extra is None else extra
        entries["pipe"] = pipe
        _is_pipe_or_socket(pipe, "Pipe transport is for pipes/sockets only.")
        super().__init__(loop, pipe, protocol, None, entries)
        if waiter is not None:
            loop.call_soon(_set_result, waiter, None)

    _close = _core.ReadPipeTransport._force_close
    _fatal_error = fatal_error

    @property
    def _fileno(self) -> int | None:
        """The pipe's descriptor, or None after the end; asyncio's name, which programs read."""
        return self._sock_fd if self._sock_fd >= 0 else None

    @property
    def _pipe(self) -> Any:
        """The pipe's file object, or None after it was detached; asyncio's name."""
        return self._owner

    @_pipe.setter
    def _pipe(self, pipe: None) -> None:
        """Detach the pipe without closing it, as in asyncio; AttributeError if not set to None."""
        if pipe is not None:
            raise AttributeError("_pipe can only be set to None")
        self._let_go()

    def __repr__(self) -> str:
        return _pipe_repr(self, "polling" if self._receives else "idle")


class WritePipeTransport(_core.StreamTransport):
    """The write end of a pipe as an asyncio.WriteTransport."""

    def __init__(
        self,
        loop: CoreLoop,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        """Create the transport of a file object; ValueError for a file that is not pollable.

        Adds the entry "pipe" to `extra`, and sets the result of `waiter` in the next iteration.
        The peer's end is noticed if the file is not a character device, and no read transport of
        the loop has the same socket.
        """
        entries = {} if extra is None else extra
        entries["pipe"] = pipe
        ends = _is_pipe_or_socket(
            pipe, "Pipe transport is only for pipes, sockets and character devices"
        )
        ends = ends and not _transports_of_socket(loop, pipe, ReadPipeTransport)
        own = isinstance(protocol, base_subprocess.WriteSubprocessPipeProto)
        super().__init__(
            loop, pipe, protocol, None, entries, exposed=not own, pipe=True, watch_end=ends
        )
        if waiter is not None:
            loop.call_soon(_set_result, waiter, None)

    _close = _core.StreamTransport._force_close
    _fatal_error = fatal_error
    _fileno = ReadPipeTransport._fileno
    _pipe = ReadPipeTransport._pipe
    # The methods of asyncio's write transport, which cannot read.
    is_reading = asyncio.ReadTransport.is_reading
    pause_reading = asyncio.ReadTransport.pause_reading
    resume_reading = asyncio.ReadTransport.resume_reading
    writelines = asyncio.WriteTransport.writelines

    @property
    def _conn_lost(self) -> int:
        """The number of writes after the connection was lost; asyncio's name."""
        return self._late_writes

    def write_eof(self) -> None:
        """Close the transport after the queued data is sent."""
        _core.StreamTransport.close(self)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Get optional transport information: 'pipe'.

        That entry flushes queued data, and from then on the pipe counts as exposed.
        """
        if name == "pipe" and not self._exposed:
            self._exposed = True
            self.get_write_buffer_size()  # flushes queued data
        return super().get_extra_info(name, default)

    def __repr__(self) -> str:
        size = self._queued
        return _pipe_repr(self, f"{'polling' if size else 'idle'} bufsize={size}")


arg_errors.use_asyncio_names(WritePipeTransport)


def make_reader(
    loop: CoreLoop,
    pipe: Any,
    protocol: asyncio.BaseProtocol,
    waiter: asyncio.Future[Any] | None,
    extra: dict[str, Any] | None,
) -> asyncio.ReadTransport:
    """Return the transport of connect_read_pipe(): native, or asyncio's for message sockets.

    A write transport that already uses the same socket stops watching whether the peer has closed.
    ValueError for a file that is not pollable.
    """
    message: Any = _unix_events._UnixReadPipeTransport
    kind: Any = message if _has_message_boundaries(pipe) else ReadPipeTransport
    made: asyncio.ReadTransport = kind(loop, pipe, protocol, waiter, extra)
    for writer in _transports_of_socket(loop, pipe, WritePipeTransport):
        writer._ignore_end()
    return made


def make_writer(
    loop: CoreLoop,
    pipe: Any,
    protocol: asyncio.BaseProtocol,
    waiter: asyncio.Future[Any] | None,
    extra: dict[str, Any] | None,
) -> asyncio.WriteTransport:
    """Return the transport of connect_write_pipe(): native, or asyncio's for message sockets.

    ValueError for a file that is not pollable.
    """
    message: Any = _unix_events._UnixWritePipeTransport
    kind: Any = message if _has_message_boundaries(pipe) else WritePipeTransport
    made: asyncio.WriteTransport = kind(loop, pipe, protocol, waiter, extra)
    return made
