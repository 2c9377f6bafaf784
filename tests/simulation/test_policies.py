"""Policies: which of the tasks that are ready goes next in a simulation."""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

from goloop import testing
from goloop.testing.simulation.policies import Delays, Priorities, delays
from goloop.testing.simulation.run import new_session, run_to_end

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")


async def steps(tasks: int = 3, each: int = 2) -> str:
    """The order in which tasks took their steps."""
    order: list[str] = []

    async def task(name: str) -> None:
        for _ in range(each):
            order.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(*(task(name) for name in "abcdefgh"[:tasks]))
    return "".join(order)


def orders(policy: str, seeds: int = 200, main: Callable[..., Any] = steps) -> list[str]:
    return [testing.run(main, seed=seed, policy=policy).value for seed in range(seeds)]


def test_io_has_asyncios_order() -> None:
    assert set(orders("io", 20)) == {asyncio.run(steps())} == {"abcabc"}


def test_shuffle_has_every_order_of_steps() -> None:
    found = orders("shuffle", 60, lambda: steps(2, 2))
    assert set(found) == {"".join(order) for order in itertools.permutations("aabb")}
    assert found[:5] == orders("shuffle", 5, lambda: steps(2, 2))


def test_pct_runs_the_highest_and_changes_at_points() -> None:
    without = orders("pct:0", 40)
    # Each task goes on until it is done; the first steps are in any order.
    assert set(without) == {
        "".join(2 * name for name in order) for order in itertools.permutations("abc")
    }
    changed = orders("pct:3", 40)
    assert set(changed) - set(without)
    assert changed[:5] == orders("pct:3", 5)


def test_pct_lets_others_run_beside_one_that_waits_for_them_in_a_loop() -> None:
    async def main() -> int:
        done: list[int] = []
        turns = 0

        async def spin() -> None:
            nonlocal turns
            while not done:
                turns += 1
                await asyncio.sleep(0)

        async def end() -> None:
            done.append(1)

        await asyncio.gather(spin(), end())
        return turns

    turns = [testing.run(main, seed=seed, policy="pct:0", max_time=1).value for seed in range(10)]
    assert 0 in turns  # `end` was the higher
    assert any(50 < each < 200 for each in turns)


def test_delays_are_the_sets_of_at_most_so_many_numbers() -> None:
    for bound in range(4):
        sets = [delays(index, bound) for index in range(300 if bound else 1)]
        assert len(set(sets)) == len(sets)
        assert sets[0] == frozenset()
        assert max(map(len, sets)) == bound
        greatest = [max(each, default=-1) for each in sets]
        assert greatest == sorted(greatest)
    # 1 + 10 + 45 sets of at most two of ten numbers
    assert {delays(index, 2) for index in range(56)} == {
        frozenset(each) for size in range(3) for each in itertools.combinations(range(10), size)
    }


def test_dfs_begins_with_asyncios_order_and_goes_through_all_others() -> None:
    found = orders("dfs:2", 40)
    assert found[0] == "abcabc"
    assert found[:5] == orders("dfs:2", 5)
    # The first steps of a and b are delayed: after c, and before later steps.
    assert "bcabca" in found
    assert "cabcab" in found
    assert set(orders("dfs:0", 5)) == {"abcabc"}
    assert set(orders("dfs:1", 20)) < set(found)


@pytest.mark.parametrize("bound", [0, 1, 2])
def test_dfs_ends_when_all_is_explored(bound: int) -> None:
    found = []

    @testing.simulate(seeds=5000, policy=f"dfs:{bound}")
    async def explored() -> None:
        found.append(await steps(2, 2))

    explored()
    assert len(found) < 100
    assert set(found) == set(orders(f"dfs:{bound}", len(found) + 20, lambda: steps(2, 2)))
    assert (len(set(found)) > 1) == (bound > 0)


def test_dfs_varies_only_the_order_of_tasks() -> None:
    async def main(sim: testing.Simulation) -> float:
        return sim.random.random()

    assert len(set(orders("dfs:1", 5, main))) == 1
    assert len(set(orders("pct:1", 5, main))) == 5


def test_delayed_choices_run_after_the_others() -> None:
    a, b, c = (asyncio.Future[None](loop=asyncio.new_event_loop()) for _ in range(3))
    try:
        chosen = Delays(delays(0, 1) and 0, 1)
        assert chosen.choose([a, b, c]) == 0
        first = Delays(1, 1)  # {0}
        assert first.choose([a, b, c]) == 1
        assert first.choose([a, c]) == 1
        assert first.choose([a]) == 0
        both = Delays(3, 2)  # {0, 1}
        assert both.choose([a, b, c]) == 2
        assert both.choose([a, b]) == 0
    finally:
        for each in (a, b, c):
            each.get_loop().close()


def test_a_change_point_gives_the_lowest_priority() -> None:
    futures = [asyncio.Future[None](loop=asyncio.new_event_loop()) for _ in range(3)]
    try:
        priorities = Priorities(random.Random(1), 0)
        highest = priorities.choose(futures)
        assert priorities.choose(futures) == highest
        priorities._changes = {3}
        assert priorities.choose(futures) != highest
        others = [priorities.choose(futures) for _ in range(5)]
        assert highest not in others
    finally:
        for each in futures:
            each.get_loop().close()


async def relies_on_the_order_of_callbacks() -> list[int]:
    loop = asyncio.get_running_loop()
    ran: list[int] = []
    for number in range(50):
        loop.call_soon(ran.append, number)
    # Methods of futures, and of tasks, are callbacks, too, where they are no steps.
    futures = [loop.create_future() for _ in range(20)]
    done: list[bool] = []
    for future in futures:
        loop.call_soon(future.set_result, None)
        loop.call_soon(lambda future: done.append(future.done()), future)
    await asyncio.sleep(1)
    assert done == [True] * 20
    return ran


async def uses_streams() -> bytes:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "localhost", 8080):
        streams = [await asyncio.open_connection("localhost", 8080) for _ in range(3)]
        for _, writer in streams:
            writer.write(b"x" * 10_000)
            writer.write_eof()
        got = await asyncio.gather(*(reader.read() for reader, _ in streams))
        for _, writer in streams:
            writer.close()
            await writer.wait_closed()
        await asyncio.to_thread(int)
    return b"".join(got)


@pytest.mark.parametrize("policy", ["io", "shuffle", "pct:2", "dfs:1"])
def test_callbacks_keep_their_order_and_streams_work(policy: str) -> None:
    for seed in range(4):
        value = testing.run(relies_on_the_order_of_callbacks, seed=seed, policy=policy).value
        assert value == list(range(50))
        assert testing.run(uses_streams, seed=seed, policy=policy).value == b"x" * 30_000


def test_tasks_of_every_kind_are_ordered() -> None:
    async def main() -> str:
        order: list[str] = []
        loop = asyncio.get_running_loop()

        async def task(name: str) -> None:
            order.append(name)
            await asyncio.sleep(1)
            order.append(name.upper())

        await asyncio.wait(
            [
                asyncio.create_task(task("a")),
                asyncio.tasks._PyTask(task("b"), loop=loop),  # type: ignore[attr-defined]
                asyncio.tasks._CTask(task("c"), loop=loop),  # type: ignore[attr-defined]
            ]
        )
        return "".join(order)

    found = orders("shuffle", 50, main)
    assert {each[:3] for each in found} == {"".join(e) for e in itertools.permutations("abc")}


def test_a_record_has_the_same_run_with_the_steps_of_tasks() -> None:
    def life(record: bool) -> Any:
        made = new_session(5, "io", record=record)
        run_to_end(made, uses_streams, None)
        return made

    recorded, plain = life(True), life(False)
    lines = recorded.trace.splitlines()
    steps = [line for line in lines if line.split()[1] == "step"]
    assert [line for line in lines if line not in steps] == plain.trace.splitlines()
    assert steps[0] == "1000000000 step 1 uses_streams"
    assert any(line.endswith("uses_streams.<locals>.serve") for line in steps)
