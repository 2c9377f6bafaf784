"""The virtual time that callbacks take.

If virtual time advanced only in idle loops, asyncio's most common race would never occur: a timer
comes due while a callback runs, becomes ready after the steps of that iteration, and cancels a task
that one of these steps has just woken.  Therefore time advances at two moments: after a timer is
set, so that equal delays end one after the other, and after an iteration, up to the next timer.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
import math
import random
from collections.abc import Callable
from typing import Any, Protocol

from .loop import SimulatedLoopMixin, nanosecond

TYPE_CHECKING = False
if TYPE_CHECKING:
    import contextvars
    from typing import TypeVarTuple

    _Ts = TypeVarTuple("_Ts")

# Upper limit in nanoseconds for the callbacks of an iteration: asyncio logs slower callbacks.
LONGEST = 100_000_000
# Pauses after a timer is set, in nanoseconds, which separate timers that are due together.  A run
# has one of _AMONG: each pause has the probability 1/_AMONG, or never occurs if that is 0.
_PAUSES = (1000, 10_000, 100_000, 1_000_000)
_AMONG = (0, 32, 8)
# The probability that an iteration lasts until the next timer is 4/8, and 6/8 if the timer is due
# within _NEAR nanoseconds.
_CHANCES, _LAST, _LAST_NEAR = 8, 4, 6
_NEAR = 100_000


class CallbackTimes(Protocol):
    """Decides when virtual time advances during callbacks."""

    def pause_after_timer(self) -> int:
        """Return the nanoseconds that pass after a timer was set."""

    def reaches_next_timer(self, ns: int) -> bool:
        """Return true if the iteration lasts until the next timer, which is due in `ns`."""


class RandomCallbackTimes:
    """Random times; if the generator gives its lowest numbers, no time passes."""

    def __init__(self, generator: random.Random) -> None:
        """Choose the range of the times by the generator, which then gives the times, too."""
        self._random = generator
        self._among = _AMONG[generator.randrange(len(_AMONG))]

    def pause_after_timer(self) -> int:
        """Return 0 or one of _PAUSES, at random."""
        if not self._among:
            return 0
        least = self._among - len(_PAUSES)
        number = self._random.randrange(self._among)
        return 0 if number < least else _PAUSES[number - least]

    def reaches_next_timer(self, ns: int) -> bool:
        """Return true at random, more often if the timer is near."""
        chances = _LAST_NEAR if ns <= _NEAR else _LAST
        return self._random.randrange(_CHANCES) >= _CHANCES - chances


class TimedLoopMixin(SimulatedLoopMixin):
    """A loop whose callbacks take virtual time.

    It has its own heap of timers, so that goloop's and asyncio's loop find the same next timer.
    """

    def __init__(self, simulation: Any, *args: Any) -> None:
        """Create the loop with an empty heap of timers; the arguments are the base class's."""
        self._now: Callable[[], float]
        self._due: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._orders = itertools.count()
        super().__init__(simulation, *args)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback as asyncio does; afterwards virtual time may advance.

        call_later() calls this method.
        """
        timer = super().call_at(when, callback, *args, context=context)
        if math.isfinite(
            timer.when()
        ):  # infinite deadlines never come due; anyio.sleep_forever() uses one
            heapq.heappush(self._due, (timer.when(), next(self._orders), timer))
        self._simulation.timer_was_set()
        return timer

    def next_timer(self) -> int | None:
        """Return the time in nanoseconds at which the next timer comes due; drop due timers.

        None if no timer comes due within the longest duration of an iteration.
        """
        due, now = self._due, self._now()
        while due and (due[0][0] <= now or due[0][2].cancelled()):
            heapq.heappop(due)
        if not due or due[0][0] - now > 2 * LONGEST / 1e9:
            return None
        return nanosecond(due[0][0])


@functools.cache
def with_callback_times(loop: type) -> type:
    """Return a subclass of a loop class, with callbacks that take virtual time."""
    return type("BusyLoop", (TimedLoopMixin, loop), {"__module__": "goloop.testing"})
