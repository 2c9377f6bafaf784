"""Checks that the fields of asyncio's Future and Task are at the offsets that goloop expects.

goloop.Future and goloop.Task use the C fields of the classes that they extend
(pybridge/core/tasks/layout.h), which are not public. So before the types are enabled, asyncio's
own objects are brought into known states through their public API, and every word and every flag
is compared with its expected value. In CPython 3.14 two pointers and a list head of the thread
state are found in the same way.

The outcome is None, or the reason why asyncio's classes are used instead. The check has no
lasting effects: no task in all_tasks(), no number used from the default names, no warning, no
running loop.
"""

from __future__ import annotations

import _asyncio
import asyncio
import asyncio.base_events
import contextlib
import contextvars
import gc
import inspect
import os
import sys
import types
import weakref
from collections.abc import Callable, Generator, Mapping

from ... import _core
from . import slow_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Peek = Callable[[Any], Mapping[str, int]]


class Mismatch(Exception):
    """A field does not have its expected value."""


class _ProbeLoop:
    """The part of a loop's interface that a task's steps need; it runs nothing by itself."""

    def __init__(self) -> None:
        """Create a loop without debug mode and without scheduled steps."""
        self.debug = False
        self.steps: list[Callable[..., object]] = []

    def get_debug(self) -> bool:
        """Return the debug flag, which a check sets."""
        return self.debug

    def call_soon(self, callback: Callable[..., object], *args: object, context: object) -> None:
        """Store the step of a task; the check calls it later."""
        self.steps.append(callback)

    def call_exception_handler(self, context: object) -> None:
        """Ignore the report of an unawaited coroutine, which is the check's own."""


def _expect(peek: Peek, obj: object, kind: str, /, **fields: object) -> None:
    """Raise Mismatch unless the fields of `obj`, read by `peek`, have these values.

    An int is a flag or a number, None is NULL, and another object is its address. `kind` names the
    state of the object in the error.
    """
    words = peek(obj)
    for name, wanted in fields.items():
        if wanted is None:
            value = 0
        elif isinstance(wanted, int):
            value = int(wanted)
        else:
            value = id(wanted)
        if words.get(name) != value:
            raise Mismatch(f"field {name} of a {kind} {type(obj).__name__} is not as expected")


_FLAGS_OFF = {"log_tb": 0, "blocking": 0}


def _probe_future(peek: Peek, loop: Any) -> None:
    """Bring futures into all states and compare their fields; raise Mismatch."""
    make = asyncio.Future
    nothing: dict[str, object] = dict.fromkeys(
        (
            "callback0",
            "context0",
            "callbacks",
            "exception",
            "exception_tb",
            "result",
            "source_traceback",
            "cancel_msg",
            "cancelled_exc",
        )
    )
    new: Any = make(loop=loop)
    _expect(peek, new, "new", loop=loop, state=0, **nothing, **_FLAGS_OFF)

    context = contextvars.Context()
    first, second = [1], [2]
    new.add_done_callback(first, context=context)
    _expect(peek, new, "watched", callback0=first, context0=context, callbacks=None)
    new.add_done_callback(second, context=context)
    listed = peek(new)["callbacks"]
    if not listed or new._callbacks != [(first, context), (second, context)]:
        raise Mismatch("a second callback is not kept in the list")
    new.remove_done_callback(first)
    _expect(peek, new, "watched", callback0=None, context0=None, callbacks=_Address(listed))

    iterator = iter(new)
    next(iterator)
    _expect(peek, new, "awaited", blocking=1, log_tb=0, state=0)
    new._asyncio_future_blocking = False
    new.remove_done_callback(second)
    value = ["result"]
    new.set_result(value)
    _expect(peek, new, "finished", state=2, result=value, exception=None, **_FLAGS_OFF)

    failed: Any = make(loop=loop)
    try:
        raise LookupError
    except LookupError as error:
        failure = error
    failed.set_exception(failure)
    _expect(
        peek,
        failed,
        "failed",
        state=2,
        exception=failure,
        exception_tb=failure.__traceback__,
        result=None,
        log_tb=1,
        blocking=0,
    )
    failed.exception()
    _expect(peek, failed, "retrieved", log_tb=0)
    failure.__traceback__ = None

    cancelled: Any = make(loop=loop)
    message = ["cancel message"]
    cancelled.cancel(message)
    _expect(peek, cancelled, "cancelled", state=1, cancel_msg=message, **_FLAGS_OFF)
    cancelled._asyncio_future_blocking = True
    _expect(peek, cancelled, "cancelled", state=1, log_tb=0, blocking=1)

    traced = _future_with_traceback(loop)
    _expect(peek, traced, "traced", source_traceback=traced._source_traceback)

    if "dict" in peek(new):
        _expect(peek, new, "plain", dict=None, weakrefs=None)
        new.attribute = 1
        reference = weakref.ref(new)
        _expect(peek, new, "extended", weakrefs=reference)
        kept = [each for each in gc.get_referents(new) if type(each) is dict]
        if len(kept) != 1 or kept[0] != {"attribute": 1}:
            raise Mismatch("the instance dict of a Future was not found")
        _expect(peek, new, "extended", dict=kept[0])


def _future_with_traceback(loop: Any) -> Any:
    """Return a Future with the source traceback of debug mode, without frames.

    With frames, the source files of the modules that import goloop would be read.
    """
    of_sys: Any = sys
    limit = getattr(sys, "tracebacklimit", None)
    loop.debug = True
    of_sys.tracebacklimit = 0
    try:
        return asyncio.Future(loop=loop)
    finally:
        if limit is None:
            del of_sys.tracebacklimit
        else:
            of_sys.tracebacklimit = limit
        loop.debug = False


class _Address(int):
    """An address that is given as a number."""


@types.coroutine
def _yields(what: object) -> Generator[object, None, object]:
    """Yield `what` and return it."""
    yield what
    return what


async def _coroutine(what: Any) -> object:
    """Await `what`, or raise it if it is an exception."""
    if isinstance(what, BaseException):
        raise what
    return await what


def _probe_task(peek: Peek, loop: Any) -> None:
    """Bring tasks into all states and compare their fields; raise Mismatch.

    `loop` is the running loop.
    """
    context = contextvars.Context()
    name = "goloop's probe " + str(os.getpid())
    future: Any = asyncio.Future(loop=loop)
    error = asyncio.CancelledError()
    coroutines = [_coroutine(future), _coroutine(error)]
    tasks: list[Any] = []
    try:
        waits: Any = asyncio.Task(coroutines[0], loop=loop, name=name, context=context)
        tasks.append(waits)
        _expect(
            peek,
            waits,
            "new",
            loop=loop,
            state=0,
            coro=coroutines[0],
            name=name,
            context=context,
            fut_waiter=None,
            must_cancel=0,
            log_destroy_pending=1,
            num_cancels=0,
            **_FLAGS_OFF,
        )
        waits._log_destroy_pending = False
        _expect(peek, waits, "quiet", log_destroy_pending=0, must_cancel=0)
        loop.steps.pop()()
        _expect(peek, waits, "waiting", fut_waiter=future, blocking=0)
        _expect(peek, future, "awaited", context0=context, blocking=0)
        future.set_result(None)
        loop.steps.clear()
        waits.cancel()
        _expect(peek, waits, "cancelled", must_cancel=1, num_cancels=1, log_destroy_pending=0)

        ends: Any = asyncio.Task(coroutines[1], loop=loop, name=name, context=context)
        tasks.append(ends)
        loop.steps.pop()()
        _expect(peek, ends, "ended", state=1, cancelled_exc=error, cancel_msg=None)
        if sys.version_info >= (3, 14):
            _probe_awaited_by(peek, loop, waits, ends)
    finally:
        for task in tasks:
            task._log_destroy_pending = False
            asyncio.tasks._unregister_task(task)
        for coroutine in coroutines:
            coroutine.close()
        loop.steps.clear()
        error.__traceback__ = None
    if sys.version_info >= (3, 14):
        _expect(peek, waits, "unregistered", node_next=0, node_prev=0)


def _probe_awaited_by(peek: Peek, loop: Any, first: Any, second: Any) -> None:
    """Compare the fields for the tasks that await a future (3.14); raise Mismatch."""
    c_asyncio: Any = _asyncio
    future: Any = asyncio.Future(loop=loop)
    _expect(peek, future, "new", awaited_by=None, awaited_by_is_set=0, is_task=0)
    _expect(peek, first, "new", awaited_by=None, awaited_by_is_set=0, is_task=1)
    c_asyncio.future_add_to_awaited_by(future, first)
    _expect(peek, future, "awaited", awaited_by=first, awaited_by_is_set=0)
    c_asyncio.future_add_to_awaited_by(future, second)
    words = peek(future)
    if words["awaited_by_is_set"] != 1 or words["awaited_by"] in (0, id(first), id(second)):
        raise Mismatch("two awaiting tasks are not kept in a set")


def _thread_state_offsets(loop: object, task: object, head: int) -> set[tuple[int, int, int]]:
    """Return candidate offsets in the thread state for the loop, the task and the list head."""
    raw, offset, address = _core._thread_words()
    words = memoryview(raw).cast("Q")
    indexes = range(len(words))
    return {
        (offset + 8 * a, offset + 8 * b, offset + 8 * c)
        for a in indexes
        if words[a] == id(loop)
        for b in indexes
        if words[b] == id(task)
        for c in indexes
        if address + 8 * c == head
    }


def _probe_thread(peek: Peek, loop: Any) -> tuple[int, int, int]:
    """Return the offsets in 3.14's thread state of the loop, the current task and the task list.

    Before 3.14 they are 0. Raises Mismatch if they are not found.
    """
    if sys.version_info < (3, 14):
        return 0, 0, 0
    found: list[set[tuple[int, int, int]]] = []
    coroutine = _coroutine(None)
    task: Any = asyncio.Task(coroutine, loop=loop, name="goloop's probe")
    try:
        # A new task is the last of its thread's list, so its `next` is the list head.
        head = peek(task)["node_next"]
        other: Any = object()
        for current in (task, other):
            asyncio.tasks._enter_task(loop, current)
            try:
                found.append(_thread_state_offsets(loop, current, head))
            finally:
                asyncio.tasks._leave_task(loop, current)
        asyncio._set_running_loop(None)
        without = memoryview(_core._thread_words()[0]).cast("Q")
        if id(loop) in without or id(task) in without:
            raise Mismatch("the thread state holds another reference to the running loop")
        asyncio._set_running_loop(loop)
    finally:
        task._log_destroy_pending = False
        asyncio.tasks._unregister_task(task)
        coroutine.close()
        loop.steps.clear()
    if len(found[0]) != 1 or found[0] != found[1]:
        raise Mismatch("the running loop and task were not found in the thread state")
    return found[0].pop()


def _share_name_counter() -> None:
    """Let asyncio's counter of default task names count goloop's tasks, too.

    The counter is a word of the module's state. It is found by the numbers of three new tasks.
    Eager tasks and subclasses of asyncio.Task get their names from it. 3.11 has no such word;
    there, and if it is not found, asyncio and goloop count separately.
    """
    raw = _core._task_names(_asyncio)
    if raw is None:
        return
    words = raw[: len(raw) // 8 * 8].cast("Q")
    loop: Any = _ProbeLoop()
    indexes = set(range(len(words)))
    for _ in range(3):
        coroutine = _coroutine(None)
        task: Any = asyncio.Task(coroutine, loop=loop)
        task._log_destroy_pending = False
        asyncio.tasks._unregister_task(task)
        coroutine.close()
        number = int(task.get_name().removeprefix("Task-"))
        indexes = {index for index in indexes if words[index] == number}
    if len(indexes) == 1:
        [index] = indexes
        words[index] -= 3  # give back the numbers of the three tasks
        _core._task_names(_asyncio, 8 * index)


def _create_task_names() -> frozenset[str]:
    """Return the keywords, besides name and context, that loop.create_task passes on to Task."""
    # Of the abstract class: tracers replace the method of BaseEventLoop.
    method: Any = asyncio.AbstractEventLoop.create_task
    if method.__code__.co_flags & inspect.CO_VARKEYWORDS:
        return frozenset({"eager_start"})
    return frozenset()


def _objects_for_c() -> tuple[Any, ...]:
    """Return the Python objects for C, in the order that core_enable_tasks() expects."""
    c_asyncio: Any = _asyncio
    loop: Any = _ProbeLoop()
    # An iterator that has ended, whose throw() raises its argument.
    iterator: Any = iter(asyncio.Future(loop=loop))
    iterator.close()
    return (
        _create_task_names(),
        # Before 3.14 only.
        getattr(c_asyncio, "_current_tasks", {}),
        asyncio.Future.add_done_callback,
        asyncio.Future.cancel,
        asyncio.Future.set_exception,
        asyncio.Task.cancel,
        asyncio.iscoroutine,
        iterator.throw,
        slow_path.TaskStepMethWrapper,
        slow_path.wait,
    )


def check(peek: Peek | None = None) -> tuple[int, int, int]:
    """Check the layouts of CPython's objects; return offsets in 3.14's thread state.

    They are the offsets of the running loop, the current task and the task list, in this order;
    (0, 0, 0) before 3.14. Raises Mismatch if any layout is unexpected.

    `peek` reads the fields of an object; the default is C's function. The running loop and the
    current task are replaced during the check and restored afterwards.
    """
    if peek is None:
        peek = _core._peek
    layout = _core._layout()
    version = ".".join(map(str, sys.version_info[:3]))
    if layout is None:
        raise Mismatch(f"this build of CPython {version} has a layout that goloop does not know")
    for cls, name in ((asyncio.Future, "future"), (asyncio.Task, "task")):
        if cls.__module__ != "_asyncio":
            raise Mismatch(f"asyncio.{cls.__name__} is not the C class")
        if cls.__basicsize__ != layout[name]:
            raise Mismatch(
                f"asyncio.{cls.__name__} of CPython {version} has {cls.__basicsize__} bytes, "
                f"not {layout[name]}"
            )
    loop: Any = _ProbeLoop()
    tasks: Any = asyncio.tasks
    before = asyncio._get_running_loop()
    # goloop may be imported within a task. 3.14 stores the current task by thread, not by loop.
    by_thread = before is not None and sys.version_info >= (3, 14)
    current = tasks._swap_current_task(before, None) if by_thread else None
    asyncio._set_running_loop(loop)
    try:
        _probe_future(peek, loop)
        _probe_task(peek, loop)
        return _probe_thread(peek, loop)
    finally:
        asyncio._set_running_loop(before)
        if by_thread:
            tasks._swap_current_task(before, current)


def enable(peek: Peek | None = None) -> tuple[Any, Any, str | None]:
    """Enable goloop's types if the check succeeds.

    Returns goloop's Future and Task, and None; or asyncio's classes and the reason, if the check
    fails or GOLOOP_TASKS=stdlib is set.
    """
    if os.environ.get("GOLOOP_TASKS") == "stdlib":
        return asyncio.Future, asyncio.Task, "GOLOOP_TASKS=stdlib"
    try:
        slots = check(peek)
    except Mismatch as reason:
        return asyncio.Future, asyncio.Task, str(reason)
    except (MemoryError, RecursionError):
        raise  # the program may import goloop again
    except Exception as error:
        # An asyncio that was replaced or patched.
        return asyncio.Future, asyncio.Task, f"the layout check failed with {error!r}"
    future, task = _core._enable_tasks(slots, _objects_for_c())
    with contextlib.suppress(Exception):  # on failure the names are counted separately
        _share_name_counter()
    return future, task, None
