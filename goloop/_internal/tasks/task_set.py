"""Makes asyncio.all_tasks() return goloop's tasks, before CPython 3.14.

In these versions asyncio has all tasks in one WeakSet, over which `all_tasks` iterates. goloop has
its own tasks in a list of the C extension instead, because adding to the WeakSet takes longer than
the rest of a task's creation.

A patch of `all_tasks` would not reach code that has imported the function by name. So the class of
that one WeakSet object is replaced by a subclass that also contains goloop's tasks. Its elements
stay, and every reference to it remains valid.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator

from ... import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    _WeakSet = weakref.WeakSet[Any]
else:
    _WeakSet = weakref.WeakSet


# Tasks passed to asyncio._unregister_task(); asyncio._register_task() adds a task to the set again.
_unregistered: _WeakSet = weakref.WeakSet()


def _live_tasks() -> list[Any]:
    """Return goloop's tasks, without those that were unregistered."""
    tasks = _core._live_tasks()
    return [task for task in tasks if task not in _unregistered] if _unregistered else tasks


class TaskSet(_WeakSet):
    """The set of asyncio's tasks and goloop's."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over goloop's tasks, then over asyncio's."""
        # goloop's tasks first: C lists them in one call, under the GIL.
        yield from _live_tasks()
        yield from super().__iter__()

    def __len__(self) -> int:
        """Return the number of goloop's tasks and asyncio's."""
        return len(_live_tasks()) + super().__len__()

    def __contains__(self, task: object) -> bool:
        """Return true for a task of the WeakSet or of goloop's list."""
        return super().__contains__(task) or task in _live_tasks()

    def discard(self, task: Any) -> None:
        """Remove a task; asyncio._unregister_task() calls this."""
        super().discard(task)
        _unregistered.add(task)


def install() -> None:
    """Replace the class of asyncio's set of tasks; a second call does nothing."""
    tasks: Any = asyncio.tasks
    task_set = getattr(tasks, "_scheduled_tasks", None)
    if task_set is None:
        task_set = tasks._all_tasks
    if type(task_set) is weakref.WeakSet:
        task_set.__class__ = TaskSet
