"""goloop.run_threads: results and exceptions; test_thread_signals.py has the signals."""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from protocols import in_thread

import goloop

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


def test_results_are_ordered_by_index(loop_factory: LoopFactory) -> None:
    last_first = [threading.Event() for _ in range(4)]
    last_first[-1].set()

    async def main(index: int) -> tuple[int, str, int]:
        await asyncio.to_thread(last_first[index].wait)
        if index:
            last_first[index - 1].set()
        thread = threading.current_thread()
        return index, thread.name, id(asyncio.get_running_loop())

    results = goloop.run_threads(
        main, threads=4, loop_factory=loop_factory, thread_name_prefix="mine"
    )
    assert [(index, name) for index, name, _ in results] == [(i, f"mine-{i}") for i in range(4)]


@pytest.mark.usefixtures("no_leaks")
def test_each_thread_has_a_goloop_loop_of_its_own() -> None:
    together = threading.Barrier(3)

    async def main(index: int) -> tuple[asyncio.AbstractEventLoop, str]:
        together.wait()  # none has ended yet
        return asyncio.get_running_loop(), threading.current_thread().name

    results = goloop.run_threads(main, threads=3)
    assert len({id(loop) for loop, _ in results}) == 3
    assert all(type(loop) is goloop.Loop and loop.is_closed() for loop, _ in results)
    assert [name for _, name in results] == ["goloop-0", "goloop-1", "goloop-2"]


def test_there_are_as_many_threads_as_processors(loop_factory: LoopFactory) -> None:
    async def main(index: int) -> int:
        return index

    results = goloop.run_threads(main, loop_factory=loop_factory)
    assert results == list(range(len(os.sched_getaffinity(0))))


def test_debug_is_passed_on(loop_factory: LoopFactory) -> None:
    async def main(index: int) -> bool:
        return asyncio.get_running_loop().get_debug()

    for debug in (True, False):
        results = goloop.run_threads(main, threads=2, debug=debug, loop_factory=loop_factory)
        assert results == [debug, debug]


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")


def test_each_thread_begins_in_a_copy_of_the_callers_context(loop_factory: LoopFactory) -> None:
    together = threading.Barrier(2)

    async def told(index: int) -> tuple[str, str]:
        before = variable.get()
        variable.set(f"of {index}")
        await asyncio.to_thread(together.wait)
        return before, variable.get()

    def main(index: int) -> Any:
        assert variable.get() == "the caller's"
        return told(index)

    variable.set("the caller's")
    results = goloop.run_threads(main, threads=2, loop_factory=loop_factory)
    assert results == [("the caller's", "of 0"), ("the caller's", "of 1")]
    assert variable.get() == "the caller's"


# ---- exceptions -----------------------------------------------------------------


def test_the_first_exception_cancels_the_others_and_is_raised(loop_factory: LoopFactory) -> None:
    together = threading.Barrier(3)
    ended = []

    async def main(index: int) -> None:
        together.wait()
        if index == 1:
            raise KeyError("the first")
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            ended.append(index)

    with pytest.raises(KeyError, match="the first") as caught:
        goloop.run_threads(main, threads=3, loop_factory=loop_factory)
    assert sorted(ended) == [0, 2]
    assert caught.value.__notes__ == ["in thread goloop-1 (index 1) of goloop.run_threads()"]


def test_further_exceptions_are_notes_of_the_first(loop_factory: LoopFactory) -> None:
    together = threading.Barrier(3)

    async def main(index: int) -> None:
        together.wait()
        if index == 2:
            raise KeyError("the first")
        try:
            await forever()
        finally:
            raise ValueError(f"raised by {index}")

    with pytest.raises(KeyError, match="the first") as caught:
        goloop.run_threads(main, threads=3, loop_factory=loop_factory)
    own, *others = caught.value.__notes__
    assert "goloop-2 (index 2)" in own
    for index, note in enumerate(others):
        assert note.startswith(f"also raised in thread goloop-{index} (index {index}):\n")
        assert note.endswith(f"ValueError: raised by {index}")
        assert "in main" in note
    assert len(others) == 2


def test_a_main_that_cancels_itself_is_an_exception_as_well(loop_factory: LoopFactory) -> None:
    async def main(index: int) -> None:
        if index == 0:
            raise asyncio.CancelledError("by itself")
        await forever()

    with pytest.raises(asyncio.CancelledError, match="by itself"):
        goloop.run_threads(main, threads=2, loop_factory=loop_factory)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_exit_exceptions_are_propagated(
    loop_factory: LoopFactory, kind: type[BaseException]
) -> None:
    async def main(index: int) -> None:
        if index == 0:
            raise kind(5)
        await forever()

    with pytest.raises(kind) as caught:
        goloop.run_threads(main, threads=2, loop_factory=loop_factory)
    assert caught.value.args == (5,)


def test_main_may_raise_before_there_is_a_coroutine(loop_factory: LoopFactory) -> None:
    def main(index: int) -> Any:
        if index == 1:
            raise LookupError("no coroutine")
        return forever()

    with pytest.raises(LookupError, match="no coroutine"):
        goloop.run_threads(main, threads=2, loop_factory=loop_factory)


def test_other_than_coroutines_are_refused_as_by_asyncio(loop_factory: LoopFactory) -> None:
    with pytest.raises((TypeError, ValueError)) as theirs, asyncio.Runner() as runner:
        runner.run(None)  # type: ignore[arg-type]
    with pytest.raises(theirs.type) as ours:
        goloop.run_threads(lambda index: None, threads=2, loop_factory=loop_factory)  # type: ignore[arg-type, return-value]
    assert str(ours.value) == str(theirs.value)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="asyncio refuses them before 3.14")
def test_other_awaitables_are_run_and_cancelled_too(loop_factory: LoopFactory) -> None:
    class Main:
        def __init__(self, index: int) -> None:
            self.index = index

        def __await__(self) -> Any:
            if self.index == 0:
                raise KeyError("the first")
            yield from forever().__await__()

    with pytest.raises(KeyError, match="the first"):
        goloop.run_threads(Main, threads=2, loop_factory=loop_factory)  # type: ignore[arg-type]


def test_a_loop_that_can_not_be_made_ends_the_others(loop_factory: LoopFactory) -> None:
    def factory() -> asyncio.AbstractEventLoop:
        if threading.current_thread().name == "goloop-1":
            raise OSError("no loop")
        return loop_factory()

    with pytest.raises(OSError, match="no loop"):
        goloop.run_threads(lambda index: forever(), threads=2, loop_factory=factory)


def test_exception_of_closing_a_runner_is_not_lost(loop_factory: LoopFactory) -> None:
    async def failing() -> None:
        raise RuntimeError("as the generators end")

    def factory() -> asyncio.AbstractEventLoop:
        made = loop_factory()
        made.shutdown_asyncgens = failing  # type: ignore[method-assign]
        return made

    async def main(index: int) -> None:
        raise KeyError("by main")

    with pytest.raises(KeyError, match="by main") as caught:
        goloop.run_threads(main, threads=1, loop_factory=factory)
    assert caught.value.__notes__[1].endswith("RuntimeError: as the generators end")


def test_a_thread_that_can_not_be_started_ends_the_others(
    loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start
    ended = threading.Event()
    runs = threading.Event()

    def refused(thread: threading.Thread) -> None:
        if thread.name == "goloop-1":
            runs.wait()
            raise RuntimeError("can't start new thread")
        start(thread)

    async def main(index: int) -> None:
        runs.set()
        try:
            await forever()
        finally:
            ended.set()

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        goloop.run_threads(main, threads=3, loop_factory=loop_factory)
    assert ended.is_set()


def test_a_thread_that_is_late_does_not_begin_once_another_has_failed(
    loop_factory: LoopFactory,
) -> None:
    others_cancelled = threading.Event()
    together = threading.Barrier(2)
    begun = []

    def factory() -> asyncio.AbstractEventLoop:
        if threading.current_thread().name == "goloop-0":
            others_cancelled.wait()
        return loop_factory()

    async def waits(index: int) -> None:
        together.wait()
        if index == 1:
            raise KeyError("the first")
        try:
            await forever()
        finally:
            others_cancelled.set()

    def main(index: int) -> Any:
        begun.append(index)
        return waits(index)

    with pytest.raises(KeyError, match="the first"):
        goloop.run_threads(main, threads=3, loop_factory=factory)
    assert sorted(begun) == [1, 2]


# ---- threads that do not end ----------------------------------------------------


def deaf_function(release: threading.Event) -> None:
    release.wait()


async def deaf_coroutine(release: threading.Event) -> None:
    while not release.is_set():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue


@pytest.mark.parametrize("kind", ["deaf_coroutine", "deaf_function"])
def test_threads_that_do_not_end_are_named_with_their_stacks(
    loop_factory: LoopFactory, kind: str
) -> None:
    together = threading.Barrier(3)
    release = threading.Event()
    before = set(threading.enumerate())

    async def main(index: int) -> None:
        together.wait()
        if index == 0:
            raise KeyError("the first")
        if index == 1:
            await forever()
        if kind == "deaf_function":
            deaf_function(release)
        await deaf_coroutine(release)

    try:
        with pytest.raises(TimeoutError) as caught:
            goloop.run_threads(main, threads=3, loop_factory=loop_factory, shutdown_timeout=0.5)
    finally:
        release.set()
        for thread in set(threading.enumerate()) - before:
            thread.join()
    text = str(caught.value)
    assert text.startswith(
        "threads that still run 0.5 s after their cancellation: goloop-2 (index 2)\n"
    )
    assert f"in {kind}\n" in text
    assert __file__ in text
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_threads_are_daemons(loop_factory: LoopFactory) -> None:
    async def main(index: int) -> bool:
        return threading.current_thread().daemon

    assert goloop.run_threads(main, threads=1, loop_factory=loop_factory) == [True]


# ---- wrong calls ----------------------------------------------------------------


async def test_a_thread_with_a_running_loop_is_refused(loop: asyncio.AbstractEventLoop) -> None:
    with pytest.raises(RuntimeError, match="cannot be called from a running event loop"):
        goloop.run_threads(lambda index: forever(), threads=1)


def test_run_threads_works_in_other_threads(loop_factory: LoopFactory) -> None:
    async def main(index: int) -> int:
        return index

    results: list[int] = []

    def call() -> None:
        results.extend(goloop.run_threads(main, threads=2, loop_factory=loop_factory))

    in_thread(call)
    assert results == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"threads": 0}, ValueError, "threads must be at least 1, got 0"),
        ({"threads": 1.5}, TypeError, "'float' object cannot be interpreted as an integer"),
        ({"shutdown_timeout": -1}, ValueError, "shutdown_timeout must be at least 0, got -1"),
        (
            {"shutdown_timeout": float("nan")},
            ValueError,
            "shutdown_timeout must be at least 0, got nan",
        ),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        goloop.run_threads(lambda index: asyncio.sleep(0), **arguments)
