"""Tasks and futures without references, or re-initialised while they run."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import ended
import pytest
from protocols import one_turn

import goloop

SCENARIOS = Path(__file__).with_name("task_safety_scenarios.py")

# ---- all_tasks() and tasks that are dying -------------------------------------------


@pytest.mark.parametrize("how", ["nested", "cycle"])
@pytest.mark.parametrize("cls", ["Slotted", "Finalized", "Resurrected", "WithDict"])
def test_all_tasks_skips_unreferenced_tasks(how: str, cls: str) -> None:
    assert ended.passes(SCENARIOS, "tasks_that_die", how, cls) == "alive\n"


def test_all_tasks_with_a_task_in_the_trashcan_does_not_crash() -> None:
    assert ended.passes(SCENARIOS, "tasks_in_the_trashcan") == "alive 10\n"


def test_a_task_in_its_finalizer_is_listed_as_asyncio_lists_it() -> None:
    counts = []
    for base, factory in (
        (asyncio.Task, asyncio.SelectorEventLoop),
        (goloop.Task, goloop.new_event_loop),
    ):
        loop: Any = factory()
        loop.set_exception_handler(lambda *_: None)

        async def waits() -> None:
            await asyncio.sleep(1000)

        def looks(self: Any, loop: Any = loop) -> None:
            counts.append(len(asyncio.all_tasks(loop)))

        cls: Any = type("Task", (base,), {"__del__": looks})
        task = cls(waits(), loop=loop)
        coro = task.get_coro()
        loop.close()
        del task
        gc.collect()
        coro.close()
    assert counts[0] == counts[1]


# ---- long chains ----------------------------------------------------------------------


def test_a_long_chain_of_tasks_does_not_overflow_the_stack() -> None:
    assert ended.passes(SCENARIOS, "a_long_chain_of_tasks_does_not_overflow_the_stack") == "alive\n"


def test_task_deep_in_a_chain_is_reported_once() -> None:
    """The finalizer runs before the trashcan takes the task, and not again after it."""
    loop = goloop.new_event_loop()
    reports: list[Any] = []
    loop.set_exception_handler(lambda _, context: reports.append(context["message"]))

    async def fails(keep: Any) -> None:
        raise ValueError(keep)

    last = None
    for _ in range(500):
        last = loop.create_task(fails(last))
        one_turn(loop)
    del last
    gc.collect()
    loop.close()
    assert reports == ["Task exception was never retrieved"] * 500


# ---- re-initialised from elsewhere ---------------------------------------------------------


@pytest.mark.parametrize("what", ["task", "future", "later"])
@pytest.mark.parametrize(
    "yielded", ["none", "future", "other", "asyncio", "sleep", "done", "itself"]
)
def test_task_or_future_without_a_loop_does_not_crash(what: str, yielded: str) -> None:
    assert ended.passes(SCENARIOS, "future_without_a_loop", what, yielded).endswith("alive\n")


def test_write_to_the_list_of_callbacks_does_not_crash() -> None:
    assert ended.passes(SCENARIOS, "write_to_the_list_of_callbacks_does_not_crash") == "alive\n"


def test_reinitialising_a_future_during_collection_does_not_crash() -> None:
    """Making a handle may run the collector, and that anything."""
    assert (
        ended.passes(SCENARIOS, "reinitialising_a_future_during_collection_does_not_crash")
        == "alive\n"
    )
