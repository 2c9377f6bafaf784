"""goloop.Future and goloop.Task: types of the C extension if layout_check.py permits it.

`reason` is None then. Otherwise the names are asyncio's own classes, and `reason` is the
explanation, which goloop.diagnostics() shows.
"""

from __future__ import annotations

import sys

from . import layout_check

TYPE_CHECKING = False

if TYPE_CHECKING:
    from asyncio import Future, Task

    reason: str | None
else:
    Future, Task, reason = layout_check.enable()

    if reason is None and sys.version_info < (3, 14):
        from . import task_set  # asyncio of 3.14 has no such set

        task_set.install()

__all__ = ("Future", "Task", "reason")
