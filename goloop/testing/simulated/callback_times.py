"""How long callbacks take in virtual time.

If time stood still while anything is ready, asyncio's most common race would never show: a timer
comes due while a callback runs, becomes ready after that iteration's steps, and cancels a task that
one of these steps has just woken.  So time passes at two moments: after a timer is set, so that
equal delays end one after the other, and after an iteration, up to the next timer.
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

from .loop import Simulated, nanosecond

TYPE_CHECKING = False
if TYPE_CHECKING:
    import contextvars
    from typing import TypeVarTuple

    _Ts = TypeVarTuple("_Ts")

# Nanoseconds that the callbacks of an iteration take at most: asyncio calls longer ones slow.
LONGEST = 100_000_000
# Pauses behind a timer, in nanoseconds.  Each has one chance among 32 in some runs, among 8 in
# others, and none in the rest: a pause parts timers that are due together.
_PAUSES = (1000, 10_000, 100_000, 1_000_000)
_AMONG = (0, 32, 8)
# An iteration lasts until the next timer by 4 of 8 chances, or by 6 where that is near
# (nanoseconds).
_CHANCES, _LAST, _LAST_NEAR = 8, 4, 6
_NEAR = 100_000


class Moments(Protocol):
    """Decides when time passes."""

    def pause(self) -> int:
        """Nanoseconds that pass behind a timer that is set."""

    def lasts(self, ns: int) -> bool:
        """Whether an iteration goes on until the next timer is due, in so many nanoseconds."""


class Drawn:
    """By chance; with the least numbers no time passes."""

    def __init__(self, generator: random.Random) -> None:
        self._random = generator
        self._among = _AMONG[generator.randrange(len(_AMONG))]

    def pause(self) -> int:
        if not self._among:
            return 0
        least = self._among - len(_PAUSES)
        number = self._random.randrange(self._among)
        return 0 if number < least else _PAUSES[number - least]

    def lasts(self, ns: int) -> bool:
        chances = _LAST_NEAR if ns <= _NEAR else _LAST
        return self._random.randrange(_CHANCES) >= _CHANCES - chances


class Busy(Simulated):
    """A loop whose callbacks take time.

    It has its timers in a heap of its own, too: so both loops find the same next one.
    """

    def __init__(self, simulation: Any, *args: Any) -> None:
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
        """As asyncio's; call_later() comes here, too."""
        timer = super().call_at(when, callback, *args, context=context)
        if math.isfinite(timer.when()):  # else it never comes due: anyio sleeps so for ever
            heapq.heappush(self._due, (timer.when(), next(self._orders), timer))
        self._simulation.timer_was_set()
        return timer

    def next_timer(self) -> int | None:
        """The nanosecond at which the next timer comes due that is not due yet.

        None where no timer does so soon: an iteration does not last until a later one.
        """
        due, now = self._due, self._now()
        while due and (due[0][0] <= now or due[0][2].cancelled()):
            heapq.heappop(due)
        if not due or due[0][0] - now > 2 * LONGEST / 1e9:
            return None
        return nanosecond(due[0][0])


@functools.cache
def busy(loop: type) -> type:
    """The class of loops whose callbacks take time, instead of another one."""
    return type("BusyLoop", (Busy, loop), {"__module__": "goloop.testing"})
