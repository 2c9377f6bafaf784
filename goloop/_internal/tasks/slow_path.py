"""What seldom happens to a task, for C (pybridge/core/tasks/).

C itself serves a task that is created by `loop.create_task`, and that waits for a future whose
fields it knows.
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

    For loops that have a call_soon() of their own, and for debug mode.  asyncio's has the same
    name, which is seen in logs.
    """

    # As asyncio's, in the repr.
    __module__ = "builtins"
    __slots__ = ("__self__", "_error")

    def __init__(self, task: asyncio.Task[Any], error: BaseException | None = None) -> None:
        self.__self__ = task
        self._error = error

    def __call__(self) -> None:
        try:
            _core._step(self.__self__, self._error)
        finally:
            # The frames of an exception lead to this one, and a task keeps its exception.
            del self


def wait(
    task: asyncio.Task[Any],
    result: Any,
    loop: asyncio.AbstractEventLoop,
    wakeup: Callable[[asyncio.Future[Any]], object],
    context: Context,
) -> bool:
    """Whether the task waits for what its coroutine has yielded.

    Otherwise that is wrong, and is thrown into the coroutine in the next step.
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
