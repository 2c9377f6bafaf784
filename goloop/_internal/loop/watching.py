"""A loop's side of the watchdog; watchdog.py has the reports.

That module is imported here, and not by the thread that reports: what that imports stands half made
in sys.modules, where the program that blocks the loop finds it.
"""

from __future__ import annotations

import gc
import itertools
import math
import os
import threading
import warnings

from ... import _core, watchdog
from .base import CoreLoop
from .signals import simulated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..metrics.flight_recorder import SlowIteration

# Seconds.
DEFAULT_LIMIT = 1.0
DEFAULT_SLOW = 0.05
# Samples a second, for goloop.profile().
DEFAULT_RATE = 25.0


def _setting(name: str, default: float, what: str = "seconds") -> float:
    """A number of the environment, of seconds or a rate."""
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        value = float(text)
        if not 0 <= value < 1e9:
            raise ValueError
    except ValueError:
        warnings.warn(
            f"{name}={text!r} is not a number of {what}; {default:g} is used",
            RuntimeWarning,
            stacklevel=2,
        )
        return default
    return value


# Of the loops of this process, in reports.
_numbers = itertools.count(1)


class Watching(CoreLoop):
    """Blocked iterations are reported."""

    _loop_number = 0
    # The log was asked to take a report, and has not returned.
    _report_waits = False

    # The last block that was told of, and the one whose end was not told yet.
    _told_block = 0
    _last_block: watchdog.Blocked | None = None
    _sample_every = 0.0
    _slow = 0.0
    _limits = 0.0, 0.0

    def _init_watchdog(self) -> None:
        if _core._note_collection not in gc.callbacks:
            gc.callbacks.append(_core._note_collection)
        self._loop_number = next(_numbers)
        limit = _setting("GOLOOP_WATCHDOG", DEFAULT_LIMIT)
        rate = _setting("GOLOOP_PROFILE", DEFAULT_RATE, "samples a second")
        self._sample_every = 1 / min(rate, 1000.0) if rate else 0.0
        self._slow = _setting("GOLOOP_SLOW", DEFAULT_SLOW)
        self._limits = limit, _setting("GOLOOP_WATCHDOG_ABORT", 0.0)
        if threading.get_ident() in simulated:  # the monitor's clock is the host's
            self._sample_every, self._slow, self._limits = 0.0, 0.0, (0.0, 0.0)
        self._set_watchdog(*self._limits)
        self._set_slow_limit(self._slow)
        self._set_sampling(self._sample_every, self._loop_number)

    def set_watchdog(self, limit: float, *, abort_after: float = 0.0) -> None:
        """Report iterations of this loop that last longer than a limit.

        The report comes while the iteration lasts, to the log and to the subscribers of
        `goloop.watchdog.subscribe()`.  A new loop has the limits that `GOLOOP_WATCHDOG` and
        `GOLOOP_WATCHDOG_ABORT` tell; without them these are 1 second, and never.  Since 0.3.0.

        Args:
            limit: Seconds; 0 reports none.
            abort_after: Seconds after which the stack is written to stderr and the process is
                ended by SIGABRT, for a supervisor to start another; 0 ends none.

        Raises:
            ValueError: A time is negative, infinite, or 1e9 seconds or more.
            RuntimeError: The loop is closed.
        """
        for name, value in (("limit", limit), ("abort_after", abort_after)):
            if not (math.isfinite(value) and 0 <= value < 1e9):
                raise ValueError(f"{name} is a number of seconds, not {value!r}")
        limits = float(limit), float(abort_after)
        self._set_watchdog(*limits)
        self._limits = limits

    def set_slow_limit(self, seconds: float) -> None:
        """Record iterations of this loop that last longer than this, for `slow_iterations()`.

        A new loop has what `GOLOOP_SLOW` tells, without that 0.05 seconds.  Since 0.3.0.

        Args:
            seconds: 0 records none.

        Raises:
            ValueError: The time is negative, infinite, or 1e9 seconds or more.
            RuntimeError: The loop is closed.
        """
        if not (math.isfinite(seconds) and 0 <= seconds < 1e9):
            raise ValueError(f"a limit is a number of seconds, not {seconds!r}")
        self._set_slow_limit(float(seconds))
        self._slow = float(seconds)

    def slow_iterations(self) -> list[SlowIteration]:
        """The last iterations of this loop that have lasted longer than its limit, oldest first.

        They are known without tracing: the monitor looks at an iteration that gets long.  A process
        keeps 256, of all its loops.  May be called from any thread.  Since 0.3.0.
        """
        # Not needed by programs that only run.
        from ..metrics import flight_recorder, profiling

        return flight_recorder.from_raw(profiling.snapshot(), self._loop_number)

    # ---- called by C -------------------------------------------------------------

    def _blocked(self) -> None:
        watchdog.report(self)

    def _block_ended(self, seconds: float) -> None:
        watchdog.report_end(self, seconds)
