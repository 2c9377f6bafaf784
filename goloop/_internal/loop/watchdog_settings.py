"""Watchdog, slow iterations and sampling of a loop; watchdog.py writes the reports.

watchdog.py is imported here and not in the thread that reports: a half-finished import in that
thread would be visible in sys.modules to the program that blocks the loop.
"""

from __future__ import annotations

import gc
import itertools
import math
import os
import warnings

from ... import _core, watchdog
from ..observe import flight_recorder, profiling
from .base import CoreLoop

# Limits in seconds.
DEFAULT_LIMIT = 1.0
DEFAULT_SLOW = 0.05
# Samples per second for goloop.profile().
DEFAULT_RATE = 25.0


def _number_from_env(name: str, default: float, what: str = "seconds") -> float:
    """Return a number from the environment; if it is invalid, warn and return the default.

    `what` is the unit that the warning names.
    """
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        value = float(text)
        if not 0 <= value < 1e9:
            raise ValueError
    except ValueError:
        warnings.warn(
            f"{name}={text!r} is not a number of {what}; using the default {default:g}",
            RuntimeWarning,
            stacklevel=2,
        )
        return default
    return value


# The loops of this process are numbered for the reports.
_loop_numbers = itertools.count(1)


class WatchdogSettings(CoreLoop):
    """Configures the watchdog, the flight recorder and the sampling of a loop."""

    _loop_number = 0
    # True while a report is being logged.
    _report_in_progress = False

    # The number of the last reported block, and the block if its end is not reported yet.
    _reported_block = 0
    _last_block: watchdog.Blocked | None = None
    _sample_interval = 0.0
    _slow_limit = 0.0
    _limits = 0.0, 0.0

    def _init_watchdog(self) -> None:
        """Number a new loop, and set its limits and its sampling rate from the environment.

        The variables are GOLOOP_WATCHDOG, GOLOOP_WATCHDOG_ABORT, GOLOOP_SLOW and GOLOOP_PROFILE;
        without a real clock all are off. Also registers a callback of gc, once per process.
        """
        if _core._note_collection not in gc.callbacks:
            gc.callbacks.append(_core._note_collection)
        self._loop_number = next(_loop_numbers)
        limit = _number_from_env("GOLOOP_WATCHDOG", DEFAULT_LIMIT)
        rate = _number_from_env("GOLOOP_PROFILE", DEFAULT_RATE, "samples a second")
        self._sample_interval = 1 / min(rate, 1000.0) if rate else 0.0
        self._slow_limit = _number_from_env("GOLOOP_SLOW", DEFAULT_SLOW)
        self._limits = limit, _number_from_env("GOLOOP_WATCHDOG_ABORT", 0.0)
        if not self._system.has_real_clock:  # the monitor's clock would be another one
            self._sample_interval, self._slow_limit, self._limits = 0.0, 0.0, (0.0, 0.0)
        self._set_watchdog(*self._limits)
        self._set_slow_limit(self._slow_limit)
        self._set_sampling(self._sample_interval, self._loop_number)

    def set_watchdog(self, limit: float, *, abort_after: float = 0.0) -> None:
        """Report iterations of this loop that last longer than a limit.

        The report is made while the iteration lasts, to the log and to the subscribers of
        `goloop.watchdog.subscribe()`. A new loop has the limits of `GOLOOP_WATCHDOG` and
        `GOLOOP_WATCHDOG_ABORT`; their defaults are 1 second, and never. Since 0.3.0.

        Args:
            limit: Seconds; 0 disables the reports.
            abort_after: Seconds after which the stack is written to stderr and the process is
                ended by SIGABRT, so that a supervisor can restart it; 0 disables it.

        Raises:
            ValueError: A time is negative, infinite, or 1e9 seconds or more.
            RuntimeError: The loop is closed.
        """
        for name, value in (("limit", limit), ("abort_after", abort_after)):
            if not (math.isfinite(value) and 0 <= value < 1e9):
                raise ValueError(f"{name} must be >= 0 and < 1e9 seconds, got {value!r}")
        limits = float(limit), float(abort_after)
        self._set_watchdog(*limits)
        self._limits = limits

    def set_slow_limit(self, seconds: float) -> None:
        """Record iterations of this loop that last longer than a limit, for `slow_iterations()`.

        A new loop has the limit of `GOLOOP_SLOW`, by default 0.05 seconds. Since 0.3.0.

        Args:
            seconds: The limit; 0 disables the recording.

        Raises:
            ValueError: The time is negative, infinite, or 1e9 seconds or more.
            RuntimeError: The loop is closed.
        """
        if not (math.isfinite(seconds) and 0 <= seconds < 1e9):
            raise ValueError(f"seconds must be >= 0 and < 1e9, got {seconds!r}")
        self._set_slow_limit(float(seconds))
        self._slow_limit = float(seconds)

    def slow_iterations(self) -> list[flight_recorder.SlowIteration]:
        """Return the recorded slow iterations of this loop, oldest first.

        The monitor samples the stack of an iteration that takes long, without tracing. A process
        keeps the last 256 of all its loops. May be called from any thread. Since 0.3.0.
        """
        return flight_recorder.from_raw(profiling.snapshot(), self._loop_number)

    # ---- called by C -------------------------------------------------------------

    def _blocked(self) -> None:
        """Report an iteration that exceeds the limit; the goloop-report thread calls this."""
        watchdog.report(self)

    def _block_ended(self, seconds: float) -> None:
        """Report the end of a blocked iteration, which lasted `seconds`; called in the next one."""
        watchdog.report_end(self, seconds)
