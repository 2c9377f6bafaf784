"""The loop that goloop's names stand for: its own, or asyncio's where that can't be had."""

from __future__ import annotations

from .version import native as native

TYPE_CHECKING = False

if native or TYPE_CHECKING:
    from .loop import library
    from .loop.loop import Loop, new_event_loop
    from .tasks import tasks

    # Where all imports are lazy (PEP 810) an import runs nothing until its name is used.  This has
    # to happen before a loop is made.
    library.prepare()
    Future = tasks.Future
    Task = tasks.Task
else:
    from .process.fallback import Future, Loop, Task, new_event_loop

__all__ = ("Future", "Loop", "Task", "native", "new_event_loop")
