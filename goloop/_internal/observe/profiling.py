"""The sampling profile of this process's loops: time by task and line.

The monitor takes the samples and Go counts them (pybridge/golib/profile), without the GIL. This
module converts a snapshot of the counts to a `Profile`; profile_formats.py writes files.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import time

from ..frames import Frame
from ..records import Record, decode_json
from ..version import native
from . import profile_formats

TYPE_CHECKING = False
if native or TYPE_CHECKING:
    from ... import _core
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    # A snapshot, as decoded from JSON.
    Row = dict[str, Any]

# Kinds of calls, by which Go replaces a function: profile.go of pybridge/golib/profile.
_LOOP, _TASK, _CALLBACK, _ITSELF, _UNKNOWN, _FIXED = 1, 2, 3, 4, 5, 6

ITSELF = "(the loop)"
"""The task and the function of an entry that has no code of the program."""


class ProfileEntry(Record):
    """The time of one function of the program in one kind of task. Since 0.3.0."""

    task: str
    """The coroutine of the task; `callback NAME` for a callback; "(the loop)" for the loop's own
    work and its wait for the GIL."""
    function: str
    """The innermost function outside the standard library and goloop; if there is none, the
    innermost of all."""
    file: str
    """The function's file."""
    line: int
    """The line with most of its time."""
    seconds: float
    """Seconds in which the loop ran it."""
    cpu: float
    """CPU seconds among these; in the remaining seconds it waited, for example for the GIL."""
    samples: int
    """Number of samples."""


class ProfileStack(Record):
    """The time of one stack of calls of a loop. Since 0.3.0."""

    loop: int
    """The loop's number in this process: the first has 1, as in the log."""
    task: str
    """The task, as in `ProfileEntry`."""
    frames: tuple[Frame, ...]
    """The calls, beginning with the task's coroutine or the callback; innermost last."""
    seconds: float
    """Seconds in which the loop ran it, without its callees."""
    cpu: float
    """CPU seconds among these."""
    samples: int
    """Number of samples."""


class Profile(Record):
    """A snapshot of the sampling profile of this process's loops, from `goloop.profile()`.

    The difference of two profiles covers the time between them. Since 0.3.0.
    """

    seconds: float
    """Seconds from the first sample to the snapshot, or between two snapshots."""
    samples: int
    """Number of samples of loops that were not idle."""
    stacks: tuple[ProfileStack, ...]
    """The stacks, by descending time."""
    ended: float
    """Time of the snapshot, as time.time()."""
    library: tuple[str, ...] = ()
    """The folders of the standard library and of goloop: their functions are no entries."""
    clock: float = 0.0
    """Time of the snapshot, as time.monotonic(); 0.0 if it is unknown."""

    @property
    def busy(self) -> float:
        """Seconds in which the loops were not idle, added up."""
        return sum(each.seconds for each in self.stacks)

    @property
    def entries(self) -> tuple[ProfileEntry, ...]:
        """The time by task and function, descending."""
        found: dict[tuple[str, str, str], dict[int, list[float]]] = {}
        for stack in self.stacks:
            frame = self.own_frame(stack)
            lines = found.setdefault((stack.task, frame.function, frame.file), {})
            sums = lines.setdefault(frame.line, [0.0, 0.0, 0.0])
            for index, value in enumerate((stack.seconds, stack.cpu, stack.samples)):
                sums[index] += value
        entries = []
        for (task, function, file), lines in found.items():
            line = max(lines, key=lambda each: lines[each][0])
            seconds, cpu, samples = (sum(each) for each in zip(*lines.values(), strict=True))
            entries.append(ProfileEntry(task, function, file, line, seconds, cpu, int(samples)))
        return tuple(sorted(entries, key=lambda each: -each.seconds))

    def own_frame(self, stack: ProfileStack) -> Frame:
        """Return the frame of a stack to which its time is attributed.

        That is the innermost frame outside the standard library and goloop, else the innermost
        frame, and for an empty stack a frame of ITSELF.
        """
        for frame in reversed(stack.frames):
            if not self._is_library(frame.file):
                return frame
        return stack.frames[-1] if stack.frames else Frame(ITSELF, "", 0)

    def _is_library(self, file: str) -> bool:
        """Return true if a file belongs to the standard library or to goloop."""
        if file.startswith("<frozen "):
            return True
        if not self.library:
            return re.search(_LIBRARY_FILE, file) is not None
        return file.startswith(self.library) and not re.search(_INSTALLED, file)

    def __sub__(self, earlier: Profile) -> Profile:
        """Return the profile of the time since an earlier snapshot.

        Stacks without new samples are omitted. A stack with fewer samples than before, because the
        counts were started again, is taken as a new one. The time of a loop's first sample began
        before the earlier snapshot; so the times of a loop that add up to more than the time
        between the snapshots are reduced to it.
        """
        if not isinstance(earlier, Profile):
            return NotImplemented
        before = {(each.loop, each.task, each.frames): each for each in earlier.stacks}
        stacks = []
        for each in self.stacks:
            before_entry = before.get((each.loop, each.task, each.frames))
            if before_entry is not None and before_entry.samples <= each.samples:
                each = each._replace(
                    seconds=max(0.0, each.seconds - before_entry.seconds),
                    cpu=max(0.0, each.cpu - before_entry.cpu),
                    samples=each.samples - before_entry.samples,
                )
            if each.samples:
                stacks.append(each)
        seconds = self.ended - earlier.ended
        if self.clock and earlier.clock:  # the system's time may have been set
            seconds = self.clock - earlier.clock
        return Profile(
            seconds=max(0.0, seconds),
            samples=max(0, self.samples - earlier.samples),
            stacks=_by_time(_limit(stacks, max(0.0, seconds))),
            ended=self.ended,
            library=self.library,
            clock=self.clock,
        )

    def folded(self) -> str:
        """Return the stacks for flamegraph.pl and speedscope: a line each, with microseconds."""
        return profile_formats.folded(self)

    def pprof(self) -> bytes:
        """Return the profile for `go tool pprof` and other readers of that format, compressed."""
        return profile_formats.pprof(self)

    def flame_graph(self, title: str = "goloop") -> str:
        """Return a flame graph as one self-contained SVG file.

        In a browser a click on a call zooms in on it.
        """
        return profile_formats.flame_graph(self, title)

    def __str__(self) -> str:
        """Return the profile as a table."""
        return profile_formats.table(self)

    def __repr__(self) -> str:
        fields = ("seconds", "samples", "stacks", "ended")
        return f"Profile({', '.join(f'{name}={getattr(self, name)!r}' for name in fields)})"


# Patterns, which are compiled when they are needed.
_LIBRARY_FILE = (
    r"/lib/python3[^/]*/(?!(site|dist)-packages/)|/goloop/(_internal|operations|testing)/"
)
_INSTALLED = r"/(site|dist)-packages/(?!goloop/)"


def _by_time(stacks: Iterable[ProfileStack]) -> tuple[ProfileStack, ...]:
    """Return the stacks by descending time."""
    return tuple(sorted(stacks, key=lambda each: -each.seconds))


def _limit(stacks: list[ProfileStack], seconds: float) -> Iterable[ProfileStack]:
    """Yield the stacks, with times that add up to at most `seconds` for each loop."""
    sums: dict[int, float] = {}
    for each in stacks:
        sums[each.loop] = sums.get(each.loop, 0.0) + each.seconds
    for each in stacks:
        if sums[each.loop] > seconds:
            share = seconds / sums[each.loop]
            each = each._replace(seconds=each.seconds * share, cpu=each.cpu * share)
        yield each


def profile() -> Profile:
    """Return a snapshot of the sampling profile of this process's loops."""
    return from_raw(snapshot())


def snapshot() -> Row:
    """Return a snapshot that json.dumps() can serialize and from_raw() reads."""
    raw: Row = {}
    if counts_here():
        raw = decode_json(_core._profile())
    raw["clock"] = time.monotonic()
    raw["time"] = time.time()
    raw["library"] = library_folders()
    return raw


def counts_here() -> bool:
    """Return true if the Go library is open, so that it may have samples."""
    if not native:
        return False
    return bool(_core.library_info()["mode"] != "unopened")


def busy_coroutines() -> dict[int, tuple[int, int]]:
    """Return the times of the coroutines of tasks, by address: nanoseconds, and CPU nanoseconds.

    There are at most 256: the coroutines that were sampled last.
    """
    if not counts_here():
        return {}
    text = _core._profile()
    # Only this part is parsed: the whole is long, and `goloop top` asks every second. No function's
    # name can contain this key.
    began = text.index('"tasks":{') + len('"tasks":')
    tasks: dict[str, tuple[int, int]] = decode_json(text[began : text.index("}", began) + 1])
    return {int(address): times for address, times in tasks.items()}


def library_folders() -> list[str]:
    """Return the folders of functions that are not the program's own."""
    # sysconfig's "stdlib" and "platstdlib": its get_path() imports a module of a megabyte.
    standard = os.path.dirname(getattr(os, "__file__", ""))
    name = os.path.basename(standard)
    paths = {standard, name and os.path.join(sys.exec_prefix, sys.platlibdir, name)}
    paths.add(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    return sorted(path.rstrip("/") + "/" for path in paths if path)


def from_raw(raw: Row) -> Profile:
    """Return the profile of a snapshot of this or another process.

    Raises LookupError or TypeError if `raw` is not a snapshot.
    """
    found: dict[tuple[int, str, tuple[Frame, ...]], list[float]] = {}
    for (loop, kind, frames), (*_, samples, wall, cpu) in zip(
        call_paths(raw), raw.get("calls") or (), strict=True
    ):
        if samples:
            sums = found.setdefault((loop, task_label(kind, frames), frames), [0.0, 0.0, 0.0])
            for index, value in enumerate((wall / 1e9, cpu / 1e9, samples)):
                sums[index] += value
    stacks = [
        ProfileStack(loop, task, frames, seconds, cpu, int(samples))
        for (loop, task, frames), (seconds, cpu, samples) in found.items()
    ]
    began = raw.get("began", 0) / 1e9
    return Profile(
        seconds=max(0.0, raw.get("clock", began) - began) if began else 0.0,
        samples=raw.get("samples", 0),
        stacks=_by_time(stacks),
        ended=raw.get("time") or time.time(),
        library=tuple(raw.get("library") or ()),
        clock=raw.get("clock", 0.0),
    )


def call_paths(raw: Row) -> list[tuple[int, int, tuple[Frame, ...]]]:
    """Return for each call in a snapshot the loop, the kind of its task, and its frames."""
    codes: list[tuple[str, str, int]] = raw.get("codes") or []
    calls: list[list[int]] = raw.get("calls") or []
    paths: list[tuple[int, int, tuple[Frame, ...]]] = []
    for parent, code, line, *_ in calls:
        loop, kind, frames = paths[parent] if parent < len(paths) else (0, 0, ())
        if code == _LOOP:
            loop = line
        elif code in (_TASK, _CALLBACK, _ITSELF):
            kind = code
        elif code == _UNKNOWN:
            frames = (*frames, Frame("?", "", 0))
        elif code >= _FIXED:
            frames = (*frames, Frame(codes[code][0], codes[code][1], line))
        paths.append((loop, kind, frames))
    return paths


def shares(raw: Row, number: int, seconds: float) -> tuple[tuple[float, Frame], ...]:
    """Return a loop's time by function in its current iteration, descending: (seconds, frame).

    `number` is the loop's, and `seconds` the iteration's duration up to now. The result is empty if
    the monitor has no samples of it.
    """
    for loop, began, seen in raw.get("now") or ():
        lasted = raw["clock"] - began / 1e9
        if loop == number and seen and abs(lasted - seconds) < 0.05 + 0.1 * seconds:
            break
    else:
        return ()
    paths, profile = call_paths(raw), Profile(0.0, 0, (), 0.0, tuple(raw.get("library") or ()))
    found: dict[tuple[str, str], tuple[float, Frame]] = {}
    # A sample represents the time from halfway to the previous one to halfway to the next one.
    at = [each[0] / 1e9 for each in seen]
    ends = [began / 1e9, *((a + b) / 2 for a, b in itertools.pairwise(at)), raw["clock"]]
    for index, (_, call, _) in enumerate(seen):
        frame = profile.own_frame(ProfileStack(loop, "", paths[call][2], 0.0, 0.0, 0))
        seconds_so_far, first = found.get(frame[:2], (0.0, frame))
        found[frame[:2]] = seconds_so_far + max(0.0, ends[index + 1] - ends[index]), first
    return tuple(sorted(found.values(), key=lambda each: -each[0]))


def task_label(kind: int, frames: tuple[Frame, ...]) -> str:
    """Return the text for the task or the callback of such frames."""
    if kind == _ITSELF or not frames:
        return ITSELF
    return frames[0].function if kind == _TASK else f"callback {frames[0].function}"
