"""MockClock, a clock that tests advance, and the detection of idle loops.

A ClockLoop has its own timers, which follow the clock; its input and output are goloop's, on the
real kernel.
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
from ..._internal.observe import metric_registry
from ..._internal.observe.histogram import HISTOGRAM

TYPE_CHECKING = False
if TYPE_CHECKING:
    import contextvars
    from typing import Any, TypeVarTuple

    _Ts = TypeVarTuple("_Ts")

_COUNTED_FIELDS = [spec.field for spec in metric_registry._COUNTED]
_COUNTED_LAYOUT = metric_registry._COUNTED_LAYOUT.format


def _reader(field: str) -> Callable[[bytes], int]:
    """Return a function that reads one counter from the result of `loop._counted()`."""
    sizes = [HISTOGRAM.size if spec.kind == "histogram" else 8 for spec in metric_registry._COUNTED]
    offset = sum(sizes[: _COUNTED_FIELDS.index(field)])
    number = struct.Struct("=Q")
    return lambda counted: number.unpack_from(counted, offset)[0]


ready, _iterations = _reader("ready"), _reader("iterations")
# Iterations that contain at least two polls: a busy loop polls every 64 iterations.
_PASSES = 130


def _call_later_real(loop: Any, seconds: float, callback: Callable[..., object], *args: Any) -> Any:
    """Schedule a callback after seconds of the real clock, also on a ClockLoop."""
    return _core.Loop.call_at(loop, _core.Loop.time(loop) + seconds, callback, *args)


class IdleWatch:
    """Calls functions when a loop is idle: nothing is ready, and the kernel has no event for it.

    Functions with a shorter cushion are called first.  After each call the idleness is measured
    again, because the function may have scheduled callbacks.
    """

    def __init__(self, loop: Any) -> None:
        """Watch a loop, to which a weak reference is stored."""
        self._loop = weakref.ref(loop)
        # Heap of (cushion, last, number, callback).
        self._waiting: list[tuple[float, bool, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._is_polling = False

    def add(self, cushion: float, callback: Callable[[], object], last: bool = False) -> int:
        """Register a call after `cushion` real seconds of idleness; return its number for cancel().

        With `last` it comes after the other calls with the same cushion.
        """
        number = next(self._numbers)
        heapq.heappush(self._waiting, (cushion, last, number, callback))
        self._begin()
        return number

    def cancel(self, number: int) -> None:
        """Cancel a registered call."""
        self._waiting = [each for each in self._waiting if each[2] != number]
        heapq.heapify(self._waiting)

    def _begin(self) -> None:
        """Start polling for idleness, unless polling is in progress."""
        if not self._is_polling:
            self._is_polling = True
            self._poll_again(0)

    def _poll_again(self, passes: int) -> None:
        """Count iterations in which nothing was ready, then wait for the first cushion.

        `passes` is the number of such iterations so far. The loop calls this once per iteration,
        until no function is registered or the loop is closed.
        """
        loop: Any = self._loop()
        if not self._waiting or loop is None or loop.is_closed():
            self._is_polling = False
            return
        counted = loop._counted()
        passes = 0 if ready(counted) else passes + 1
        if passes < _PASSES:
            _core.Loop.call_soon(loop, self._poll_again, passes)
        elif (cushion := self._waiting[0][0]) > 0:
            _call_later_real(loop, cushion, self._recheck_after_cushion, _iterations(counted))
        else:
            self._call()

    def _recheck_after_cushion(self, before: int) -> None:
        """Call the first function if the loop only waited during the cushion; else count again.

        `before` is the loop's number of iterations when the cushion began.
        """
        loop: Any = self._loop()
        counted = loop._counted()
        if ready(counted) or _iterations(counted) > before + 2 or not self._waiting:
            self._poll_again(0)
        else:
            self._call()

    def _call(self) -> None:
        """Call and remove the function with the shortest cushion, then poll for the next one."""
        _, _, _, callback = heapq.heappop(self._waiting)
        self._is_polling = False
        callback()
        if self._waiting:
            self._begin()


_watches: weakref.WeakKeyDictionary[Any, IdleWatch] = weakref.WeakKeyDictionary()


def watch_of(loop: Any) -> IdleWatch:
    """Return the IdleWatch of a loop."""
    watch = _watches.get(loop)
    if watch is None:
        watch = _watches[loop] = IdleWatch(loop)
    return watch


async def wait_all_tasks_blocked(cushion: float = 0.0) -> None:
    """Wait until all other tasks of this loop wait for a timer or for input.

    Nothing is ready to run then, and the kernel has no event for the loop.  A timer that is not
    due yet, and bytes in transit in a simulated network, do not count.  If two tasks call this
    function, the one with the smaller cushion continues first.  Since 0.3.0.

    Args:
        cushion: Real seconds for which the loop must have been idle.

    Raises:
        RuntimeError: The running loop is not goloop's.
        ValueError: `cushion` is negative or NaN.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, _core.Loop):
        raise RuntimeError(f"wait_all_tasks_blocked() needs a goloop loop, got {loop!r}")
    done: asyncio.Future[None] = loop.create_future()
    watch = watch_of(loop)

    def blocked() -> None:
        """Wake the waiting task."""
        if not done.done():
            done.set_result(None)

    number = watch.add(_seconds(cushion, "cushion"), blocked)
    try:
        await done
    finally:
        watch.cancel(number)


def _seconds(value: float, name: str) -> float:
    """Return a number of seconds as a float; ValueError if it is negative or NaN."""
    if not value >= 0:
        raise ValueError(f"{name} must be >= 0 seconds, got {value!r}")
    return float(value)


class MockClock:
    """A clock that a test advances, for loops of `new_event_loop(clock=...)`.

    The clock starts at 0.  With the defaults a loop never waits for a timer: as soon as nothing
    else can run, the clock jumps to the next timer.  Input and output are real, so a test that
    waits for a peer needs a threshold, or `goloop.testing.run()`, which simulates the network in
    virtual time.  Several loops may share a clock.  Since 0.3.0.

    Args:
        rate: Seconds of this clock that pass in one real second; 0: the clock does not run.
        autojump_threshold: Real seconds for which a loop must have been idle before the clock jumps
            to the loop's next timer; `math.inf`: the clock never jumps by itself.

    Raises:
        ValueError: A number is negative or NaN.
    """

    def __init__(self, rate: float = 0.0, autojump_threshold: float = 0.0) -> None:
        """Create a clock at 0; the class describes the arguments and exceptions."""
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
        """Return the seconds of this clock that pass in one real second."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        """Set the rate from now on; the clock's current time stays."""
        new = _seconds(rate, "rate")
        with self._lock:
            self._virtual, self._real = self._now(), time.perf_counter()
            self._rate = new
        self._notify_loops()

    @property
    def autojump_threshold(self) -> float:
        """Return the real seconds of idleness before the clock jumps."""
        return self._threshold

    @autojump_threshold.setter
    def autojump_threshold(self, seconds: float) -> None:
        """Set the threshold in real seconds."""
        self._threshold = _seconds(seconds, "autojump_threshold")
        self._notify_loops()

    def current_time(self) -> float:
        """Return the clock's time in seconds, which is also `time()` of its loops."""
        with self._lock:
            return self._now()

    def jump(self, seconds: float) -> None:
        """Advance the clock; timers that come due run in the next iterations of their loops.

        May be called from any thread.

        Args:
            seconds: Seconds to add, >= 0.

        Raises:
            ValueError: `seconds` is negative or NaN.
        """
        by = _seconds(seconds, "seconds")
        with self._lock:
            self._virtual += by
        self._notify_loops()

    def _now(self) -> float:
        """Return the clock's time in seconds; the caller has the lock."""
        if self._rate:
            return self._virtual + self._rate * (time.perf_counter() - self._real)
        return self._virtual

    def _jump_to(self, when: float) -> None:
        """Advance the clock to a time, unless another loop has advanced it further."""
        with self._lock:
            self._virtual += max(0.0, when - self._now())
            while self._now() < when:  # a sum is rounded
                self._virtual = math.nextafter(self._virtual, math.inf)
        self._notify_loops()

    def _notify_loops(self) -> None:
        """Let all loops of the clock arm their next timers again."""
        for loop in list(self._loops):
            loop._clock_moved()


class ClockLoop(Loop):
    """A loop whose timers follow a MockClock."""

    __module__ = "goloop.testing"

    def __init__(self, clock: MockClock) -> None:
        """Create a loop and register it with the clock."""
        self._clock = clock
        self._virtual_timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_numbers = itertools.count()
        self._real_timer: asyncio.TimerHandle | None = None
        self._jump_number: int | None = None
        super().__init__()
        clock._loops.add(self)

    def time(self) -> float:
        """Return the clock's time in seconds."""
        return self._clock.current_time()

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule callback(*args) at the clock's time `when`; return a TimerHandle.

        TypeError if `when` is None, RuntimeError if the loop is closed.
        """
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
        """Schedule callback(*args) after `delay` seconds of the clock; return a TimerHandle.

        TypeError if `delay` is None, RuntimeError if the loop is closed.
        """
        if delay is None:
            raise TypeError("delay must not be None")
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: cancelled timers are removed when they reach the front of the heap."""

    def _clock_moved(self) -> None:
        """Arm the next timer again after the clock has changed; may be called in any thread.

        Does nothing if the loop is closed.
        """
        if self.is_closed():
            return
        if self._thread_id not in (None, threading.get_ident()):
            self.call_soon_threadsafe(self._arm)
        else:
            self._arm()

    def _arm(self) -> None:
        """Arm the next timer of the heap, if there is one.

        A due timer runs in the next iterations.  For another one the clock jumps when the loop is
        idle (unless the threshold is infinite), and if the clock runs, a real timer is set, too.
        """
        timers = self._virtual_timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if self._real_timer is not None:
            self._real_timer.cancel()
            self._real_timer = None
        watch = watch_of(self)
        if self._jump_number is not None:
            watch.cancel(self._jump_number)
            self._jump_number = None
        if not timers:
            return
        remaining = timers[0][0] - self.time()
        clock = self._clock
        if remaining <= 0:
            self._real_timer = _call_later_real(self, 0, self._run_due)
            return
        if clock.rate:
            self._real_timer = _call_later_real(self, remaining / clock.rate, self._run_due)
        if clock.autojump_threshold != math.inf:
            self._jump_number = watch.add(clock.autojump_threshold, self._autojump, last=True)

    def _autojump(self) -> None:
        """Advance the clock of an idle loop to its next timer."""
        self._jump_number = None
        timers = self._virtual_timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if timers:
            self._clock._jump_to(timers[0][0])

    def _run_due(self) -> None:
        """Schedule the callbacks of all due timers, and arm the next timer."""
        timers, now = self._virtual_timers, self.time()
        while timers and timers[0][0] <= now:
            timer = heapq.heappop(timers)[2]
            # call_soon() keeps asyncio's order: due timers are appended to the ready queue.
            self.call_soon(_run_unless_cancelled, timer)
        self._arm()


def _run_unless_cancelled(timer: Any) -> None:
    """Run a timer that was not cancelled after it came due."""
    if not timer.cancelled():
        timer._run()


def new_event_loop(clock: MockClock | None = None) -> Loop:
    """Return a new event loop whose timers follow a clock that the test advances.

    `asyncio.Runner(loop_factory=lambda: testing.new_event_loop(clock=clock))` runs a test on it.
    Its input and output are real.  Since 0.3.0.

    Args:
        clock: The clock; None: a new `MockClock()`.

    Returns:
        A loop that is neither running nor set as the thread's.

    Raises:
        OSError: The process has no descriptors left.
    """
    return ClockLoop(MockClock() if clock is None else clock)
