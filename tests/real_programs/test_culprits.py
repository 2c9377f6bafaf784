"""The code that blocks a web server's loop is named from outside: its line and its task."""

from __future__ import annotations

import collections
import contextlib
import gzip
import http.client
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from observed_programs import goloop, until

from real_programs.programs import APPS, TIME_LIMIT, Programs, free_port, needs

pytestmark = pytest.mark.real

CULPRIT = APPS / "culprit.py"
SOURCE = CULPRIT.read_text().splitlines()
CODE = next(n for n, line in enumerate(SOURCE, 1) if line.startswith("async def recompute"))
AWAITED = SOURCE.index("        compute(0.15)") + 1
# The time is spent in these two.
LOOP_LINES = range(SOURCE.index("    while time.perf_counter() < until:") + 1, CODE)

ASGI = "culprit_asgi:app"


def aiohttp(programs: Programs, port: int) -> int:
    needs("aiohttp")
    started(programs, port, APPS / "culprit_aiohttp.py", str(port))
    return 1


def aiohttp_in_threads(programs: Programs, port: int) -> int:
    needs("aiohttp")
    started(programs, port, APPS / "culprit_threads.py", str(port))
    return 1


def aiohttp_in_gunicorn(programs: Programs, port: int) -> int:
    needs("aiohttp", "gunicorn")
    worker = "goloop.web_worker.GoloopWebWorker"
    return gunicorn(programs, port, worker, "culprit_aiohttp:app")


def uvicorn(programs: Programs, port: int) -> int:
    needs("uvicorn")
    words = "-m", "uvicorn", "--loop", "goloop:new_event_loop", "--port", str(port)
    started(programs, port, *words, ASGI)
    return 1


def uvicorn_with_workers(programs: Programs, port: int) -> int:
    needs("uvicorn")
    words = "-m", "uvicorn", "--loop", "goloop:new_event_loop", "--port", str(port)
    started(programs, port, *words, "--workers", "2", ASGI)
    return 2


def uvicorn_in_gunicorn(programs: Programs, port: int) -> int:
    needs("uvicorn_worker", "gunicorn")
    return gunicorn(programs, port, "goloop.uvicorn_worker.GoloopUvicornWorker", ASGI)


def gunicorn(programs: Programs, port: int, worker: str, app: str) -> int:
    words = "-m", "gunicorn", "--no-control-socket", "--bind", f"127.0.0.1:{port}"
    started(programs, port, *words, "--worker-class", worker, "--workers", "2", app)
    return 2


def started(programs: Programs, port: int, *words: Any) -> None:
    programs.python(*words, port=port, GOLOOP_INTROSPECT="1", GOLOOP_WATCHDOG="0.1")


def ask(port: int) -> dict[str, Any]:
    """Make a request on a new connection: another worker may answer the next."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIME_LIMIT)
    with contextlib.closing(connection):
        connection.request("GET", "/")
        told: dict[str, Any] = json.loads(connection.getresponse().read())
        return told


@contextlib.contextmanager
def load(port: int) -> Iterator[collections.Counter[int]]:
    """Make requests in sequence; return the processes that answered."""
    answered = collections.Counter[int]()
    ended = threading.Event()
    failures: list[Exception] = []

    def asks() -> None:
        try:
            while not ended.wait(0.01):
                answered[ask(port)["pid"]] += 1
        except Exception as failure:
            failures.append(failure)

    thread = threading.Thread(target=asks)
    thread.start()
    try:
        yield answered
    finally:
        ended.set()
        thread.join()
    assert not failures


SERVERS: list[Callable[[Programs, int], int]] = [
    aiohttp,
    aiohttp_in_threads,
    aiohttp_in_gunicorn,
    uvicorn,
    uvicorn_with_workers,
    uvicorn_in_gunicorn,
]


@pytest.mark.timeout(600)  # a dozen commands, one after the other
@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.__name__)
def test_the_culprit_is_named(
    programs: Programs, tmp_path: Path, server: Callable[[Programs, int], int]
) -> None:
    port = free_port()
    workers = server(programs, port)
    with load(port) as answered:
        until(lambda: len(answered) == workers and min(answered.values()) >= 3)
        loops = {named(pid, tmp_path / "trace.json.gz") for pid in answered}
        until(lambda: loops == logged(programs.started[0].output))


def logged(output: str) -> set[int]:
    """The loops that the watchdog has seen blocked by the culprit."""
    return {int(number) for number in re.findall(r"'nightly figures'.*\[loop (\d+), ", output)}


def named(pid: int, trace: Path) -> int:
    """The culprit's loop, after each tool has named that and the culprit.

    On a busy machine something else may have most of one second, so each is asked again.
    """
    until(lambda: profile_names_it(pid), lambda: goloop("profile", str(pid)).stdout)
    [number] = until(lambda: slow_names_it(pid), lambda: goloop("slow", str(pid)).stdout)
    until(lambda: trace_names_it(pid, trace, number), lambda: trace)
    return number


def profile_names_it(pid: int) -> bool:
    """Whether the culprit had most of the time in the next second."""
    done = goloop("profile", str(pid), "--seconds", "1")
    assert done.returncode == 0, done.stderr
    samples, _, *rows = done.stdout.splitlines()
    # Loops of several threads wait for the GIL, and that is no function's time.
    named = [row.split() for row in rows if "(the loop)" not in row]
    if int(samples.split()[0]) < 10 or not named:
        return False
    *_, task, function, place = named[0]
    if (task, function) != ("recompute", "compute"):
        return False
    file, _, line = place.rpartition(":")
    assert file == str(CULPRIT)
    assert int(line) in LOOP_LINES
    return True


def slow_names_it(pid: int) -> set[int]:
    """In which loops; empty while the culprit's iterations are not the longest."""
    done = goloop("slow", str(pid))
    assert done.returncode == 0, done.stderr
    numbers = set()
    longest = collections.Counter[str]()
    for each in re.split(r"^(?=\S)", done.stdout, flags=re.MULTILINE):
        found = re.search(r"the longest took (\S+) s: (.*)\n((?:    .*\n)*)", each)
        if found is None:
            continue
        longest[found[2]] += float(found[1])
        if found[2] != "recompute":
            continue
        numbers |= {int(number) for number in re.findall(r"  loop (\d+): ", each)}
        frames = re.findall(r'File "(.*)", line (\d+), in (.*)\n', found[3])
        assert frames[0] == (str(CULPRIT), str(AWAITED), "recompute")
        file, line, function = frames[1]
        assert (file, function) == (str(CULPRIT), "compute")
        assert int(line) in LOOP_LINES
    if sum(longest.values()) < 1:
        return set()
    return numbers if longest.most_common(1)[0][0] == "recompute" else set()


def trace_names_it(pid: int, path: Path, number: int) -> bool:
    done = goloop("trace", str(pid), "--seconds", "1", "-o", str(path))
    assert done.returncode == 0, done.stderr
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    threads = {
        each["tid"]: each["args"]["name"] for each in events if each["name"] == "thread_name"
    }
    longest = collections.Counter[tuple[Any, ...]]()
    for each in events:
        if each["ph"] == "X" and each["cat"] not in ("loop", "gc"):
            args = each["args"]
            place = args.get("file"), args.get("line")
            longest[each["name"], args.get("task"), *place, threads[each["tid"]]] += each["dur"]
    (name, task, file, line, loop), microseconds = longest.most_common(1)[0]
    if microseconds < 200_000 or (name, task) != ("recompute", "nightly figures"):
        return False
    assert (file, line) == (str(CULPRIT), CODE)
    assert loop == f"loop {number}"
    return True
