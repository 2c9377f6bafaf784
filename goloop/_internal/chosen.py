"""The loop that goloop's names stand for: its own, or asyncio's where that can't be had.

A wheel without compiled parts, the one for every other platform, has a module `_pure`
that says so.  The extension's mere absence does not: it is a build that was forgotten.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    native: bool
    """Whether this is goloop's own loop.  Where it is False, goloop's names stand for asyncio's
    loop, and `goloop.diagnostics()["reason"]` says why.  Since 0.2.0."""
else:
    try:
        from .. import _pure  # noqa: F401
    except ImportError:
        native = True
    else:
        native = False

if native or TYPE_CHECKING:
    from . import library  # noqa: F401  (says where the Go library lies)
    from .loop import Loop, new_event_loop
    from .tasks import Future, Task
else:
    from .fallback import Future, Loop, Task, new_event_loop

__all__ = ("Future", "Loop", "Task", "native", "new_event_loop")
