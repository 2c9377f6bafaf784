"""run_in_executor, the default executor and its shutdown."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import threading
import warnings
from typing import Any

import pytest
from conftest import LoopFactory
from protocols import one_turn, turns

Loop = asyncio.AbstractEventLoop


async def test_the_function_runs_in_the_executor_that_is_passed_or_set(loop: Loop) -> None:
    def thread_name() -> str:
        return threading.current_thread().name

    executor = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="default")
    loop.set_default_executor(executor)
    assert (await loop.run_in_executor(None, thread_name)).startswith("default")
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="mine") as passed:
        assert (await loop.run_in_executor(passed, thread_name)).startswith("mine")


async def test_cancelling_does_not_wait(loop: Loop) -> None:
    release = threading.Event()
    started = threading.Event()

    def work() -> None:
        started.set()
        release.wait()

    future = loop.run_in_executor(None, work)
    assert started.wait(10)
    future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await future
    release.set()
    await loop.shutdown_default_executor()


async def test_shutdown_ends_the_threads_and_refuses_new_work(loop: Loop) -> None:
    await loop.run_in_executor(None, print)
    before = threading.active_count()
    await loop.shutdown_default_executor()
    assert threading.active_count() < before
    with pytest.raises(RuntimeError, match="Executor shutdown has been called"):
        loop.run_in_executor(None, print)


async def test_shutdown_of_an_unused_executor_does_nothing(loop: Loop) -> None:
    await loop.shutdown_default_executor()
    await loop.shutdown_default_executor()


@pytest.mark.skipif(
    sys.version_info < (3, 13), reason="timeout is new in 3.12, whose first releases ignore it"
)
async def test_shutdown_warns_when_its_timeout_is_over(loop: Loop) -> None:
    others = set(threading.enumerate())
    release = threading.Event()
    loop.run_in_executor(None, release.wait)
    with pytest.warns(RuntimeWarning, match="The executor did not finishing joining"):
        await loop.shutdown_default_executor(timeout=0.01)  # type: ignore[call-arg]
    # The executor's, and the one that waits for it.
    threads = set(threading.enumerate()) - others
    release.set()
    for thread in threads:
        thread.join(10)


async def test_shutdown_waits_for_running_functions(loop: Loop) -> None:
    release = threading.Event()
    ended: list[int] = []

    def work() -> None:
        release.wait()
        ended.append(1)

    loop.run_in_executor(None, work)
    shutdown = asyncio.ensure_future(loop.shutdown_default_executor())
    await turns(5)
    assert not shutdown.done()
    release.set()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await shutdown
    assert ended == [1]


def test_closing_the_loop_does_not_wait_for_the_executor(loop_factory: LoopFactory) -> None:
    others = set(threading.enumerate())
    loop = loop_factory()
    release = threading.Event()
    loop.run_in_executor(None, release.wait)
    threads = set(threading.enumerate()) - others
    assert threads
    loop.close()
    release.set()
    for thread in threads:
        thread.join(10)


def test_an_answer_that_comes_after_the_loop_was_closed_is_dropped(
    loop_factory: LoopFactory,
) -> None:
    """A late result has no receiver, and does not crash."""
    loop = loop_factory()
    executor = concurrent.futures.ThreadPoolExecutor(1)
    release = threading.Event()
    future: Any = loop.run_in_executor(executor, release.wait)
    one_turn(loop)
    loop.close()
    release.set()
    executor.shutdown()
    assert not future.done()
