"""Times single operations of a loop, inside one process of that loop's own.

Each case is a function that performs its operation many times and returns the
nanoseconds of one.  It runs until BUDGET seconds have passed and at least
REPEATS times; the first run warms up and does not count.

The nanoseconds are the process's CPU time: the process is pinned to one core and is
never idle, so its CPU time is the elapsed time without the share of other programs.
Only the accuracy of sleeps is measured by the wall clock.
"""

from __future__ import annotations

import asyncio
import functools
import statistics
import threading
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

BUDGET = 0.25
REPEATS = 3
# The limit of timers or tasks that a case arms or wakes; the tests set a smaller one.
LARGEST = 1_000_000
now = time.process_time_ns


Measure = Callable[[AbstractEventLoop], float]
Body = Callable[[AbstractEventLoop, int], Coroutine[Any, Any, None]]
MICROS: dict[str, Measure] = {}
# The lower bound of a case: asyncio's own Python code, without the loop's part.
LIMITS: dict[str, Measure] = {}


def _named(measure: Measure) -> Measure:
    """Add a case, named as its function."""
    MICROS[measure.__name__.replace("_", "-")] = measure
    return measure


def _on_loop(body: Callable[[AbstractEventLoop], Coroutine[Any, Any, float]]) -> Measure:
    """Return the measurement of a coroutine function."""

    @functools.wraps(body)
    def measure(loop: AbstractEventLoop) -> float:
        return loop.run_until_complete(body(loop))

    return measure


def _coroutine(count: int) -> Callable[[Body], Body]:
    """Add a case, named as its coroutine function, which performs an operation `count` times."""

    def add(body: Body) -> Body:
        @functools.wraps(body)
        async def timed(loop: AbstractEventLoop) -> float:
            began = now()
            await body(loop, count)
            return (now() - began) / count

        _named(_on_loop(timed))
        return body

    return add


def _nothing() -> None:
    pass


async def _no_op() -> None:
    pass


# ---- callbacks and timers ----------------------------------------------------------------


def _chain(loop: AbstractEventLoop, schedule: Callable[[Callable[[], None]], object]) -> float:
    count = left = 20_000

    def step() -> None:
        nonlocal left
        left -= 1
        if left:
            schedule(step)
        else:
            loop.stop()

    schedule(step)
    began = now()
    loop.run_forever()
    return (now() - began) / count


@_named
def call_soon_chain(loop: AbstractEventLoop) -> float:
    """Each callback schedules the next: one callback a turn."""
    return _chain(loop, loop.call_soon)


@_named
def threadsafe_chain(loop: AbstractEventLoop) -> float:
    """As call_soon_chain, by call_soon_threadsafe from the loop's thread."""
    return _chain(loop, loop.call_soon_threadsafe)


@_named
def call_soon_bulk(loop: AbstractEventLoop) -> float:
    """10,000 callbacks in one turn."""
    count = 10_000
    call_soon = loop.call_soon
    began = now()
    for _ in range(count):
        call_soon(_nothing)
    call_soon(loop.stop)
    loop.run_forever()
    return (now() - began) / count


@_coroutine(5_000)
async def call_later_cancel(loop: AbstractEventLoop, count: int) -> None:
    """Arm and cancel; the turn that cleans up counts."""
    call_later = loop.call_later
    for _ in range(count):
        call_later(60, _nothing).cancel()
    await asyncio.sleep(0)


@_named
def timers_firing(loop: AbstractEventLoop) -> float:
    """CPU time of arming and firing 5,000 timers spread over 20 ms."""
    count = left = 5_000

    def fire() -> None:
        nonlocal left
        left -= 1
        if not left:
            loop.stop()

    began = now()
    start = loop.time() + 0.005
    for i in range(count):
        # A stride that is coprime to the count mixes the order of arming.
        loop.call_at(start + (i * 1_237 % count) * (0.02 / count), fire)
    loop.run_forever()
    return (now() - began) / count


async def arm(most: int, loop: AbstractEventLoop) -> float:
    """Arm many timers; the turn that takes them over counts, cancelling them does not."""
    count = min(most, LARGEST)
    start = loop.time() + 60
    # A stride that is coprime to the count mixes the order of arming.
    times = [start + (i * 1_237 % count) * (60 / count) for i in range(count)]
    call_at = loop.call_at
    began = now()
    handles = [call_at(when, _nothing) for when in times]
    await asyncio.sleep(0)
    elapsed = now() - began
    for handle in handles:
        handle.cancel()
    await asyncio.sleep(0)
    return elapsed / count


@_coroutine(1_000)
async def to_thread(loop: AbstractEventLoop, count: int) -> None:
    """Call a function that does nothing in the executor; the warm-up starts its thread."""
    for _ in range(count):
        await asyncio.to_thread(_nothing)


@_named
def threadsafe(loop: AbstractEventLoop) -> float:
    """Make 10,000 calls from a thread; the clock stops when the last one has run."""
    count = left = 10_000

    def arrive() -> None:
        nonlocal left
        left -= 1
        if not left:
            loop.stop()

    go = threading.Event()

    def send() -> None:
        go.wait()
        call = loop.call_soon_threadsafe
        for _ in range(count):
            call(arrive)

    thread = threading.Thread(target=send)
    thread.start()
    loop.call_soon(go.set)
    began = now()
    loop.run_forever()
    elapsed = now() - began
    thread.join()
    return elapsed / count


# ---- tasks and futures -------------------------------------------------------------------


@_coroutine(20_000)
async def sleep_0(loop: AbstractEventLoop, count: int) -> None:
    """Yield to the loop from a single task."""
    sleep = asyncio.sleep
    for _ in range(count):
        await sleep(0)


@_coroutine(20_000)
async def sleep_0_x1000(loop: AbstractEventLoop, count: int) -> None:
    """1,000 tasks yield 20 times each; making the tasks counts."""
    tasks = 1_000

    async def yielding() -> None:
        for _ in range(count // tasks):
            await asyncio.sleep(0)

    await asyncio.gather(*[yielding() for _ in range(tasks)])


@_coroutine(5_000)
async def create_task(loop: AbstractEventLoop, count: int) -> None:
    """Make a task and await it."""
    create = loop.create_task
    for _ in range(count):
        await create(_no_op())


@_coroutine(5_000)
async def future_call_soon(loop: AbstractEventLoop, count: int) -> None:
    """Await a future that a callback resolves."""
    for _ in range(count):
        future = loop.create_future()
        loop.call_soon(future.set_result, None)
        await future


@_coroutine(5_000)
async def gather(loop: AbstractEventLoop, count: int) -> None:
    """Gather coroutines that do nothing."""
    await asyncio.gather(*[_no_op() for _ in range(count)])


async def gather_python(loop: AbstractEventLoop) -> float:
    """Time gather's own Python code for 5,000 futures that are already done.

    Before 3.12 gather schedules a callback for these too, so the result includes asyncio's loop.
    """
    count = 5_000
    futures = [loop.create_future() for _ in range(count)]
    for future in futures:
        future.set_result(None)
    began = now()
    await asyncio.gather(*futures)
    return (now() - began) / count


async def wake(most: int, loop: AbstractEventLoop) -> float:
    """Wake many tasks that wait for one Event, until the last of them has run."""
    count = left = min(most, LARGEST)
    event = asyncio.Event()
    ended = loop.create_future()

    async def waiter() -> None:
        nonlocal left
        await event.wait()
        left -= 1
        if not left:
            ended.set_result(now())

    tasks = [loop.create_task(waiter()) for _ in range(count)]
    await asyncio.sleep(0)  # until each task waits
    began = now()
    event.set()
    elapsed: int = await ended - began
    await asyncio.wait(tasks)
    return elapsed / count


async def wake_python(most: int, loop: AbstractEventLoop) -> float:
    """Time the Event's own Python code for this: its waiters are stepped directly."""
    count = min(most, LARGEST)
    event = asyncio.Event()

    async def waiter() -> None:
        await event.wait()

    waiters = [waiter().__await__() for _ in range(count)]
    for each in waiters:
        next(each)
    began = now()
    event.set()
    for each in waiters:
        # next() with a default raises nothing when the coroutine returns.
        next(each, None)
    return (now() - began) / count


@_coroutine(5_000)
async def event_ping_pong(loop: AbstractEventLoop, count: int) -> None:
    """Let two tasks wake each other through two Events."""

    async def player(mine: asyncio.Event, other: asyncio.Event) -> None:
        for _ in range(count):
            await mine.wait()
            mine.clear()
            other.set()

    ping, pong = asyncio.Event(), asyncio.Event()
    ping.set()
    await asyncio.gather(player(ping, pong), player(pong, ping))


@_coroutine(5_000)
async def taskgroup(loop: AbstractEventLoop, count: int) -> None:
    """Groups of 100 tasks, one after the other."""
    tasks = 100
    for _ in range(count // tasks):
        async with asyncio.TaskGroup() as group:
            for _ in range(tasks):
                group.create_task(_no_op())


@_coroutine(10_000)
async def queue(loop: AbstractEventLoop, count: int) -> None:
    """Pass items through a queue of 100."""
    items: asyncio.Queue[int] = asyncio.Queue(100)

    async def produce() -> None:
        for i in range(count):
            await items.put(i)

    producer = loop.create_task(produce())
    for _ in range(count):
        await items.get()
    await producer


@_coroutine(5_000)
async def timeout(loop: AbstractEventLoop, count: int) -> None:
    """Enter and leave a timeout that is not reached."""
    for _ in range(count):
        async with asyncio.timeout(60):
            pass


@_coroutine(5_000)
async def wait_for(loop: AbstractEventLoop, count: int) -> None:
    """Await wait_for() around a coroutine that does nothing."""
    for _ in range(count):
        await asyncio.wait_for(_no_op(), 60)


async def sleeping(seconds: float, count: int, loop: AbstractEventLoop) -> float:
    """Sleep, by the wall clock."""
    began = time.perf_counter_ns()
    for _ in range(count):
        await asyncio.sleep(seconds)
    return (time.perf_counter_ns() - began) / count


for label, most in (("1k", 1_000), ("10k", 10_000), ("100k", 100_000)):
    MICROS[f"event-wake-{label}"] = _on_loop(partial(wake, most))
    LIMITS[f"event-wake-{label}"] = _on_loop(partial(wake_python, most))
for label, most in (("10k", 10_000), ("100k", 100_000), ("1m", 1_000_000)):
    MICROS[f"timers-arm-{label}"] = _on_loop(partial(arm, most))
for label, seconds, times in (("200us", 0.0002, 100), ("5ms", 0.005, 10)):
    MICROS[f"sleep-{label}"] = _on_loop(partial(sleeping, seconds, times))
LIMITS["gather"] = _on_loop(gather_python)
# Cases that take too long to be repeated: each process runs them once, without a warm-up.
ONCE = ("timers-arm-1m",)


def main(factory: Callable[[], AbstractEventLoop], case: str) -> dict[str, float]:
    """Measure one case on a fresh loop."""
    return _repeat(factory, MICROS[case], once=case in ONCE)


def limit(case: str) -> dict[str, float]:
    """Measure asyncio's own Python code in a case; the loop only runs it."""
    return _repeat(asyncio.new_event_loop, LIMITS[case], once=False)


def _repeat(
    factory: Callable[[], AbstractEventLoop], measure: Measure, *, once: bool
) -> dict[str, float]:
    loop = factory()
    asyncio.set_event_loop(loop)
    try:
        figures: list[float] = []
        if not once:
            measure(loop)
        began = time.perf_counter()
        while True:
            figures.append(measure(loop))
            enough = len(figures) >= REPEATS and time.perf_counter() - began >= BUDGET
            if once or enough:
                break
    finally:
        loop.close()
        asyncio.set_event_loop(None)
    median = statistics.median(figures)
    return {"ns": median, "us": median / 1e3, "best_ns": min(figures)}
