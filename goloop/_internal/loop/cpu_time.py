"""CPU time of a loop's thread while it runs the loop.

The loop's thread marks the begin and the end of a run. Any thread may read the time, also during
a run: it then reads the CPU clock of the loop's thread from the kernel. That clock is identified
by a number, so the thread may end at any moment. The reported time never decreases.
"""

from __future__ import annotations

import contextlib
import struct
import time

from ... import _core

_thread_ident = _core._thread_ident
# Not available on macOS: a run's time is added when the run ends.
_clock_of = getattr(time, "pthread_getcpuclockid", None)
# CLOCK_REALTIME, which is not the clock of any thread.
_NO_CLOCK = 0

_STATE = struct.Struct("=3q")
_pack, _unpack = _STATE.pack, _STATE.unpack


class CpuTime:
    """The CPU time of one loop, in nanoseconds.

    It uses no lock, because a KeyboardInterrupt may come between acquiring and releasing one.
    Values that belong together are in one bytes object, which one thread replaces and all threads
    read. A tuple would do, too, but the garbage collector tracks tuples: a leak test would find a
    new object after each run of a loop.
    """

    __slots__ = ("_reported", "_state")

    def __init__(self) -> None:
        """Start without a run and without CPU time."""
        # Nanoseconds of all earlier runs; of the current run, the clock's value at its begin,
        # and the clock.
        self._state = _pack(0, 0, _NO_CLOCK)
        self._reported = 0

    def begin(self) -> None:
        """Mark the begin of a run by the current thread."""
        clock = _clock_of(_thread_ident()) if _clock_of is not None else _NO_CLOCK
        self._state = _pack(_unpack(self._state)[0], time.thread_time_ns(), clock)

    def end(self) -> None:
        """Mark the end of a run and add its time."""
        ended, began, _ = _unpack(self._state)
        self._state = _pack(ended + time.thread_time_ns() - began, 0, _NO_CLOCK)

    def total_ns(self) -> int:
        """Return the CPU time of all runs, including the current one, in nanoseconds."""
        state = None
        while state is not self._state:  # repeat if a run has begun or ended meanwhile
            state = self._state
            taken, began, clock = _unpack(state)
            if clock != _NO_CLOCK:
                with contextlib.suppress(OSError):  # the thread has ended
                    taken += time.clock_gettime_ns(clock) - began
        # Not max(): during a call another thread could store a greater value.
        if taken > self._reported:
            self._reported = taken
        return self._reported
