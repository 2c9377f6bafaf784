"""asyncio.all_tasks() and current_task() know goloop's tasks, from every thread."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from asyncio import all_tasks as imported_by_name
from collections.abc import Callable
from typing import Any

import pytest
from protocols import in_thread

import goloop

Factory = Callable[[], asyncio.AbstractEventLoop]


def test_all_tasks_lists_tasks_until_they_are_done(loop: asyncio.AbstractEventLoop) -> None:
    async def main() -> None:
        started = [loop.create_task(asyncio.sleep(3600)) for _ in range(3)]
        me = asyncio.current_task()
        assert asyncio.all_tasks() == imported_by_name() == {me, *started}
        started[0].cancel()
        await asyncio.wait(started[:1])
        assert asyncio.all_tasks(loop) == {me, *started[1:]}
        for task in started:
            task.cancel()
        await asyncio.wait(started)
        assert asyncio.all_tasks() == {me}

    loop.run_until_complete(main())
    assert asyncio.all_tasks(loop) == set()


def test_all_tasks_of_a_loop_are_seen_from_another_thread(loop: asyncio.AbstractEventLoop) -> None:
    async def main() -> None:
        tasks = {loop.create_task(asyncio.sleep(3600), name=str(n)) for n in range(5)}
        seen = await asyncio.to_thread(asyncio.all_tasks, loop)
        assert seen == tasks | {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    loop.run_until_complete(main())
    loop.run_until_complete(loop.shutdown_default_executor())


def test_all_tasks_separates_two_loops(loop_factory: Factory) -> None:
    first, second = loop_factory(), loop_factory()
    coroutines = [asyncio.sleep(0), asyncio.sleep(0)]
    try:
        mine, other = first.create_task(coroutines[0]), second.create_task(coroutines[1])
        assert asyncio.all_tasks(first) == {mine}
        assert asyncio.all_tasks(second) == {other}
        first.run_until_complete(mine)
        second.run_until_complete(other)
    finally:
        first.close()
        second.close()


async def test_goloops_and_asyncios_tasks_are_listed_together(
    loop: asyncio.AbstractEventLoop,
) -> None:
    classes: list[Any] = [asyncio.Task, goloop.Task]
    tasks = {cls(asyncio.sleep(0), loop=loop) for cls in classes}
    assert asyncio.all_tasks() == {asyncio.current_task(), *tasks}
    await asyncio.wait(tasks)


def test_a_task_outlives_its_thread_and_is_still_listed(loop: asyncio.AbstractEventLoop) -> None:
    made: list[asyncio.Task[None]] = []
    coroutine = asyncio.sleep(0)
    in_thread(lambda: made.append(loop.create_task(coroutine)))
    assert asyncio.all_tasks(loop) == set(made)
    loop.run_until_complete(made[0])
    assert asyncio.all_tasks(loop) == set()


@pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="from Python 3.14 on asyncio lists tasks itself"
)
async def test_asyncios_set_shows_the_tasks(loop: asyncio.AbstractEventLoop) -> None:
    tasks: Any = asyncio.tasks
    kept = tasks._scheduled_tasks if sys.version_info >= (3, 12) else tasks._all_tasks
    me = asyncio.current_task()
    assert me in kept
    assert me in list(kept)
    assert len(kept) >= 1
    assert "x" not in kept


def test_current_task_is_there_in_steps_only(loop: asyncio.AbstractEventLoop) -> None:
    seen: list[object] = []

    class Watcher:
        """Looks while it is freed."""

        def __del__(self) -> None:
            seen.append(asyncio.current_task(loop))

    async def child() -> Watcher:
        await asyncio.sleep(0)
        assert asyncio.current_task() is not None
        return Watcher()

    async def main() -> None:
        me = asyncio.current_task()
        tasks = [loop.create_task(child()) for _ in range(3)]
        loop.call_soon(lambda: seen.append(asyncio.current_task()))
        for task in tasks:
            task.add_done_callback(lambda _: seen.append(asyncio.current_task()))
        await asyncio.sleep(0)
        assert asyncio.current_task() is me
        await tasks[0]
        del task
        tasks.clear()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    loop.run_until_complete(main())
    gc.collect()
    assert seen[:4] == [None] * 4
    assert asyncio.current_task(loop) is None


async def test_the_current_task_of_a_loop_is_seen_from_another_thread(
    loop: asyncio.AbstractEventLoop,
) -> None:
    me = asyncio.current_task()
    seen: list[object] = []
    in_thread(lambda: seen.append(asyncio.current_task(loop)))
    assert seen == [me]


def test_a_thread_that_looks_for_the_current_task_does_not_disturb_steps(
    loop_factory: Factory,
) -> None:
    """A step begins while another thread has the entry of the step before still in hand."""
    loops = [loop_factory() for _ in range(2)]
    left = threading.Semaphore(0)
    results: list[object] = []

    async def child() -> int:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return 1

    async def parent() -> int:
        return sum(await asyncio.gather(child(), child(), child()))

    async def spawns() -> int:
        return sum([sum(await asyncio.gather(parent(), parent())) for _ in range(3000)])

    async def main() -> list[int]:
        return await asyncio.gather(spawns(), spawns(), spawns())

    def run(loop: asyncio.AbstractEventLoop) -> None:
        loop.call_later(60, loop.stop)  # a task that can't be entered never ends
        try:
            results.append(loop.run_until_complete(main()))
        except BaseException as error:
            results.append(error)
        finally:
            left.release()

    threads = [threading.Thread(target=run, args=(loop,)) for loop in loops]
    for thread in threads:
        thread.start()
    for _ in threads:
        while not left.acquire(blocking=False):
            for loop in loops:
                asyncio.current_task(loop)
    for thread in threads:
        thread.join()
    for loop in loops:
        loop.close()
    assert results == [[18000] * 3] * 2


def test_loops_in_four_threads_each_know_their_tasks(loop_factory: Factory) -> None:
    failures: list[BaseException] = []

    async def worker(depth: int) -> int:
        await asyncio.sleep(0)
        if depth == 0:
            return 1
        assert asyncio.current_task() in asyncio.all_tasks()
        return sum(await asyncio.gather(*(worker(depth - 1) for _ in range(3))))

    def run() -> None:
        try:
            loop = loop_factory()
            try:
                for _ in range(20):
                    assert loop.run_until_complete(worker(4)) == 81
                    assert asyncio.all_tasks(loop) == set()
            finally:
                loop.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_everything_survives_a_collection_at_every_allocation(
    loop: asyncio.AbstractEventLoop,
) -> None:
    async def child(number: int) -> int:
        future = loop.create_future()
        loop.call_soon(future.set_result, number)
        return int(await future)

    async def main() -> list[int]:
        event = asyncio.Event()
        loop.call_soon(event.set)
        await event.wait()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(child(n)) for n in range(5)]
        cancelled = loop.create_task(asyncio.sleep(3600))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        return [task.result() for task in tasks]

    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        assert loop.run_until_complete(main()) == [0, 1, 2, 3, 4]
    finally:
        gc.set_threshold(*before)


async def test_a_task_that_is_unregistered_is_not_listed(loop: asyncio.AbstractEventLoop) -> None:
    tasks: Any = asyncio.tasks
    task = loop.create_task(asyncio.sleep(3600))
    assert task in asyncio.all_tasks()
    tasks._unregister_task(task)
    assert task not in asyncio.all_tasks()
    assert asyncio.current_task() in asyncio.all_tasks()
    tasks._register_task(task)
    assert task in asyncio.all_tasks()
    task.cancel()
    await asyncio.wait([task])
