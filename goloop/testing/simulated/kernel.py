"""The simulated kernel (netloop/simulated), and the requests that Python sends to it.

``with Kernel(seed=7):`` switches the thread to the kernel: loops that the thread makes in the block
use the kernel and its clock. The sockets are those of sockets.py; a descriptor's number identifies
its kernel. pybridge/golib/system_requests_linux.go serves the requests, and has the same
numbers for them.
"""

from __future__ import annotations

import contextvars
import enum
import errno
import os
import struct
import threading
from types import TracebackType
from typing import Any

from ... import _core
from ..._internal import system


class Request(enum.IntEnum):
    """The requests to a kernel; the numbers are those of system_requests_linux.go."""

    MAKE = 0
    END = 1
    ENTER = 2
    LEAVE = 3
    NOW = 4
    SLEEP = 5
    TRACE = 6
    OPEN = 7
    SOCKET = 8
    SOCKETPAIR = 9
    BIND = 10
    LISTEN = 11
    CONNECT = 12
    ACCEPT = 13
    RECV = 14
    SEND = 15
    SHUTDOWN = 16
    CLOSE = 17
    SOCKNAME = 18
    PEERNAME = 19
    SET_OPTION = 20
    GET_OPTION = 21
    LINGER = 22
    CONTROL = 23
    DUP = 24
    UNLINK = 25
    FAULTS = 26
    END_OF_TIME = 27
    MAKE_HOST = 28
    CHANGE_HOST = 29
    LINK = 30
    WAY = 31
    SET_FAULTS = 32
    FAIL = 33
    EPOLL = 34
    EPOLL_CONTROL = 35
    EPOLL_WAIT = 36
    PIPE = 37
    READ = 38
    WRITE = 39
    INODE = 40
    END_PROGRAM = 41
    DECIDE = 42
    RESEED = 43


_HEADER = struct.Struct("=8q")
_NO_ARGUMENTS = (0,) * 6
_MAX_NAME = 128
# Seconds; longer than any simulation (session.py), and still less than 2**63 nanoseconds.
_LONGEST = 4e9
FIRST = system.FIRST_OTHER_FD  # the lowest descriptor of a simulated kernel
# The lowest process id of a simulated program; above Linux's PID_MAX_LIMIT, so that no signal
# reaches a real process.
FIRST_PID = 1 << 23


def request(
    kind: Request, target: int = 0, *args: int, data: bytes = b"", room: int = 0
) -> tuple[int, int, memoryview]:
    """Send a request to the simulated kernel; OSError if it fails.

    After EINTR, which a fault may inject, the request is repeated.

    Args:
        kind: The request.
        target: The kernel's number or a descriptor.
        *args: Up to six numbers.
        data: Bytes to pass.
        room: Size of the buffer for bytes of the answer.

    Returns:
        The result, the second number of the answer, and the bytes of the answer.
    """
    words = (kind, target, *args, *_NO_ARGUMENTS[len(args) :])
    result = -errno.EINTR
    while result == -errno.EINTR:
        buffer = bytearray(_HEADER.size + max(room, len(data)))
        _HEADER.pack_into(buffer, 0, *words)
        if data:
            buffer[_HEADER.size : _HEADER.size + len(data)] = data
        result = _core._ask_system(buffer)
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result, _HEADER.unpack_from(buffer)[5], memoryview(buffer)[_HEADER.size :]


class SimulatedSystem(system.System):
    """The system of all simulated kernels; sockets.py sets the class of its sockets."""

    has_signals = False  # the pipe of a loop's signals would be the real kernel's
    has_real_clock = False
    passes_fds = False


system.other = SimulatedSystem()


class Kernel:
    """A kernel in memory.

    Its clock starts at ``start`` seconds, and each call takes ``call_time`` seconds. A packet
    takes between ``latency[0]`` and ``latency[1]`` seconds. With ``trace`` it records a line for
    each call. ValueError if the seed is not from 0 to 2**63 - 1.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        start: float = 1.0,
        call_time: float = 0.0,
        latency: tuple[float, float] = (0.0, 0.0),
        trace: bool = False,
    ) -> None:
        """Create the kernel, which close() frees; the class describes the arguments."""
        if not 0 <= seed < 1 << 63:
            raise ValueError(f"a seed must be a number from 0 to 2**63 - 1, got {seed}")
        times = map(_ns, (start, call_time, *latency))
        self._number = request(Request.MAKE, 0, seed, *times, trace)[0]
        _kernels.add(self._number)
        self.closed = False

    def __enter__(self) -> Kernel:
        """Let the current thread's system calls go to this kernel."""
        request(Request.ENTER, self._number)
        system.threads_on_other.add(_core._thread_ident())
        kernel_of_thread[threading.get_ident()] = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let the current thread's system calls go to the real kernel again."""
        system.threads_on_other.discard(_core._thread_ident())
        kernel_of_thread.pop(threading.get_ident(), None)
        request(Request.LEAVE)

    def close(self) -> None:
        """Free the kernel and its descriptors. Its loops must have been closed before."""
        _kernels.discard(self._number)
        self.closed = True
        request(Request.END, self._number)

    def set_faults(self, probability: float, *, resources: bool = False) -> None:
        """Set the probability of each fault that a program must handle.

        With ``resources`` calls also fail because memory or descriptors are exhausted.
        """
        request(Request.FAULTS, self._number, _ns(probability), resources)

    def decide(self, digits: bytes = b"") -> tuple[int, int]:
        """Append digits from 0 to 127, from which the kernel makes its next decisions.

        Without digits the kernel takes 0: no fault, and the shortest time.

        Returns:
            The number of unused digits, and the number of decisions since the last call for which
            there was no digit.
        """
        left, missed, _ = request(Request.DECIDE, self._number, len(digits), data=digits)
        return left, missed

    def reseed(self, seed: int) -> None:
        """Derive all further decisions from a seed."""
        request(Request.RESEED, self._number, seed)

    def now(self) -> float:
        """Return the kernel's clock in seconds."""
        return self.now_ns() / 1e9

    def now_ns(self) -> int:
        """Return the kernel's clock in nanoseconds."""
        return request(Request.NOW, self._number)[1]

    def end_time_at(self, ns: int) -> None:
        """Set the end of time in nanoseconds: longer waits fail with ETIME; 0 means no end."""
        request(Request.END_OF_TIME, self._number, ns)

    def sleep(self, seconds: float) -> None:
        """Advance the clock and process the events that are due in this time.

        OSError with ETIME if the time would pass the end of time.
        """
        request(Request.SLEEP, self._number, _ns(seconds))

    def open_descriptors(self) -> int:
        """Return the number of open descriptors."""
        return request(Request.OPEN, self._number)[0]

    def trace(self) -> str:
        """Return the lines of the trace since the last call."""
        parts = []
        while (n := (answer := request(Request.TRACE, self._number, room=1 << 16))[0]) > 0:
            parts.append(answer[2][:n])
        return b"".join(parts).decode()

    @property
    def number(self) -> int:
        """Return the number that identifies this kernel in requests."""
        return self._number


# The simulated kernel of each thread, by thread id.
kernel_of_thread: dict[int, Kernel] = {}
# The simulation of each thread, by thread id: a Session of patches.py.
session_of_thread: dict[int, Any] = {}
# The HostRun (lifecycle.py) to which the running code belongs; None: code on no host.
current_host_run: contextvars.ContextVar[Any] = contextvars.ContextVar(
    "current_host_run", default=None
)


def owner_number() -> int:
    """Return the kernel's number for the current host or child program (owners.go)."""
    host_run = current_host_run.get()
    number: int = 0 if host_run is None else host_run.number
    return number


def _ns(seconds: float) -> int:
    """Convert seconds to whole nanoseconds, at most _LONGEST seconds."""
    return round(min(seconds, _LONGEST) * 1e9)


_kernels: set[int] = set()


def _after_fork() -> None:
    """Use the real kernel and clock in a forked child: it has none of its parent's kernels."""
    if _kernels:
        _kernels.clear()
        kernel_of_thread.clear()
        system.threads_on_other.clear()
        _core._ask_system(bytearray(_HEADER.size))


os.register_at_fork(after_in_child=_after_fork)
