"""`python -m goloop trace PID`: what a running program's loops do, event by event.

The program notes fixed records in memory and sends them as they are (pybridge/golib/trace.go);
here they become the JSON that Perfetto and Chrome read.
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
from .client import SECONDS, NoAnswer, Question
from .terminal import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Event = dict[str, Any]

# What pybridge/golib/trace.go sends, and GL_TRACE_ of pybridge/abi.h.
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
    """What a process has sent."""

    def __init__(self, pid: int, data: bytes) -> None:
        self.pid = pid
        self.whole = False
        """Whether the process has sent the end."""
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
            elif kind == _NAMES:  # of the records before
                names = names | {int(key): value for key, value in json.loads(body).items()}
                self.frames[-1] = (*self.frames[-1][:3], names)
            elif kind == _CLOCK:
                self.clocks.append(_RECORD.unpack(body))
            self.whole = kind == _END

    def microseconds(self, ticks: int) -> float:
        """Since the beginning."""
        (first, began), (last, ended) = self.clocks[0], self.clocks[-1]
        rate = (ended - began) / (last - first) if last > first else 1.0
        return max(0.0, (ticks - first) * rate / 1000)

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return (self.clocks[-1][1] - self.clocks[0][1]) / 1e9


@dataclass
class _Loop:
    """What a loop does at one point of its records."""

    thread: int
    item: Event | None = None
    iteration: Event | None = None
    number: int = -1
    turn: float | None = None
    collection: float | None = None
    tasks: dict[int, tuple[str, Any]] = field(default_factory=dict)
    connections: dict[int, Event] = field(default_factory=dict)


class _Writer:
    """Makes events of records, and gives each away as soon as it is whole."""

    def __init__(
        self, recording: Recording, tasks: dict[int, tuple[str, Any]], emit: Callable[[Event], None]
    ) -> None:
        self.recording = recording
        self.known_tasks = tasks
        self.emit = emit
        self.lost = 0
        self.loops: dict[int, _Loop] = {}
        self.ids = 0

    def write(self) -> None:
        recording = self.recording
        for number, thread, body, names in recording.frames:
            if number not in self.loops:
                self.loops[number] = _Loop(thread, tasks=dict(self.known_tasks))
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
                    self.record(loop, recording.microseconds(ticks), word, rest, names)
        end = recording.microseconds(recording.clocks[-1][0])
        for number, loop in self.loops.items():
            self.stop(loop, end)
            for made in loop.connections.values():
                self.event("e", made["name"], end, loop, cat="connection", id=made["id"])
            self.event("M", "thread_name", 0.0, loop, args={"name": f"loop {number}"})
        process = _Loop(recording.pid)
        self.event("M", "process_name", 0.0, process, args={"name": f"goloop {recording.pid}"})

    def make(self, kind: str, name: str, at: float, loop: _Loop, **more: Any) -> Event:
        return {
            "ph": kind, "name": name, "ts": round(at, 3), "pid": self.recording.pid,
            "tid": loop.thread, **more,
        }  # fmt: skip

    def event(self, kind: str, name: str, at: float, loop: _Loop, **more: Any) -> Event:
        event = self.make(kind, name, at, loop, **more)
        self.emit(event)
        return event

    def slice(self, name: str, at: float, end: float, loop: _Loop, **more: Any) -> None:
        self.event("X", name, at, loop, dur=round(max(0.0, end - at), 3), **more)

    def close(self, event: Event | None, at: float) -> None:
        if event is not None:
            event["dur"] = round(max(0.0, at - event["ts"]), 3)
            self.emit(event)

    def stop(self, loop: _Loop, at: float) -> None:
        """Whatever lasts ends."""
        self.close(loop.item, at)
        self.close(loop.iteration, at)
        if loop.turn is not None:
            self.slice("poll", loop.turn, at, loop, cat="loop")
        if loop.collection is not None:
            self.slice("collection", loop.collection, at, loop, cat="gc")
        loop.item = loop.iteration = loop.turn = loop.collection = None

    def note_loss(self, loop: _Loop, lost: int, records: list[tuple[int, int]]) -> None:
        self.lost += lost
        # What lasted then has ended at an unknown time.
        at = self.recording.microseconds(records[0][0]) if records else 0.0
        loop.item = loop.iteration = loop.turn = loop.collection = None
        self.event("i", f"{lost} events lost", at, loop, s="t", cat="lost", args={"lost": lost})

    def record(
        self, loop: _Loop, at: float, word: int, rest: list[tuple[int, int]], names: dict[int, Any]
    ) -> None:
        kind, own, number, value = word >> 60, word >> 56 & 15, word >> 48 & 255, word & _ADDRESS
        if kind == _TASK:
            loop.tasks[value] = _made(rest, names)
        elif kind == _GC:
            if not own and loop.collection is not None:
                self.slice("collection", loop.collection, at, loop, cat="gc")
            loop.collection = at if own else None
        elif kind in (_MADE, _LOST):
            self.connection(loop, kind == _MADE, at, value, rest, names)
        elif kind == _STOP:
            self.stop(loop, at)
        elif kind == _TURN:
            self.stop(loop, at)
            loop.turn = at
        elif kind == _WAKE:
            polled = at - value / 1000
            if loop.turn is not None:
                polled = max(loop.turn, polled)
                self.slice("poll", loop.turn, polled, loop, cat="loop")
                self.slice("receive, wait for the GIL", polled, at, loop, cat="loop")
                loop.turn = None
            self.stop(loop, at)  # a trace that began within the poll has no beginning of it
            self.begin_iteration(loop, at, number)
        else:
            self.close(loop.item, at)
            loop.item = None
            if number != loop.number or loop.iteration is None:
                self.begin_iteration(loop, at, number)
            name, more = self.named(loop, kind, own, value, names)
            if loop.iteration is not None and round(at, 3) <= loop.iteration["ts"]:
                at = (
                    loop.iteration["ts"] + 0.001
                )  # of two that begin at once viewers nest the second
            loop.item = self.make("X", name, at, loop, **more)

    def begin_iteration(self, loop: _Loop, at: float, number: int) -> None:
        self.close(loop.iteration, at)
        loop.number = number
        loop.iteration = self.make("X", "iteration", at, loop, cat="loop")

    def named(
        self, loop: _Loop, kind: int, own: int, value: int, names: dict[int, Any]
    ) -> tuple[str, Event]:
        """The name of a slice, its category and arguments."""
        if kind == _STEP:
            name, place = loop.tasks.get(value, ("", None))
            function, args = _place(place)
            return function or "task", {"cat": "task", "args": {"task": name, **args}}
        if kind == _EVENT:
            what = _COMPLETIONS.get(own, "event")
            protocol = names.get(value, "") if value else ""
            return what, {"cat": "event", "args": {"protocol": protocol} if protocol else {}}
        if not value:
            return "(since before the trace)", {"cat": "loop", "args": {}}
        function, args = _place(names.get(value, "callback"))
        return function, {"cat": "callback", "args": args}

    def connection(
        self, loop: _Loop, made: bool, at: float, address: int, rest: list[tuple[int, int]],
        names: dict[int, Any],
    ) -> None:  # fmt: skip
        began = None if made else loop.connections.pop(address, None)
        name = "connection" if began is None else began["name"]
        if began is None:
            if rest and rest[0][1] >> 60 == _MORE:
                name = names.get(rest[0][0] & _ADDRESS, name)
            self.ids += 1
            args = {"transport": hex(address)}
            # One that there was before began with the trace.
            since = at if made else 0.0
            began = self.event("b", name, since, loop, cat="connection", id=self.ids, args=args)
        if made:
            loop.connections[address] = began
        else:
            self.event("e", name, at, loop, cat="connection", id=began["id"])
        what = "connection made" if made else "connection lost"
        self.event("i", what, at, loop, s="t", cat="connection", args={"protocol": name})


def _place(place: Any) -> tuple[str, Event]:
    """A function's name, and where it is."""
    if isinstance(place, str):
        return place, {}
    if not place:
        return "", {}
    function, file, line = place
    return function, {"file": file, "line": line} if file else {}


def _made(rest: list[tuple[int, int]], names: dict[int, Any]) -> tuple[str, Any]:
    """The name of a task, and its coroutine, out of the records behind its making."""
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


def convert(
    pid: int, data: bytes, rows: list[Event] | None, emit: Callable[[Event], None]
) -> Event:
    """Gives the events away, and returns what is told of all of them; `rows` are the tasks that
    there were before."""
    recording = Recording(pid, data)
    tasks = {row["id"]: (row["name"], row.get("code")) for row in rows or ()}
    writer = _Writer(recording, tasks, emit)
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
    """What a process sends in so long, or until an interrupt, and its tasks; raises NoAnswer."""
    with contextlib.ExitStack() as closing:
        question = closing.enter_context(contextlib.closing(Question(pid, ask="trace")))
        rows: list[Event] = []
        waiting: dict[Question, None] = {question: None}
        until, ended = None, False
        goes_on = True
        while goes_on:
            now = time.monotonic()
            limit = question.deadline if until is None else until
            if now >= limit:
                if ended or until is None:
                    break
                question.end()
                until, ended = now + SECONDS, True
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
                    goes_on = question.receive()
                else:
                    rows = _advanced(each, waiting) or rows
            if until is None and b"\n" in question.data:
                until = time.monotonic() + seconds
                with contextlib.suppress(NoAnswer):
                    # What the tasks are called that there were before.
                    tasks = closing.enter_context(contextlib.closing(Question(pid, ask="tasks")))
                    waiting[tasks] = None
        head, found, data = question.data.partition(b"\n")
        if not found or not head.endswith(b'"trace":1}'):
            answer = question.whole()
            raise NoAnswer(f"process {pid} runs a goloop that has no trace: {answer!r:.60}")
    return bytes(data), rows


def _advanced(question: Question, waiting: dict[Question, None]) -> list[Event] | None:
    """The tasks that a process has told, once it has."""
    try:
        answer = question.advance()
        if answer is None:
            return None
    except NoAnswer:
        answer = {}
    del waiting[question]
    return answer.get("tasks")


@contextlib.contextmanager
def _whole(path: str) -> Iterator[Any]:
    """A file that gets the name at its end, and is removed on a failure."""
    target = os.path.realpath(path)  # a link stays one
    beside = os.path.isfile(path) and os.access(os.path.dirname(target), os.W_OK)
    if os.path.exists(path) and not beside:  # a pipe, /dev/stdout; a folder that takes no file
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
    """A file for Perfetto, compressed where its name ends with .gz; how many events it has.

    It has its name once it is whole: before, it stands beside.
    """
    count = 0
    with contextlib.ExitStack() as closing:
        file: Any = closing.enter_context(_whole(path))
        if path.endswith(".gz"):
            file = closing.enter_context(gzip.GzipFile(path, "wb", 1, file))
        encode = json.JSONEncoder().encode

        def emit(event: Event) -> None:
            nonlocal count
            file.write(b",\n" * bool(count) + encode(event).encode())
            count += 1

        file.write(b'{"displayTimeUnit": "ns", "traceEvents": [\n')
        told = convert(pid, data, rows, emit)
        file.write(b'\n], "otherData": ' + json.dumps(told).encode() + b"}\n")
    return count, told


def main(arguments: list[str]) -> int:
    """`trace PID`; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m goloop trace",
        description="Write down what a running program's loops do, event by event, for "
        "https://ui.perfetto.dev.",
        epilog="An interrupt ends the time early.",
    )
    add = parser.add_argument
    add("pid", type=options.pid, metavar="PID", help="a process that answers")
    help_text = "how long to look (default: 5)"
    add("--seconds", type=options.seconds(0.1), default=5.0, metavar="S", help=help_text)
    help_text = "the file (default: goloop-PID.json); one whose name ends with .gz is compressed"
    add("-o", "--output", metavar="FILE", help=help_text)
    given = parser.parse_args(arguments)
    path = given.output or f"goloop-{given.pid}.json"
    try:
        count, told = write(path, given.pid, *record(given.pid, given.seconds))
    except NoAnswer as reason:
        print(reason, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{path}: {os.strerror(error.errno or 0)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    text = f"{path}: {count} events in {told['seconds']:.1f} s"
    text += f" of {told['loops']} loops" if told["loops"] != 1 else " of 1 loop"
    if told["lost"]:
        text += f"; {told['lost']} were lost, as the loops were faster than they could be sent"
    if not told["whole"]:
        text += "; the process has broken off"
    print(printable(text))
    return 0
