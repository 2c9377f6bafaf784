"""Tasks, futures and loops of different makers, and coroutines of every kind."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import pytest

import goloop

Factory = Callable[[], asyncio.AbstractEventLoop]
TASKS: list[Any] = [asyncio.Task, goloop.Task]
FUTURES: list[Any] = [asyncio.Future, goloop.Future]


@types.coroutine
def yields(what: object) -> Generator[object, Any, Any]:
    return (yield what)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("future", FUTURES)
async def test_each_kind_of_task_awaits_each_kind_of_future(
    loop: asyncio.AbstractEventLoop, task: Any, future: Any
) -> None:
    async def wait(what: Any) -> Any:
        return await what

    for prepare, expected in (
        (lambda f: f.set_result("r"), "r"),
        (lambda f: f.set_exception(KeyError("k")), KeyError),
        (lambda f: f.cancel("c"), asyncio.CancelledError),
    ):
        awaited = future(loop=loop)
        tasks = [task(wait(awaited), loop=loop) for _ in range(2)]
        outer = [cls(wait(tasks[0]), loop=loop) for cls in TASKS]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        loop.call_soon(prepare, awaited)
        for each in (*tasks, *outer):
            if isinstance(expected, str):
                assert await each == expected
            else:
                with pytest.raises(expected):
                    await each


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("future", FUTURES)
def test_a_future_of_another_loop_is_refused(
    loop: asyncio.AbstractEventLoop, loop_factory: Factory, task: Any, future: Any
) -> None:
    other = loop_factory()

    async def main() -> None:
        with pytest.raises(RuntimeError, match="attached to a different loop"):
            await future(loop=other)

    try:
        loop.run_until_complete(task(main(), loop=loop))
    finally:
        other.close()


class Garbage:
    def __repr__(self) -> str:
        return "<garbage>"


def a_generator() -> Generator[None, None, None]:
    yield


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda task, loop: Garbage(), "Task got bad yield: <garbage>"),
        (lambda task, loop: a_generator(), "yield was used instead of yield from for generator"),
        (lambda task, loop: loop.create_future(), "yield was used instead of yield from in task"),
        (lambda task, loop: task, "Task cannot await on itself"),
    ],
)
@pytest.mark.parametrize("task_class", TASKS)
def test_invalid_yield_of_a_task_is_a_runtime_error(
    loop: asyncio.AbstractEventLoop, task_class: Any, what: Any, message: str
) -> None:
    async def main() -> str:
        with pytest.raises(RuntimeError) as caught:
            await yields(what(asyncio.current_task(), loop))
        return str(caught.value)

    assert loop.run_until_complete(task_class(main(), loop=loop)).startswith(message)


@pytest.mark.parametrize("task_class", TASKS)
def test_tasks_run_coroutines_of_every_kind(
    loop: asyncio.AbstractEventLoop, task_class: Any
) -> None:
    class Compiled(Coroutine[Any, Any, int]):
        """Like a coroutine of Cython: no coroutine for `inspect`, but one for the ABC."""

        def __init__(self) -> None:
            self.inner = plain()

        def send(self, value: Any) -> Any:
            return self.inner.send(value)

        def throw(self, *args: Any) -> Any:
            return self.inner.throw(*args)

        def close(self) -> None:
            self.inner.close()

        def __await__(self) -> Any:
            return (yield from self.inner.__await__())

    class Awaitable:
        def __await__(self) -> Generator[Any, Any, int]:
            future = loop.create_future()
            loop.call_soon(future.set_result, 4)
            return (yield from future)

    async def plain() -> int:
        await asyncio.sleep(0)
        return 4

    async def asyncgen() -> Any:
        for number in range(3):
            await asyncio.sleep(0)
            yield number

    async def main() -> None:
        assert await task_class(Compiled(), loop=loop) == 4
        assert await Awaitable() == 4
        assert [number async for number in asyncgen()] == [0, 1, 2]
        await yields(None)
        cancelled = task_class(Compiled(), loop=loop)
        await asyncio.sleep(0)
        cancelled.cancel("m")
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    loop.run_until_complete(task_class(main(), loop=loop))


def test_task_awaits_any_object_with_the_future_protocol(loop: asyncio.AbstractEventLoop) -> None:
    class Duck:
        _asyncio_future_blocking = False

        def __init__(self) -> None:
            self._loop = loop
            self.callbacks: list[Any] = []

        def add_done_callback(self, fn: Any, *, context: Any) -> None:
            self.callbacks.append(fn)

        def cancel(self, msg: Any = None) -> bool:
            loop.call_soon(self.callbacks[0], self)
            self.message = msg
            return True

        def result(self) -> Any:
            raise asyncio.CancelledError(self.message)

        def __await__(self) -> Any:
            self._asyncio_future_blocking = True
            yield self
            return "woken"

    async def main() -> None:
        duck: Any = Duck()
        task = loop.create_task(wait(duck))
        await asyncio.sleep(0)
        assert duck._asyncio_future_blocking is False
        task.cancel("quack")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert duck.message == "quack"

    async def wait(what: Any) -> Any:
        return await what

    loop.run_until_complete(main())


def test_system_exit_and_keyboard_interrupt_leave_the_loop(loop: asyncio.AbstractEventLoop) -> None:
    async def leaves(error: type[BaseException]) -> None:
        await asyncio.sleep(0)
        raise error

    for error in (SystemExit, KeyboardInterrupt):
        task = loop.create_task(leaves(error))
        with pytest.raises(error):
            loop.run_forever()
        assert isinstance(task.exception(), error)
        assert asyncio.current_task(loop) is None
    loop.run_until_complete(asyncio.sleep(0))


async def test_debug_mode_may_be_toggled(loop: asyncio.AbstractEventLoop) -> None:
    async def child() -> int:
        for _ in range(4):
            await asyncio.sleep(0)
        future = loop.create_future()
        loop.call_soon(future.set_result, 3)
        return int(await future)

    tasks = [loop.create_task(child()) for _ in range(2)]
    for _ in range(3):
        await asyncio.sleep(0)
        loop.set_debug(not loop.get_debug())
        tasks.append(loop.create_task(child()))
    assert await asyncio.gather(*tasks) == [3] * 5
    loop.set_debug(False)


def test_a_circle_of_tasks_is_a_recursion_error(loop: asyncio.AbstractEventLoop) -> None:
    tasks: list[Any] = []

    async def wait(number: int) -> None:
        await tasks[number]

    async def main() -> None:
        tasks.extend(loop.create_task(wait((n + 1) % 3)) for n in range(3))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(RecursionError):
            tasks[0].cancel()
        for task in tasks:
            task._log_destroy_pending = False
            waiter = task._fut_waiter
            for callback, _ in list(waiter._callbacks or ()):
                waiter.remove_done_callback(callback)

    loop.run_until_complete(main())
    for task in tasks:
        task.get_coro().close()


def test_a_step_in_a_context_that_is_entered_already_is_reported(
    loop: asyncio.AbstractEventLoop,
) -> None:
    """The step is reported, and so is the handler's own failure; the task stays."""
    told: list[str] = []
    loop.call_exception_handler = (  # type: ignore[method-assign]
        lambda context: told.append(f"{context['message']}: {context['exception']}")
    )
    context = contextvars.copy_context()
    coroutine = asyncio.sleep(0)
    task: Any = loop.create_task(coroutine, context=context)
    context.run(loop.run_until_complete, asyncio.sleep(0))
    assert len(told) == 1
    assert "TaskStepMethWrapper object at " in told[0]
    assert "is already entered" in told[0]
    assert not task.done()
    task._log_destroy_pending = False
    coroutine.close()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="3.11's counter can't be reached")
async def test_default_task_names_are_unique(loop: asyncio.AbstractEventLoop) -> None:
    async def nothing() -> None:
        pass

    made: list[Any] = []
    for _ in range(3):
        made += [cls(nothing(), loop=loop) for cls in TASKS]
        made.append(loop.create_task(nothing()))
    loop.set_task_factory(asyncio.eager_task_factory)
    made += [loop.create_task(asyncio.sleep(0)) for _ in range(3)]
    loop.set_task_factory(None)
    await asyncio.wait(made)
    names = [each.get_name() for each in made if each.get_name() != "None"]  # 3.13's eager ones
    assert len(set(names)) == len(names)
    first, *rest = (int(name.removeprefix("Task-")) for name in names[:9])
    assert rest == [*range(first + 1, first + 9)]
