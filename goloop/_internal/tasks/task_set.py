"""Lets asyncio.all_tasks() see goloop's tasks before CPython 3.14.

There asyncio keeps all tasks in one WeakSet, and `all_tasks` iterates over it.  goloop
keeps its own tasks in a list of the C extension instead, since adding to the WeakSet
costs more than the rest of a task's creation.

Patching `all_tasks` would miss whoever has imported it by name.  So the one WeakSet
object gets another class, a subclass of WeakSet that also shows goloop's tasks.  All
that is stored in it stays there, and every reference to it goes on working.
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


# What asyncio._unregister_task() was given; asyncio._register_task() brings it back by add().
_unregistered: _WeakSet = weakref.WeakSet()


def _listed() -> list[Any]:
    tasks = _core._live_tasks()
    return [task for task in tasks if task not in _unregistered] if _unregistered else tasks


class TaskSet(_WeakSet):
    """asyncio's tasks and goloop's."""

    def __iter__(self) -> Iterator[Any]:
        # goloop's tasks first: they are listed in one go, under the GIL.
        yield from _listed()
        yield from super().__iter__()

    def __len__(self) -> int:
        return len(_listed()) + super().__len__()

    def __contains__(self, task: object) -> bool:
        return super().__contains__(task) or task in _listed()

    def discard(self, task: Any) -> None:
        """What asyncio._unregister_task() calls."""
        super().discard(task)
        _unregistered.add(task)


def install() -> None:
    """Makes goloop's tasks visible; idempotent."""
    tasks: Any = asyncio.tasks
    kept = getattr(tasks, "_scheduled_tasks", None)
    if kept is None:
        kept = tasks._all_tasks
    if type(kept) is weakref.WeakSet:
        kept.__class__ = TaskSet
