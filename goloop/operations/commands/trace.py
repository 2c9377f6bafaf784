"""The command `goloop trace PID`: a trace of the events of a running program's loops.

The program stores records of fixed size in memory and sends them unchanged
(pybridge/golib/trace.go).  This module converts them to JSON for Perfetto and Chrome.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import select
import signal
import struct
import sys
import time
from dataclasses import dataclass, field

from ..._internal.version import __version__
from . import options
from .client import ANSWER_SECONDS, NoAnswer, Question
from .terminal import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Event = dict[str, Any]

# The formats of pybridge/golib/trace.go, and the enum GL_TRACE_ of pybridge/abi.h.
_FRAME = struct.Struct("<IIiI")
_RECORD = struct.Struct("=QQ")
_END, _RECORDS, _NAMES, _CLOCK = 0, 1, 2, 3
_MORE, _STEP, _CALL, _NATIVE, _EVENT, _TURN, _WAKE, _STOP, _TASK, _GC, _MADE, _LOST = range(12)
_ADDRESS = (1 << 48) - 1
# enum gl_completion_kind.
_COMPLETIONS = {
    1: "data_received", 2: "eof_received", 3: "read error", 4: "written", 5: "write error",
    6: "accept", 7: "accept error", 8: "ready", 10: "datagram_received", 11: "datagram error",
}  # fmt: skip


class Recording:
    """The received data of a trace, split into frames."""

    def __init__(self, pid: int, data: bytes) -> None:
        """Split the data of a trace into frames; an incomplete frame at the end is ignored."""
        self.pid = pid
        self.whole = False
        """True if the process has sent the end of the trace."""
        self.clocks: list[tuple[int, int]] = []
        self.frames: list[tuple[int, int, bytes, dict[int, Any]]] = []
        """Loop, thread, records, and the names of their addresses."""
        names: dict[int, Any] = {}
        at = 0
        while at + _FRAME.size <= len(data):
            kind, length, loop, thread = _FRAME.unpack_from(data, at)
            at += _FRAME.size
            body = data[at : at + length]
            at += length
            if len(body) < length:
                break
            if kind == _RECORDS:
                self.frames.append((loop, thread, body, names))
            elif kind == _NAMES:  # for the previous records
                names = names | {int(key): value for key, value in json.loads(body).items()}
                self.frames[-1] = (*self.frames[-1][:3], names)
            elif kind == _CLOCK:
                self.clocks.append(_RECORD.unpack(body))
            self.whole = kind == _END

    def microseconds(self, ticks: int) -> float:
        """Convert ticks to microseconds since the start of the trace, which must have a clock."""
        (first, began), (last, ended) = self.clocks[0], self.clocks[-1]
        rate = (ended - began) / (last - first) if last > first else 1.0
        return max(0.0, (ticks - first) * rate / 1000)

    @property
    def seconds(self) -> float:
        """The duration of the trace."""
        return (self.clocks[-1][1] - self.clocks[0][1]) / 1e9


@dataclass
class _LoopState:
    """The state of a loop while its records are converted."""

    thread: int
    item: Event | None = None
    iteration: Event | None = None
    number: int = -1
    turn: float | None = None
    collection: float | None = None
    tasks: dict[int, tuple[str, Any]] = field(default_factory=dict)
    connections: dict[int, Event] = field(default_factory=dict)


class _EventWriter:
    """Converts records to events, and passes each complete event to `emit`."""

    def __init__(
        self, recording: Recording, tasks: dict[int, tuple[str, Any]], emit: Callable[[Event], None]
    ) -> None:
        """Store the trace; `tasks` has name and coroutine of the tasks that are older than it."""
        self.recording = recording
        self.known_tasks = tasks
        self.emit = emit
        self.lost = 0
        self.loops: dict[int, _LoopState] = {}
        self.ids = 0

    def write(self) -> None:
        """Convert all records, end the open slices and connections, and name process and threads.

        `lost` then has the number of lost records, `loops` the loops of the trace.
        """
        recording = self.recording
        for number, thread, body, names in recording.frames:
            if number not in self.loops:
                self.loops[number] = _LoopState(thread, tasks=dict(self.known_tasks))
            loop = self.loops[number]
            if loop.thread != thread:
                self.stop(loop, recording.microseconds(_RECORD.unpack_from(body, 8)[0]))
                loop.thread = thread
            (lost,) = struct.unpack_from("=Q", body)
            records = list(_RECORD.iter_unpack(body[8:]))
            if lost:
                self.note_loss(loop, lost, records)
            for index, (ticks, word) in enumerate(records):
                if word >> 60 != _MORE:
                    rest = records[index + 1 : index + 8] if word >> 60 >= _TASK else []
                    self.emit_record(loop, recording.microseconds(ticks), word, rest, names)
        end = recording.microseconds(recording.clocks[-1][0])
        for number, loop in self.loops.items():
            self.stop(loop, end)
            for made in loop.connections.values():
                self.emit_event("e", made["name"], end, loop, cat="connection", id=made["id"])
            self.emit_event("M", "thread_name", 0.0, loop, args={"name": f"loop {number}"})
        process = _LoopState(recording.pid)
        self.emit_event("M", "process_name", 0.0, process, args={"name": f"goloop {recording.pid}"})

    def make_event(self, kind: str, name: str, at: float, loop: _LoopState, **more: Any) -> Event:
        """Return an event of the Trace Event Format: `kind` is "ph", `at` is in microseconds."""
        return {
            "ph": kind, "name": name, "ts": round(at, 3), "pid": self.recording.pid,
            "tid": loop.thread, **more,
        }  # fmt: skip

    def emit_event(self, kind: str, name: str, at: float, loop: _LoopState, **more: Any) -> Event:
        """Emit an event and return it."""
        event = self.make_event(kind, name, at, loop, **more)
        self.emit(event)
        return event

    def emit_slice(self, name: str, at: float, end: float, loop: _LoopState, **more: Any) -> None:
        """Emit a slice from `at` to `end`, in microseconds."""
        self.emit_event("X", name, at, loop, dur=round(max(0.0, end - at), 3), **more)

    def close(self, event: Event | None, at: float) -> None:
        """Emit a slice that was open, if there is one; it ends at `at`."""
        if event is not None:
            event["dur"] = round(max(0.0, at - event["ts"]), 3)
            self.emit(event)

    def stop(self, loop: _LoopState, at: float) -> None:
        """End and emit all open slices of a loop."""
        self.close(loop.item, at)
        self.close(loop.iteration, at)
        if loop.turn is not None:
            self.emit_slice("poll", loop.turn, at, loop, cat="loop")
        if loop.collection is not None:
            self.emit_slice("collection", loop.collection, at, loop, cat="gc")
        loop.item = loop.iteration = loop.turn = loop.collection = None

    def note_loss(self, loop: _LoopState, lost: int, records: list[tuple[int, int]]) -> None:
        """Count lost records, drop the loop's open slices, and emit an event for the gap."""
        self.lost += lost
        # The end times of the open slices are unknown, so the slices are dropped.
        at = self.recording.microseconds(records[0][0]) if records else 0.0
        loop.item = loop.iteration = loop.turn = loop.collection = None
        self.emit_event(
            "i", f"{lost} events lost", at, loop, s="t", cat="lost", args={"lost": lost}
        )

    def emit_record(
        self,
        loop: _LoopState,
        at: float,
        word: int,
        rest: list[tuple[int, int]],
        names: dict[int, Any],
    ) -> None:
        """Convert one record: `at` in microseconds, `word` with its kind and value.

        `rest` are the records after it, which may continue it; `names` has the names of addresses.
        """
        kind, own, number, value = word >> 60, word >> 56 & 15, word >> 48 & 255, word & _ADDRESS
        if kind == _TASK:
            loop.tasks[value] = _new_task(rest, names)
        elif kind == _GC:
            if not own and loop.collection is not None:
                self.emit_slice("collection", loop.collection, at, loop, cat="gc")
            loop.collection = at if own else None
        elif kind in (_MADE, _LOST):
            self.emit_connection(loop, kind == _MADE, at, value, rest, names)
        elif kind == _STOP:
            self.stop(loop, at)
        elif kind == _TURN:
            self.stop(loop, at)
            loop.turn = at
        elif kind == _WAKE:
            polled = at - value / 1000
            if loop.turn is not None:
                polled = max(loop.turn, polled)
                self.emit_slice("poll", loop.turn, polled, loop, cat="loop")
                self.emit_slice("receive, wait for the GIL", polled, at, loop, cat="loop")
                loop.turn = None
            self.stop(loop, at)  # without a begin if the trace started within the poll
            self.begin_iteration(loop, at, number)
        else:
            self.close(loop.item, at)
            loop.item = None
            if number != loop.number or loop.iteration is None:
                self.begin_iteration(loop, at, number)
            name, more = self.slice_name(loop, kind, own, value, names)
            # Viewers nest the later of two slices, so the item must start after its iteration.
            if loop.iteration is not None and round(at, 3) <= loop.iteration["ts"]:
                at = loop.iteration["ts"] + 0.001
            loop.item = self.make_event("X", name, at, loop, **more)

    def begin_iteration(self, loop: _LoopState, at: float, number: int) -> None:
        """End the slice of the loop's iteration and open the next one."""
        self.close(loop.iteration, at)
        loop.number = number
        loop.iteration = self.make_event("X", "iteration", at, loop, cat="loop")

    def slice_name(
        self, loop: _LoopState, kind: int, own: int, value: int, names: dict[int, Any]
    ) -> tuple[str, Event]:
        """Return the name of a slice, and its category and arguments."""
        if kind == _STEP:
            name, place = loop.tasks.get(value, ("", None))
            function, args = _place(place)
            return function or "task", {"cat": "task", "args": {"task": name, **args}}
        if kind == _EVENT:
            completion = _COMPLETIONS.get(own, "event")
            protocol = names.get(value, "") if value else ""
            return completion, {"cat": "event", "args": {"protocol": protocol} if protocol else {}}
        if not value:
            return "(started before the trace)", {"cat": "loop", "args": {}}
        function, args = _place(names.get(value, "callback"))
        return function, {"cat": "callback", "args": args}

    def emit_connection(
        self, loop: _LoopState, made: bool, at: float, address: int, rest: list[tuple[int, int]],
        names: dict[int, Any],
    ) -> None:  # fmt: skip
        """Emit the begin or the end of a connection, and an instant event with its protocol.

        `address` identifies the transport. If a connection ends that is older than the trace, its
        begin is emitted, too.
        """
        began = None if made else loop.connections.pop(address, None)
        name = "connection" if began is None else began["name"]
        if began is None:
            if rest and rest[0][1] >> 60 == _MORE:
                name = names.get(rest[0][0] & _ADDRESS, name)
            self.ids += 1
            args = {"transport": hex(address)}
            # A connection that is older than the trace starts at its beginning.
            since = at if made else 0.0
            began = self.emit_event(
                "b", name, since, loop, cat="connection", id=self.ids, args=args
            )
        if made:
            loop.connections[address] = began
        else:
            self.emit_event("e", name, at, loop, cat="connection", id=began["id"])
        title = "connection made" if made else "connection lost"
        self.emit_event("i", title, at, loop, s="t", cat="connection", args={"protocol": name})


def _place(place: Any) -> tuple[str, Event]:
    """Return a function's name, and its file and line as arguments of an event.

    Unknown parts are "" and {}.
    """
    if isinstance(place, str):
        return place, {}
    if not place:
        return "", {}
    function, file, line = place
    return function, {"file": file, "line": line} if file else {}


def _new_task(rest: list[tuple[int, int]], names: dict[int, Any]) -> tuple[str, Any]:
    """Return the name of a new task, and its coroutine, from the records after its creation.

    Without such records they are "" and None.
    """
    parts = []
    for ticks, word in rest:
        if word >> 60 != _MORE:
            break
        parts.append((ticks, word))
    if not parts:
        return "", None
    coroutine = names.get(parts[0][0] & _ADDRESS)
    if len(parts) > 1 and parts[1][1] >> 56 & 15 == 1:
        return f"Task-{parts[1][0]}", coroutine
    text = b"".join(
        ticks.to_bytes(8, sys.byteorder) + (word & _ADDRESS).to_bytes(8, sys.byteorder)[:6]
        for ticks, word in parts[1:]
    )
    return text.rstrip(b"\0").decode(errors="replace"), coroutine


def emit_events(
    pid: int, data: bytes, rows: list[Event] | None, emit: Callable[[Event], None]
) -> Event:
    """Pass all events to `emit`, and return a summary of the trace.

    `rows` are the tasks that existed before the trace.  Without a clock in `data` there are no
    events.  Raises ValueError, LookupError or struct.error if `data` is invalid.
    """
    recording = Recording(pid, data)
    tasks = {row["id"]: (row["name"], row.get("code")) for row in rows or ()}
    writer = _EventWriter(recording, tasks, emit)
    if recording.clocks:
        writer.write()
    return {
        "version": f"goloop {__version__}",
        "clock": recording.clocks[0][1] if recording.clocks else 0,
        "seconds": recording.seconds if recording.clocks else 0.0,
        "lost": writer.lost,
        "loops": len(writer.loops),
        "whole": recording.whole,
    }


def record(pid: int, seconds: float) -> tuple[bytes, list[Event]]:
    """Trace a process for some seconds or until Ctrl-C; return the data, and the rows of its tasks.

    The rows are empty if the request for tasks fails.  Raises NoAnswer if the process does not
    answer or cannot be traced, and KeyboardInterrupt before the trace has begun.
    """
    with contextlib.ExitStack() as closing:
        question = closing.enter_context(contextlib.closing(Question(pid, ask="trace")))
        rows: list[Event] = []
        waiting: dict[Question, None] = {question: None}
        until, ended = None, False
        receiving = True
        while receiving:
            now = time.monotonic()
            limit = question.deadline if until is None else until
            if now >= limit:
                if ended or until is None:
                    break
                question.request_trace_end()
                until, ended = now + ANSWER_SECONDS, True
                continue
            try:
                readable, _, _ = select.select(list(waiting), [], [], limit - now)
            except KeyboardInterrupt:
                if until is None or ended:
                    raise
                until = now
                continue
            for each in readable:
                if each is question:
                    receiving = question.receive()
                else:
                    rows = _receive_rows(each, waiting) or rows
            if until is None and b"\n" in question.data:
                until = time.monotonic() + seconds
                with contextlib.suppress(NoAnswer):
                    # The names of tasks that were created before the trace.
                    tasks = closing.enter_context(contextlib.closing(Question(pid, ask="tasks")))
                    waiting[tasks] = None
        head, found, data = question.data.partition(b"\n")
        if not found or not head.endswith(b'"trace":1}'):
            answer = question.parse_answer()
            raise NoAnswer(
                f"process {pid} runs a version of goloop that cannot record traces: update goloop "
                f"there (its answer is {answer!r:.60})"
            )
    return bytes(data), rows


def _receive_rows(question: Question, waiting: dict[Question, None]) -> list[Event] | None:
    """Receive data; return the rows of tasks when they are complete, else None.

    A finished request is removed from `waiting`; a failed one returns None, too.
    """
    try:
        answer = question.advance()
        if answer is None:
            return None
    except NoAnswer:
        answer = {}
    del waiting[question]
    return answer.get("tasks")


@contextlib.contextmanager
def _atomic_file(path: str) -> Iterator[Any]:
    """Open a temporary file that replaces `path` on success, and is removed on a failure.

    A path that cannot be replaced, such as a pipe, is opened and written directly.
    """
    target = os.path.realpath(path)  # a symbolic link is kept
    replaceable = os.path.isfile(path) and os.access(os.path.dirname(target), os.W_OK)
    if os.path.exists(path) and not replaceable:  # a pipe, /dev/stdout, a read-only folder
        with open(path, "wb") as file:
            yield file
        return
    new = f"{target}.{os.getpid()}.new"
    try:
        with open(new, "wb") as file:
            yield file
        os.replace(new, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise


def write(path: str, pid: int, data: bytes, rows: list[Event]) -> tuple[int, Event]:
    """Write a file for Perfetto, compressed if its name ends with .gz.

    The file is written under a temporary name first.  Returns the number of events and the summary.
    Raises OSError.
    """
    count = 0
    with contextlib.ExitStack() as closing:
        file: Any = closing.enter_context(_atomic_file(path))
        if path.endswith(".gz"):
            file = closing.enter_context(gzip.GzipFile(path, "wb", 1, file))
        encode = json.JSONEncoder().encode

        def emit(event: Event) -> None:
            """Write an event to the file."""
            nonlocal count
            file.write(b",\n" * bool(count) + encode(event).encode())
            count += 1

        file.write(b'{"displayTimeUnit": "ns", "traceEvents": [\n')
        summary = emit_events(pid, data, rows, emit)
        file.write(b'\n], "otherData": ' + json.dumps(summary).encode() + b"}\n")
    return count, summary


def main(arguments: list[str]) -> int:
    """Run `trace PID`: write the trace to a file, and print a summary.

    Returns the exit status: 1 if the process does not answer or the file cannot be written, 130 if
    Ctrl-C does not end the recording but the command, else 0.
    """
    parser = argparse.ArgumentParser(
        prog="python -m goloop trace",
        description="Record every callback and task step of a running program's loops, with its "
        "time, in a file. Open the file in https://ui.perfetto.dev.",
        epilog="Ctrl-C ends the recording early, and writes the file.",
    )
    add = parser.add_argument
    add("pid", type=options.pid, metavar="PID", help=options.PID_HELP)
    help_text = "seconds to record (default: 5)"
    add("--seconds", type=options.seconds(0.1), default=5.0, metavar="S", help=help_text)
    help_text = "file to write (default: goloop-PID.json); it is compressed if its name ends in .gz"
    add("-o", "--output", metavar="FILE", help=help_text)
    given = parser.parse_args(arguments)
    path = given.output or f"goloop-{given.pid}.json"
    try:
        count, summary = write(path, given.pid, *record(given.pid, given.seconds))
    except NoAnswer as reason:
        print(reason, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{path}: {os.strerror(error.errno or 0)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    text = f"{path}: {count} events in {summary['seconds']:.1f} s"
    text += f" of {summary['loops']} loops" if summary["loops"] != 1 else " of 1 loop"
    if summary["lost"]:
        text += f"; {summary['lost']} events were lost, because the loops produced them too fast"
    if not summary["whole"]:
        text += "; the trace is incomplete, because the process ended it early"
    print(printable(text))
    return 0
