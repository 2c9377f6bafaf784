"""Running, stopping and closing a loop, and the errors of doing it in the wrong state."""

from __future__ import annotations

import asyncio
import gc
import inspect
import socket
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import ended
import pytest
from conftest import Errors, LoopFactory
from protocols import close_each, in_thread, one_turn

SCENARIOS = Path(__file__).with_name("loop_lifecycle_scenarios.py")

Loop = asyncio.AbstractEventLoop


async def answer() -> int:
    return 42


def test_is_running_and_is_closed(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    assert isinstance(loop, asyncio.AbstractEventLoop)
    assert not loop.is_running()
    assert not loop.is_closed()
    seen: list[Any] = []
    loop.call_soon(lambda: seen.extend([loop.is_running(), asyncio.get_running_loop() is loop]))
    loop.call_soon(loop.stop)
    assert loop.run_forever() is None  # type: ignore[func-returns-value]
    assert seen == [True, True]
    assert not loop.is_running()
    assert asyncio._get_running_loop() is None
    loop.close()
    assert loop.is_closed()
    loop.close()


def test_repr_has_running_closed_and_debug(loop: Loop) -> None:
    assert " running=False closed=False debug=False>" in repr(loop)
    loop.close()
    assert "closed=True" in repr(loop)


def test_run_until_complete_takes_every_awaitable(loop: Loop) -> None:
    assert loop.run_until_complete(answer()) == 42
    future = loop.create_future()
    loop.call_soon(future.set_result, "future")
    assert loop.run_until_complete(future) == "future"
    task = loop.create_task(answer())
    assert loop.run_until_complete(task) == 42
    assert loop.run_until_complete(task) == 42

    class Awaitable:
        def __await__(self) -> Any:
            yield from asyncio.sleep(0).__await__()
            return "awaited"

    assert loop.run_until_complete(Awaitable()) == "awaited"


def test_run_until_complete_raises_the_coroutines_exception(loop: Loop) -> None:
    async def fail() -> None:
        raise ZeroDivisionError("from the task")

    with pytest.raises(ZeroDivisionError, match="from the task"):
        loop.run_until_complete(fail())

    async def cancelled() -> None:
        raise asyncio.CancelledError("a word")

    with pytest.raises(asyncio.CancelledError, match="a word"):
        loop.run_until_complete(cancelled())
    assert loop.run_until_complete(answer()) == 42


def test_interrupt_around_the_run_leaves_no_running_loop(
    loop_factory: LoopFactory, loop_name: str
) -> None:
    """A signal handler raises KeyboardInterrupt at the start of each function that run_forever()
    calls, and after each call of a C function."""
    if loop_name == "asyncio" and sys.version_info >= (3, 13):
        pytest.skip("from 3.13 on asyncio's clean-up is a function, which may be skipped")
    calls = 0
    hooks = sys.get_asyncgen_hooks()

    def strike(frame: Any, event: str, _: object) -> None:
        nonlocal calls
        if event in ("call", "c_return"):
            calls += 1
            if calls == at:
                raise KeyboardInterrupt

    at = 0
    while calls >= at:
        at, calls = at + 1, 0
        loop = loop_factory()
        loop.call_soon(loop.stop)
        sys.setprofile(strike)
        try:
            loop.run_forever()
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        assert not loop.is_running(), at
        assert asyncio._get_running_loop() is None, at
        if loop_name == "goloop":
            assert sys.get_asyncgen_hooks() == hooks, at
        sys.set_asyncgen_hooks(*hooks)
        loop.close()
    assert at > 5


def test_run_until_complete_that_is_stopped_raises(loop: Loop) -> None:
    future = loop.create_future()
    loop.call_soon(loop.stop)
    with pytest.raises(RuntimeError, match=r"^Event loop stopped before Future completed\.$"):
        loop.run_until_complete(future)
    # The future's callback is removed: completing it later stops nothing.
    future.set_result(None)
    ran: list[int] = []
    loop.call_later(0.001, ran.append, 1)
    loop.call_later(0.002, loop.stop)
    loop.run_forever()
    assert ran == [1]


# In each of these the loop runs once only: asyncio of some patch releases loses
# its own state when a nested run is refused.
@pytest.mark.parametrize("method", ["run_forever", "run_until_complete"])
def test_a_running_loop_refuses_to_run_again(loop: Loop, method: str) -> None:
    caught: list[str] = []

    def nested() -> None:
        arguments = [future] if method == "run_until_complete" else []
        try:
            getattr(loop, method)(*arguments)
        except RuntimeError as error:
            caught.append(str(error))

    future = loop.create_future()
    loop.call_soon(nested)
    one_turn(loop)
    future.cancel()
    assert caught == ["This event loop is already running"]


def test_another_loop_refuses_to_run_inside_a_running_one(
    loop: Loop, loop_factory: LoopFactory
) -> None:
    other = loop_factory()
    caught: list[str] = []

    def nested() -> None:
        try:
            other.run_forever()
        except RuntimeError as error:
            caught.append(str(error))

    loop.call_soon(nested)
    one_turn(loop)
    assert caught == ["Cannot run the event loop while another loop is running"]
    assert not other.is_running()
    other.close()


def test_a_running_loop_refuses_to_run_in_a_second_thread(loop: Loop) -> None:
    caught: list[BaseException] = []

    def elsewhere() -> None:
        try:
            loop.run_forever()
        except BaseException as error:
            caught.append(error)

    async def main() -> None:
        in_thread(elsewhere)

    loop.run_until_complete(main())
    assert [str(error) for error in caught] == ["This event loop is already running"]


def test_ready_callbacks_are_dropped_at_close(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    ran: list[int] = []
    loop.call_soon(ran.append, 1)
    loop.close()
    assert ran == []


def test_closed_loops_are_collected(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    loop.run_until_complete(answer())
    ref = weakref.ref(loop)
    loop.close()
    del loop
    gc.collect()
    assert ref() is None


def test_an_unclosed_loop_warns(loop_factory: LoopFactory) -> None:
    def forget() -> None:
        loop_factory().run_until_complete(answer())
        gc.collect()

    with pytest.warns(ResourceWarning, match="unclosed event loop"):
        forget()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_exits_leave_run_forever_at_once_and_the_loop_usable(
    loop: Loop, kind: type[BaseException]
) -> None:
    ran: list[str] = []

    def leave() -> None:
        raise kind("leaving")

    loop.call_soon(leave)
    loop.call_soon(ran.append, "behind")
    with pytest.raises(kind, match="leaving"):
        loop.run_forever()
    assert ran == []
    assert not loop.is_running()
    assert asyncio._get_running_loop() is None
    one_turn(loop)
    assert loop.run_until_complete(answer()) == 42


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_exits_leave_from_timers_and_readers(loop: Loop, kind: type[BaseException]) -> None:
    def leave() -> None:
        raise kind("leaving")

    loop.call_later(0.001, leave)
    with pytest.raises(kind):
        loop.run_forever()
    first, second = socket.socketpair()
    second.send(b"x")
    loop.add_reader(first, leave)
    with pytest.raises(kind):
        loop.run_forever()
    loop.remove_reader(first)
    assert loop.run_until_complete(answer()) == 42
    close_each(first, second)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_exits_leave_from_a_task(loop: Loop, kind: type[BaseException]) -> None:
    async def leave() -> None:
        raise kind("leaving")

    with pytest.raises(kind, match="leaving"):
        loop.run_until_complete(leave())
    assert loop.run_until_complete(answer()) == 42


def test_other_base_exceptions_go_to_the_handler(loop: Loop, errors: Errors) -> None:
    class Odd(BaseException):
        pass

    def fail() -> None:
        raise Odd

    loop.call_soon(fail)
    one_turn(loop)
    errors.expect(Odd, "Exception in callback")


def test_stop_from_another_thread_ends_the_run(loop: Loop) -> None:
    thread = threading.Thread(target=loop.call_soon_threadsafe, args=(loop.stop,))
    loop.call_soon(thread.start)
    loop.run_forever()
    thread.join()


def test_several_loops_in_one_thread_take_turns(loop_factory: LoopFactory) -> None:
    loops = [loop_factory() for _ in range(5)]
    for _ in range(3):
        for loop in loops:
            assert loop.run_until_complete(answer()) == 42
    close_each(*loops)


def test_a_loop_runs_in_another_thread_than_it_was_made_in(loop: Loop) -> None:
    results: list[int] = []
    in_thread(lambda: results.append(loop.run_until_complete(answer())))
    assert results == [42]
    assert loop.run_until_complete(answer()) == 42


def test_create_future_gives_a_pending_future_of_the_loop(loop: Loop) -> None:
    future = loop.create_future()
    assert isinstance(future, asyncio.Future)
    assert future.get_loop() is loop
    assert not future.done()


def test_create_task_passes_name_and_context_on(loop: Loop) -> None:
    import contextvars

    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

    async def read() -> int:
        return variable.get()

    context = contextvars.copy_context()
    context.run(variable.set, 7)
    task = loop.create_task(read(), name="a name", context=context)
    assert isinstance(task, asyncio.Task)
    assert task.get_name() == "a name"
    assert task.get_loop() is loop
    assert loop.run_until_complete(task) == 7
    named = loop.create_task(read(), name=5)  # type: ignore[arg-type]
    assert named.get_name() == "5"
    assert loop.run_until_complete(named) == 0
    assert loop.create_task(read()).get_name().startswith("Task-")
    one_turn(loop)


def passes_keywords_on() -> bool:
    """Whether asyncio's create_task gives them to a factory; releases of 3.13 differ."""
    code = asyncio.BaseEventLoop.create_task.__code__
    return bool(code.co_flags & inspect.CO_VARKEYWORDS) and code.co_kwonlyargcount == 0


def test_the_task_factory_makes_the_tasks(loop: Loop) -> None:
    assert loop.get_task_factory() is None
    seen: list[dict[str, Any]] = []

    def factory(of: Loop, coroutine: Any, **kwargs: Any) -> asyncio.Task[Any]:
        seen.append(kwargs)
        return asyncio.Task(coroutine, loop=of, **kwargs)

    loop.set_task_factory(factory)
    assert loop.get_task_factory() is factory
    assert loop.run_until_complete(answer()) == 42
    assert loop.run_until_complete(loop.create_task(answer(), name="n")) == 42
    assert len(seen) == 2
    if passes_keywords_on():
        assert seen[1]["name"] == "n"
    loop.set_task_factory(None)
    assert loop.get_task_factory() is None


def test_a_loop_that_another_thread_collects_leaves_no_descriptor(loop_name: str) -> None:
    """Quietly, and its descriptors go with it."""
    done = ended.python(
        SCENARIOS, "a_loop_that_another_thread_collects_leaves_no_descriptor", loop_name, apart=True
    )
    assert (done.stdout, done.stderr) == ("0\n", "")
