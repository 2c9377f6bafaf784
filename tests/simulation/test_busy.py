"""Callbacks take virtual time: timers come due between a wake-up and the step that it scheduled."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import sys
from typing import Any

import hypothesis
import pytest
from hypothesis import given, settings

from goloop import testing
from goloop.testing.simulated.callback_times import LONGEST
from goloop.testing.simulated.kernel import Kernel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")
POLICIES = ("io", "shuffle", "pct:3", "dfs:2")


async def woken_and_cancelled() -> bool:
    """Return true if a timeout cancels a task just after the lock was released to it."""
    lock, cancelled = asyncio.Lock(), []
    await lock.acquire()

    async def wait() -> None:
        waiter = asyncio.current_task()
        assert waiter is not None
        try:
            async with asyncio.timeout(0.0027):
                await lock.acquire()
        except TimeoutError:
            # asyncio's lock wakes no waiter if the first one has not been woken.
            cancelled.append(not lock.locked())

    async def release() -> None:
        await asyncio.sleep(0.0013)
        lock.release()

    await asyncio.gather(wait(), release())
    return cancelled == [True]


def seeds_with_the_race(policy: str, loop: str = "goloop", seeds: int = 60) -> set[int]:
    return {
        seed
        for seed in range(seeds)
        if testing.run(woken_and_cancelled, seed=seed, policy=policy, loop=loop).value
    }


@pytest.mark.parametrize("policy", POLICIES)
def test_a_timeout_comes_between_a_wake_up_and_its_step(policy: str) -> None:
    found = seeds_with_the_race(policy)
    assert found
    assert policy == "dfs:2" or all(seed % 2 for seed in found)


@pytest.mark.parametrize("policy", ["io", "shuffle", "dfs:1"])
def test_both_loops_take_the_same_time(policy: str) -> None:
    found = [seeds_with_the_race(policy, loop, 30) for loop in ("goloop", "asyncio")]
    assert found[0] == found[1] != set()


async def order_of_due_callbacks() -> str:
    """Order of a timer that is due in an iteration, and of callbacks ready before and after it."""
    loop = asyncio.get_running_loop()
    order: list[str] = []

    def wakes() -> None:
        order.append("a")
        loop.call_soon(order.append, "c")

    def first() -> None:
        loop.call_soon(wakes)
        loop.call_soon(order.append, "b")

    loop.call_at(loop.time() + 0.001, first)
    loop.call_at(loop.time() + 0.002, order.append, "T")
    await asyncio.sleep(1)
    return "".join(order)


@pytest.mark.parametrize("loop", ["goloop", "asyncio"])
def test_due_timer_follows_ready_callbacks(loop: str) -> None:
    orders = {testing.run(order_of_due_callbacks, seed=s, loop=loop).value for s in range(60)}
    # Never before "b", as "b" was ready when the iteration began in which the timer came due.
    assert orders == {"abcT", "abTc"}


async def times() -> list[float]:
    """Return the clock's times in the iterations of a second."""
    loop = asyncio.get_running_loop()
    said: list[float] = []
    end = loop.time() + 1
    for number in range(200):
        loop.call_later(number / 100, said.append, number)
    while loop.time() < end:
        said.append(loop.time())
        await asyncio.sleep(0)
        if len(said) > 100:
            break
    return said


def test_an_iteration_takes_a_tenth_of_a_second_at_most() -> None:
    lengths = set[float]()
    for seed in range(1, 20, 2):
        said = [each for each in testing.run(times, seed=seed).value if isinstance(each, float)]
        lengths |= {after - before for before, after in itertools.pairwise(said)}
    assert 0 in lengths
    assert 0 < max(lengths) <= LONGEST / 1e9 + 1e-9


@pytest.mark.parametrize("loop", ["goloop", "asyncio"])
@pytest.mark.parametrize("when", [float("inf"), 1e300, 1e12])
def test_timer_may_be_armed_that_is_never_due(loop: str, when: float) -> None:
    async def main() -> None:
        running = asyncio.get_running_loop()
        timers = [running.call_at(when, print), running.call_later(when, print)]
        for number in range(10):
            await asyncio.sleep(number / 1000)
        for timer in timers:
            timer.cancel()

    for seed in range(4):
        testing.run(main, seed=seed, loop=loop)


def test_in_even_seeds_callbacks_take_no_time() -> None:
    for seed in range(0, 20, 2):
        said = testing.run(times, seed=seed).value
        assert {each for each in said if isinstance(each, float)} == {1.0}
    assert testing.run(lambda: asyncio.sleep(3600)).time == 3600


def test_equal_delays_may_end_one_after_the_other() -> None:
    async def main() -> bool:
        loop = asyncio.get_running_loop()
        one, other = (loop.call_later(1, int) for _ in range(2))
        return one.when() < other.when()

    found = {seed for seed in range(60) if testing.run(main, seed=seed).value}
    assert found
    assert all(seed % 2 for seed in found)


def test_the_events_have_the_time_that_callbacks_take() -> None:
    seed = min(seeds_with_the_race("io"))
    lines = testing.run(woken_and_cancelled, seed=seed).trace.splitlines()
    assert [line for line in lines if line.endswith("callbacks take 1400000 ns")]


@pytest.mark.parametrize(("error", "is_ignored"), [(errno.ETIME, True), (errno.EBADF, False)])
def test_time_of_callbacks_ignores_only_the_end_of_time(
    error: int, is_ignored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = min(seeds_with_the_race("io"))

    def fail(kernel: Kernel, seconds: float) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(Kernel, "sleep", fail)
    expected: Any = contextlib.nullcontext()
    if not is_ignored:
        expected = pytest.raises(OSError, match=os.strerror(error))
    with expected:
        testing.run(woken_and_cancelled, seed=seed)


def test_time_does_not_pass_within_a_job_or_after_the_end() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()

        def job() -> float:
            before = loop.time()
            for _ in range(100):
                loop.call_later(1000, int).cancel()
            return loop.time() - before

        return await loop.run_in_executor(None, job)

    assert {testing.run(main, seed=seed).value for seed in range(20)} == {0.0}

    async def ends(ended: list[float]) -> None:
        async def left() -> None:
            loop = asyncio.get_running_loop()
            try:
                await loop.create_future()
            finally:
                for _ in range(100):
                    loop.call_later(0.001, int)
                    await asyncio.sleep(0)
                ended.append(loop.time())

        task = asyncio.ensure_future(left())
        await asyncio.sleep(0)
        del task

    for seed in range(1, 20, 2):
        ended: list[float] = []
        result = testing.run(lambda ended=ended: ends(ended), seed=seed)
        assert ended == [pytest.approx(1 + result.time, abs=1e-9)]


def test_hypothesis_lets_time_pass_only_where_the_failure_needs_it() -> None:
    async def main() -> None:
        assert not await woken_and_cancelled()

    async def with_more(sim: Any) -> None:
        for number in range(3):
            await asyncio.sleep(number / 1000)
        await main()

    @settings(
        deadline=None,
        derandomize=True,
        database=None,
        max_examples=300,
        phases=[each for each in hypothesis.Phase if each is not hypothesis.Phase.explain],
    )
    @given(testing.simulations())
    def test(simulation: testing.DrawnSimulation) -> None:
        simulation.run(with_more)

    with pytest.raises(AssertionError) as info:
        test()
    [note] = [each for each in info.value.__notes__ if each.startswith("Simulation:")]
    # The two decisions: callbacks take time, and the iteration before the lock is released.
    assert "Decisions with another than their simplest value: 2 of " in note
    assert " about the time that callbacks take." in note
