"""call_soon_threadsafe and run_coroutine_threadsafe, from many threads and at bad moments."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import threading
import weakref
from typing import Any

import pytest
from conftest import LoopFactory
from protocols import in_thread, one_turn, turns, until

Loop = asyncio.AbstractEventLoop


async def test_no_call_of_many_threads_is_lost_and_each_threads_stay_in_order(loop: Loop) -> None:
    seen: list[list[int]] = [[] for _ in range(8)]

    def work(mine: list[int]) -> None:
        for number in range(3000):
            loop.call_soon_threadsafe(mine.append, number)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in seen]
    for thread in threads:
        thread.start()
    await until(lambda: sum(map(len, seen)) == 24_000)
    for thread in threads:
        thread.join()
    assert seen == [list(range(3000))] * 8


@pytest.mark.parametrize("from_thread", [False, True])
async def test_call_soon_threadsafe_keeps_the_order_of_the_ready_queue(
    loop: Loop, from_thread: bool
) -> None:
    """No callback that becomes ready later runs before it, independent of the caller."""
    order: list[str] = []
    futures = [loop.create_future() for _ in range(2)]

    async def waits(n: int) -> None:
        await futures[n]
        order.append(f"woken {n}")

    async def begins() -> None:
        order.append("begun")

    waiters = [loop.create_task(waits(n)) for n in range(2)]
    await asyncio.sleep(0)
    futures[0].add_done_callback(lambda _: order.append("callback"))
    for n, future in enumerate(futures):
        if from_thread:
            in_thread(loop.call_soon_threadsafe, order.append, f"threadsafe {n}")
        else:
            loop.call_soon_threadsafe(order.append, f"threadsafe {n}")
        future.set_result(None)
    waiters.append(loop.create_task(begins()))
    await asyncio.wait(waiters)
    expected = ["threadsafe 0", "woken 0", "callback", "threadsafe 1", "woken 1", "begun"]
    assert order == expected


async def test_a_wake_is_never_lost_between_two_sleeps(loop: Loop) -> None:
    """The other thread answers each time, so each call races with the loop going to sleep."""
    requests = [0]
    condition = threading.Condition()
    answered = asyncio.Event()

    def work() -> None:
        for number in range(1, 2001):
            with condition:
                condition.wait_for(lambda number=number: requests[0] >= number)  # type: ignore[misc]
            loop.call_soon_threadsafe(answered.set)

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(2000):
        with condition:
            requests[0] += 1
            condition.notify()
        await answered.wait()
        answered.clear()
    thread.join()


async def test_arguments_and_context_are_passed_on(loop: Loop) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    seen: list[Any] = []
    context = contextvars.copy_context()
    context.run(variable.set, "given")

    def note(*args: Any) -> None:
        seen.append((variable.get(), *args))

    def work() -> None:
        variable.set("the thread's")
        loop.call_soon_threadsafe(note, 1)
        loop.call_soon_threadsafe(note, 2, 3, context=context)

    thread = threading.Thread(target=work)
    thread.start()
    await until(lambda: len(seen) == 2)
    thread.join()
    assert seen == [("the thread's", 1), ("given", 2, 3)]


def test_calls_while_the_loop_is_closed_are_taken_or_raise(loop_factory: LoopFactory) -> None:
    """The calls are either accepted or raise, and never crash."""
    for _ in range(20):
        loop = loop_factory()
        outcomes: list[str] = []
        ready = threading.Barrier(2)

        def work(loop: Loop = loop, outcomes: list[str] = outcomes, ready: Any = ready) -> None:
            ready.wait()
            for _ in range(10_000):
                try:
                    loop.call_soon_threadsafe(int)
                except RuntimeError as error:
                    outcomes.append(str(error))
                    return

        thread = threading.Thread(target=work)
        thread.start()
        ready.wait()
        one_turn(loop)
        loop.close()
        thread.join()
        assert outcomes in ([], ["Event loop is closed"])


def test_run_coroutine_threadsafe_gives_each_result(loop: Loop) -> None:
    results: list[int] = []

    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    def work() -> None:
        futures = [asyncio.run_coroutine_threadsafe(double(n), loop) for n in range(100)]
        results.extend(future.result(20) for future in futures)
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=work)
    thread.start()
    loop.run_forever()
    thread.join()
    assert results == [n * 2 for n in range(100)]


def test_a_loop_in_a_thread_can_be_stopped_from_outside(loop_factory: LoopFactory) -> None:
    for _ in range(20):
        loop = loop_factory()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()

        async def nothing() -> int:
            return 1

        assert asyncio.run_coroutine_threadsafe(nothing(), loop).result(20) == 1
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        assert not thread.is_alive()
        loop.close()


@pytest.mark.parametrize("debug", [False, True])
def test_call_soon_threadsafe_needs_no_running_loop(loop: Loop, debug: bool) -> None:
    loop.set_debug(debug)
    in_thread(lambda: loop.call_soon_threadsafe(loop.stop))
    loop.run_forever()


@pytest.mark.skipif(sys.version_info < (3, 14), reason="the handle is an ordinary one before 3.14")
async def test_cancel_waits_for_a_running_callback(loop: Loop) -> None:
    started, ending, ended = threading.Event(), threading.Event(), threading.Event()
    answers: list[bool] = []

    def callback() -> None:
        started.set()
        ending.wait()
        ended.set()

    def other(ask: str) -> None:
        started.wait()
        asking.release()
        getattr(handle, ask)()
        answers.append(ended.is_set())

    asking = threading.Semaphore(0)
    threads = [threading.Thread(target=other, args=(a,)) for a in ("cancel", "cancelled") * 3]

    def let_it_end() -> None:
        for _ in range(6):
            asking.acquire()
        ending.set()

    threads.append(threading.Thread(target=let_it_end))
    handle = loop.call_soon_threadsafe(callback)
    assert isinstance(handle, asyncio.Handle)
    for thread in threads:
        thread.start()
    await until(lambda: len(answers) == 6)
    for thread in threads:
        thread.join()
    assert all(answers)
    assert handle.cancelled()


async def test_a_callback_may_cancel_itself(loop: Loop) -> None:
    seen = []

    def callback() -> None:
        handle.cancel()
        seen.append(handle.cancelled())

    handle = loop.call_soon_threadsafe(callback)
    await until(lambda: seen)
    assert seen == [True]


async def test_a_handle_cancelled_before_it_runs_never_runs(loop: Loop) -> None:
    seen: list[int] = []
    handles = [loop.call_soon_threadsafe(seen.append, n) for n in range(3)]
    handles[0].cancel()
    in_thread(handles[1].cancel)
    await turns(2)
    assert seen == [2]
    assert [handle.cancelled() for handle in handles] == [True, True, False]


def test_handles_posted_by_threads_keep_no_loop_alive(loop_factory: LoopFactory) -> None:
    """Each Handle refers to its loop; a thread makes it, and the loop's own ends it."""

    def posts(loop: Loop, kept: list[asyncio.Handle]) -> None:
        for number in range(2_000):
            handle = loop.call_soon_threadsafe(int)
            if number % 100 == 0:
                kept.append(handle)
        loop.call_soon_threadsafe(loop.stop)

    def references(loop: Loop) -> int:
        kept: list[asyncio.Handle] = []
        thread = threading.Thread(target=posts, args=(loop, kept))
        thread.start()
        loop.run_forever()
        thread.join()
        kept.clear()
        gc.collect()
        return sys.getrefcount(loop)

    def runs() -> weakref.ref[Loop]:
        loop = loop_factory()
        before = references(loop)
        assert {references(loop) for _ in range(5)} == {before}
        loop.close()
        return weakref.ref(loop)

    found = runs()
    gc.collect()
    assert found() is None
