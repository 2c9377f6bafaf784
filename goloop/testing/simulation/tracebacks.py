"""Tracebacks without the frames of goloop and asyncio that run a simulated program."""

from __future__ import annotations

import asyncio
import os
import traceback
from pathlib import Path
from types import FrameType, TracebackType

_OWN_FOLDERS = tuple(
    os.fspath(folder) + os.sep
    for folder in (Path(__file__).parents[2], Path(asyncio.__file__).parent)
)


def without_own_frames(exc: BaseException) -> BaseException:
    """Return the exception with a traceback that begins with the program's first frame."""
    first: TracebackType | None = exc.__traceback__
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_OWN_FOLDERS):
        first = first.tb_next
    return exc.with_traceback(first)


def line_of(frame: FrameType | None) -> str:
    """Return the program's calling line, as text for a note; "" if there is none."""
    while frame is not None and frame.f_code.co_filename.startswith(_OWN_FOLDERS):
        frame = frame.f_back
    if frame is None:
        return ""
    summary = traceback.FrameSummary(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
    return f"{summary.filename}:{summary.lineno}, in {summary.name}: {summary.line or ''}"
