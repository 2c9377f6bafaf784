"""What a thread and the tasks of its loop are doing, as text for an error."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import traceback

from .call_graph import await_stack, thread_stack


def what_runs(thread: threading.Thread, loop: asyncio.AbstractEventLoop | None) -> str:
    """The thread's stack, and where each unfinished task of the loop waits.

    May be called from any thread; what runs meanwhile goes on.
    """
    frames = reversed(thread_stack(thread.ident or 0)[0])
    lines = traceback.format_list([(file, line, name, None) for name, file, line in frames])
    lines = lines or ["  not at work\n"]
    for task in _tasks(loop):
        with contextlib.suppress(Exception):
            lines.append(f"  task {task.get_name()}, which awaits\n")
            for name, file, line in reversed(await_stack(task.get_coro())):
                lines.append(f'  File "{file}", line {line}, in {name}\n')
    return "".join(lines).rstrip()


def _tasks(loop: asyncio.AbstractEventLoop | None) -> list[asyncio.Task[object]]:
    if loop is None:
        return []
    try:
        return sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    except RuntimeError:  # they come and go too fast
        return []
