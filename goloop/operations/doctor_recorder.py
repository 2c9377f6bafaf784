"""Records which loops run in the processes of a program that `goloop doctor` runs, and why.

doctor.py creates a file and passes its name in GOLOOP_DOCTOR.  patch_process.py calls `record_loop`
for each loop that starts to run.  In each process, each pair of a loop type and a calling function
becomes one line of JSON in the file.  The line is written when the loop starts, so that a killed
process has written its lines.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

_noted: set[tuple[int, str, str]] = set()


def record_loop(loop: asyncio.AbstractEventLoop, ours: bool, hint: str) -> None:
    """Append a loop that starts to run to the file of GOLOOP_DOCTOR, if it can be opened.

    A loop type and calling function that this process has recorded already are not recorded again.
    `hint` says how the program can use goloop instead of a loop that is not `ours`.
    """
    place, why = _place_and_reason(sys._getframe(1), ours)
    kind = name_of(type(loop))
    # Without the line number: a runner runs its loop once more at its end, from the next line.
    key = os.getpid(), kind, f"{place.rpartition(':')[0]} {place.rpartition(' ')[2]}"
    if key in _noted:
        return
    _noted.add(key)
    record = {
        "pid": os.getpid(),
        "loop": "goloop.Loop" if ours and kind.startswith("goloop.") else kind,
        "is_goloop": ours,
        "place": place,
        "why": why,
    }
    if not ours:
        record["hint"] = hint
    try:
        file = os.open(os.environ["GOLOOP_DOCTOR"], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except (KeyError, OSError):
        return  # goloop doctor has exited
    try:
        os.write(file, json.dumps(record).encode() + b"\n")
    finally:
        os.close(file)


def name_of(thing: object) -> str:
    """Return the qualified name of a class or function, with the public module's name."""
    name = getattr(thing, "__qualname__", None)
    module = getattr(thing, "__module__", None)
    if name is None or module is None:
        return repr(thing)
    if module.startswith(("goloop._internal.", "goloop.operations.", "goloop.testing.")):
        module = "goloop"
    return f"{module}.{name}"


def _place_and_reason(frame: FrameType | None, ours: bool) -> tuple[str, str]:
    """Return the innermost frame outside asyncio and goloop, and why it runs this loop.

    The frame is "FILE:LINE in FUNCTION"; "" if there is none.
    """
    why = "the program created the loop"
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in ("asyncio", "goloop"):
            break
        runner = frame.f_locals.get("self")
        if isinstance(runner, asyncio.Runner):
            factory = getattr(runner, "_loop_factory", None)
            if factory is None:
                why = "asyncio created the loop through its event loop policy"
                why += ", which is goloop's" if ours else ", which is not goloop's"
            else:
                why = f"loop_factory={name_of(factory)}"
        frame = frame.f_back
    if frame is None:
        return "", why
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}", why
