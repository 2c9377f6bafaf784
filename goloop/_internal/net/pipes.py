"""Pipes: the native transports of their two ends.

connect_read_pipe and connect_write_pipe are inherited and ask for transports here, as
the subprocess transport does for a child's pipes.

A program that gives a file to connect_write_pipe has it too, and so may others: a print() or a
child on the same stdout writes right behind write().  So such a pipe is written to at once, as
asyncio's are.  Only what goes to a child's stdin is collected: no other code has that pipe.

stdin and stdout may be one socket (inetd, ssh's ProxyCommand, socat).  What comes is then for its
reader, and no sign that the writer's peer has gone.

A socket that keeps messages apart has asyncio's own transports: its messages may be as long as
asyncio's reads, and no two of them may become one.
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
from .transport_info import fatal_error, head

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_wake: Any = futures._set_result_unless_cancelled  # type: ignore[attr-defined]
_unix_events: Any = asyncio.unix_events


def _kind(pipe: Any, refusal: str) -> bool:
    """Whether it is a FIFO or a socket, and no character device; ValueError for the rest."""
    mode = os.fstat(pipe.fileno()).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        return True
    if not stat.S_ISCHR(mode):
        raise ValueError(refusal)
    return False


def _keeps_messages(pipe: Any) -> bool:
    """Whether it is a socket of another kind than SOCK_STREAM."""
    fd = pipe.fileno()
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        return False
    sock = socket.socket(fileno=fd)
    try:
        return sock.type != socket.SOCK_STREAM
    finally:
        sock.detach()


def _socket_of(pipe: Any) -> tuple[int, int] | None:
    """Which socket a pipe's file is; None where it is none."""
    facts = os.fstat(pipe.fileno())
    return (facts.st_dev, facts.st_ino) if stat.S_ISSOCK(facts.st_mode) else None


def _pipes_of(loop: CoreLoop, pipe: Any, kind: Any) -> list[Any]:
    """The loop's open transports of this kind that have the same socket."""
    sock = _socket_of(pipe)
    if sock is None:
        return []
    found = []
    for transport in loop._all_transports():
        if isinstance(transport, kind) and transport._fileno is not None:
            with contextlib.suppress(OSError):
                if _socket_of(transport._pipe) == sock:
                    found.append(transport)
    return found


def _described(transport: Any, polled: str) -> str:
    fd = transport._fileno
    if transport._number < 0:
        state = "closed"
    elif transport._loop is None or transport._loop.is_closed():
        state = "open"
    else:
        state = polled
    return f"<{head(transport)} fd={fd} {state}>"


class ReadPipeTransport(_core.ReadPipeTransport):
    """The reading end of a pipe as an asyncio.ReadTransport."""

    def __init__(
        self,
        loop: CoreLoop,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        entries = {} if extra is None else extra
        entries["pipe"] = pipe
        _kind(pipe, "Pipe transport is for pipes/sockets only.")
        super().__init__(loop, pipe, protocol, None, entries)
        if waiter is not None:
            loop.call_soon(_wake, waiter, None)

    _close = _core.ReadPipeTransport._force_close
    _fatal_error = fatal_error

    @property
    def _fileno(self) -> int | None:
        return self._sock_fd if self._sock_fd >= 0 else None

    @property
    def _pipe(self) -> Any:
        return self._owner

    @_pipe.setter
    def _pipe(self, pipe: None) -> None:
        # As with asyncio's, `transport._pipe = None` lets go of the pipe, unclosed.
        if pipe is not None:
            raise AttributeError("_pipe can only be set to None")
        self._let_go()

    def __repr__(self) -> str:
        return _described(self, "polling" if self._receives else "idle")


class WritePipeTransport(_core.StreamTransport):
    """The writing end of a pipe as an asyncio.WriteTransport."""

    def __init__(
        self,
        loop: CoreLoop,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        entries = {} if extra is None else extra
        entries["pipe"] = pipe
        ends = _kind(pipe, "Pipe transport is only for pipes, sockets and character devices")
        ends = ends and not _pipes_of(loop, pipe, ReadPipeTransport)
        own = isinstance(protocol, base_subprocess.WriteSubprocessPipeProto)
        super().__init__(
            loop, pipe, protocol, None, entries, exposed=not own, pipe=True, watch_end=ends
        )
        if waiter is not None:
            loop.call_soon(_wake, waiter, None)

    _close = _core.StreamTransport._force_close
    _fatal_error = fatal_error
    _fileno = ReadPipeTransport._fileno
    _pipe = ReadPipeTransport._pipe
    # Those of asyncio's, which does not read.
    is_reading = asyncio.ReadTransport.is_reading
    pause_reading = asyncio.ReadTransport.pause_reading
    resume_reading = asyncio.ReadTransport.resume_reading
    writelines = asyncio.WriteTransport.writelines

    @property
    def _conn_lost(self) -> int:
        return self._late_writes

    def write_eof(self) -> None:
        """Close the transport once buffered data is sent."""
        _core.StreamTransport.close(self)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Get optional transport information: 'pipe'."""
        if name == "pipe" and not self._exposed:
            self._exposed = True
            self.get_write_buffer_size()  # sends what waits
        return super().get_extra_info(name, default)

    def __repr__(self) -> str:
        size = self._queued
        return _described(self, f"{'polling' if size else 'idle'} bufsize={size}")


arg_errors.named_as(WritePipeTransport)


class Pipes(CoreLoop):
    """Transports of pipes."""

    def _make_read_pipe_transport(
        self,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> asyncio.ReadTransport:
        message: Any = _unix_events._UnixReadPipeTransport
        kind: Any = message if _keeps_messages(pipe) else ReadPipeTransport
        made: asyncio.ReadTransport = kind(self, pipe, protocol, waiter, extra)
        for writer in _pipes_of(self, pipe, WritePipeTransport):
            writer._ignore_end()
        return made

    def _make_write_pipe_transport(
        self,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> asyncio.WriteTransport:
        message: Any = _unix_events._UnixWritePipeTransport
        kind: Any = message if _keeps_messages(pipe) else WritePipeTransport
        made: asyncio.WriteTransport = kind(self, pipe, protocol, waiter, extra)
        return made
