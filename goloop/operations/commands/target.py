"""A process that `top` watches: answers become reports, which --json prints and the view shows.

Between two answers is remembered here what the program need not: the figures, of which a report
has the difference, and since when each task was seen at its place.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import struct
import time

from .client import NoAnswer, Question

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..._internal.metrics.metrics import Metrics
    from ..snapshot import Row

# Of each loop.
TASKS = 500
CONNECTIONS = 200
# Over how many seconds a task's share of its loop is taken: in one there are few samples.
SHARE_SECONDS = 10.0


class Watched:
    """A process that is asked again and again, and what is remembered of it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.question: Question | None = None
        self.asked = 0.0
        self.error = ""
        self.report: Row | None = None
        self._facts: Row = {}
        # By the loop's number in reports, which the monitor knows too: its id.
        self._ids: dict[int, int] = {}
        # By the loop's id: its raw figures and when they were taken.
        self._before: dict[int, tuple[Row, float]] = {}
        # By the task's mark: where it stood, and since when it was seen there.
        self._seen: dict[tuple[int, int], tuple[Any, float]] = {}
        # By the same: when the loop told how long it had the loop, and a processor, in ns.
        self._busy: dict[tuple[int, int], list[tuple[float, int, int]]] = {}

    def ask(self) -> None:
        """Ask, unless an answer is due anyway."""
        if self.question is not None:
            return
        self.asked = time.monotonic()
        try:
            self.question = Question(self.pid, ask="top", tasks=TASKS, connections=CONNECTIONS)
        except NoAnswer as reason:
            self.error = str(reason)

    def advance(self) -> bool:
        """Whether the question has been answered, or never will be."""
        if self.question is None:
            return True
        try:
            answer = self.question.advance()
            if answer is None:
                return False
            if "loops" not in answer:
                raise NoAnswer(
                    f"process {self.pid} runs a goloop that answers only ps and pstree: its "
                    "version is too old"
                )
            try:
                self.report = self._taken(answer, time.monotonic())
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise NoAnswer(
                    f"process {self.pid} answers what is not understood here ({error!r})"
                ) from None
            self.error = ""
        except NoAnswer as reason:
            self.error = str(reason)
        self.give_up()
        return True

    def give_up(self) -> None:
        """Wait for no answer any more."""
        if self.question is not None:
            self.question.close()
            self.question = None

    def told(self) -> Row:
        """The report of the last refresh, or its error."""
        if self.error or self.report is None:
            return {"pid": self.pid, "error": self.error or "no answer yet"}
        return self.report

    def _taken(self, answer: Row, now: float) -> Row:
        partial = bool(answer.get("partial"))
        facts = {name: answer[name] for name in _FACTS if name in answer}
        self._facts = {**self._facts, **facts}
        if "program" not in self._facts:
            self._facts["program"] = " ".join(command_line(self.pid))
        loops = answer["loops"]
        report = {"pid": self.pid, **self._facts, "partial": partial}
        report["loops"] = [self._loop(loop, index, now) for index, loop in enumerate(loops)]
        if not partial:
            ids = {loop["id"] for loop in loops}
            self._ids = {loop["number"]: loop["id"] for loop in loops if "number" in loop}
            self._before = {key: kept for key, kept in self._before.items() if key in ids}
            marks = {(loop["id"], _mark(row)) for loop in loops for row in loop["tasks"]}
            self._seen = {key: kept for key, kept in self._seen.items() if key in marks}
            self._busy = {key: kept for key, kept in self._busy.items() if key in marks}
        return report

    def _loop(self, loop: Row, index: int, now: float) -> Row:
        key = loop.get("id")
        if key is None:  # the monitor does not know the id
            key = next(iter(self._before)) if len(self._before) == 1 else index
            key = self._ids.get(loop.get("number", 0), key)
        metrics: Row | None = None
        if loop.get("metrics") is not None:
            before = self._before.get(key)
            raw = {**(before[0] if before else {}), **loop["metrics"]}
            clock = loop.get("clock", now)
            self._before[key] = raw, clock
            metrics = _figures(raw, clock, before, self._facts.get("uptime", 0.0))
        blocked_for = loop.get("blocked_for") or (metrics or {}).get("blocked_for", 0.0)
        if metrics is not None:
            del metrics["blocked_for"]
            if blocked_for:
                share = min(blocked_for, metrics["seconds"]) / (metrics["seconds"] or 1.0)
                metrics["utilization"] = max(metrics["utilization"], share)
        return {
            "id": key,
            "thread": loop.get("thread", ""),
            "native_id": loop.get("native_id", 0),
            "running": loop.get("running", True),
            "blocked_for": blocked_for,
            **(metrics or {"metrics": None}),
            "known": set(loop.get("metrics") or ()),
            "stack": loop.get("stack") or [],
            "task_count": loop.get("task_count", 0),
            "tasks": [self._task(row, loop, key, now) for row in loop.get("tasks") or ()],
            "connections": loop.get("connections") or [],
        }

    def _task(self, row: Row, loop: Row, key: int, now: float) -> Row:
        stack = row["stack"]
        current = row["id"] == loop.get("current")
        # A task that runs is in the midst of one iteration, else it has left the place.
        moves = loop["metrics"].get("iterations") if current and loop.get("metrics") else None
        here = (stack[0] if stack else None, row.get("wait"), row["name"], moves)
        place, since = self._seen.get((key, _mark(row)), (None, now))
        if place != here:
            since = now
        self._seen[key, _mark(row)] = here, since
        share, cpu = self._shares(row, key, loop.get("clock", now))
        return {
            "id": row["id"],
            "mark": _mark(row),
            "name": row["name"],
            "current": current,
            "seen": now - since,
            "loop_share": share,
            "cpu_share": cpu,
            "stack": stack,
            "awaiters": [awaiter["name"] for awaiter in row["awaiters"]],
        }

    def _shares(self, row: Row, key: int, clock: float) -> tuple[float | None, float | None]:
        """Which part of the last seconds the task had its loop, and was on a processor."""
        if "busy" not in row:
            return None, None  # an older goloop
        told = self._busy.setdefault((key, _mark(row)), [])
        told.append((clock, *row["busy"]))
        while len(told) > 2 and told[1][0] < clock - SHARE_SECONDS:
            del told[0]
        began, wall, cpu = told[0]
        seconds = clock - began
        if seconds <= 0 or row["busy"][0] < wall:
            del told[:-1]  # another coroutine lies where this one was forgotten
            return None, None
        wall, cpu = row["busy"][0] - wall, row["busy"][1] - cpu
        return min(1.0, wall / 1e9 / seconds), min(1.0, max(0, cpu) / 1e9 / seconds)


# What the monitor does not know of a loop.
_UNKNOWN = ("thread", "native_id", "running", "task_count", "tasks", "connections")


def for_scripts(report: Row) -> Row:
    """A report without what a partial answer has not told, for which the view has zeros."""
    if "loops" not in report:
        return report
    loops = []
    for each in report["loops"]:
        loop = {name: value for name, value in each.items() if name != "known"}
        if report["partial"]:
            for name in _UNKNOWN:
                del loop[name]
            for name in ("interval", "metrics"):
                figures = loop.get(name) or {}
                loop[name] = {key: figures[key] for key in figures if key in each["known"]} or None
        loops.append(loop)
    return {**report, "loops": loops}


_FACTS = ("program", "python", "goloop", "uptime")


def _mark(row: Row) -> int:
    return int(row.get("mark") or row["id"])


def _figures(raw: Row, clock: float, before: tuple[Row, float] | None, uptime: float) -> Row | None:
    """The figures and what has come since; None where they are not of a kind known here."""
    # Where goloop's own loop can't be had, neither can these.
    from ..._internal.metrics.histogram import Histogram

    try:
        now = metrics_of(raw)
        earlier = metrics_of(before[0]) if before is not None else None
    except (ValueError, TypeError, struct.error):
        return None
    # How old the loop is, it does not tell: no older than its process, and no younger than what
    # it has counted.
    seconds, since_start = max(uptime, now.time_busy + now.time_idle), True
    interval = now
    if before is not None and earlier is not None and now.turns >= earlier.turns:
        interval, seconds, since_start = now - earlier, clock - before[1], False
    told: Row = {
        "seconds": seconds,
        "since_start": since_start,
        # The clock is read before the figures.
        "utilization": min(1.0, interval.time_busy / seconds) if seconds > 0 else 0.0,
        "blocked_for": now.blocked_for,
    }
    for name, several in (("interval", interval), ("metrics", now)):
        told[name] = {}
        for field in dataclasses.fields(several):
            value = getattr(several, field.name)
            told[name][field.name] = _spread(value) if isinstance(value, Histogram) else value
    return told


def metrics_of(raw: Row) -> Metrics:
    """The figures that an answer has, those that are known here.

    Raises ValueError, TypeError or struct.error for what is not of a known kind.
    """
    from ..._internal.metrics import metrics as metrics_module

    known = {field.name for field in dataclasses.fields(metrics_module.Metrics)}
    return metrics_module.from_raw(
        {
            name: base64.b64decode(value) if isinstance(value, str) else value
            for name, value in raw.items()
            if name in known and value != ""  # a histogram of nothing
        }
    )


def _spread(histogram: Any) -> Row:
    return {
        "count": histogram.count,
        "sum": histogram.sum,
        "p50": histogram.percentile(50),
        "p99": histogram.percentile(99),
        # Of these values: `histogram.max` is that of all times.
        "max": histogram.percentile(100),
    }


def command_line(pid: int) -> list[str]:
    """The words that a process was started with, or its title; [] where the system tells none."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read().decode(errors="replace").rstrip("\0")
        return words.split("\0") if words else []
    return []
