"""Rare cases of a task's step, in Python; called by C (pybridge/core/tasks/).

C itself handles tasks that `loop.create_task` created and that await a future with a known layout.
"""

from __future__ import annotations

import asyncio.futures
import types

from ... import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context
    from typing import Any

_futures: Any = asyncio.futures


class TaskStepMethWrapper:
    """A callable that steps a task; `error` is thrown into it.

    Used on loops that override call_soon(), and in debug mode. asyncio's class has the same name,
    which appears in logs.
    """

    # As in the repr of asyncio's class.
    __module__ = "builtins"
    __slots__ = ("__self__", "_error")

    def __init__(self, task: asyncio.Task[Any], error: BaseException | None = None) -> None:
        """Store the task and the exception to throw, or None."""
        self.__self__ = task
        self._error = error

    def __call__(self) -> None:
        """Run the step."""
        try:
            _core._step(self.__self__, self._error)
        finally:
            # The exception's traceback refers to this frame, and a task refers to its exception.
            del self


def wait(
    task: asyncio.Task[Any],
    result: Any,
    loop: asyncio.AbstractEventLoop,
    wakeup: Callable[[asyncio.Future[Any]], object],
    context: Context,
) -> bool:
    """Make the task wait for `result`, which its coroutine has yielded; return true if it may.

    If `result` is not a future that the task may await, return false, and schedule a step that
    throws RuntimeError into the coroutine.
    """
    blocking = getattr(result, "_asyncio_future_blocking", None)
    if result is task:
        wrong = f"Task cannot await on itself: {task!r}"
    elif blocking is not None:
        blocking = bool(blocking)
        if _futures._get_loop(result) is not loop:
            wrong = f"Task {task!r} got Future {result!r} attached to a different loop"
        elif not blocking:
            wrong = f"yield was used instead of yield from in task {task!r} with {result!r}"
        else:
            result._asyncio_future_blocking = False
            result.add_done_callback(wakeup, context=context)
            return True
    elif isinstance(result, types.GeneratorType):
        what = f"generator in task {task!r} with {result!r}"
        wrong = f"yield was used instead of yield from for {what}"
    else:
        wrong = f"Task got bad yield: {result!r}"
    loop.call_soon(TaskStepMethWrapper(task, RuntimeError(wrong)), context=context)
    return False
