"""A clock that tests move, and how a loop is known to have nothing left to do.

A ClockLoop keeps its timers itself, by the clock's time; all else is goloop's, on the host's
kernel.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import struct
import threading
import time
import weakref
from collections.abc import Callable

from ... import _core
from ..._internal.loop.loop import Loop
from ..._internal.metrics import metric_registry
from ..._internal.metrics.histogram import HISTOGRAM

TYPE_CHECKING = False
if TYPE_CHECKING:
    import contextvars
    from typing import Any, TypeVarTuple

    _Ts = TypeVarTuple("_Ts")

_fields = [figure.field for figure in metric_registry._COUNTED]
_layout = metric_registry._COUNTED_LAYOUT.format


def _reader(field: str) -> Callable[[bytes], int]:
    sizes = [
        HISTOGRAM.size if figure.kind == "histogram" else 8 for figure in metric_registry._COUNTED
    ]
    place = sum(sizes[: _fields.index(field)])
    number = struct.Struct("=Q")
    return lambda counted: number.unpack_from(counted, place)[0]


ready, _iterations = _reader("ready"), _reader("iterations")
# Two polls: the loop asks the kernel after 64 iterations at the latest.
_PASSES = 130


def _after(loop: Any, seconds: float, callback: Callable[..., object], *args: Any) -> Any:
    """A timer of the host's clock, whatever call_at the loop has."""
    return _core.Loop.call_at(loop, _core.Loop.time(loop) + seconds, callback, *args)


class IdleWatch:
    """Calls back when a loop has nothing ready, and the kernel no event for it.

    What waits for longest a cushion is called last; each call begins the watch anew, for what
    was called may have made something ready.
    """

    def __init__(self, loop: Any) -> None:
        self._loop = weakref.ref(loop)
        self._waiting: list[tuple[float, bool, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._looking = False

    def ask(self, cushion: float, callback: Callable[[], object], last: bool = False) -> int:
        """Wants a call after so many seconds, of the host's, of idleness; its number cancels it."""
        number = next(self._numbers)
        heapq.heappush(self._waiting, (cushion, last, number, callback))
        self._begin()
        return number

    def cancel(self, number: int) -> None:
        """No call any more."""
        self._waiting = [each for each in self._waiting if each[2] != number]
        heapq.heapify(self._waiting)

    def _begin(self) -> None:
        if not self._looking:
            self._looking = True
            self._look(0)

    def _look(self, passes: int) -> None:
        loop: Any = self._loop()
        if not self._waiting or loop is None or loop.is_closed():
            self._looking = False
            return
        counted = loop._counted()
        passes = 0 if ready(counted) else passes + 1
        if passes < _PASSES:
            _core.Loop.call_soon(loop, self._look, passes)
        elif (cushion := self._waiting[0][0]) > 0:
            _after(loop, cushion, self._look_again, _iterations(counted))
        else:
            self._call()

    def _look_again(self, before: int) -> None:
        """The cushion is over; only the poll that waited for it may have been."""
        loop: Any = self._loop()
        counted = loop._counted()
        if ready(counted) or _iterations(counted) > before + 2 or not self._waiting:
            self._look(0)
        else:
            self._call()

    def _call(self) -> None:
        _, _, _, callback = heapq.heappop(self._waiting)
        self._looking = False
        callback()
        if self._waiting:
            self._begin()


_watches: weakref.WeakKeyDictionary[Any, IdleWatch] = weakref.WeakKeyDictionary()


def watch_of(loop: Any) -> IdleWatch:
    """The watch of a loop."""
    watch = _watches.get(loop)
    if watch is None:
        watch = _watches[loop] = IdleWatch(loop)
    return watch


async def wait_all_tasks_blocked(cushion: float = 0.0) -> None:
    """Wait until no other task of this loop can go on without time or input.

    Nothing is ready to run then, and the kernel has no event for the loop.  A timer that is not
    due yet, and bytes on their way in a simulated network, do not count.  Of two tasks that wait
    so, the one with the smaller cushion comes first.  Since 0.3.0.

    Args:
        cushion: Seconds, of the real clock, that it must have been so for.

    Raises:
        RuntimeError: The running loop is not goloop's.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, _core.Loop):
        raise RuntimeError(f"wait_all_tasks_blocked() needs a loop of goloop, not {loop!r}")
    done: asyncio.Future[None] = loop.create_future()
    watch = watch_of(loop)

    def blocked() -> None:
        if not done.done():
            done.set_result(None)

    number = watch.ask(_seconds(cushion, "cushion"), blocked)
    try:
        await done
    finally:
        watch.cancel(number)


def _seconds(value: float, name: str) -> float:
    if not value >= 0:
        raise ValueError(f"{name} is a number of seconds from 0 on, not {value!r}")
    return float(value)


class MockClock:
    """A clock that stands still until it is moved, for loops of `new_event_loop(clock=...)`.

    With the defaults a loop waits for no timer: as soon as nothing else can run, the clock jumps to
    the next one.  Input and output are the real ones, so give tests that wait for a peer a
    threshold, or use `goloop.testing.run()`, where the network is in virtual time, too.  It says 0
    first.  May be shared by loops.  Since 0.3.0.

    Args:
        rate: How many of its seconds pass in a real one.
        autojump_threshold: Real seconds for which a loop must have had nothing to do before the
            clock jumps to the loop's next timer; `math.inf`: never.

    Raises:
        ValueError: A number is negative or NaN.
    """

    def __init__(self, rate: float = 0.0, autojump_threshold: float = 0.0) -> None:
        self._lock = threading.Lock()
        self._virtual = 0.0
        self._real = time.perf_counter()
        self._rate = _seconds(rate, "rate")
        self._threshold = _seconds(autojump_threshold, "autojump_threshold")
        self._loops: weakref.WeakSet[ClockLoop] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<MockClock, time={self.current_time():.7f}s, rate={self._rate}>"

    @property
    def rate(self) -> float:
        """How many of its seconds pass in a real one."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        new = _seconds(rate, "rate")
        with self._lock:
            self._virtual, self._real = self._now(), time.perf_counter()
            self._rate = new
        self._moved()

    @property
    def autojump_threshold(self) -> float:
        """Real seconds of idleness before the clock jumps."""
        return self._threshold

    @autojump_threshold.setter
    def autojump_threshold(self, seconds: float) -> None:
        self._threshold = _seconds(seconds, "autojump_threshold")
        self._moved()

    def current_time(self) -> float:
        """What it says, in seconds; `time()` of its loops says the same."""
        with self._lock:
            return self._now()

    def jump(self, seconds: float) -> None:
        """Move it forward; timers that are due then run in the next iterations of their loops.

        May be called from any thread.

        Args:
            seconds: From 0 on.

        Raises:
            ValueError: It is negative or NaN.
        """
        by = _seconds(seconds, "seconds")
        with self._lock:
            self._virtual += by
        self._moved()

    def _now(self) -> float:
        if self._rate:
            return self._virtual + self._rate * (time.perf_counter() - self._real)
        return self._virtual

    def _jump_to(self, when: float) -> None:
        with self._lock:
            self._virtual += max(0.0, when - self._now())
            while self._now() < when:  # a sum is rounded
                self._virtual = math.nextafter(self._virtual, math.inf)
        self._moved()

    def _moved(self) -> None:
        for loop in list(self._loops):
            loop._clock_moved()


class ClockLoop(Loop):
    """A loop whose timers go by a MockClock."""

    __module__ = "goloop.testing"

    def __init__(self, clock: MockClock) -> None:
        self._clock = clock
        self._virtual_timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_numbers = itertools.count()
        self._real_timer: asyncio.TimerHandle | None = None
        self._jump_asked: int | None = None
        super().__init__()
        clock._loops.add(self)

    def time(self) -> float:
        """What the clock says, in seconds."""
        return self._clock.current_time()

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call callback(*args) when the clock says `when`; return a TimerHandle."""
        if when is None:
            raise TypeError("when cannot be None")
        self._check_closed()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._virtual_timers, (when, next(self._timer_numbers), timer))
        self._arm()
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call callback(*args) after delay seconds of the clock; return a TimerHandle."""
        if delay is None:
            raise TypeError("delay must not be None")
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing: cancelled timers are dropped when they come to the front."""

    def _clock_moved(self) -> None:
        if self.is_closed():
            return
        if self._thread_id not in (None, threading.get_ident()):
            self.call_soon_threadsafe(self._arm)
        else:
            self._arm()

    def _arm(self) -> None:
        """Sees to it that the next timer is run, by whatever moves the clock."""
        timers = self._virtual_timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if self._real_timer is not None:
            self._real_timer.cancel()
            self._real_timer = None
        watch = watch_of(self)
        if self._jump_asked is not None:
            watch.cancel(self._jump_asked)
            self._jump_asked = None
        if not timers:
            return
        left = timers[0][0] - self.time()
        clock = self._clock
        if left <= 0:
            self._real_timer = _after(self, 0, self._run_due)
            return
        if clock.rate:
            self._real_timer = _after(self, left / clock.rate, self._run_due)
        if clock.autojump_threshold != math.inf:
            self._jump_asked = watch.ask(clock.autojump_threshold, self._autojump, last=True)

    def _autojump(self) -> None:
        self._jump_asked = None
        timers = self._virtual_timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if timers:
            self._clock._jump_to(timers[0][0])

    def _run_due(self) -> None:
        timers, now = self._virtual_timers, self.time()
        while timers and timers[0][0] <= now:
            timer = heapq.heappop(timers)[2]
            # Each in an iteration's order of its own, as asyncio appends what is due.
            self.call_soon(_run_unless_cancelled, timer)
        self._arm()


def _run_unless_cancelled(timer: Any) -> None:
    if not timer.cancelled():
        timer._run()


def new_event_loop(clock: MockClock | None = None) -> Loop:
    """Make an event loop whose timers go by a clock that the test moves.

    `asyncio.Runner(loop_factory=lambda: testing.new_event_loop(clock=clock))` runs a test on it.
    What it reads and writes is real.  Since 0.3.0.

    Args:
        clock: Without one, a `MockClock()` of its own.

    Returns:
        A loop that is neither running nor set as the thread's.

    Raises:
        OSError: The process has no descriptors left.
    """
    return ClockLoop(MockClock() if clock is None else clock)
