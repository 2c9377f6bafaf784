"""The loop that goloop's names refer to: its own, or asyncio's in the pure-Python wheel."""

from __future__ import annotations

from .version import native as native

TYPE_CHECKING = False

if native or TYPE_CHECKING:
    from .loop import library
    from .loop.loop import Loop, new_event_loop
    from .tasks import tasks

    # An explicit call and not an import: if all imports are lazy (PEP 810), an import runs nothing
    # until its name is used, but this must happen before a loop is created.
    library.prepare()
    Future = tasks.Future
    Task = tasks.Task
else:
    from .process.fallback import Future, Loop, Task, new_event_loop

__all__ = ("Future", "Loop", "Task", "native", "new_event_loop")
