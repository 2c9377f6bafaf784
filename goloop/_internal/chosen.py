"""The loop that goloop's names stand for: its own, or asyncio's where that can't be had."""

from __future__ import annotations

from .version import native as native

TYPE_CHECKING = False

if native or TYPE_CHECKING:
    from .loop import library
    from .loop.loop import Loop, new_event_loop
    from .tasks import tasks

    # By calls and by names, for an import alone may be lazy (PEP 810): no loop may be made before.
    library.prepare()
    Future = tasks.Future
    Task = tasks.Task
else:
    from .process.fallback import Future, Loop, Task, new_event_loop

__all__ = ("Future", "Loop", "Task", "native", "new_event_loop")
