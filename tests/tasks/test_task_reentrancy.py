"""Callbacks of a Task or Future that change it while its method runs.

The shapes of CPython's issues 97592, 125789, 125966, 125984, 126080, 126138, 126405 and
142556, and similar ones: comparisons, attribute look-ups, destructors, call_soon and
coroutines that change the very object under work.  A mistake here is a crash or a use
of freed memory, so these run under AddressSanitizer too.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import goloop


@pytest.fixture
def own_loop() -> Iterator[Any]:
    loop = goloop.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    yield loop
    loop.close()


class Strikes:
    """Compares equal or not, after doing something."""

    def __init__(self, action: Callable[[], object], answer: bool) -> None:
        self.action = action
        self.answer = answer

    def __eq__(self, other: object) -> bool:
        self.action()
        return self.answer

    def __hash__(self) -> int:
        return 1


def callback(_: object) -> None:
    pass


def init_again(future: Any, *args: Any, **kwargs: Any) -> bool:
    """A second __init__, which CPython refuses from 3.15 on."""
    if sys.version_info < (3, 15):
        future.__init__(*args, **kwargs)
        return True
    with pytest.raises(RuntimeError, match="already initialized"):
        future.__init__(*args, **kwargs)
    return False


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3, 10])
@pytest.mark.parametrize("how", ["finish", "remove", "add", "init", "cancel"])
def test_a_comparison_may_change_the_callbacks(
    own_loop: Any, how: str, count: int, answer: bool
) -> None:
    future: Any = goloop.Future(loop=own_loop)
    depth = 0

    def action() -> None:
        nonlocal depth
        depth += 1
        if depth > 3:
            return
        if how == "finish" and not future.done():
            future.set_result(None)
        elif how == "remove":
            future.remove_done_callback(Strikes(action, True))
        elif how == "add":
            future.add_done_callback(callback)
        elif how == "init":
            init_again(future, loop=own_loop)
        elif how == "cancel":
            future.cancel()

    for _ in range(count):
        future.add_done_callback(Strikes(action, answer))
    future.remove_done_callback(Strikes(action, answer))
    future._callbacks  # noqa: B018
    own_loop.run_until_complete(asyncio.sleep(0))


@pytest.mark.parametrize("before", [0, 1, 3])
def test_destructor_of_a_removed_callback_may_add_another(own_loop: Any, before: int) -> None:
    """The callback's destructor runs in the middle of remove_done_callback()."""
    future: Any = goloop.Future(loop=own_loop)
    called = []

    class Last(Strikes):
        def __call__(self, _: object) -> None:
            called.append("removed")

        def __del__(self) -> None:
            for name in ("first", "second"):
                future.add_done_callback(lambda _, name=name: called.append(name))

    for at in range(before):
        future.add_done_callback(lambda _, at=at: called.append(at))
    future.add_done_callback(Last(lambda: None, True))
    assert future.remove_done_callback(object()) == 1
    assert len(future._callbacks) == before + 2
    future.set_result(None)
    own_loop.run_until_complete(asyncio.sleep(0))
    assert called == [*range(before), "first", "second"]


def test_a_comparison_may_take_the_waiting_task_away(own_loop: Any) -> None:
    """The wakeup callable is compared with something that wakes or frees the task."""

    async def wait(future: Any) -> None:
        await future

    async def main() -> None:
        for action in ("result", "cancel", "clear"):
            future: Any = own_loop.create_future()
            task: Any = own_loop.create_task(wait(future))
            await asyncio.sleep(0)
            task._log_destroy_pending = False

            def act(future: Any = future, action: str = action) -> None:
                if action == "result" and not future.done():
                    future.set_result(None)
                elif action == "cancel":
                    future.cancel()
                else:
                    init_again(future, loop=own_loop)

            del task
            future.remove_done_callback(Strikes(act, True))
            gc.collect()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    own_loop.run_until_complete(main())


@pytest.mark.parametrize("how", ["init", "finish", "remove", "raise"])
def test_hostile_call_soon_does_not_crash(how: str) -> None:
    class Loop(goloop.Loop):
        def call_soon(self, fn: Any, *args: Any, context: Any = None) -> Any:
            if futures and not busy:
                busy.append(1)
                future: Any = futures[0]
                if how == "init":
                    init_again(future, loop=self)
                elif how == "finish" and not future.done():
                    future.set_result(3)
                elif how == "remove":
                    future.remove_done_callback(callback)
                elif how == "raise":
                    busy.clear()
                    raise LookupError
                busy.clear()
            return super().call_soon(fn, *args, context=context)

    futures: list[Any] = []
    busy: list[int] = []
    loop = Loop()
    try:
        for finish in (
            lambda f: f.set_result(1),
            lambda f: f.set_exception(KeyError()),
            lambda f: f.cancel(),
        ):
            future: Any = goloop.Future(loop=loop)
            for _ in range(4):
                future.add_done_callback(callback)
            futures.append(future)
            try:
                finish(future)
            except LookupError:
                assert how == "raise"
            if future.done() and not future.cancelled():
                future.exception()
            futures.clear()
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()


def test_loop_lookup_may_reinitialise_the_future() -> None:
    """The loop's attribute look-ups re-initialise the future while its fields are in use."""

    class Loop(goloop.Loop):
        armed = False

        def __getattribute__(self, name: str) -> Any:
            if name == "call_soon" and Loop.armed:
                Loop.armed = False
                init_again(target, loop=other)
            return super().__getattribute__(name)

    other = goloop.new_event_loop()
    loop = Loop()
    try:
        for kind in (goloop.Future,):
            target: Any = kind(loop=loop)
            for _ in range(3):
                target.add_done_callback(callback)
            Loop.armed = True
            target.set_result(None)
        coroutine = asyncio.sleep(0)
        task: Any = goloop.Task(coroutine, loop=loop)
        target = task.get_loop().create_future()
        Loop.armed = True
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
    finally:
        loop.close()
        other.close()


def test_a_future_that_its_exception_class_finishes_keeps_that_result(own_loop: Any) -> None:
    future: Any = goloop.Future(loop=own_loop)

    class Error(Exception):
        def __init__(self) -> None:
            future.set_result("first")

    with pytest.raises(asyncio.InvalidStateError):
        future.set_exception(Error)
    assert future.result() == "first"


@pytest.mark.parametrize("part", ["send", "throw", "close"])
def test_a_coroutine_may_work_on_its_own_task(own_loop: Any, part: str) -> None:
    import collections.abc

    class Evil(collections.abc.Coroutine[Any, Any, Any]):
        def __init__(self) -> None:
            self.steps = 0

        def strike(self) -> None:
            self.steps += 1
            if self.steps > 3:
                raise StopIteration(self.steps)
            other = nothing()
            if not init_again(task, other, loop=own_loop):
                other.close()
            task.cancel()
            task._log_destroy_pending = False
            gc.collect()

        def send(self, _: Any) -> Any:
            self.strike()

        def throw(self, *_: Any) -> Any:
            self.strike()

        def close(self) -> None:
            self.strike()

        def __await__(self) -> Any:
            return iter(())

    async def nothing() -> None:
        pass

    task: Any = goloop.Task(Evil(), loop=own_loop)
    if part == "throw":
        task.cancel()
    for _ in range(8):
        own_loop.run_until_complete(asyncio.sleep(0))
    if task.done() and not task.cancelled():
        task.exception()


def test_awaitable_that_changes_its_task_does_not_crash(own_loop: Any) -> None:
    class Evil:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getattribute__(self, name: str) -> Any:
            if name == object.__getattribute__(self, "name"):
                task: Any = asyncio.current_task()
                task.cancel("m")
                task._cancel_message = None
                gc.collect()
            if name == "_loop":
                return own_loop
            if name == "_asyncio_future_blocking":
                return True
            if name == "get_loop":
                raise AttributeError
            if name in ("add_done_callback", "cancel"):
                return lambda *_, **__: True
            return object.__getattribute__(self, name)

        def __setattr__(self, name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        def __await__(self) -> Any:
            yield self

    async def main() -> None:
        for name in (
            "_asyncio_future_blocking",
            "get_loop",
            "_loop",
            "add_done_callback",
            "cancel",
        ):
            awaited: Any = Evil(name)

            async def wait(awaited: Any = awaited) -> None:
                await awaited

            task: Any = own_loop.create_task(wait())
            for _ in range(3):
                await asyncio.sleep(0)
            task._log_destroy_pending = False
            task.get_coro().close()
            asyncio.tasks._unregister_task(task)

    own_loop.run_until_complete(main())


def test_destructors_may_change_the_task_that_dropped_them(own_loop: Any) -> None:
    class Bomb:
        def __init__(self, action: Callable[[], object]) -> None:
            self.action = action

        def __del__(self) -> None:
            self.action()

    async def main() -> None:
        me: Any = asyncio.current_task()
        future: Any = own_loop.create_future()
        own_loop.call_soon(future.set_result, Bomb(lambda: me.cancel("from a destructor")))
        try:
            await future
        except asyncio.CancelledError:
            me.uncancel()
        del future
        gc.collect()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            me.uncancel()
        second: Any = own_loop.create_future()
        second.set_result(Bomb(lambda: second_again()))
        init_again(second, loop=own_loop)
        third: Any = own_loop.create_future()
        third.add_done_callback(Bomb(lambda: third.cancel()))
        third.remove_done_callback(third._callbacks[0][0])
        fourth: Any = own_loop.create_future()
        fourth.cancel(Bomb(lambda: fourth.cancel()))
        fourth._cancel_message = None

    def second_again() -> None:
        asyncio.all_tasks(own_loop)
        gc.collect()

    own_loop.run_until_complete(main())


def test_a_report_lists_the_dying_task_again(own_loop: Any) -> None:
    """The handler of "destroyed but pending" registers, keeps and then drops the task."""
    kept: list[Any] = []

    def handler(_: Any, context: dict[str, Any]) -> None:
        task = context.get("task")
        if task is not None:
            asyncio.tasks._register_task(task)
            if len(kept) < 2:
                kept.append(task)

    own_loop.set_exception_handler(handler)

    async def forever(future: Any) -> None:
        await future

    async def main() -> None:
        for _ in range(4):
            future: Any = own_loop.create_future()
            task: Any = own_loop.create_task(forever(future))
            await asyncio.sleep(0)
            future.remove_done_callback(future._callbacks[0][0])
            del task, future
            gc.collect()
        assert len(kept) == 2
        asyncio.all_tasks()
        for task in kept:
            task._log_destroy_pending = False
        del task
        kept.clear()
        gc.collect()
        asyncio.all_tasks()

    own_loop.run_until_complete(main())


def test_a_future_is_done_though_its_closed_loop_refuses_the_callbacks() -> None:
    loop = goloop.new_event_loop()
    future: Any = loop.create_future()
    future.add_done_callback(callback)
    loop.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        future.set_result(None)
    assert future.done()
    waiting: Any = goloop.Future(loop=loop)
    waiting.add_done_callback(callback)
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        waiting.cancel()


def test_tasks_in_the_ready_queue_of_a_dead_loop_are_reported(own_loop: Any) -> None:
    reports: list[str] = []
    loop: Any = goloop.new_event_loop()
    loop.set_exception_handler(lambda _, context: reports.append(context["message"]))

    async def never() -> None:
        pass

    tasks = [loop.create_task(never()) for _ in range(3)]
    coroutines = [task.get_coro() for task in tasks]
    tasks.clear()
    loop.close()
    gc.collect()
    assert reports == ["Task was destroyed but it is pending!"] * 3
    for coroutine in coroutines:
        coroutine.close()


def test_cycles_through_the_ready_queue_are_collected() -> None:
    import weakref

    async def forever(loop: Any) -> None:
        await loop.create_future()

    loop: Any = goloop.new_event_loop()
    task: Any = loop.create_task(forever(loop))
    task._log_destroy_pending = False
    task.itself = task
    loop.run_until_complete(asyncio.sleep(0))
    reference = weakref.ref(task)
    del task
    gc.collect()
    assert reference() is None
    loop.close()
