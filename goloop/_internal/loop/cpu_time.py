"""The processor time that a loop's thread takes while it runs the loop.

The loop's thread begins and ends a run; any thread asks, also while the run goes on: then the
kernel tells the time of that thread, whose clock is a number and not its memory, so that it may end
at any moment.  What was told is never more than what is told later.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

# Re-entrant, for a signal handler may ask.  What is done under it waits for nothing.
_busy = threading.RLock()


def _in_child() -> None:
    # Another thread may have asked at the moment of the fork.
    global _busy
    _busy = threading.RLock()


os.register_at_fork(after_in_child=_in_child)

# Not everywhere (macOS): there a run counts when it has ended.
_clock_of = getattr(time, "pthread_getcpuclockid", None)


class CpuTime:
    """Of one loop, in nanoseconds."""

    __slots__ = ("_began", "_clock", "_ended", "_told")

    def __init__(self) -> None:
        self._clock: int | None = None
        # Of the thread's clock, when the run began; and what the runs before have taken.
        self._began = self._ended = self._told = 0

    def begin(self) -> None:
        """This thread begins to run the loop."""
        with _busy:
            self._began = time.thread_time_ns()
            if _clock_of is not None:
                self._clock = _clock_of(threading.get_ident())

    def end(self) -> None:
        """It has ended; its last moments are not lost."""
        with _busy:
            now = time.thread_time_ns()
            self._ended += now - self._began
            self._began, self._clock = now, None

    def so_far(self) -> int:
        """What all runs have taken."""
        with _busy:
            taken = self._ended
            if self._clock is not None:
                with contextlib.suppress(OSError):  # no such thread any more
                    taken += time.clock_gettime_ns(self._clock) - self._began
            self._told = max(self._told, taken)
            return self._told
