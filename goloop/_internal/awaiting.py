"""Who awaits a task: what the task's own attributes tell, on every version of Python."""

from __future__ import annotations

import asyncio
import contextlib

from .looking import attribute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

# The tasks that wait for a future, by the future's id().
Waiting = dict[int, list["Any"]]


def waiting_tasks(tasks: Iterable[Any]) -> Waiting:
    """What each of these tasks waits for, the other way round."""
    waiting: Waiting = {}
    for task in tasks:
        waiter = attribute(task, "_fut_waiter")
        if waiter is not None:
            waiting.setdefault(id(waiter), []).append(task)
    return waiting


def awaiters(task: Any, waiting: Waiting) -> list[Any]:
    """The tasks that await it directly, or through gather, wait, shield or a TaskGroup."""
    found = list(waiting.get(id(task), ()))
    for callback, _ in attribute(task, "_callbacks") or ():
        owner = getattr(callback, "__self__", None)
        parent = getattr(owner, "_parent_task", None)
        if parent is not None:
            found.append(parent)
        for cell in getattr(callback, "__closure__", None) or ():
            with contextlib.suppress(ValueError):
                held = cell.cell_contents
                # A task there is who waits, and is found by the future that it waits for.
                if not isinstance(held, asyncio.Task):
                    found.extend(waiting.get(id(held), ()))
    return found
