"""How errors are told, and what debug mode shows of a handle, made when somebody looks.

asyncio extracts the stack of whoever schedules a callback at once, which takes longer than most
callbacks do; the handle has the bare frames instead (pybridge/core/queue/handle.c).
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

# Newer ones find by it the source of what `python -c` and the prompt were given.
_KEEPS_CODE = "_code" in traceback.FrameSummary.__slots__


# BaseException's own: a class may refuse to set attributes, or have others by these names.
TRACEBACK: Any = vars(BaseException)["__traceback__"]
CONTEXT: Any = vars(BaseException)["__context__"]


def log(about: object, words: str) -> None:
    """A line for asyncio's logger about an object, for C."""
    logger.debug(words, about)


def as_handled(exc: BaseException, call: Callable[..., object], *args: object) -> None:
    """Makes a call as the `except` block does in which asyncio makes it.

    So sys.exc_info(), logging.exception() and a bare `raise` mean `exc` there, and what the call
    raises has it as its context.
    """
    traceback, context = TRACEBACK.__get__(exc), CONTEXT.__get__(exc)
    try:
        raise exc
    except BaseException:
        # Without this frame, and without what whoever runs the loop is handling.
        TRACEBACK.__set__(exc, traceback)
        CONTEXT.__set__(exc, context)
        call(*args)


def caller_stack() -> tuple[Any, ...]:
    """The frames of whoever calls into the loop, as stack_summary() takes them."""
    frames: list[Any] = [stack_summary]
    frame = sys._getframe().f_back
    for _ in range(constants.DEBUG_STACK_DEPTH):
        if frame is None:
            break
        frames += (frame.f_code, frame.f_lasti, frame.f_globals)
        frame = frame.f_back
    return tuple(frames)


def stack_summary(frames: tuple[Any, ...]) -> traceback.StackSummary:
    """asyncio.format_helpers.extract_stack() of the time when `frames` was taken.

    `frames` are this function, by which C knows them, and for each frame, from within, its code,
    last instruction and globals.
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
