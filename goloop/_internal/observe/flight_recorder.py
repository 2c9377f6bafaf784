"""The flight recorder: the last slow iterations, which `Loop.slow_iterations()` returns.

Go records them (pybridge/golib/profile/flight_recorder.go) and returns them with the profile. This
module converts them to objects, and to text for `goloop slow` and for a dump.
"""

from __future__ import annotations

import os
import sys
import time

from ..frames import Frame
from ..records import Record
from . import profiling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .profiling import Row


class SlowStack(Record):
    """A stack sample of a slow iteration. Since 0.3.0."""

    after: float
    """Seconds from the begin of the iteration to the sample."""
    task: str
    """The task, as in `ProfileEntry`."""
    frames: tuple[Frame, ...]
    """The calls, beginning with the task's coroutine or the callback; innermost last."""


class SlowIteration(Record):
    """An iteration of a loop that took longer than the limit. Since 0.3.0."""

    loop: int
    """The loop's number in this process: the first has 1, as in the log."""
    started: float
    """The time of its begin, as time.time()."""
    seconds: float
    """Duration of the iteration in seconds."""
    callbacks: int
    """Number of callbacks, steps of tasks and transport events that it ran."""
    longest: float
    """Seconds of the longest of these, as sampled by the monitor; 0.0 without samples."""
    longest_stack: SlowStack | None
    """A stack sample of the longest one."""
    gc: float
    """Seconds in Python's garbage collector."""
    gil_wait: float
    """Seconds that the loop's thread waited for the GIL after the poll."""
    stacks: tuple[SlowStack, ...]
    """Stack samples after 1, 2 and 4 times the limit."""

    def __str__(self) -> str:
        """Return several lines: time, duration and callbacks, then the stacks with their tasks."""
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.started))
        fraction = f"{self.started % 1:.3f}"[1:]
        words = f"{when}{fraction}  loop {self.loop}: {self.seconds:.3f} s"
        words += f", {self.callbacks} callback{'s' * (self.callbacks != 1)}"
        if self.gc >= 0.0005:
            words += f", {self.gc:.3f} s in the garbage collector"
        if self.gil_wait >= 0.0005:
            words += f", {self.gil_wait:.3f} s waiting for the GIL"
        lines = [words]
        if self.longest_stack is not None:
            lines.append(f"  the longest took {self.longest:.3f} s: {self.longest_stack.task}")
            lines += _format_stack(self.longest_stack)
        for stack in self.stacks:
            if self.longest_stack is None or stack.frames != self.longest_stack.frames:
                lines.append(f"  after {stack.after:.3f} s: {stack.task}")
                lines += _format_stack(stack)
        return "\n".join(lines)


def _format_stack(stack: SlowStack) -> list[str]:
    """Return the lines of a stack, in the format of a traceback."""
    return [
        f'    File "{f.file}", line {f.line}, in {f.function}'
        if f.file
        else "    (an unknown call)"
        for f in stack.frames
    ]


def from_raw(raw: Row, number: int | None = None) -> list[SlowIteration]:
    """Return the slow iterations in a snapshot of profiling.py, oldest first.

    `number` selects a loop; None means all loops. A dict without slow iterations gives an empty
    list. Raises LookupError, TypeError or ValueError for malformed rows or frames.
    """
    frames = [Frame(*each) for each in raw.get("frames") or ()]
    offset = raw.get("time", 0.0) - raw.get("clock", 0.0)

    def stack(age: int, kind: int, indices: list[int]) -> SlowStack:
        """Return a sample as SlowStack; `age` is in nanoseconds, `indices` refer to `frames`."""
        calls = tuple(frames[index] for index in indices)
        return SlowStack(age / 1e9, profiling.task_label(kind, calls), calls)

    found: list[SlowIteration] = []
    rows: list[list[Any]] = raw.get("slow") or []
    for loop, began, length, callbacks, gc, gil, longest, longest_stack, stacks in rows:
        if number is None or loop == number:
            found.append(
                SlowIteration(
                    loop=loop,
                    started=began / 1e9 + offset,
                    seconds=length / 1e9,
                    callbacks=callbacks,
                    longest=longest / 1e9,
                    longest_stack=stack(*longest_stack) if longest else None,
                    gc=min(gc, length) / 1e9,
                    gil_wait=min(gil, length) / 1e9,
                    stacks=tuple(stack(*each) for each in stacks),
                )
            )
    return found


class Unfinished(Record):
    """An iteration that has not ended."""

    loop: int
    """The loop's number in its process."""
    seconds: float
    """Its duration up to now, in seconds."""
    stack: SlowStack | None
    """Its last stack sample."""

    def __str__(self) -> str:
        """Return the duration and the stack as lines."""
        words = f"now  loop {self.loop}: blocked for {self.seconds:.3f} s"
        if self.stack is None:
            return words
        return "\n".join([f"{words} in {self.stack.task}", *_format_stack(self.stack)])


def unfinished_iteration(raw: Row, number: int, since: float) -> Unfinished | None:
    """Return the current iteration of a loop in a snapshot of profiling.py; None if it is unknown.

    The loop must be in the same iteration since `since`, in seconds of the snapshot's clock. Older
    samples may be those of an earlier iteration.
    """
    for loop, began, seen in raw.get("now") or ():
        if loop == number and seen and seen[-1][0] / 1e9 >= since:
            at, call, _ = seen[-1]
            _, kind, frames = profiling.call_paths(raw)[call]
            label = profiling.task_label(kind, frames)
            stack = SlowStack((at - began) / 1e9, label, frames)
            return Unfinished(number, raw["clock"] - began / 1e9, stack)
    return None


def iterations_text(found: list[SlowIteration]) -> str:
    """Return all slow iterations as text."""
    return "\n".join(map(str, found)) if found else "no iteration has taken longer than the limit"


def dump() -> None:
    """Write the profile and the slow iterations of this process to stderr immediately."""
    raw = profiling.snapshot()
    profile, iterations = profiling.from_raw(raw), iterations_text(from_raw(raw))
    text = f"goloop: process {os.getpid()}\n{profile}\n{iterations}\n"
    try:
        # Not through sys.stderr, because code that a signal has interrupted may have its lock.
        os.write(2, text.encode(errors="backslashreplace"))
    except OSError:
        print(text, end="", file=sys.stderr)
