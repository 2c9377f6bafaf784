"""Busy polling of a loop: its setting by GOLOOP_BUSY_POLL and loop.set_busy_poll().

netloop/busy_poll.go does the polling, and decides when it does not pay.
"""

from __future__ import annotations

import math
import os
import warnings

from .base import CoreLoop

# Seconds.  A peer that answers later than this gains nothing: a wake-up takes some microseconds.
MAX_BUSY_POLL = 0.01

_UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def _from_env() -> float | None:
    """Return the seconds of GOLOOP_BUSY_POLL; None if it is unset, or with a warning if invalid."""
    text = os.environ.get("GOLOOP_BUSY_POLL")
    if text is None:
        return None
    number, scale = text.strip(), 1.0
    for unit, seconds in _UNITS.items():
        if number.endswith(unit):
            number, scale = number.removesuffix(unit), seconds
            break
    try:
        return _checked(float(number) * scale)
    except ValueError:
        warnings.warn(
            f"GOLOOP_BUSY_POLL={text!r} is not a time from 0 to {MAX_BUSY_POLL * 1e3:g}ms, such as "
            "50us; it is ignored",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def _checked(seconds: float) -> float:
    """Return the seconds as a float; ValueError if they are out of range."""
    if not (math.isfinite(seconds) and 0 <= seconds <= MAX_BUSY_POLL):
        raise ValueError(f"seconds must be >= 0 and <= {MAX_BUSY_POLL}, got {seconds!r}")
    return float(seconds)


class BusyPolling(CoreLoop):
    """Configures busy polling of a loop."""

    def _init_busy_poll(self) -> None:
        """Set the time of GOLOOP_BUSY_POLL, without a call of a subclass's method."""
        BusyPolling.set_busy_poll(self, _from_env())

    def set_busy_poll(self, seconds: float | None) -> None:
        """Poll without sleeping for up to this time before this loop sleeps.

        The thread does not hold the GIL meanwhile, but uses its processor. A loop polls in this way
        only after an event; it stops for a while if other threads need the processor, or if too few
        attempts find an event. `loop.metrics()` counts attempts, hits and their time. A new loop
        has the time of `GOLOOP_BUSY_POLL` (such as `50us`), by default None. With a virtual
        clock the loop never polls in this way. Since 0.3.0.

        Args:
            seconds: At most 0.01. None: twice the processor time of a sleep, which the loop
                measures, while that saves processor time. 0: never. 20 to 100 microseconds are
                for services with little load that need short latencies and have a processor to
                spare.

        Raises:
            ValueError: The time is negative, or more than 0.01 seconds.
            RuntimeError: The loop is closed.
        """
        if seconds is not None:
            seconds = _checked(seconds)
        if not self._system.has_real_clock:  # the clock stands still while the loop polls
            seconds = 0.0
        self._set_busy_poll(seconds)
