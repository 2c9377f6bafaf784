"""The loop that goloop's names stand for: its own, or asyncio's where that can't be had."""

from __future__ import annotations

from .version import native as native

TYPE_CHECKING = False

if native or TYPE_CHECKING:
    from .loop import library  # noqa: F401  (says where the Go library lies)
    from .loop.loop import Loop, new_event_loop
    from .tasks.tasks import Future, Task
else:
    from .process.fallback import Future, Loop, Task, new_event_loop

__all__ = ("Future", "Loop", "Task", "native", "new_event_loop")
