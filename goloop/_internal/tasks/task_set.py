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


class TaskSet(_WeakSet):
    """asyncio's tasks and goloop's."""

    def __iter__(self) -> Iterator[Any]:
        # goloop's tasks first: they are listed in one go, under the GIL.
        yield from _core._live_tasks()
        yield from super().__iter__()

    def __len__(self) -> int:
        return len(_core._live_tasks()) + super().__len__()

    def __contains__(self, task: object) -> bool:
        return super().__contains__(task) or task in _core._live_tasks()


def install() -> None:
    """Makes goloop's tasks visible; idempotent."""
    tasks: Any = asyncio.tasks
    kept = getattr(tasks, "_scheduled_tasks", None)
    if kept is None:
        kept = tasks._all_tasks
    if type(kept) is weakref.WeakSet:
        kept.__class__ = TaskSet
