"""The view of `top`: formats reports (target.py) as lines (terminal.py)."""

from __future__ import annotations

import re

from ..._internal.tasks.call_graph import library_of
from .client import GIL_HELD, describe_no_loop
from .terminal import Terminal, pad, printable, width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ..._internal.tasks.call_graph import Frame
    from ..snapshot import Row
    from .terminal import Line

ORDERS = {
    "time": "time at the same line",
    "age": "age",
    "name": "name",
    "share": "share of the loop",
}

_BOLD, _DIM, _RED, _GREEN, _YELLOW, _HEAD = "1", "2", "31", "32", "33", "7"


def format_count(value: float) -> str:
    """Return a count or a rate in few characters, such as 12.3k."""
    if value < 10 and value != int(value):
        return f"{value:.1f}"
    return f"{value:.0f}" if value < 9999.5 else _with_prefix(value, ("", "k", "M", "G"))


def format_bytes(value: float) -> str:
    """Return a number of bytes in few characters, such as 1.5 MB."""
    return (
        f"{value:.0f} B"
        if value < 999.5
        else _with_prefix(value, (" B", " kB", " MB", " GB", " TB"))
    )


def format_duration(seconds: float) -> str:
    """Return a duration in few characters, such as 2.5 ms or 3 h 20 min."""
    if seconds <= 0:
        return "0"
    if seconds < 0.9995:
        return _with_prefix(seconds * 1e9, (" ns", " µs", " ms"))
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days} d {hours % 24} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {int(seconds % 60)} s"


def _with_prefix(value: float, units: tuple[str, ...]) -> str:
    """Return a value with the first of `units` in which it is below 1000."""
    power = 0
    while value >= 999.5 and power + 1 < len(units):
        value /= 1000
        power += 1
    return f"{value:.1f}{units[power]}" if value < 99.95 else f"{value:.0f}{units[power]}"


def format_frame(frame: Frame) -> str:
    """Return a frame as text: the function, the last two parts of the file's path, the line."""
    name, file, line = frame
    if not file:
        return name
    return f"{name} {'/'.join(file.split('/')[-2:]).lstrip('/')}:{line}"


def _own_frames(stack: list[Frame]) -> list[Frame]:
    """Return the innermost frame, and the frames of the program's own code that called it."""
    own = [frame for frame in stack[1:] if library_of(frame[1]) is None]
    return stack[:1] + (own or stack[1:])


class View:
    """Formats reports for a number of columns and rows; None: unlimited."""

    def __init__(self, terminal: Terminal, columns: int | None, rows: int | None) -> None:
        """Create a view that is not scrolled, with the tasks in the order "time"."""
        self._terminal = terminal
        self._columns = columns
        self._rows = rows
        self.order = "time"
        # Number of lines scrolled out above the screen.  At 0 both tables get a part of the screen.
        self.above = 0

    def resize(self, columns: int, rows: int) -> None:
        """Set the new size of the terminal."""
        self._columns, self._rows = columns, rows

    def scroll(self, key: str) -> None:
        """Scroll for a key: by a line, by a page, or to the first or last line."""
        page = max(1, (self._rows or 2) - 2)
        steps = {"k": -1, "j": 1, "b": -page, " ": page, "g": -(1 << 30), "G": 1 << 30}
        self.above = max(0, self.above + steps.get(key, 0))

    def lines(self, reports: list[Row], waited: dict[int, float], foot: str = "") -> list[Line]:
        """Return all lines, or the lines of the screen if the number of rows is limited.

        `waited` has the seconds for which an answer is overdue, by process id.
        """
        rows = self._rows
        whole = self._document(reports, waited, None)
        if rows is None:
            return whole
        room = rows - bool(foot)
        self.above = min(self.above, max(0, len(whole) - room))
        found = whole[self.above :]
        if self.above == 0 and len(whole) > room:
            found = self._document(reports, waited, room)
        if foot:
            if len(whole) > room:
                foot += "   ↑↓ scroll" if self._terminal.encodes("↑↓") else "   j k scroll"
            found = found[: rows - 1]
            found += [[]] * (rows - 1 - len(found))
            found.append([(foot, _DIM)])
        return found

    def _document(
        self, reports: list[Row], waited: dict[int, float], room: int | None
    ) -> list[Line]:
        """Return all lines, or shortened sections that fit into `room` lines."""
        several = len(reports) > 1
        # On a screen several loops get one line each.
        count = sum(len(report.get("loops", ())) for report in reports)
        short = self._rows is not None and count > 1
        found: list[Line] = [] if reports else [[("there is no program to show", _YELLOW)]]
        for report in reports:
            if "error" in report:
                found.append([(report["error"], _RED)])
                continue
            found += self._head(report, waited.get(report["pid"], 0.0))
            if short:
                ordered = sorted(report["loops"], key=lambda loop: _natural_key(loop["thread"]))
                loops = [self._one_line(loop, report) for loop in ordered]
                most = max(1, room // 2 // len(reports)) if room is not None else len(loops)
                if len(loops) > most:
                    loops[most - 1 :] = [[[(f"  ... {len(loops) - most + 1} more loops", _DIM)]]]
            else:
                loops = [self._loop(loop, report, several) for loop in report["loops"]]
            found += [line for lines in loops for line in lines]
            if not report["loops"]:
                style = _YELLOW if report["children"] else _DIM
                lines = describe_no_loop(report["children"])
                found += [[(f"  {line}", style)] for line in lines]
            if not several:
                found.append([])
        if several:
            found.append([])
        left = None if room is None else room - len(found)
        found += self._tables([report for report in reports if "error" not in report], left)
        return found

    # ---- a process and its loops

    def _head(self, report: Row, waited: float) -> list[Line]:
        """Return the first lines for a process: its program, versions and uptime, and its state.

        `waited` is the time in seconds since a request without an answer, or 0.
        """
        facts = [f"pid {report['pid']}"]
        facts += [f"Python {report['python']}"] if "python" in report else []
        facts += [f"goloop {report['goloop']}"] if "goloop" in report else []
        facts += [f"up {format_duration(report['uptime'])}"] if "uptime" in report else []
        program = printable(report["program"]) or "?"
        if self._columns is not None:
            while len(facts) > 1 and width("  ".join(facts)) + 14 > self._columns:
                facts.pop()
            room = self._columns - width("  ".join(facts)) - 2
            program = pad(program, max(0, room), self._terminal.ellipsis)
        lines: list[Line] = [[(program, _BOLD), ("  ", ""), ("  ".join(facts), "")]]
        if report["partial"]:
            lines.append([(f"  {GIL_HELD}", _RED)])
        elif waited:
            why = "its GIL is held, or it is stopped"
            lines.append([(f"  no answer for {format_duration(waited)}: {why}", _YELLOW)])
        return lines

    def _title(self, loop: Row, partial: bool) -> Line:
        """Return the words "loop" and the loop's thread, or that it does not run."""
        words = f"{loop['thread']} {loop['native_id'] or ''}".strip() or "?"
        if not loop["running"] and not partial:
            words = "not running"
        return [("  loop ", _DIM), (words, "")]

    def _one_line(self, loop: Row, report: Row) -> list[Line]:
        """Return one line for a loop, for screens with several loops."""
        partial = report["partial"]
        title = self._title(loop, partial)
        items: list[Line] = []
        if loop["blocked_for"]:
            where = f" in {format_frame(loop['stack'][0])}" if loop["stack"] else ""
            items.append([(f"blocked for {format_duration(loop['blocked_for'])}{where}", _RED)])
        if loop["metrics"] is None:
            items.append([(f"{loop['task_count']} tasks", "")])
        else:
            title += [("  ", ""), *self._bar(loop["utilization"])]
            groups = self._groups(loop)
            waited = format_duration(loop["interval"]["ready_wait"]["p99"])
            late: Line = [("ready wait p99 ", _DIM), (waited, "")]
            known = [groups["pace"][0], late, *groups["load"], *groups["bytes"]]
            items += groups["bytes"] if partial else known
        return self._wrap([title, *items])[:1]

    def _loop(self, loop: Row, report: Row, brief: bool) -> list[Line]:
        """Return the lines of a loop's metrics; `brief`: as few lines as possible."""
        partial = report["partial"]
        title = self._title(loop, partial)
        lines: list[Line] = []
        if loop["metrics"] is None:
            lines += self._wrap([title, [(f"{loop['task_count']} tasks", "")]])
        else:
            title += [("  ", ""), *self._bar(loop["utilization"])]
            groups = self._groups(loop)
            if partial:  # the monitor knows no other metrics
                lines += self._wrap([title, *groups["pace"][1:]])
                lines += self._wrap(groups["lag"], "    ")
                lines += self._wrap(groups["network"][:1] + groups["bytes"], "    ")
            elif brief:
                waited = format_duration(loop["interval"]["ready_wait"]["p99"])
                short: list[Line] = [groups["pace"][0], [("ready wait p99 ", _DIM), (waited, "")]]
                lines += self._wrap([title, *short, *groups["load"], *groups["bytes"]])
            else:
                lines += self._wrap([title, *groups["pace"]])
                lines += self._wrap(groups["lag"], "    ")
                lines += self._wrap(groups["queues"] + groups["load"], "    ")
                lines += self._wrap(groups["network"] + groups["bytes"], "    ")
                lines += self._wrap(groups["rare"], "    ")
        if loop["blocked_for"]:
            lines += self._blocked(loop)
        return lines

    def _bar(self, share: float) -> Line:
        """Return a bar for a share from 0.0 to 1.0, with its percentage."""
        full, empty = self._terminal.bar
        cells = 12 if self._columns is not None and self._columns < 110 else 20
        filled = min(cells, round(share * cells))
        if share > 0.8:
            colour = _RED
        elif share > 0.5:
            colour = _YELLOW
        else:
            colour = _GREEN
        return [(full * filled, colour), (empty * (cells - filled), _DIM), (f" {share:4.0%}", "")]

    def _groups(self, loop: Row) -> dict[str, list[Line]]:
        """Return a loop's metrics as items by group, such as "pace" and "lag"."""
        interval, now = loop["interval"], loop["metrics"]
        seconds = loop["seconds"] or 1.0

        def rate(name: str) -> float:
            """Return a counter's increase per second."""
            return float(interval[name] / seconds)

        def percentiles(name: str) -> str:
            """Return a histogram's median, 99th percentile and maximum as text."""
            several = interval[name]
            return " / ".join(format_duration(several[which]) for which in ("p50", "p99", "max"))

        def item(label: str, value: str, style: str = "") -> Line:
            """Return a label and its value."""
            return [(f"{label} ", _DIM), (value, style)]

        over = "since the start" if loop["since_start"] else f"over {seconds:.1f} s"
        groups: dict[str, list[Line]] = {
            "pace": [
                [(f"{format_count(rate('iterations'))} iterations/s", "")],
                item("iteration p99", format_duration(interval["iteration_time"]["p99"])),
                [(over, _DIM)],
            ],
            "lag": [
                item("ready wait", percentiles("ready_wait")),
                item("timer delay", percentiles("timer_lateness")),
                [("p50/p99/max", _DIM)],
            ],
            "queues": [
                item("ready", format_count(now["ready"])),
                item("timers", format_count(now["timers"])),
            ],
            "load": [
                item("tasks", format_count(now["tasks"])),
                item("connections", format_count(now["connections_open"])),
            ],
            "network": [
                item("accepted", f"{format_count(rate('connections_accepted'))}/s"),
                item("write buffers", format_bytes(now["write_buffer_bytes"])),
            ],
            "bytes": [
                item("in", f"{format_bytes(rate('bytes_received'))}/s"),
                item("out", f"{format_bytes(rate('bytes_sent'))}/s"),
            ],
            "rare": [
                item(label, format_count(interval[name]), colour)
                for label, name, colour in _RARE
                if interval[name]
            ],
        }
        if interval["blocked_spells"]:
            spells = format_count(interval["blocked_spells"])
            if interval["time_blocked"]:  # counted at the end of the iteration
                spells += f" ({format_duration(interval['time_blocked'])})"
            groups["rare"].append(item("blocked", spells, _RED))
        if interval["gc_time"] > 0:
            groups["rare"].append(item("garbage collector", format_duration(interval["gc_time"])))
        return groups

    def _blocked(self, loop: Row) -> list[Line]:
        """Return the lines about a loop's current blocked iteration, with its stack."""
        lines: list[Line] = [[(f"  blocked for {format_duration(loop['blocked_for'])} in", _RED)]]
        most = 6 if self._rows is not None else len(loop["stack"])
        return lines + [[(f"    {format_frame(frame)}", "")] for frame in loop["stack"][:most]]

    def _wrap(self, items: list[Line], indent: str = "") -> list[Line]:
        """Return the items in lines of at most the view's columns; a longer item has its own line.

        The first line begins with `indent`, further ones with four spaces.
        """
        lines: list[Line] = []
        used = 0
        for item in items:
            wide = sum(width(printable(text)) for text, _ in item)
            if lines and (self._columns is None or used + 3 + wide <= self._columns):
                lines[-1] += [("   ", ""), *item]
                used += 3 + wide
            else:
                indent = "    " if lines else indent
                lines.append([(indent, ""), *item])
                used = len(indent) + wide
        return lines

    # ---- the tables

    def _tables(self, reports: list[Row], left: int | None) -> list[Line]:
        """Return the tables of tasks and connections, in at most `left` lines (None: no limit)."""
        several = len(reports) > 1
        loops = [loop for report in reports for loop in report["loops"]]
        tasks = [(report, row) for report in reports for row in _rows_of(report, "tasks")]
        streams = [(report, row) for report in reports for row in _rows_of(report, "connections")]
        streams.sort(key=lambda pair: -pair[1]["write_buffer"])
        task_rows, stream_rows = _rows_that_fit(len(tasks), len(streams), left)
        found: list[Line] = []
        if task_rows:
            count = sum(loop["task_count"] for loop in loops)
            found += self._tasks(self._ordered(tasks)[:task_rows], count, several)
        if stream_rows:
            count = sum((loop["metrics"] or {}).get("connections_open", 0) for loop in loops)
            found += [[]] if found else []
            found += self._streams(streams[:stream_rows], max(count, len(streams)), several)
        return found

    def _ordered(self, tasks: list[tuple[Row, Row]]) -> list[tuple[Row, Row]]:
        """Return the tasks in the order `self.order`.

        `tasks` are pairs (report of the process, row of the task).
        """
        keys: dict[str, Callable[[tuple[Row, Row]], Any]] = {
            "time": lambda pair: (-round(pair[1]["seen"], 1), pair[1]["mark"]),
            "age": lambda pair: (pair[1]["mark"], pair[0]["pid"]),
            "name": lambda pair: _natural_key(pair[1]["name"]),
            "share": lambda pair: (-(pair[1]["loop_share"] or 0.0), pair[1]["mark"]),
        }
        return sorted(tasks, key=keys[self.order])

    def _tasks(self, tasks: list[tuple[Row, Row]], count: int, several: bool) -> list[Line]:
        """Return the table of tasks.

        `tasks` are pairs (report of the process, row of the task); `count` is the number of all
        tasks, shown or not.  With `several` processes the table has a PID column.
        """
        names = [printable(row["name"]) for _, row in tasks]
        awaiters = [printable(", ".join(row["awaiters"])) for _, row in tasks]
        wide = self._columns
        title = f"TASK {_shown_of_total(len(tasks), count)}"
        named = max(map(width, [*names, title]))
        awaiting = max(map(width, [*awaiters, "AWAITED BY"]))
        if wide is not None:
            named = min(named, max(12, wide // 4))
            awaiting = min(awaiting, wide // 5) if wide >= 70 else 0
        places = [
            ("> " if row["current"] else "")
            + " < ".join(map(format_frame, _own_frames(row["stack"])))
            for _, row in tasks
        ]
        shares = wide is None or wide >= 80
        head = ["SEEN FOR", "%LOOP", "%CPU", title, "AT", "AWAITED BY"]
        cells = [
            [
                format_duration(round(row["seen"], 1)),
                *map(_percent, _shares_of(row)),
                name,
                where,
                awaiter,
            ]
            for (_, row), name, where, awaiter in zip(tasks, names, places, awaiters, strict=True)
        ]
        before = (8 if several else 0) + (14 if shares else 0)
        if wide is None:
            standing = max(map(width, [*places, head[4]]))
        else:
            standing = max(0, wide - before - 10 - named - 2 - (awaiting + 2 if awaiting else 0))
        widths = [8, 5 * shares, 5 * shares, named, standing, awaiting]
        pids = [report["pid"] for report, _ in tasks] if several else None
        return self._table(head, cells, widths, pids)

    def _streams(self, streams: list[tuple[Row, Row]], count: int, several: bool) -> list[Line]:
        """Return the table of connections.

        `streams` are pairs (report of the process, row of the connection); `count` is the number of
        all connections, shown or not.  With `several` processes the table has a PID column.
        """
        cells = [
            [
                printable(row["peer"]),
                printable(row["protocol"]) + (" over TLS" if row["tls"] else ""),
                format_bytes(row["write_buffer"]),
            ]
            for _, row in streams
        ]
        head = [f"CONNECTION TO {_shown_of_total(len(cells), count)}", "PROTOCOL", "WRITE BUFFER"]
        widths = [max(map(width, column)) for column in zip(head, *cells, strict=True)]
        if self._columns is not None:
            room = self._columns - (8 if several else 0) - 12 - 4
            widths[0] = min(widths[0], max(8, room // 2))
            widths[1] = min(widths[1], max(8, room - widths[0]))
        pids = [report["pid"] for report, _ in streams] if several else None
        return self._table(head, cells, widths, pids)

    def _table(
        self, head: list[str], cells: list[list[str]], widths: list[int], pids: list[int] | None
    ) -> list[Line]:
        """Return the lines of a table; a column of width 0 is left out.

        `pids` is the first column, or None if all rows belong to one process.
        """
        rows = [head, *cells]
        if pids is not None:
            widths = [6, *widths]
            rows = [
                [first, *row] for first, row in zip(["PID", *map(str, pids)], rows, strict=True)
            ]
        texts = [
            "  ".join(
                pad(printable(cell), wide, self._terminal.ellipsis)
                for cell, wide in zip(row, widths, strict=True)
                if wide
            )
            for row in rows
        ]
        lines: list[Line] = [[(texts[0] if self._columns else texts[0].rstrip(), _HEAD)]]
        return lines + [[(text.rstrip(), "")] for text in texts[1:]]


# Counts that are shown only if they are not 0.
_RARE = (
    ("TLS handshakes", "tls_handshakes", ""),
    ("TLS failures", "tls_handshake_failures", _YELLOW),
    ("DNS lookups", "dns_lookups", ""),
    ("threadsafe calls", "threadsafe_calls", ""),
    ("late writes", "late_writes", _YELLOW),
    ("refused", "connections_refused", _YELLOW),
    ("accept failures", "accept_failures", _RED),
    ("unhandled exceptions", "unhandled_exceptions", _RED),
)


def _rows_of(report: Row, name: str) -> Iterator[Row]:
    """Yield the rows of all loops of a report; `name` is "tasks" or "connections"."""
    for loop in report["loops"]:
        yield from loop[name]


def _shares_of(row: Row) -> tuple[float | None, float | None]:
    """Return a task's shares of its loop's time and of CPU time; None: unknown."""
    return row["loop_share"], row["cpu_share"]


def _percent(value: float | None) -> str:
    """Return a share from 0.0 to 1.0 as a percentage; "" for None."""
    if value is None:
        return ""
    return f"{value:5.1%}" if value < 0.9995 else " 100%"


def _rows_that_fit(tasks: int, streams: int, left: int | None) -> tuple[int, int]:
    """Return the numbers of task rows and connection rows that fit into `left` lines."""
    if left is None:
        return tasks, streams
    # Connections get a third, and the lines that tasks do not need.
    part = min(streams, max(0, left // 3 - 2))
    tasks = min(tasks, max(0, left - 1 - (part + 2 if part else 0)))
    return tasks, min(streams, left - 3 - tasks) if part else 0


def _shown_of_total(shown: int, count: int) -> str:
    """Return the text in a table's head: the number of rows, and of all if there are more."""
    return f"({shown} of {count})" if shown < count else f"({shown})"


def _natural_key(name: str) -> list[Any]:
    """Return a sort key that orders numbers by value: Task-9 before Task-10."""
    return [int(part) if index % 2 else part for index, part in enumerate(re.split(r"(\d+)", name))]
