"""Exceptions reported as in asyncio's `except` blocks, and the source tracebacks of debug mode.

asyncio extracts the caller's stack whenever a callback is scheduled, which takes longer than most
callbacks do. Here a handle stores only the frames (pybridge/core/queue/handle.c), and they become
a stack summary when it is read.
"""

from __future__ import annotations

import itertools
import linecache
import sys
import traceback
from asyncio import constants
from asyncio.log import logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType
    from typing import Any

# Newer versions use it to find the source of `python -c` and of the interactive prompt.
_KEEPS_CODE = "_code" in traceback.FrameSummary.__slots__


# BaseException's descriptors: a class may forbid setting attributes or override these names.
TRACEBACK: Any = vars(BaseException)["__traceback__"]
CONTEXT: Any = vars(BaseException)["__context__"]


def throw(*args: Any) -> None:
    """Raise the arguments of a native coroutine's throw(), in any form that a generator accepts."""
    empty: Any = (_ for _ in ())
    empty.throw(*args)


def log_debug(about: object, message_format: str) -> None:
    """Log `message_format % about` to asyncio's logger at level DEBUG; called from C."""
    logger.debug(message_format, about)


def as_handled(exc: BaseException, call: Callable[..., object], *args: object) -> None:
    """Call `call(*args)` inside an `except` block that handles `exc`, as asyncio does.

    There sys.exc_info(), logging.exception() and a bare `raise` refer to `exc`, and an exception
    of the call has it as its context.
    """
    traceback, context = TRACEBACK.__get__(exc), CONTEXT.__get__(exc)
    try:
        raise exc
    except BaseException:
        # Remove this frame, and the exception that the caller of run_forever() may be handling.
        TRACEBACK.__set__(exc, traceback)
        CONTEXT.__set__(exc, context)
        call(*args)


def caller_stack() -> tuple[Any, ...]:
    """Return the innermost frames of Python in the form for stack_summary().

    Called from C: these are the frames of the caller of the loop's method, at most
    DEBUG_STACK_DEPTH.
    """
    frames: list[Any] = [stack_summary]
    frame = sys._getframe().f_back
    for _ in range(constants.DEBUG_STACK_DEPTH):
        if frame is None:
            break
        frames += (frame.f_code, frame.f_lasti, frame.f_globals)
        frame = frame.f_back
    return tuple(frames)


def stack_summary(frames: tuple[Any, ...]) -> traceback.StackSummary:
    """Return asyncio.format_helpers.extract_stack() as of the time when `frames` was taken.

    `frames` has this function, by which C recognizes such a tuple, and then for each frame, the
    innermost first, its code, last instruction and globals.
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
    """Return the line number of an instruction's offset in bytes; an instruction has two."""
    positions = itertools.islice(code.co_positions(), last // 2, None)
    return next(positions, (None, None, None, None))[0]
