"""`python -m goloop trace`: the events of a loop."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gzip
import json
import os
import select
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from observed_programs import Program, goloop, running, until

from goloop.operations.commands import trace
from goloop.operations.commands.client import NoAnswer, Question, ask

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = [
    pytest.mark.goloop_only("asyncio's loop can't be traced"),
    pytest.mark.skipif(sys.platform != "linux", reason="code is named by a call of Linux"),
]

# Runs the command of each line, and prints its result as JSON.
PROGRAM = (PROGRAMS / "traced.py").read_text()

Events = list[dict[str, Any]]


def act(process: Program, what: str) -> Any:
    process.say(what)
    return json.loads(process.stdout.readline())


def receive(question: Question) -> bool:
    select.select([question], [], [], 60)
    return question.receive()


def _granted(pid: int) -> Question:
    """A trace that has begun.

    One that was just being granted by Python when a hang has begun never is: the next one is.
    """
    while True:
        question = Question(pid, ask="trace")
        while b"\n" not in question.data and select.select([question], [], [], 5)[0]:
            if not question.receive():  # the trace before has not ended yet
                assert b"already running" in question.data
                break
        if b"\n" in question.data:
            return question
        question.close()


@contextlib.contextmanager
def traced(pid: int, events: bool = True) -> Iterator[dict[str, Any]]:
    """Traces a process meanwhile; the document is there afterwards."""
    document: dict[str, Any] = {}
    with contextlib.closing(_granted(pid)) as question:
        rows = None
        with contextlib.suppress(NoAnswer):  # the process hangs
            rows = ask(pid, "tasks").get("tasks")
        yield document
        question.request_trace_end()
        while receive(question):
            pass
        document["data"] = bytes(question.data.partition(b"\n")[2])
    if events:
        document["traceEvents"] = []
        append = document["traceEvents"].append
        document["otherData"] = trace.emit_events(pid, document["data"], rows, append)
        check(document)


def slices(document: dict[str, Any], name: str = "", category: str = "") -> Events:
    return [
        each
        for each in document["traceEvents"]
        if each["ph"] == "X"
        and (not name or each["name"] == name)
        and (not category or each.get("cat") == category)
    ]


def _begin(event: dict[str, Any]) -> float:
    begin: float = event["ts"]
    return begin


def check(document: dict[str, Any]) -> None:
    """Check Perfetto's rules for a document; slices of a thread nest or follow each other."""
    events: Events = json.loads(json.dumps(document["traceEvents"]))
    assert document["otherData"]["whole"]
    open_connections = set()
    for each in events:
        assert {"ph", "ts", "pid", "tid", "name"} <= each.keys(), each
        assert each["ph"] in "XMibe"
        assert each["ts"] >= 0.0
        if each["ph"] == "b":
            open_connections.add(each["id"])
        elif each["ph"] == "e":
            open_connections.remove(each["id"])
    assert not open_connections
    # A poll brings something, or lasts at the end.
    more = len(slices(document, "poll")) - len(slices(document, "receive, wait for the GIL"))
    assert 0 <= more <= document["otherData"]["loops"]
    for thread in {each["tid"] for each in events}:
        stack: list[float] = []
        of_thread = [each for each in slices(document) if each["tid"] == thread]
        for each in sorted(of_thread, key=lambda each: (each["ts"], -each["dur"])):
            assert each["dur"] >= 0.0
            end = each["ts"] + each["dur"]
            while stack and stack[-1] <= each["ts"] + 0.0015:
                stack.pop()
            # Each of these numbers is rounded.
            assert not stack or end <= stack[-1] + 0.0025, each
            stack.append(end)


def encloses(document: dict[str, Any], found: Events, times: list[list[int]]) -> None:
    """Each slice is the one in which that was done, as the program has noted."""
    assert len(found) == len(times), found
    for each, (began, ended) in zip(found, times, strict=True):
        start = document["otherData"]["clock"] / 1000 + each["ts"]
        # The two clocks agree to some millionths.
        assert start <= began / 1000 + 500, each
        assert start + each["dur"] >= ended / 1000 - 500, each
        # No other code of the program's is in it.
        assert each["dur"] < (ended - began) / 1000 * 1.5 + 1_000_000


def test_steps_of_tasks_have_their_names_coroutines_and_times() -> None:
    with running(PROGRAM) as process:
        with traced(process.pid) as document:
            times = act(process, "tasks")
        found = [each for each in slices(document, "short", "task") if each["dur"] > 10_000]
        encloses(document, found, times)
        name = "a näme of more than fourteen bytes"
        names = [each["args"]["task"] for each in found]
        assert names[:2] == [name, name]
        assert names[2:] == act(process, "name") * 2
        line = PROGRAM[: PROGRAM.index("async def short")].count("\n") + 1
        assert found[0]["args"]["file"] == "<string>"
        assert found[0]["args"]["line"] == line
        iterations = slices(document, "iteration")
        assert all(
            any(
                i["ts"] <= each["ts"] and each["ts"] + each["dur"] <= i["ts"] + i["dur"] + 0.002
                for i in iterations
            )
            for each in found
        )
        assert slices(document, "poll")


def test_a_task_from_before_the_trace_has_its_name() -> None:
    with running(PROGRAM) as process:
        act(process, "before")
        with traced(process.pid) as document:
            times = act(process, "before")
        found = [each for each in slices(document, "waits") if each["dur"] > 5_000]
        encloses(document, found, times)
        line = PROGRAM[: PROGRAM.index("async def waits")].count("\n") + 1
        assert found[0]["args"] == {"task": "from before", "file": "<string>", "line": line}


def test_a_callback_is_named_by_its_function() -> None:
    with running(PROGRAM) as process:
        with traced(process.pid) as document:
            times = act(process, "long")
            act(process, "tasks")  # brings other names; the first is reported once a second at most
            times += act(process, "long")
        found = slices(document, "Long.callback", "callback")
        encloses(document, found, times)
        line = PROGRAM[: PROGRAM.index("    def callback")].count("\n") + 1
        assert found[0]["args"] == {"file": "<string>", "line": line}


def test_connections_are_there_from_made_to_lost() -> None:
    with running(PROGRAM) as process:
        with traced(process.pid) as document:
            act(process, "connection")
        events: Events = document["traceEvents"]
        began = {each["id"] for each in events if each["ph"] == "b"}
        made = [each for each in events if each["name"] == "connection made"]
        lost = [each for each in events if each["name"] == "connection lost"]
        assert len(made) == len(lost) == 2
        assert {each["args"]["protocol"] for each in made} == {"StreamReaderProtocol"}
        assert len(began) == 2
        received = slices(document, "data_received", "event")
        # And the pipe that has the orders.
        assert len(received) >= 2
        assert {each["args"]["protocol"] for each in received} == {"StreamReaderProtocol"}
        assert slices(document, "accept", "event")


def test_garbage_collection_is_shown_within_its_step() -> None:
    with running(PROGRAM) as process:
        with traced(process.pid) as document:
            [(began, ended)] = act(process, "collection")
        found = max(slices(document, "collection"), key=lambda each: each["dur"])
        start = document["otherData"]["clock"] / 1000 + found["ts"]
        assert began / 1000 - 500 <= start
        assert start + found["dur"] <= ended / 1000 + 500
        assert any(
            each["ts"] <= found["ts"] and found["ts"] + found["dur"] <= each["ts"] + each["dur"]
            for each in slices(document, "main", "task")
        )


def test_lost_records_are_counted() -> None:
    with running(PROGRAM) as process:
        with traced(process.pid, events=False) as document:
            act(process, "many")  # without a reader
        losses: Events = []
        lasted: Events = []
        calls = 0

        def emit(event: dict[str, Any]) -> None:
            nonlocal calls
            if event.get("cat") == "lost":
                losses.append(event)
            elif event["ph"] == "X":
                lasted.append(event)
            calls += event["name"] == "many.<locals>.chained"

        lost = trace.emit_events(process.pid, document["data"], None, emit)["lost"]
        assert lost > 0
        assert sum(each["args"]["lost"] for each in losses) == lost
        assert {each["name"] for each in losses} == {
            f"{each['args']['lost']} events lost" for each in losses
        }
        # The end of unfinished events is not known then.
        assert not any(
            each["ts"] + 0.002 < at <= each["ts"] + each["dur"] + 0.002
            for at in {each["ts"] for each in losses}
            for each in lasted
        )
        # 600,000 callbacks, and two records for each turn; a turn follows at most 64 callbacks.
        # A slice whose end is lost is not emitted, therefore + 100.
        assert calls > 0
        assert 600_000 <= calls + lost + 100 <= 650_000


def test_each_pass_of_the_ready_queue_is_an_iteration_without_a_poll() -> None:
    with running(PROGRAM) as process:
        with traced(process.pid) as document:
            act(process, "few")
        links = slices(document, "few.<locals>.link", "callback")
        assert len(links) == 10
        for iteration in slices(document, "iteration"):
            end = iteration["ts"] + iteration["dur"]
            assert sum(iteration["ts"] <= each["ts"] < end for each in links) <= 1


def test_trace_separates_loops_and_one_may_start_and_end() -> None:
    with running(PROGRAM) as process:
        with traced(process.pid) as document:
            times = act(process, "second")
        assert document["otherData"]["loops"] == 2
        found = [each for each in slices(document, "short") if each["dur"] > 10_000]
        encloses(document, found, times)
        assert {each["args"]["task"] for each in found} == {"in another loop"}
        [thread] = {each["tid"] for each in found}
        own = slices(document, "second.<locals>.run.<locals>.main", "task")
        assert {each["tid"] for each in own} == {thread}
        assert thread not in {each["tid"] for each in slices(document, "main", "task")}


def test_only_one_trace_at_a_time_is_possible() -> None:
    with running(PROGRAM) as process:
        with traced(process.pid):
            with pytest.raises(NoAnswer, match="a trace of this process is already running"):
                trace.record(process.pid, 0.1)
            assert "already running" in goloop("trace", str(process.pid)).stderr
        with traced(process.pid) as document:
            act(process, "long")
        assert len(slices(document, "Long.callback")) == 1


def test_the_trace_ends_with_its_tracer() -> None:
    with running(PROGRAM) as process:
        command = [sys.executable, PROGRAMS / "tracer.py", str(process.pid)]
        with Program(command, stdout=subprocess.PIPE, text=True) as tracer:
            assert "somebody" not in tracer.stdout.readline()
            assert refused(process.pid)
            act(process, "long")
            tracer.kill()
        until(lambda: not refused(process.pid))
        with traced(process.pid) as document:
            act(process, "long")
        assert len(slices(document, "Long.callback")) == 1


def refused(pid: int) -> bool:
    with contextlib.closing(Question(pid, ask="trace")) as question:
        while b"\n" not in question.data and receive(question):
            pass
        return b"already running" in question.data


@pytest.mark.parametrize("begins", ["before", "while it hangs"])
def test_hanging_process_still_delivers_its_trace(begins: str) -> None:
    with running(PROGRAM) as process:
        if begins == "before":
            with traced(process.pid) as document:
                act(process, "long")
                assert act(process, "hang") == "hangs"
            assert len(slices(document, "Long.callback")) == 1
            last = slices(document, "main", "task")[-1]
            end = max(each["ts"] + each["dur"] for each in slices(document))
            assert last["ts"] + last["dur"] == pytest.approx(end, abs=0.01)
        else:
            assert act(process, "hang") == "hangs"
            with traced(process.pid) as document:
                pass
            lasting = sorted((each for each in slices(document) if each["dur"]), key=_begin)
            assert [each["name"] for each in lasting] == ["iteration", "(started before the trace)"]


def test_a_trace_that_begins_within_a_poll_has_slices_that_nest() -> None:
    """The first records are a callback without a start, and the end of the poll."""

    def frame(kind: int, body: bytes) -> bytes:
        return struct.pack("<IIiI", kind, len(body), 1, 7) + body

    def record(microsecond: int, kind: int, value: int = 0) -> bytes:
        return struct.pack("=QQ", microsecond * 1000, kind << 60 | value)

    call, turn, wake = 2, 5, 6
    records = record(20, call) + record(60, wake, 1000) + record(70, call) + record(80, turn)
    data = b"".join(
        [frame(3, struct.pack("=QQ", 0, 0)), frame(1, bytes(8) + records),
         frame(3, struct.pack("=QQ", 100_000, 100_000)), frame(0, b"")]
    )  # fmt: skip
    events: Events = []
    trace.emit_events(1, data, None, events.append)
    found = [(each["name"], each["ts"], each["dur"]) for each in events if each["ph"] == "X"]
    unknown = "(started before the trace)"
    assert [each for each in found if each[0] == unknown] == [
        (unknown, 20.001, 39.999), (unknown, 70.0, 10.0),
    ]  # fmt: skip
    assert [each[1:] for each in found if each[0] == "iteration"] == [(20.0, 40.0), (60.0, 20.0)]
    assert [each[1:] for each in found if each[0] == "poll"] == [(80.0, 20.0)]


def test_the_command_writes_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    with running(PROGRAM) as process:
        act(process, "before")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            words = "trace", str(process.pid), "--seconds", "1", "-o", str(path)
            command = pool.submit(goloop, *words)
            while not command.done():
                act(process, "before")
        done = command.result()
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"{path}: ")
        assert " of 1 loop\n" in done.stdout
        document = json.loads(gzip.decompress(path.read_bytes()))
        check(document)
        names = {each["args"]["name"] for each in document["traceEvents"] if each["ph"] == "M"}
        assert f"goloop {process.pid}" in names
        assert "loop 1" in names
        assert slices(document, "poll")
        steps = slices(document, "waits", "task")
        assert {each["args"]["task"] for each in steps} == {"from before"}
        nowhere = goloop("trace", str(process.pid), "--seconds", "0.1", "-o", str(tmp_path))
        assert nowhere.returncode == 1
        assert nowhere.stderr == f"{tmp_path}: Is a directory\n"
        missing = tmp_path / "missing" / "a.json"
        nowhere = goloop("trace", str(process.pid), "--seconds", "0.1", "-o", str(missing))
        assert nowhere.returncode == 1
        assert nowhere.stderr == f"{missing}: No such file or directory\n"
    assert goloop("trace", str(process.pid)).returncode == 1


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "link.json"])
def test_trace_file_appears_when_complete(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "link.json":
        (tmp_path / "folder").mkdir()
        path.symlink_to(tmp_path / "folder" / "file.json")
    seen: list[bytes] = []

    def rows(fails: bool) -> Iterator[dict[str, Any]]:
        """Asked for in the middle of the writing."""
        seen.append(path.read_bytes() if path.exists() else b"none")
        if fails:
            raise KeyboardInterrupt
        yield {"id": 1, "name": "task"}

    def write(fails: bool) -> None:
        data: Any = rows(fails)
        trace.write(str(path), 1, b"", data)

    for old in (b"none", b"an older one"):
        if old != b"none":
            path.write_bytes(old)
        with pytest.raises(KeyboardInterrupt):
            write(True)
        assert seen.pop() == old
        assert (path.read_bytes() if path.exists() else b"none") == old
        files = [each for each in tmp_path.rglob("*") if each.is_file() and not each.is_symlink()]
        assert len(files) == (old != b"none")
    write(False)
    assert seen == [b"an older one"]
    content = path.read_bytes()
    document = json.loads(gzip.decompress(content) if name.endswith(".gz") else content)
    assert document["traceEvents"] == []
    assert path.is_symlink() == (name == "link.json")
    assert not [each for each in tmp_path.rglob("*") if each.name.endswith(".new")]


def test_file_in_an_unwritable_folder_is_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"an older one")
    before = path.stat().st_ino
    monkeypatch.setattr(os, "access", lambda folder, mode: folder != str(tmp_path))  # root may
    trace.write(str(path), 1, b"", [])
    assert json.loads(path.read_bytes())["traceEvents"] == []
    assert path.stat().st_ino == before


def test_trace_is_written_to_a_pipe_in_place(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(path, os.O_WRONLY)
    try:
        for name in (str(path), f"/dev/fd/{writer}"):
            trace.write(name, 1, b"", [])
            assert json.loads(os.read(reader, 1 << 16))["traceEvents"] == []
    finally:
        os.close(reader)
        os.close(writer)
    assert path.is_fifo()
    read, write = os.pipe()
    try:
        trace.write(f"/dev/fd/{write}", 1, b"", [])  # as /dev/stdout, a link to no name
        assert json.loads(os.read(read, 1 << 16))["traceEvents"] == []
    finally:
        os.close(read)
        os.close(write)


def test_trace_of_a_process_without_a_loop_is_an_error() -> None:
    with running("import goloop, sys; print('ready', flush=True); sys.stdin.read()") as process:
        done = goloop("trace", str(process.pid))
        assert done.returncode == 1
        assert "no goloop loop has run in this process" in done.stderr
