"""Stacks of coroutines and threads, and the tasks that await a task, readable from any thread.

In CPython 3.13 without the GIL the attributes of coroutines, frames and asyncio's own futures must
not be read while another thread uses them. There the core reads them in a stopped world.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import types

from ..frames import read_stack
from ..version import native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    # Function, file and line.
    Frame = tuple[str, str, int]

# Limits of a stack's depth and of the futures that are searched for a task.
FRAMES = 64
FUTURES = 16

# Set only on free-threaded 3.13.
_await_frames: Any = None
_read_stack: Callable[[int], str] | None = None
_guarded_attribute: Any = None
if native:
    from ... import _core

    _await_frames = getattr(_core, "_await_frames", None)
    _read_stack = _core._thread_stack if _await_frames is not None else None
    _guarded_attribute = getattr(_core, "_guarded_attribute", None)


# The folder of goloop's own files, also in a checkout.
_GOLOOP = __file__.partition("/_internal/")[0] + "/"


def library_of(file: str) -> str | None:
    """Return the name of the package that has this file; None for the program's own code."""
    if file.startswith(_GOLOOP):
        return "goloop"
    if file.startswith("<frozen "):
        return file[8:].partition(".")[0].rstrip(">")
    for folder in ("/site-packages/", "/dist-packages/"):
        _, found, inside = file.rpartition(folder)
        if found:
            return inside.partition("/")[0].removesuffix(".py")
    for folder in ("/lib/python3", "/lib64/python3"):
        inside = file.rpartition(folder)[2].partition("/")[2] if folder in file else ""
        if inside:
            return inside.partition("/")[0].removesuffix(".py")
    return None


def attribute(future: Any, name: str) -> Any:
    """Return an attribute of a future or task, or None if it is missing."""
    if _guarded_attribute is None or not hasattr(future, "get_loop"):
        return getattr(future, name, None)
    try:
        return _guarded_attribute(future.get_loop(), future, name)
    except AttributeError:
        return None


def await_stack(coroutine: Any) -> list[Frame]:
    """Return the frames of a suspended coroutine and of the objects that it awaits.

    The innermost frame is first. There are about FRAMES of them at most, counted from the
    coroutine.
    """
    frames: list[Frame] = []
    while coroutine is not None and len(frames) < FRAMES:
        if _await_frames is not None:
            found, coroutine = _await_frames(coroutine)
            frames += found
            if coroutine is None:
                break
        name = getattr(coroutine, "__qualname__", None)
        if name is None:
            # The awaitable of an `async for` step has no public reference to its generator.
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
    """Return the generator, coroutine or inner step of a step's awaitable, or None.

    It is found through the garbage collector.
    """
    if type(step).__name__ not in _STEPS:
        return None
    for each in gc.get_referents(step):
        if isinstance(each, types.AsyncGeneratorType | types.CoroutineType):
            return each
        if type(each).__name__ in _STEPS:
            return each
    return None


def thread_stack(ident: int, coroutine: Any = None) -> tuple[list[Frame], bool]:
    """Return a thread's frames, innermost first, and whether the coroutine's frame was found.

    If it was found, it is the last of the frames. A thread that does not exist has no frames.
    """
    if _read_stack is not None:
        frames = read_stack(_read_stack, ident)[::-1]
        code = getattr(coroutine, "cr_code", None) or getattr(coroutine, "gi_code", None)
        outermost = len(frames) - 1
        while code is not None and outermost >= 0:
            if frames[outermost][:2] == (code.co_qualname, code.co_filename):
                return frames[: outermost + 1], True
            outermost -= 1
        return frames, False
    frames = []
    last = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
    frame = sys._current_frames().get(ident)
    while frame is not None and len(frames) < FRAMES:
        code = frame.f_code
        frames.append((code.co_qualname, code.co_filename, frame.f_lineno or 0))
        if frame is last:
            return frames, True
        frame = frame.f_back
    return frames, False


def waiting_tasks(found: Iterable[Any], wanted: set[int] | None = None) -> dict[int, list[Any]]:
    """Return the tasks that wait for a future, by id(future); only for `wanted` ids if given."""
    waiting: dict[int, list[Any]] = {}
    for task in found:
        waiter = attribute(task, "_fut_waiter")
        if waiter is not None and (wanted is None or id(waiter) in wanted):
            waiting.setdefault(id(waiter), []).append(task)
    return waiting


def awaiters(task: Any, waiting: dict[int, list[Any]]) -> list[Any]:
    """Return the tasks that await `task`, directly or through asyncio's functions.

    Such functions are gather, wait, wait_for, shield and TaskGroup. `waiting` is the result of
    waiting_tasks().
    """
    parent_tasks, candidates = completion_dependents(task)
    found = [each for future in candidates for each in waiting.get(id(future), ())]
    return list({id(each): each for each in found + parent_tasks}.values())


def completion_dependents(task: Any) -> tuple[list[Any], list[Any]]:
    """Return the parent tasks that are notified of a task's end, and its dependent futures.

    The futures include the task itself. The search ends when it has found more than FUTURES.
    """
    parent_tasks: list[Any] = []
    futures = [task]
    for future in futures:  # the list grows during the iteration
        for callback, _ in attribute(future, "_callbacks") or ():
            parent = getattr(getattr(callback, "__self__", None), "_parent_task", None)
            if parent is not None:
                parent_tasks.append(parent)
            candidates = list(getattr(callback, "args", ()))  # of a functools.partial
            for cell in getattr(callback, "__closure__", None) or ():
                with contextlib.suppress(ValueError):
                    candidates.append(cell.cell_contents)
            futures += [
                each
                for each in candidates
                if asyncio.isfuture(each)
                # Another task is not part of this one's end.
                and not isinstance(each, asyncio.Task)
                and not any(each is known for known in futures)
            ]
        if len(futures) > FUTURES:
            break
    return parent_tasks, futures
