"""goloop.Future and goloop.Task: made by the C extension where the probe allows it.

`reason` is None then, and otherwise the sentence that diagnostics() tells: the names
stand for asyncio's own classes in that case.
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
        from . import task_set

        task_set.install()

__all__ = ("Future", "Task", "reason")
