"""goloop.Task and goloop.Future have asyncio's public API, argument for argument."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import inspect
import pickle
import re
import sys
from collections.abc import Callable, Generator
from typing import Any

import pytest

import goloop

FUTURES = [asyncio.Future, goloop.Future]
TASKS = [asyncio.Task, goloop.Task]


@pytest.fixture(params=FUTURES, ids=["asyncio.Future", "goloop.Future"])
def future_class(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=TASKS, ids=["asyncio.Task", "goloop.Task"])
def task_class(request: pytest.FixtureRequest) -> Any:
    return request.param


async def nothing() -> None:
    pass


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


def error_of(call: Callable[[], object]) -> tuple[type[BaseException], str]:
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        call()
    text = re.sub("0x[0-9a-f]+", "0x", str(caught.value))
    return caught.type, text.replace("goloop.", "_asyncio.")


# ---- the classes -----------------------------------------------------------------------


@pytest.mark.parametrize(("theirs", "ours"), [FUTURES, TASKS])
def test_no_public_name_is_added_or_missing(theirs: Any, ours: Any) -> None:
    # A class that is not static has __module__ in its dict.
    assert set(dir(ours)) - {"__module__"} == set(dir(theirs)) - {"__module__"}
    assert ours.__name__ == theirs.__name__
    assert ours.__module__ in ("goloop", "_asyncio")


@pytest.mark.parametrize(("theirs", "ours"), [FUTURES, TASKS])
def test_signatures_are_asyncios(theirs: Any, ours: Any) -> None:
    for name in dir(theirs):
        expected = getattr(theirs, name)
        if not callable(expected) or name.startswith("__"):
            continue
        try:
            signature = inspect.signature(expected)
        except ValueError:
            continue
        assert str(inspect.signature(getattr(ours, name))) == str(signature), name
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))


def test_classes_are_generic_and_immutable(task_class: Any, future_class: Any) -> None:
    for cls in (task_class, future_class):
        assert cls[int].__args__ == (int,)
        with pytest.raises(TypeError):
            cls.attribute = 1


def test_futures_are_futures_and_awaitable(
    loop: asyncio.AbstractEventLoop, future_class: Any
) -> None:
    future = future_class(loop=loop)
    assert asyncio.isfuture(future)
    assert inspect.isawaitable(future)
    assert isinstance(future, asyncio.Future)
    assert asyncio.wrap_future(future) is future
    assert not callable(future)


def test_the_loop_makes_our_classes() -> None:
    loop = goloop.new_event_loop()
    try:
        assert type(loop.create_future()) is goloop.Future
        task = loop.create_task(nothing())
        assert type(task) is goloop.Task
        loop.run_until_complete(task)
    finally:
        loop.close()


def test_pickling_fails_as_asyncios_does(loop: asyncio.AbstractEventLoop) -> None:
    errors = [error_of(lambda cls=cls: pickle.dumps(cls(loop=loop))) for cls in FUTURES]
    assert errors[0] == errors[1]


# ---- futures -----------------------------------------------------------------------------


@pytest.mark.parametrize("cls", FUTURES)
def test_uninitialised_future_does_not_crash(cls: Any) -> None:
    future = cls.__new__(cls)
    seen = []
    for call in (
        lambda: future.set_result(1),
        lambda: future.set_exception(ValueError()),
        lambda: future.cancel(),
        lambda: future.add_done_callback(print),
        lambda: future.remove_done_callback(print),
        lambda: future.result(),
        lambda: future.exception(),
        lambda: future._callbacks,
        lambda: iter(future),
        lambda: repr(future),
    ):
        seen.append(error_of(call))
    fresh = asyncio.Future.__new__(asyncio.Future)
    assert seen[0] == error_of(lambda: fresh.set_result(1))
    assert not future.done()


def test_iterating_a_future_yields_it_and_returns_its_result(
    loop: asyncio.AbstractEventLoop, future_class: Any
) -> None:
    future = future_class(loop=loop)
    iterator: Generator[Any, Any, Any] = iter(future)
    assert iter(iterator) is iterator
    assert next(iterator) is future
    assert future._asyncio_future_blocking
    future.set_result((1, 2))
    with pytest.raises(StopIteration) as stop:
        iterator.send(None)
    assert stop.value.value == (1, 2)
    if future_class is goloop.Future or sys.version_info >= (3, 14):
        # asyncio's ends in a SystemError before 3.14, and repeats the result since.
        with pytest.raises(StopIteration) as stop:
            next(iterator)
        assert stop.value.value == ((1, 2) if sys.version_info >= (3, 14) else None)
    done = future_class(loop=loop)
    done.set_result(None)
    with pytest.raises(StopIteration):
        iter(done).send(None)
    closed = iter(future_class(loop=loop))
    closed.close()
    if future_class is goloop.Future:
        assert list(closed) == []  # asyncio's crashes in 3.14.3


@pytest.mark.parametrize(
    "result", [None, 1, (1, 2), (), ValueError("as a value"), StopIteration(3)]
)
def test_every_kind_of_result_arrives(
    loop: asyncio.AbstractEventLoop, future_class: Any, result: object
) -> None:
    async def main() -> object:
        future = future_class(loop=loop)
        loop.call_soon(future.set_result, result)
        return await future

    assert loop.run_until_complete(main()) is result


def test_repr_of_callbacks_equals_asyncios(
    loop: asyncio.AbstractEventLoop, future_class: Any, task_class: Any
) -> None:
    future = future_class(loop=loop)

    async def main() -> None:
        context = contextvars.copy_context()
        task = task_class(wait(), loop=loop)
        await asyncio.sleep(0)
        ((callback, its_context),) = future._callbacks
        assert callback.__self__ is task
        assert callback.__name__ == "task_wakeup"
        assert isinstance(its_context, contextvars.Context)
        assert "cb=[Task.task_wakeup()]" in repr(future)
        assert "wait_for=<Future pending cb=[Task.task_wakeup()]>" in repr(task)
        future.add_done_callback(print, context=context)
        assert future._callbacks[1] == (print, context)
        # Taken away, it is gone; given back, it wakes the task.
        assert future.remove_done_callback(callback) == 1
        assert future._callbacks == [(print, context)]
        assert future.remove_done_callback(print) == 1
        future.add_done_callback(callback, context=its_context)
        future.set_result(None)
        await task

    async def wait() -> None:
        await future

    loop.run_until_complete(main())


def test_a_task_as_callback_is_an_object_like_any_other(
    loop: asyncio.AbstractEventLoop, future_class: Any, task_class: Any, errors: Any
) -> None:
    async def main() -> None:
        task = task_class(forever(), loop=loop)
        await asyncio.sleep(0)
        waiting_for = task._fut_waiter
        future = future_class(loop=loop)
        future.add_done_callback(task, context=None)
        assert future._callbacks == [(task, None)]
        future.set_result(1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert task._fut_waiter is waiting_for
        task.cancel()
        await asyncio.wait([task])

    loop.run_until_complete(main())
    errors.expect(TypeError, "Exception in callback <Task pending")


def test_asyncios_own_methods_work_on_our_futures(loop: asyncio.AbstractEventLoop) -> None:
    """Called unbound, with a task in the place of the first callback."""

    async def main() -> None:
        for finish in (
            lambda f: asyncio.Future.set_result(f, 1),
            lambda f: asyncio.Future.set_exception(f, KeyError()),
            lambda f: asyncio.Future.cancel(f),
        ):
            future: Any = goloop.Future(loop=loop)
            tasks = [goloop.Task(wait(future), loop=loop) for _ in range(3)]
            await asyncio.sleep(0)
            assert len(asyncio.Future._callbacks.__get__(future)) == 3  # type: ignore[attr-defined]
            finish(future)
            done, pending = await asyncio.wait(tasks, timeout=30)
            assert not pending
            for task in done:
                if not task.cancelled():
                    task.exception()

    async def wait(future: Any) -> None:
        await future

    loop.run_until_complete(main())


# ---- tasks ----------------------------------------------------------------------------------


def test_default_names_count_up(loop: asyncio.AbstractEventLoop) -> None:
    tasks = [loop.create_task(nothing()) for _ in range(3)]
    numbers = [int(task.get_name().removeprefix("Task-")) for task in tasks]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
    loop.run_until_complete(asyncio.gather(*tasks))


def test_a_recursive_repr_ends(loop: asyncio.AbstractEventLoop, task_class: Any) -> None:
    task = task_class(forever(), loop=loop, name="n")
    loop.run_until_complete(asyncio.sleep(0))
    task._fut_waiter.add_done_callback(lambda _, kept=task: None)
    task.add_done_callback(repr)
    assert repr(task).startswith("<Task pending name='n'")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    assert "cancelled" in repr(task)


def test_overridden_methods_of_subclasses_are_called(loop: asyncio.AbstractEventLoop) -> None:
    calls: list[str] = []

    class MyFuture(goloop.Future):  # type: ignore[type-arg]
        def add_done_callback(self, fn: Any, *, context: Any = None) -> None:
            calls.append("add")
            super().add_done_callback(fn, context=context)

        def cancel(self, msg: Any = None) -> bool:
            calls.append("cancel")
            return super().cancel(msg)

    class MyTask(goloop.Task):  # type: ignore[type-arg]
        extra = 1

        def cancel(self, msg: Any = None) -> bool:
            calls.append("task cancel")
            return super().cancel(msg)

    async def wait(future: Any) -> Any:
        return await future

    async def main() -> None:
        future = MyFuture(loop=loop)
        task = MyTask(wait(future), loop=loop)
        outer = loop.create_task(wait(task))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() >= {task, outer}
        outer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await outer
        second = MyFuture(loop=loop)
        loop.call_soon(second.set_result, 7)
        assert await MyTask(wait(second), loop=loop) == 7

    loop.run_until_complete(main())
    assert calls == ["add", "task cancel", "cancel"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
async def test_an_eager_task_that_is_done_has_no_coroutine(loop: asyncio.AbstractEventLoop) -> None:
    """asyncio's crashes in 3.12.1."""

    loop.set_task_factory(asyncio.create_eager_task_factory(goloop.Task))
    done = loop.create_task(nothing())
    assert done.done()
    assert done.get_coro() is None
    loop.set_task_factory(None)


async def test_create_task_takes_asyncios_general_path(loop: asyncio.AbstractEventLoop) -> None:
    made: list[Any] = []

    def factory(its_loop: Any, coroutine: Any, **kwargs: Any) -> Any:
        task = asyncio.Task(coroutine, loop=its_loop, **kwargs)
        made.append(task)
        return task

    loop.set_task_factory(factory)
    assert loop.get_task_factory() is factory
    task = loop.create_task(nothing(), name="x")
    assert made == [task]
    assert task.get_name() == "x"
    loop.set_task_factory(None)
    other = loop.create_task(nothing(), name="y", context=contextvars.copy_context())
    assert made == [task]
    assert other.get_name() == "y"
    coroutine = nothing()
    for call in (
        lambda: loop.create_task(),  # type: ignore[call-arg]
        lambda: loop.create_task(coroutine, 1),  # type: ignore[misc]
        lambda: loop.create_task(coroutine, wrong=1),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError):
            call()
    coroutine.close()
    await asyncio.sleep(0)


@pytest.mark.skipif(sys.version_info < (3, 15), reason="before 3.15 the first step fails")
@pytest.mark.parametrize("options", [{}, {"name": "x"}, {"eager_start": True}])
async def test_invalid_context_is_refused(
    loop: asyncio.AbstractEventLoop, task_class: Any, options: dict[str, Any]
) -> None:
    for make in (loop.create_task, functools.partial(task_class, loop=loop)):
        coroutine = nothing()
        with pytest.raises(TypeError, match=r"a contextvars\.Context was expected, got int"):
            make(coroutine, context=1, **options)
        coroutine.close()
    gc.collect()
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("how", ["class", "instance"])
def test_an_overridden_call_soon_sees_every_step(how: str) -> None:
    seen: list[Any] = []

    class Loop(goloop.Loop):
        def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
            seen.append(callback)
            return super().call_soon(callback, *args, context=context)

    loop: Any = Loop() if how == "class" else goloop.Loop()
    if how == "instance":
        original = loop.call_soon

        def call_soon(callback: Any, *args: Any, context: Any = None) -> Any:
            seen.append(callback)
            return original(callback, *args, context=context)

        loop.call_soon = call_soon

    async def main() -> None:
        await asyncio.sleep(0)
        future = loop.create_future()
        future.set_result(None)
        await future

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    assert [type(each).__name__ for each in seen[:2]] == ["TaskStepMethWrapper"] * 2
    assert all(isinstance(each.__self__, goloop.Task) for each in seen[:2])


@pytest.mark.skipif(sys.version_info < (3, 14), reason="eager_start= came with Python 3.14")
@pytest.mark.parametrize("how", ["class", "instance", "neither"])
def test_an_overridden_is_running_decides_whether_a_task_starts_eagerly(how: str) -> None:
    class Loop(goloop.Loop):
        def is_running(self) -> bool:
            return False

    loop: Any = Loop() if how == "class" else goloop.Loop()
    if how == "instance":
        loop.is_running = lambda: False

    async def main() -> list[bool]:
        first = loop.create_task(asyncio.sleep(0), eager_start=True)
        again = goloop.Task(nothing(), loop=loop, eager_start=True)
        started = [inspect.getcoroutinestate(each.get_coro()) for each in (first,)]
        begun = [started[0] != inspect.CORO_CREATED, again.done()]
        await asyncio.gather(first, again)
        return begun

    try:
        # BaseEventLoop's run_until_complete asks is_running only to forbid a second run.
        assert loop.run_until_complete(main()) == [how == "neither"] * 2
        if how == "instance":
            del loop.is_running
            assert loop.run_until_complete(main()) == [True, True]
    finally:
        loop.close()


@pytest.mark.skipif(sys.version_info < (3, 14), reason="eager_start= came with Python 3.14")
def test_eager_start_conversion_may_close_the_loop() -> None:
    loop = goloop.new_event_loop()

    class Closes:
        def __bool__(self) -> bool:
            loop.close()
            return True

    class Raises:
        def __bool__(self) -> bool:
            raise ZeroDivisionError

    coro = nothing()
    with pytest.raises(ZeroDivisionError):
        loop.create_task(coro, eager_start=Raises())  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="closed"):
        loop.create_task(coro, eager_start=Closes())  # type: ignore[arg-type]
    coro.close()


@pytest.mark.goloop_only("asyncio raises StopIteration(None) into the frame that awaits")
@pytest.mark.parametrize("result", [None, 1])
def test_none_result_is_not_an_exception_for_tracers(
    loop: asyncio.AbstractEventLoop, result: object
) -> None:
    seen: list[str] = []

    async def waits() -> None:
        assert await future is result

    def trace(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code is not waits.__code__:
            return None
        if event == "exception":
            seen.append(arg[0].__name__)
        return trace

    future = loop.create_future()
    loop.call_soon(future.set_result, result)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        loop.run_until_complete(waits())
    finally:
        sys.settrace(before)
    # Since 3.15 no result is.
    raised = result is not None and sys.version_info < (3, 15)
    assert seen == ["StopIteration"] * raised
