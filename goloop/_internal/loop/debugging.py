"""What debug mode shows of a handle, made when somebody looks.

asyncio extracts the stack of whoever schedules a callback at once, which takes longer than most
callbacks do; the handle has the bare frames instead (pybridge/core/queue/handle.c).
"""

from __future__ import annotations

import itertools
import linecache
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

# Newer ones find by it the source of what `python -c` and the prompt were given.
_KEEPS_CODE = "_code" in traceback.FrameSummary.__slots__


def stack_summary(frames: tuple[Any, ...]) -> traceback.StackSummary:
    """asyncio.format_helpers.extract_stack() of the time when `frames` was taken.

    `frames` are a mark, and for each frame, from within, its code, last instruction and globals.
    """
    summary = traceback.StackSummary()
    each = iter(frames[1:])
    for code, last, names in reversed(list(zip(each, each, each, strict=True))):
        filename: str = code.co_filename
        linecache.checkcache(filename)
        linecache.lazycache(filename, names)
        more: dict[str, Any] = {"_code": code} if _KEEPS_CODE else {}
        summary.append(
            traceback.FrameSummary(
                filename, _line(code, last), code.co_name, lookup_line=False, **more
            )
        )
    return summary


def _line(code: CodeType, last: int) -> int | None:
    """The line of an instruction, which has two bytes."""
    positions = itertools.islice(code.co_positions(), last // 2, None)
    return next(positions, (None, None, None, None))[0]
