"""Tracebacks of simulations: the program's frames, without those that run the program."""

from __future__ import annotations

import asyncio
import os
import traceback
from pathlib import Path
from types import FrameType, TracebackType

_OURS = tuple(
    os.fspath(folder) + os.sep
    for folder in (Path(__file__).parents[2], Path(asyncio.__file__).parent)
)


def of_the_program(exc: BaseException) -> BaseException:
    """The exception, whose traceback begins with the program's first frame, if it has one."""
    first: TracebackType | None = exc.__traceback__
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_OURS):
        first = first.tb_next
    return exc.with_traceback(first)


def line_of(frame: FrameType | None) -> str:
    """The program's line that calls, for a note; "" where there is none."""
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    if frame is None:
        return ""
    summary = traceback.FrameSummary(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
    return f"{summary.filename}:{summary.lineno}, in {summary.name}: {summary.line or ''}"
