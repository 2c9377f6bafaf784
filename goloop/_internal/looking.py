"""What coroutines, threads and futures are doing, asked from any thread.

In CPython 3.13 without the GIL the attributes of coroutines, frames and asyncio's own futures may
not be read while another thread uses these. There the core looks, while the others stand still.
"""

from __future__ import annotations

import gc
import sys
import types

from . import chosen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    # A function, its file and line.
    Frame = tuple[str, str, int]

# At most.
FRAMES = 64

# Only there.
_await_frames: Any = None
_thread_frames: Any = None
_guarded_attribute: Any = None
if chosen.native:
    from .. import _core

    _await_frames = getattr(_core, "_await_frames", None)
    _thread_frames = getattr(_core, "_thread_frames", None)
    _guarded_attribute = getattr(_core, "_guarded_attribute", None)


def attribute(future: Any, name: str) -> Any:
    """An attribute of a future or task, or None."""
    if _guarded_attribute is None or not hasattr(future, "get_loop"):
        return getattr(future, name, None)
    try:
        return _guarded_attribute(future.get_loop(), future, name)
    except AttributeError:
        return None


def await_stack(coroutine: Any) -> list[Frame]:
    """What is being awaited, innermost first."""
    frames: list[Frame] = []
    while coroutine is not None and len(frames) < FRAMES:
        if _await_frames is not None:
            found, coroutine = _await_frames(coroutine)
            frames += found
            if coroutine is None:
                break
        name = getattr(coroutine, "__qualname__", None)
        if name is None:
            # What `async for` awaits does not say of which generator it is a step.
            coroutine = _generator_of(coroutine)
            if coroutine is None:
                break
            continue
        frame = awaited = None
        for kind in ("cr", "gi", "ag"):
            frame = frame or getattr(coroutine, f"{kind}_frame", None)
            what = "yieldfrom" if kind == "gi" else "await"
            awaited = awaited or getattr(coroutine, f"{kind}_{what}", None)
        where = (frame.f_code.co_filename, frame.f_lineno or 0) if frame else ("", 0)
        frames.append((name, *where))
        coroutine = awaited
    return frames[::-1]


_STEPS = ("async_generator_asend", "async_generator_athrow", "anext_awaitable", "coroutine_wrapper")


def _generator_of(step: Any) -> Any:
    if type(step).__name__ not in _STEPS:
        return None
    for each in gc.get_referents(step):
        if isinstance(each, types.AsyncGeneratorType | types.CoroutineType):
            return each
        if type(each).__name__ in _STEPS:
            return each
    return None


def thread_stack(ident: int, coroutine: Any = None) -> tuple[list[Frame], bool]:
    """What a thread is doing, innermost first, up to a coroutine's frame; whether that was met."""
    if _thread_frames is not None:
        seen: tuple[list[Frame], bool] = _thread_frames(ident, coroutine)
        return seen
    frames: list[Frame] = []
    last = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
    frame = sys._current_frames().get(ident)
    while frame is not None and len(frames) < FRAMES:
        code = frame.f_code
        frames.append((code.co_qualname, code.co_filename, frame.f_lineno or 0))
        if frame is last:
            return frames, True
        frame = frame.f_back
    return frames, False
