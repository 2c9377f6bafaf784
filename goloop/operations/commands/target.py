"""A process that `top` observes: converts its answers to reports for --json and for the view.

The observed program keeps no state for `top`.  This module stores the previous metrics, for
differences, and the time at which each task was first seen at its current line.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import struct
import time

from .client import NoAnswer, NoSocketYet, Question, children_with_loops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..._internal.observe.metrics import Metrics
    from ..snapshot import Row

# Maximum rows of each loop.
TASKS = 500
CONNECTIONS = 200
# The seconds over which a task's share of its loop is computed; one second has too few samples.
SHARE_SECONDS = 10.0


class WatchedProcess:
    """A process that is requested repeatedly, with the state between its answers."""

    def __init__(self, pid: int) -> None:
        """Create the state for a process; no request is sent."""
        self.pid = pid
        self.question: Question | None = None
        self.asked = 0.0
        self.error = ""
        # True from a request that failed because the process had not imported goloop, until one
        # succeeds: the socket does not open at the same time as the import begins.
        self.starting = False
        self.report: Row | None = None
        self._facts: Row = {}
        # The loop's id by its number in reports; the monitor knows the number only.
        self._ids: dict[int, int] = {}
        # The loop's raw metrics and their time, by the loop's id.
        self._before: dict[int, tuple[Row, float]] = {}
        # The task's position and the time at which it was first seen there, by loop id and mark.
        self._seen: dict[tuple[int, int], tuple[Any, float]] = {}
        # By the same key: times of answers, with the task's time in the loop and on a CPU, in ns.
        self._busy: dict[tuple[int, int], list[tuple[float, int, int]]] = {}

    def ask(self) -> None:
        """Send a request for a snapshot, unless one is pending; a failure is stored in `error`."""
        if self.question is not None:
            return
        self.asked = time.monotonic()
        try:
            self.question = Question(self.pid, ask="top", tasks=TASKS, connections=CONNECTIONS)
        except NoAnswer as reason:
            self.error = str(reason)
            self.starting |= isinstance(reason, NoSocketYet)
        else:
            self.starting = False

    def advance(self) -> bool:
        """Receive data; return true if no request is pending afterwards.

        A finished request sets `report`, or `error` if it has failed.
        """
        if self.question is None:
            return True
        try:
            answer = self.question.advance()
            if answer is None:
                return False
            if "loops" not in answer:
                raise NoAnswer(f"process {self.pid}: its answer has no loops")
            try:
                self.report = self._make_report(answer, time.monotonic())
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise NoAnswer(f"process {self.pid}: its answer is invalid ({error!r})") from None
            self.error = ""
        except NoAnswer as reason:
            self.error = str(reason)
        self.give_up()
        return True

    def give_up(self) -> None:
        """Abandon the pending request."""
        if self.question is not None:
            self.question.close()
            self.question = None

    def latest(self) -> Row:
        """Return the latest report; {"pid", "error"} if the latest request failed or none ended."""
        if self.error or self.report is None:
            return {"pid": self.pid, "error": self.error or "no answer yet"}
        return self.report

    def _make_report(self, answer: Row, now: float) -> Row:
        """Return the report of an answer, and store the state for the next one.

        `now` is the monotonic time in seconds. An invalid answer raises LookupError, TypeError,
        ValueError or AttributeError.
        """
        partial = bool(answer.get("partial"))
        facts = {name: answer[name] for name in _FACTS if name in answer}
        self._facts = {**self._facts, **facts}
        if "program" not in self._facts:
            self._facts["program"] = " ".join(command_line(self.pid))
        loops = answer["loops"]
        report = {"pid": self.pid, **self._facts, "partial": partial}
        report["loops"] = [self._loop_report(loop, index, now) for index, loop in enumerate(loops)]
        if not loops:
            report["children"] = children_with_loops(self.pid)
        if not partial:
            ids = {loop["id"] for loop in loops}
            self._ids = {loop["number"]: loop["id"] for loop in loops if "number" in loop}
            self._before = {key: value for key, value in self._before.items() if key in ids}
            marks = {(loop["id"], _task_number(row)) for loop in loops for row in loop["tasks"]}
            self._seen = {key: value for key, value in self._seen.items() if key in marks}
            self._busy = {key: value for key, value in self._busy.items() if key in marks}
        return report

    def _loop_report(self, loop: Row, index: int, now: float) -> Row:
        """Return the report of the loop at position `index` of an answer; store its metrics.

        Values that the monitor's answer lacks are those of the previous answer.
        """
        key = loop.get("id")
        if key is None:  # an answer of the monitor, which does not know the id
            key = next(iter(self._before)) if len(self._before) == 1 else index
            key = self._ids.get(loop.get("number", 0), key)
        metrics: Row | None = None
        if loop.get("metrics") is not None:
            before = self._before.get(key)
            raw = {**(before[0] if before else {}), **loop["metrics"]}
            clock = loop.get("clock", now)
            self._before[key] = raw, clock
            metrics = _interval_metrics(raw, clock, before, self._facts.get("uptime", 0.0))
        blocked_for = loop.get("blocked_for") or (metrics or {}).get("blocked_for", 0.0)
        if metrics is not None:
            del metrics["blocked_for"]
            if blocked_for:
                share = min(blocked_for, metrics["seconds"]) / (metrics["seconds"] or 1.0)
                metrics["utilization"] = max(metrics["utilization"], share)
        tasks = [self._task_report(row, loop, key, now) for row in loop.get("tasks") or ()]
        for share in ("loop_share", "cpu_share"):
            _limit_sum(tasks, share)
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
            "tasks": tasks,
            "connections": loop.get("connections") or [],
        }

    def _task_report(self, row: Row, loop: Row, key: int, now: float) -> Row:
        """Return the report of a task, and store since when it has been at its place.

        `key` is its loop's id, `row` the task in the answer.
        """
        stack = row["stack"]
        current = row["id"] == loop.get("current")
        # A running task is at the same place only within the same iteration.
        moves = loop["metrics"].get("iterations") if current and loop.get("metrics") else None
        here = (stack[0] if stack else None, row.get("wait"), row["name"], moves)
        place, since = self._seen.get((key, _task_number(row)), (None, now))
        if place != here:
            since = now
        self._seen[key, _task_number(row)] = here, since
        share, cpu = self._shares(row, key, loop.get("clock", now))
        return {
            "id": row["id"],
            "mark": _task_number(row),
            "name": row["name"],
            "current": current,
            "seen": now - since,
            "loop_share": share,
            "cpu_share": cpu,
            "stack": stack,
            "awaiters": [awaiter["name"] for awaiter in row["awaiters"]],
        }

    def _shares(self, row: Row, key: int, clock: float) -> tuple[float | None, float | None]:
        """Return a task's shares of its loop's time and of CPU time in the last SHARE_SECONDS.

        (None, None) means that they are unknown. `clock` is the time of the answer in seconds.
        """
        if "busy" not in row:
            return None, None
        samples = self._busy.setdefault((key, _task_number(row)), [])
        samples.append((clock, *row["busy"]))
        while len(samples) > 2 and samples[1][0] < clock - SHARE_SECONDS:
            del samples[0]
        began, wall, cpu = samples[0]
        seconds = clock - began
        if seconds <= 0 or row["busy"][0] < wall:
            del samples[:-1]  # another coroutine has the same address now
            return None, None
        wall, cpu = row["busy"][0] - wall, row["busy"][1] - cpu
        return min(1.0, wall / 1e9 / seconds), min(1.0, max(0, cpu) / 1e9 / seconds)


# Fields of a loop that are missing in the monitor's answers.
_UNKNOWN = ("thread", "native_id", "running", "task_count", "tasks", "connections")


def without_unknown_fields(report: Row) -> Row:
    """Return a report for --json, without the fields that a partial answer does not have.

    The view shows zeros for them.
    """
    if "loops" not in report:
        return report
    loops = []
    for each in report["loops"]:
        loop = {name: value for name, value in each.items() if name != "known"}
        if report["partial"]:
            for name in _UNKNOWN:
                del loop[name]
            for name in ("interval", "metrics"):
                values = loop.get(name) or {}
                loop[name] = {key: values[key] for key in values if key in each["known"]} or None
        loops.append(loop)
    return {**report, "loops": loops}


def _limit_sum(tasks: list[Row], name: str) -> None:
    """Reduce the shares of a loop's tasks if they add up to more than 1.

    A task's first sample stands for a time that began before the interval.
    """
    whole = sum(task[name] or 0.0 for task in tasks)
    if whole > 1:
        for task in tasks:
            if task[name] is not None:
                task[name] /= whole


_FACTS = ("program", "python", "goloop", "uptime")


def _task_number(row: Row) -> int:
    """Return the number that identifies a task; older versions of goloop send only its id."""
    return int(row.get("mark") or row["id"])


def _interval_metrics(
    raw: Row, clock: float, before: tuple[Row, float] | None, uptime: float
) -> Row | None:
    """Return metrics, and their difference to the previous ones; None if `raw` is invalid.

    Without comparable previous ones the difference is since the start of the loop ("since_start"),
    whose age is estimated by `uptime`, the age of the process.
    """
    # Imported here, because the module needs goloop's own loop.
    from ..._internal.observe.histogram import Histogram

    try:
        now = metrics_of(raw)
        earlier = metrics_of(before[0]) if before is not None else None
    except (ValueError, TypeError, struct.error):
        return None
    # The loop's age is at most the age of the process, and at least the time that it has counted.
    seconds, since_start = max(uptime, now.time_busy + now.time_idle), True
    interval = now
    if before is not None and earlier is not None and now.turns >= earlier.turns:
        interval, seconds, since_start = now - earlier, clock - before[1], False
    result: Row = {
        "seconds": seconds,
        "since_start": since_start,
        # The clock was read before the metrics, so the ratio may exceed 1.
        "utilization": min(1.0, interval.time_busy / seconds) if seconds > 0 else 0.0,
        "blocked_for": now.blocked_for,
    }
    for name, several in (("interval", interval), ("metrics", now)):
        result[name] = {}
        for field in dataclasses.fields(several):
            value = getattr(several, field.name)
            result[name][field.name] = (
                _percentiles(value) if isinstance(value, Histogram) else value
            )
    return result


def metrics_of(raw: Row) -> Metrics:
    """Return the metrics of an answer, without unknown fields.

    Raises ValueError, TypeError or struct.error for invalid values.
    """
    from ..._internal.observe import metrics as metrics_module

    known = {field.name for field in dataclasses.fields(metrics_module.Metrics)}
    return metrics_module.from_raw(
        {
            name: base64.b64decode(value) if isinstance(value, str) else value
            for name, value in raw.items()
            if name in known and value != ""  # an empty histogram
        }
    )


def _percentiles(histogram: Any) -> Row:
    """Return a histogram's values for --json."""
    return {
        "count": histogram.count,
        "sum": histogram.sum,
        "p50": histogram.percentile(50),
        "p99": histogram.percentile(99),
        # The maximum of this interval; `histogram.max` is the maximum since the start.
        "max": histogram.percentile(100),
    }


def command_line(pid: int) -> list[str]:
    """Return the command line of a process, or its title; [] if the system has none."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read().decode(errors="replace").rstrip("\0")
        return words.split("\0") if words else []
    return []
