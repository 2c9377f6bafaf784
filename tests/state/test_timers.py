"""call_later and call_at: never early, in order, cancellable, at any scale."""

from __future__ import annotations

import asyncio
import math
import random
from typing import Any

import pytest
from protocols import until

Loop = asyncio.AbstractEventLoop


async def test_no_timer_fires_early(loop: Loop) -> None:
    generator = random.Random(7)
    early: list[float] = []
    left = 300

    def fired(when: float) -> None:
        nonlocal left
        left -= 1
        # asyncio counts timers within the clock's resolution (1 ns) as due.
        if loop.time() < when - 2e-9:
            early.append(when - loop.time())

    start = loop.time()
    for _ in range(left):
        when = start + generator.random() * 0.05
        loop.call_at(when, fired, when)
    await until(lambda: left == 0)
    assert early == []


async def test_a_sleep_is_never_short(loop: Loop) -> None:
    for delay in (1e-6, 5e-5, 2e-4, 1e-3, 1.5e-3, 5e-3):
        start = loop.time()
        await asyncio.sleep(delay)
        assert loop.time() - start >= delay - 2e-9


async def test_order_is_by_deadline_over_many_scales(loop: Loop) -> None:
    generator = random.Random(11)
    start = loop.time()
    whens = [start + generator.random() * 10 ** generator.randint(-6, -2) for _ in range(2000)]
    fired: list[float] = []
    for when in whens:
        loop.call_at(when, fired.append, when)
    await until(lambda: len(fired) == len(whens))
    # A timer that was armed after its time runs in the turn that finds it, so
    # only those which were still to come can be compared.
    due_later = [when for when in fired if when > start + 0.005]
    assert due_later == sorted(due_later)
    assert sorted(fired) == sorted(whens)


async def test_deadlines_a_microsecond_apart_keep_their_order(loop: Loop) -> None:
    start = loop.time() + 0.005
    numbers = list(range(500))
    random.Random(3).shuffle(numbers)
    fired: list[int] = []
    for number in numbers:
        loop.call_at(start + number * 1e-6, fired.append, number)
    await until(lambda: len(fired) == len(numbers))
    assert fired == sorted(fired)


async def test_a_cancelled_timer_does_not_fire(loop: Loop) -> None:
    fired: list[str] = []
    kept = loop.call_later(0.002, fired.append, "kept")
    gone = loop.call_later(0.001, fired.append, "gone")
    gone.cancel()
    gone.cancel()
    assert gone.cancelled()
    await until(lambda: fired)
    assert fired == ["kept"]
    assert not kept.cancelled()
    kept.cancel()
    assert kept.cancelled()


async def test_of_a_hundred_thousand_timers_only_those_due_fire(loop: Loop) -> None:
    generator = random.Random(5)
    fired = 0

    def fire() -> None:
        nonlocal fired
        fired += 1

    handles = [loop.call_later(generator.random() * 3600 + 60, fire) for _ in range(100_000)]
    soon = [loop.call_later(generator.random() * 0.01, fire) for _ in range(1000)]
    assert len({handle.when() for handle in handles}) > 99_000
    await until(lambda: fired == len(soon))
    for handle in handles:
        handle.cancel()
    await asyncio.sleep(0)
    assert fired == len(soon)


@pytest.mark.parametrize("delay", [0, -1, -1e9, -math.inf, 0.0, False])
async def test_delays_of_zero_and_below_fire_at_once(loop: Loop, delay: float) -> None:
    fired: list[float] = []
    handle = loop.call_later(delay, fired.append, delay)
    assert handle.when() <= loop.time() + 1
    await until(lambda: fired)


@pytest.mark.parametrize("delay", [1e6, 1e9, 1e12, 1e18, 1e300, math.inf])
async def test_a_timer_of_the_far_future_does_not_fire(loop: Loop, delay: float) -> None:
    fired: list[float] = []
    handle = loop.call_later(delay, fired.append, delay)
    assert handle.when() >= delay
    marker = loop.call_later(0.002, fired.append, 0.0)
    await until(lambda: fired)
    assert fired == [0.0]
    assert not marker.cancelled()
    handle.cancel()
    await asyncio.sleep(0)
    assert fired == [0.0]


async def test_only_a_far_timer_does_not_spin_or_overflow(loop: Loop) -> None:
    """The loop waits for a thread's call while its only timers lie beyond any clock."""
    handles = [loop.call_later(delay, print) for delay in (1e12, math.inf)]
    await asyncio.wait_for(asyncio.to_thread(lambda: None), 30)
    for handle in handles:
        handle.cancel()


async def test_integers_and_fractions_are_times(loop: Loop) -> None:
    from fractions import Fraction

    fired: list[Any] = []
    loop.call_later(Fraction(1, 1000), fired.append, 1)  # type: ignore[arg-type]
    loop.call_at(int(loop.time()), fired.append, 2)
    await until(lambda: len(fired) == 2)


async def test_when_returns_the_requested_time(loop: Loop) -> None:
    when = loop.time() + 12.345678901
    handle = loop.call_at(when, print)
    assert handle.when() == when
    handle.cancel()
    before = loop.time()
    later = loop.call_later(100, print)
    assert before + 100 <= later.when() <= loop.time() + 100
    later.cancel()
    assert later.when() >= before + 100


async def test_a_timer_armed_by_a_timer_fires(loop: Loop) -> None:
    order: list[int] = []

    def step(left: int) -> None:
        order.append(left)
        if left:
            loop.call_later(0.0001, step, left - 1)

    step(50)
    await until(lambda: len(order) == 51)
    assert order == list(range(50, -1, -1))


async def test_a_storm_of_cancelled_timers_does_not_disturb_the_rest(loop: Loop) -> None:
    generator = random.Random(9)
    start = loop.time()
    fired: list[float] = []
    expected: list[float] = []
    for number in range(20_000):
        when = start + 0.02 + generator.random() * 0.03
        handle = loop.call_at(when, fired.append, when)
        if number % 20:
            handle.cancel()
        else:
            expected.append(when)
    await until(lambda: len(fired) == len(expected))
    assert fired == sorted(expected)


def test_time_is_monotonic_and_of_the_monotonic_clock(loop: Loop) -> None:
    import time

    before = time.monotonic()
    now = loop.time()
    after = time.monotonic()
    assert type(now) is float
    assert before <= now <= after


def test_timers_survive_a_stop(loop: Loop) -> None:
    fired: list[int] = []
    loop.call_later(0.001, fired.append, 1)
    loop.stop()
    loop.run_forever()
    loop.call_later(0.002, loop.stop)
    loop.run_forever()
    assert fired == [1]


def test_armed_timers_at_close_are_dropped(loop: Loop) -> None:
    fired: list[int] = []
    handle = loop.call_later(0, fired.append, 1)
    far = loop.call_later(3600, fired.append, 2)
    loop.close()
    assert fired == []
    handle.cancel()
    far.cancel()


async def test_program_may_read_the_scheduled_timers(loop: Loop) -> None:
    """As the test helpers of zeroconf and of Home Assistant do: they run due timers early."""
    ran: list[str] = []
    kept: Any = loop
    before = set(kept._scheduled)
    loop.call_later(500, ran.append, "later")
    loop.call_later(100, ran.append, "sooner")
    loop.call_later(200, ran.append, "cancelled").cancel()
    sleeping = asyncio.ensure_future(asyncio.sleep(300, "slept"))
    await asyncio.sleep(0)
    timers = [each for each in kept._scheduled if each not in before and not each.cancelled()]
    for timer in sorted(timers):
        assert isinstance(timer, asyncio.TimerHandle)
        assert 90 < timer.when() - loop.time() < 501
        timer._run()
        timer.cancel()
    assert ran == ["sooner", "later"]
    assert await sleeping == "slept"
    assert not [each for each in set(kept._scheduled) - before if not each.cancelled()]
