"""The processor time that a loop's thread takes while it runs the loop.

The loop's thread begins and ends a run; any thread asks, also while the run goes on: then the
kernel tells the time of that thread, whose clock is a number and not its memory, so that it may end
at any moment.  What was told is never more than what is told later.
"""

from __future__ import annotations

import contextlib
import struct
import threading
import time

# Not everywhere (macOS): there a run counts when it has ended.
_clock_of = getattr(time, "pthread_getcpuclockid", None)
# CLOCK_REALTIME, which is no thread's.
_NO_CLOCK = 0

_STATE = struct.Struct("=3q")
_pack, _unpack = _STATE.pack, _STATE.unpack


class CpuTime:
    """Of one loop, in nanoseconds.

    There is no lock: a KeyboardInterrupt may come between a lock and its release.  What belongs
    together is one bytes object, which one thread replaces and all read.  A tuple would do as well,
    but the collector tracks it: a leak test would find a new object after each run of a loop.
    """

    __slots__ = ("_state", "_told")

    def __init__(self) -> None:
        # What the runs before have taken; and of a run, what its thread's clock said first, and
        # that clock.
        self._state = _pack(0, 0, _NO_CLOCK)
        self._told = 0

    def begin(self) -> None:
        """This thread begins to run the loop."""
        clock = _clock_of(threading.get_ident()) if _clock_of is not None else _NO_CLOCK
        self._state = _pack(_unpack(self._state)[0], time.thread_time_ns(), clock)

    def end(self) -> None:
        """It has ended; its last moments are not lost."""
        ended, began, _ = _unpack(self._state)
        self._state = _pack(ended + time.thread_time_ns() - began, 0, _NO_CLOCK)

    def so_far(self) -> int:
        """What all runs have taken."""
        state = None
        while state is not self._state:  # else a run has begun or ended meanwhile
            state = self._state
            taken, began, clock = _unpack(state)
            if clock != _NO_CLOCK:
                with contextlib.suppress(OSError):  # no such thread any more
                    taken += time.clock_gettime_ns(clock) - began
        # Not max(): another thread's turn may come behind a call, and its figure be the greater.
        if taken > self._told:
            self._told = taken
        return self._told
