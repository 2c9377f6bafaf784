"""The report of a simulation's failure: lines of the test, and the last events."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import goloop
from goloop import testing
from goloop._internal.observe import metrics
from goloop._internal.observe.histogram import BUCKETS, HISTOGRAM

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")


async def main() -> None:
    await asyncio.sleep(1)


def spawn(passed: Any) -> None:
    async def run(sim: testing.Simulation) -> None:
        await sim.host("a").spawn(passed)

    testing.run(run)


def program(passed: Any) -> None:
    async def run(sim: testing.Simulation) -> None:
        sim.program("sort", passed)

    testing.run(run)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (testing.run, "testing.run"),
        (testing.simulate(), "testing.simulate()"),
        (spawn, "host.spawn"),
        (program, "sim.program"),
        (goloop.run_threads, "goloop.run_threads"),
    ],
    ids=["run", "simulate", "spawn", "program", "run_threads"],
)
def test_a_coroutine_instead_of_the_function_is_refused(
    call: Callable[[Any], Any], name: str
) -> None:
    coroutine = main()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError) as info:
            call(coroutine)
        del coroutine  # closed, so that there is no warning that it was never awaited
    assert str(info.value) == f"pass the function: {name}(main), not {name}(main())"


async def fails() -> None:
    await asyncio.sleep(1)
    raise KeyError("here")


async def breaks_a_promise(sim: testing.Simulation) -> None:
    sim.eventually("it happens", lambda: False, within=5)


async def breaks_an_invariant(sim: testing.Simulation) -> None:
    sim.always("it holds", lambda: sim.time() < 1)
    await asyncio.sleep(2)


def files(exc: BaseException) -> list[str]:
    return [each.filename for each in traceback.extract_tb(exc.__traceback__)]


def through_simulate(function: Any) -> None:
    testing.simulate(seeds=1)(function)()


@pytest.mark.parametrize("run", [testing.run, through_simulate], ids=["run", "simulate"])
def test_a_traceback_has_the_tests_frames_and_one_of_goloops(run: Any) -> None:
    with pytest.raises(KeyError) as info:
        run(fails)
    own = [each for each in traceback.extract_tb(info.value.__traceback__) if each.name == "fails"]
    assert [each.line for each in own] == ['raise KeyError("here")']
    others = [each for each in files(info.value) if each != __file__]
    assert len(others) == 1, others
    # pytest shows those of the test alone.
    shown = str(info.getrepr(tbfilter=True, style="short"))
    assert 'raise KeyError("here")' in shown
    assert "_internal" not in shown


@pytest.mark.parametrize(
    ("function", "error", "line"),
    [
        (breaks_a_promise, testing.NeverHappened, 'sim.eventually("it happens"'),
        (breaks_an_invariant, testing.InvariantBroken, 'sim.always("it holds"'),
    ],
)
def test_broken_invariant_names_its_registering_line(function: Any, error: Any, line: str) -> None:
    with pytest.raises(error) as info:
        testing.run(function)
    assert [each for each in files(info.value) if each != __file__][1:] == []
    [note] = info.value.__notes__
    assert note.startswith(f"Registered in {__file__}:")
    assert f", in {function.__name__}: {line}" in note


@testing.simulate(seeds=1)
async def times_out(sim: testing.Simulation) -> None:
    async def waits() -> None:
        async with asyncio.timeout(1):
            await asyncio.sleep(10)

    sim.eventually("it happens", lambda: False, within=5)
    with contextlib.suppress(TimeoutError):
        await asyncio.create_task(waits(), name="a waiter")


def test_a_note_ends_with_the_last_event_and_has_cancellations() -> None:
    with pytest.raises(testing.NeverHappened) as info:
        times_out()
    [note] = [each for each in info.value.__notes__ if each.startswith("Simulation:")]
    assert "ended at 5.000000 s" in note
    events = [line.split(" s  ") for line in note.partition("The last events:\n")[2].splitlines()]
    assert float(events[-1][0]) == 5
    assert ["cancel 2 times_out.<locals>.waits 'a waiter'"] in [each[1:] for each in events]


def test_closed_loops_of_simulations_may_have_waited_for_longer_than_their_sum_has_room() -> None:
    one = HISTOGRAM.pack(1, 2**63, 2**63, *[0] * BUCKETS)
    added = metrics._sum_raw([{"poll_time": one}, {"poll_time": one}])
    assert HISTOGRAM.unpack(added["poll_time"])[:3] == (2, 2**64 - 1, 2**63)
