"""Who has the loops' time: what the monitor has sampled of this process, by task and line.

The monitor takes the samples and Go counts them (pybridge/golib/profile.go), without the GIL.  Here
a snapshot of that becomes a `Profile`; profile_formats.py writes files of it.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import sysconfig
import time

from ..frames import Frame
from ..version import native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    # A snapshot, as JSON has it.
    Row = dict[str, Any]

# What a call is in the place of a function: pybridge/golib/profile.go.
_LOOP, _TASK, _CALLBACK, _ITSELF, _UNKNOWN, _FIXED = 1, 2, 3, 4, 5, 6

ITSELF = "(the loop)"
"""The task and the function of an entry in which no code of the program's ran."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProfileEntry:
    """The time of one function of the program's in one kind of task.  Since 0.3.0."""

    task: str
    """The coroutine of the task; `callback NAME` for a callback; "(the loop)" for the loop's own
    work, and its wait for the GIL."""
    function: str
    """The innermost function that belongs neither to the standard library nor to goloop; the
    innermost of all where there is none."""
    file: str
    """Its file."""
    line: int
    """Where most of its time was seen."""
    seconds: float
    """How long it had the loop."""
    cpu: float
    """How much of that on a processor, in seconds: the rest it waited, for the GIL perhaps."""
    samples: int
    """How many samples tell so."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProfileStack:
    """Calls in which a loop was seen.  Since 0.3.0."""

    loop: int
    """The loop's number in this process: the first has 1, as in the log."""
    task: str
    """As in `ProfileEntry`."""
    frames: tuple[Frame, ...]
    """The calls from the task's coroutine, or the callback, on; innermost last."""
    seconds: float
    """How long it had the loop, without what it called."""
    cpu: float
    """How much of that on a processor, in seconds."""
    samples: int
    """How many samples tell so."""


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """Who has had the time of this process's loops, as `goloop.profile()` tells.

    The difference of two of them is what has happened in between.  Since 0.3.0.
    """

    seconds: float
    """From the first sample to the snapshot, or between two snapshots."""
    samples: int
    """How many samples were taken of loops at work."""
    stacks: tuple[ProfileStack, ...]
    """The calls, those with the most time first."""
    ended: float
    """When the snapshot was taken, as time.time()."""
    library: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    """The folders of the standard library and of goloop, whose calls are no entries."""

    @property
    def busy(self) -> float:
        """Seconds that all loops had something to do."""
        return sum(each.seconds for each in self.stacks)

    @property
    def entries(self) -> tuple[ProfileEntry, ...]:
        """Who has had the time, the greatest first."""
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
        """The call that an entry names for these calls."""
        for frame in reversed(stack.frames):
            if not self._is_library(frame.file):
                return frame
        return stack.frames[-1] if stack.frames else Frame(ITSELF, "", 0)

    def _is_library(self, file: str) -> bool:
        if file.startswith("<frozen "):
            return True
        if not self.library:
            return _OF_LIBRARY.search(file) is not None
        return file.startswith(self.library) and not _INSTALLED.search(file)

    def __sub__(self, earlier: Profile) -> Profile:
        if not isinstance(earlier, Profile):
            return NotImplemented
        before = {(each.loop, each.task, each.frames): each for each in earlier.stacks}
        stacks = []
        for each in self.stacks:
            was = before.get((each.loop, each.task, each.frames))
            if was is not None and was.samples <= each.samples:
                each = dataclasses.replace(
                    each,
                    seconds=max(0.0, each.seconds - was.seconds),
                    cpu=max(0.0, each.cpu - was.cpu),
                    samples=each.samples - was.samples,
                )
            if each.samples:
                stacks.append(each)
        return Profile(
            seconds=max(0.0, self.ended - earlier.ended),
            samples=max(0, self.samples - earlier.samples),
            stacks=_sorted(stacks),
            ended=self.ended,
            library=self.library,
        )

    def folded(self) -> str:
        """The stacks as flamegraph.pl and speedscope read them: a line each, with microseconds."""
        from .profile_formats import folded

        return folded(self)

    def pprof(self) -> bytes:
        """The profile for `go tool pprof` and whatever else reads that format, compressed."""
        from .profile_formats import pprof

        return pprof(self)

    def flame_graph(self, title: str = "goloop") -> str:
        """A flame graph as one SVG file that needs nothing else.

        In a browser a click makes a call as wide as the picture.
        """
        from .profile_formats import flame_graph

        return flame_graph(self, title)

    def __str__(self) -> str:
        from .profile_formats import table

        return table(self)


_OF_LIBRARY = re.compile(
    r"/lib/python3[^/]*/(?!(site|dist)-packages/)|/goloop/(_internal|operations|testing)/"
)
_INSTALLED = re.compile(r"/(site|dist)-packages/(?!goloop/)")


def _sorted(stacks: Iterable[ProfileStack]) -> tuple[ProfileStack, ...]:
    return tuple(sorted(stacks, key=lambda each: -each.seconds))


def profile() -> Profile:
    """A snapshot of this process's profile."""
    return from_raw(snapshot())


def snapshot() -> Row:
    """What from_raw() reads, for json.dumps()."""
    raw: Row = {}
    if counts_here():
        from ... import _core

        raw = json.loads(_core._profile())
    raw["clock"] = time.monotonic()
    raw["time"] = time.time()
    raw["library"] = library_folders()
    return raw


def counts_here() -> bool:
    """Whether the Go library is open, so that it may know something."""
    if not native:
        return False
    from ... import _core

    return bool(_core.library_info()["mode"] != "unopened")


def busy_coroutines() -> dict[int, tuple[int, int]]:
    """How long the coroutines of tasks had their loop, by address: ns, and of that on a processor.

    At most 256, those that were seen last.
    """
    if not counts_here():
        return {}
    from ... import _core

    text = _core._profile()
    # The whole is long, and this is asked second by second.  No name can look like this key.
    began = text.index('"tasks":{') + len('"tasks":')
    tasks: dict[str, tuple[int, int]] = json.loads(text[began : text.index("}", began) + 1])
    return {int(address): times for address, times in tasks.items()}


def library_folders() -> list[str]:
    """The folders whose functions are none of the program's own."""
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    paths.add(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    return sorted(path.rstrip("/") + "/" for path in paths if path)


def from_raw(raw: Row) -> Profile:
    """The snapshot that another process has given, or this one; raises LookupError or TypeError for
    what is none."""
    found: dict[tuple[int, str, tuple[Frame, ...]], list[float]] = {}
    for (loop, kind, frames), (*_, samples, wall, cpu) in zip(
        _paths(raw), raw.get("calls") or (), strict=True
    ):
        if samples:
            sums = found.setdefault((loop, task_of(kind, frames), frames), [0.0, 0.0, 0.0])
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
        stacks=_sorted(stacks),
        ended=raw.get("time") or time.time(),
        library=tuple(raw.get("library") or ()),
    )


def _paths(raw: Row) -> list[tuple[int, int, tuple[Frame, ...]]]:
    """Of each call in a snapshot: the loop, the kind of its task, and its frames."""
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
    """What a loop did in its present iteration, which has lasted so long: seconds and the function,
    the greatest first.  Empty where the monitor did not look."""
    for loop, began, seen in raw.get("now") or ():
        lasted = raw["clock"] - began / 1e9
        if loop == number and seen and abs(lasted - seconds) < 0.05 + 0.1 * seconds:
            break
    else:
        return ()
    paths, profile = _paths(raw), Profile(0.0, 0, (), 0.0, tuple(raw.get("library") or ()))
    found: dict[tuple[str, str], tuple[float, Frame]] = {}
    # A look stands for the time from halfway to the one before to halfway to the next.
    at = [each[0] / 1e9 for each in seen]
    ends = [began / 1e9, *((a + b) / 2 for a, b in itertools.pairwise(at)), raw["clock"]]
    for index, (_, call, _) in enumerate(seen):
        frame = profile.own_frame(ProfileStack(loop, "", paths[call][2], 0.0, 0.0, 0))
        had, first = found.get(frame[:2], (0.0, frame))
        found[frame[:2]] = had + max(0.0, ends[index + 1] - ends[index]), first
    return tuple(sorted(found.values(), key=lambda each: -each[0]))


def task_of(kind: int, frames: tuple[Frame, ...]) -> str:
    """What an entry says of such frames."""
    if kind == _ITSELF or not frames:
        return ITSELF
    return frames[0].function if kind == _TASK else f"callback {frames[0].function}"
