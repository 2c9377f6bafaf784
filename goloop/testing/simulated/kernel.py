"""A simulated kernel (netloop/simulated), and the door to it.

``with Kernel(seed=7):`` puts the thread on the kernel: loops that it makes meanwhile and their
clock are the kernel's. Its sockets are those of sockets.py; a descriptor's number tells which
kernel has it. pybridge/golib/simulation_requests_linux.go answers the requests, and has the same
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
from ..._internal.loop import signals


class Ask(enum.IntEnum):
    """What can be asked of a kernel."""

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


_HEAD = struct.Struct("=8q")
_NONE = (0,) * 6
_NAME_MOST = 128
# Seconds; more than a simulation has (session.py), and still 63 bits of ns behind its end.
_LONGEST = 4e9
FIRST = 1 << 24  # the least descriptor of a simulated kernel
# The least number of a process; more than Linux gives to any (PID_MAX_LIMIT), so that no signal
# goes to a real one.
FIRST_PID = 1 << 23


def ask(
    what: Ask, target: int = 0, *args: int, data: bytes = b"", room: int = 0
) -> tuple[int, int, memoryview]:
    """A result, the answer's second number, and the bytes that came; OSError where it fails."""
    words = (what, target, *args, *_NONE[len(args) :])
    result = -errno.EINTR
    while result == -errno.EINTR:
        buffer = bytearray(_HEAD.size + max(room, len(data)))
        _HEAD.pack_into(buffer, 0, *words)
        if data:
            buffer[_HEAD.size : _HEAD.size + len(data)] = data
        result = _core._simulate(buffer)
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result, _HEAD.unpack_from(buffer)[5], memoryview(buffer)[_HEAD.size :]


class Kernel:
    """A kernel in memory.

    Its clock says ``start`` seconds first, and each call takes ``call_time`` seconds. A packet
    takes between ``latency[0]`` and ``latency[1]`` seconds. With ``trace`` it keeps a line for each
    call.
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
        if not 0 <= seed < 1 << 63:
            raise ValueError("a seed is a number from 0 to 2**63 - 1")
        times = map(_ns, (start, call_time, *latency))
        self._number = ask(Ask.MAKE, 0, seed, *times, trace)[0]
        _kernels.add(self._number)
        self.closed = False

    def __enter__(self) -> Kernel:
        ask(Ask.ENTER, self._number)
        signals.simulated.add(threading.get_ident())
        here[threading.get_ident()] = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        signals.simulated.discard(threading.get_ident())
        here.pop(threading.get_ident(), None)
        ask(Ask.LEAVE)

    def close(self) -> None:
        """Forgets the kernel, and its descriptors with it. Its loops are closed before."""
        _kernels.discard(self._number)
        self.closed = True
        ask(Ask.END, self._number)

    def set_faults(self, probability: float, *, resources: bool = False) -> None:
        """How probable each of the faults is that a program has to live with.

        With ``resources`` memory and descriptors run out as well.
        """
        ask(Ask.FAULTS, self._number, _ns(probability), resources)

    def decide(self, digits: bytes = b"") -> tuple[int, int]:
        """Digits from 0 to 127 make its decisions from now on, behind those of calls before.

        Of those it tells how many are left, and how many it has missed since the last call. Where
        it misses one it takes 0, which is the least: no fault, and the shortest time.
        """
        left, missed, _ = ask(Ask.DECIDE, self._number, len(digits), data=digits)
        return left, missed

    def reseed(self, seed: int) -> None:
        """A seed makes its decisions from now on."""
        ask(Ask.RESEED, self._number, seed)

    def now(self) -> float:
        """What the kernel's clock says, in seconds."""
        return self.now_ns() / 1e9

    def now_ns(self) -> int:
        """What the kernel's clock says, in nanoseconds."""
        return ask(Ask.NOW, self._number)[1]

    def end_time_at(self, ns: int) -> None:
        """Waits for what comes later than that fail with ETIME; 0: none does."""
        ask(Ask.END_OF_TIME, self._number, ns)

    def sleep(self, seconds: float) -> None:
        """Lets time pass, and what happens in it."""
        ask(Ask.SLEEP, self._number, _ns(seconds))

    def open_descriptors(self) -> int:
        """How many descriptors are open."""
        return ask(Ask.OPEN, self._number)[0]

    def trace(self) -> str:
        """The lines since the last call."""
        parts = []
        while (n := (answer := ask(Ask.TRACE, self._number, room=1 << 16))[0]) > 0:
            parts.append(answer[2][:n])
        return b"".join(parts).decode()

    @property
    def number(self) -> int:
        """What names this kernel in requests."""
        return self._number


# By thread, what it is on.
here: dict[int, Kernel] = {}
# By thread, its simulation: a World of patches.py.
worlds: dict[int, Any] = {}
# The host that runs, a HostRun of hosts.py; None: what is on no host.
host_here: contextvars.ContextVar[Any] = contextvars.ContextVar("host_here", default=None)


def host_number() -> int:
    """What the kernel calls the host that runs, or the program on it (owners.go)."""
    boot = host_here.get()
    number: int = 0 if boot is None else boot.number
    return number


def _ns(seconds: float) -> int:
    return round(min(seconds, _LONGEST) * 1e9)


_kernels: set[int] = set()


def _after_fork() -> None:
    """A child has none of its parent's kernels: its calls and its clock are the host's again."""
    if _kernels:
        _kernels.clear()
        here.clear()
        signals.simulated.clear()
        _core._simulate(bytearray(_HEAD.size))


os.register_at_fork(after_in_child=_after_fork)
