"""The stacks of a thread and of the tasks of its loop, as text for an error."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import traceback

from .call_graph import await_stack, thread_stack


def format_stacks(thread: threading.Thread, loop: asyncio.AbstractEventLoop | None) -> str:
    """Return the thread's stack, and the stack of each unfinished task of the loop.

    May be called from any thread; the thread is not stopped.
    """
    frames = reversed(thread_stack(thread.ident or 0)[0])
    lines = traceback.format_list([(file, line, name, None) for name, file, line in frames])
    lines = lines or ["  not running\n"]
    for task in _tasks(loop):
        with contextlib.suppress(Exception):
            lines.append(f"  task {task.get_name()}, awaiting\n")
            for name, file, line in reversed(await_stack(task.get_coro())):
                lines.append(f'  File "{file}", line {line}, in {name}\n')
    return "".join(lines).rstrip()


def _tasks(loop: asyncio.AbstractEventLoop | None) -> list[asyncio.Task[object]]:
    """Return the loop's unfinished tasks, by name."""
    if loop is None:
        return []
    try:
        return sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    except RuntimeError:  # the set of tasks changes too fast
        return []
