"""Asynchronous generators are finished by the loop, and by shutdown_asyncgens."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from conftest import Errors, LoopFactory
from protocols import one_turn, until

Loop = asyncio.AbstractEventLoop


async def numbers(log: list[str]) -> AsyncIterator[int]:
    try:
        for number in range(10):
            yield number
    finally:
        await asyncio.sleep(0)
        log.append("finished")


async def test_a_dropped_generator_is_finished(loop: Loop) -> None:
    log: list[str] = []

    async def use() -> None:
        async for number in numbers(log):
            if number == 3:
                return

    await use()
    gc.collect()
    await until(lambda: log == ["finished"])


def test_shutdown_finishes_generators_that_are_still_suspended(loop: Loop) -> None:
    logs: list[list[str]] = [[], []]
    generators = [numbers(log) for log in logs]

    async def start() -> None:
        for generator in generators:
            assert await anext(generator) == 0

    loop.run_until_complete(start())
    assert logs == [[], []]
    loop.run_until_complete(loop.shutdown_asyncgens())
    assert logs == [["finished"], ["finished"]]
    loop.run_until_complete(loop.shutdown_asyncgens())


def test_an_error_while_finishing_is_reported(loop: Loop, errors: Errors) -> None:
    async def broken() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            raise ZeroDivisionError

    generator = broken()

    async def start() -> None:
        await anext(generator)

    loop.run_until_complete(start())
    loop.run_until_complete(loop.shutdown_asyncgens())
    context = errors.expect(
        ZeroDivisionError, "an error occurred during closing of asynchronous generator "
    )
    assert context["asyncgen"] is generator


def test_generator_started_after_the_shutdown_warns(loop: Loop) -> None:
    log: list[str] = []

    async def late() -> None:
        with pytest.warns(ResourceWarning, match="was scheduled after loop.shutdown_asyncgens"):
            async for _ in numbers(log):
                pass

    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(late())


def test_the_hooks_are_there_only_while_the_loop_runs(loop: Loop) -> None:
    before = sys.get_asyncgen_hooks()
    seen: list[Any] = []
    loop.call_soon(lambda: seen.append(sys.get_asyncgen_hooks()))
    one_turn(loop)
    assert seen[0].firstiter is not None
    assert seen[0].finalizer is not None
    assert sys.get_asyncgen_hooks() == before


def test_the_users_hooks_are_restored(loop: Loop) -> None:
    def mine(generator: Any) -> None: ...

    sys.set_asyncgen_hooks(firstiter=mine, finalizer=mine)
    try:
        one_turn(loop)
        assert sys.get_asyncgen_hooks() == (mine, mine)

        def leave() -> None:
            raise KeyboardInterrupt

        loop.call_soon(leave)
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
        assert sys.get_asyncgen_hooks() == (mine, mine)
    finally:
        sys.set_asyncgen_hooks(None, None)


def test_a_generator_that_another_thread_drops_is_finished_by_the_loop(
    loop_factory: LoopFactory,
) -> None:
    loop = loop_factory()
    log: list[str] = []
    holder: list[Any] = [numbers(log)]

    async def main() -> None:
        await anext(holder[0])
        thread = threading.Thread(target=holder.clear)
        thread.start()
        await until(lambda: log == ["finished"])
        thread.join()

    loop.run_until_complete(main())
    loop.close()


def test_run_finishes_generators(loop_name: str, loop_factory: LoopFactory) -> None:
    log: list[str] = []
    generator = numbers(log)

    async def main() -> None:
        await anext(generator)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())
    assert log == ["finished"]
