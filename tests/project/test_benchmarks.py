"""The benchmarks' own correctness: arithmetic, tables, files, and the programs they run.

No test checks the speed of a loop. The tests check that a result is computed from the right
samples, and that a failure is shown as a failure.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmark_runs import a_run, sample

from benchmarks import __main__ as program
from benchmarks import (
    allocator,
    cases,
    compare,
    factories,
    markdown,
    micro,
    native,
    report,
    results,
    runner,
    servers,
    storm,
    windows,
)
from benchmarks.loops import BY_NAME
from goloop.operations.compare.measuring import machine
from goloop.operations.compare.measuring.turns import Failure

ROOT = Path(__file__).resolve().parents[2]

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None, reason="the load generator is compiled with cc"
)


# ---- text -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (0.1234, "0.12"), (9.994, "9.99"), (9.996, "10.0"), (99.94, "99.9"),
        (99.96, "100"), (999.4, "999"), (999.6, "1.00k"), (183_412, "183k"), (999_600, "1.00M"),
        (-1_500, "-1.50k"),
    ],
)  # fmt: skip
def test_figures_have_three_digits(value: float, text: str) -> None:
    assert markdown.short(value) == text


# ---- runs -------------------------------------------------------------------------


def test_a_run_survives_its_file(tmp_path: Path) -> None:
    runs = [a_run(), a_run(python="3.13.0")]
    results.save(tmp_path / "runs.json", runs)
    assert results.load(tmp_path / "runs.json") == runs
    assert json.loads((tmp_path / "runs.json").read_text())["format"] == results.FORMAT
    assert [path.name for path in tmp_path.iterdir()] == ["runs.json"]


# ---- the report ---------------------------------------------------------------------


def test_a_page_can_be_written_again_from_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "DOCS", tmp_path)
    run, free = a_run(), a_run(python="3.13.0")
    free.build, free.gil = "CPython 3.13.0 free-threading build", "0"
    free.allocator = dict(allocator.STEADY)
    free.until, free.max_rounds = 0.05, 21
    free.samples = {"loops-sleep-x1": {"uvloop": {0: sample(1e5) | {"gil": 1.0}}}}
    results.save(tmp_path / "results" / "a.json", [run, free])
    written = report.write(tmp_path / "results").files
    texts = [re.sub(" +", " ", path.read_text()) for path in written]
    for sentence in (
        "| Protocol echo, 1 KiB ×10 | 100k | 120k | 1.20× |",
        "a processor", "a kernel", "uvloop 1", "goloop 1",
        "load generator: C epoll; the allocator as it comes.", "MALLOC_TRIM_THRESHOLD_=",
        "2 to 21 rounds (until the interval of goloop ÷ uvloop was within ± 5%)",
        "; PYTHON_GIL=0.",
        "one thread at a time run: uvloop.",
        "rloop finished 0 of 2 rounds: the server was ended by SIGSEGV",
        "- Not measured: zuvloop (zuvloop is not installed).",
    ):  # fmt: skip
        assert sentence in texts[1]
    (tmp_path / "results" / "a.json").unlink()
    assert report.write(tmp_path / "results").files == written
    assert [re.sub(" +", " ", path.read_text()) for path in written] == texts


def test_pages_agree_with_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page and picture of the tree is what `report` makes of docs/performance.json."""
    docs = ROOT / "docs"
    monkeypatch.setattr(report, "DOCS", tmp_path / "docs")
    (tmp_path / "docs").mkdir()
    for name in ("performance.json", "index.md", "../README.md"):
        shutil.copy(docs / name, tmp_path / "docs" / name)
    written = report.write(tmp_path / "no results")
    assert written.refused == []
    for path in written.files:
        there = ROOT / path.resolve().relative_to(tmp_path)
        assert path.read_text() == there.read_text(), "python -m benchmarks report"


def test_a_case_is_lost_by_each_of_its_figures() -> None:
    """A rate that is won with more processor time, a median that is lost, and the start-up."""
    run = a_run()
    run.samples = {}
    for number in range(6):
        for loop, rate, cpu in (("goloop", 120_000, 0.9), ("uvloop", 100_000, 0.5)):
            run.add("protocol-1k-x10", loop, number, sample(rate, server_cpu=cpu))
        for loop, p50, p99 in (("goloop", 60.0, 100.0), ("uvloop", 50.0, 300.0)):
            asked = {"asked": 30_000.0, "p50_us": p50, "p99_us": p99}
            run.add("latency-aiohttp-60", loop, number, {**sample(30_000), **asked})
        for loop, ms, kib in (("goloop", 40.0, 9_000.0), ("asyncio", 20.0, 10_000.0)):
            run.add("startup-time", loop, number, {"ms": ms, "kib": kib})
            run.add("startup-memory", loop, number, {"ms": ms, "kib": kib})
    lines = report.losses(dict.fromkeys(run.samples, run)).split("\n")
    assert lines[0] == "3 values of 4 cases, measured with asyncio, uvloop, rloop:"
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[4:]] == [
        ["Protocol echo, 1 KiB ×10", "CPU", "uvloop 1.50× (1.50–1.50)"],
        ["aiohttp hello ×100 at 60 %", "median", "uvloop 1.20× (1.20–1.20)"],
        ["interpreter up to first loop", "ms", "asyncio 2.00× (2.00–2.00)"],
    ]


# ---- the catalogues -------------------------------------------------------------------


def test_cases_are_chosen_by_name_pattern_group_and_kind() -> None:
    assert [case.name for case in cases.select(["sleep-0"])] == ["sleep-0"]
    assert len(cases.select(["protocol-*-x1"], pinning="split")) == 3
    assert {case.group for case in cases.select(["tasks"])} == {"tasks"}
    assert {case.group for case in cases.select(["tls", "processes"])} == {"tls", "processes"}
    assert cases.select(["full"]) == list(cases.CASES)
    # Several loops in one process only where the interpreter lets them run at once.
    usual = cases.select(["all"], free_threaded=True)
    assert {case.group for case in usual} == {case.group for case in cases.CASES}
    # A pattern fits both rows of a case with two pinnings, and the pinning chooses among them.
    both = [case.name for case in cases.select(["streams-1k-x4"])]
    assert both == ["streams-1k-x4", "streams-1k-x4-same"]
    assert cases.select(["streams-1k-x4"], pinning="same") == cases.select([both[1]])
    assert {case.group for case in cases.select(["full"], pinning="same")} == set(cases.SHARING)
    with pytest.raises(ValueError, match="no case with the pinning 'same' is called 'sleep-0'"):
        cases.select(["sleep-0"], pinning="same")
    under_gil = cases.select(["all"])
    assert under_gil == [case for case in usual if case.kind != "loops"]
    assert [case.name for case in cases.select(["loops-sleep,loops-flood", "spawn"])] == [
        "spawn", "loops-sleep-x1", "loops-sleep-x2", "loops-flood",
    ]  # fmt: skip
    assert cases.BY_NAME["protocol-10k-x10"] not in usual
    with pytest.raises(ValueError, match="no case is called 'nothing'"):
        cases.select(["nothing"])


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("--cases streams-1k-x4", [["streams-1k-x4", "streams-1k-x4-same"]]),
        ("--cases streams-1k-x4 --pinning split", [["streams-1k-x4"]]),
        ("--cases streams-1k-x4 --pinning same", [["streams-1k-x4-same"]]),
        # The allocator's table has no rows of the same core.
        ("--pinning same", [[case.name for case in cases.select(["all"], pinning="same")]]),
    ],
)
def test_run_measures_the_rows_of_a_pinning(words: str, names: list[list[str]]) -> None:
    options = program._parser().parse_args(["run", *words.split()])
    plans = program._plans(options, free_threaded=False)
    assert [[case.name for case in chosen] for _settings, chosen in plans] == names


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations once and in small numbers."""
    monkeypatch.setattr(micro, "BUDGET", 0)
    monkeypatch.setattr(micro, "REPEATS", 1)
    monkeypatch.setattr(micro, "LARGEST", 1_000)


@pytest.mark.usefixtures("briefly")
@pytest.mark.parametrize("name", sorted(micro.MICROS))
def test_every_micro_case_runs_and_has_its_limit(name: str) -> None:
    figure = micro.main(factories.resolve("asyncio:new_event_loop"), name)
    assert 0 < figure["best_ns"] <= figure["ns"]
    assert name not in micro.LIMITS or micro.limit(name)["ns"] > 0


# ---- the programs -----------------------------------------------------------------------


def a_runner() -> runner.Runner:
    """Of windows too short to mean anything."""
    settings = runner.Settings(rounds=1, seconds=0.05, warmup=0.01)
    return runner.Runner(sys.executable, settings, lambda _line: None)


def measurable(name: str) -> None:
    """Skip if this machine lacks a requirement of a case."""
    missing = a_runner().new_run([], "a test", (), [cases.BY_NAME[name]]).missing
    if name in missing:
        pytest.skip(f"the case is not measured here: {missing[name]}")


# A case of each kind and program; `make bench` runs the whole catalogue.
MEASURED = (
    *("protocol-1k-x1", "streams-1k-x4", "churn-x10", "aiohttp-x4", "tls-1k-x4", "udp-512-x50"),
    *("sock-1k-x4", "unix-1k-x10", "fastapi-x4", "fastapi-h11-x100", "uvicorn-x100"),
    *("broadcast-x1000", "broadcast-x5000", "fixed-2k-x4", "fixed-10k-x10", "fixed-40k-x100"),
    *("pipe-read", "spawn", "idle-memory", "timer-storm-x200", "startup-time"),
    *("latency-aiohttp-30", "loops-sleep-x2", "loops-echo-x2", "loops-flood"),
    *("protocol-1k-x10-same", "websockets-x50", "fastapi-sync-x100", "fastapi-asyncpg-x100"),
    *("client-protocol-x10", "client-protocol-unix-x100-same", "client-aiohttp-x10"),
    *("client-httpx-x20", "client-redis-x10", "client-redis-unix-x1", "client-redis-pipeline-x10"),
    *("client-asyncpg-x1", "client-asyncpg-x60-same"),
)


@needs_compiler
@pytest.mark.parametrize("loop", ["asyncio", "goloop"])
@pytest.mark.parametrize("name", MEASURED)
def test_a_case_is_measured(
    name: str, loop: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(runner, "BASE", loop)  # whose peak a latency's rate is a share of
    monkeypatch.setattr(results, "REACHED", 0)  # a busy machine may be too slow
    measurable(name)
    case = cases.BY_NAME[name]
    # The benchmarks raise the limit themselves.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    request.addfinalizer(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    measuring = a_runner()
    run = measuring.new_run([BY_NAME[loop]], "a test", ("c-epoll", "c-uring"), [case])
    measuring.measure(run, [case], [BY_NAME[loop]])
    assert run.errors == {}
    there = {ceiling for ceiling in case.ceilings if "version" in run.loops.get(ceiling, {})}
    assert run.samples[name].keys() == {loop} | there
    for competitor, rounds in run.samples[name].items():
        [figure] = run.figures(name, competitor, case.key).values()
        assert figure > 0
        assert case.kind != "fixed" or rounds[0]["asked"] == case.pace
        if case.kind in ("net", "client", "children", "loops"):
            assert rounds[0]["messages"] > 0
            assert rounds[0]["server_cpu"] > 0
        if case.kind == "client" or case.pinning == "same":
            # The account is of the cores of the two ends.
            alone = case.pinning == "same" or len(machine.usable_cores()) == 1
            assert rounds[0]["cores"] == (1 if alone else 2)
            assert rounds[0]["client_cpu"] > 0


@needs_compiler
def test_a_row_of_more_connections_than_files_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner.Runner, "_files", staticmethod(lambda: 4096))
    wanted = cases.select(["broadcast", "idle-memory", "protocol-1k-x100"])
    why = "a process may open 4096 files, too few"
    missing = a_runner().new_run([], "a test", (), wanted).missing
    assert missing == {"broadcast-x5000": why, "idle-memory": why}


@needs_compiler
@pytest.mark.parametrize(
    ("name", "program", "role"),
    [
        ("client-protocol-x10", "print('path /', flush=True); input()", "client"),
        ("protocol-1k-x1", "print('a log line')", "server"),
    ],
)
def test_a_process_that_dies_is_a_failure_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, name: str, program: str, role: str
) -> None:
    measuring = a_runner()
    run = measuring.new_run([BY_NAME["asyncio"]], "a test", (), [])
    dying = [sys.executable, "-c", f"{program}; exit('out of luck')"]
    monkeypatch.setattr(measuring, "_python_command", lambda _arguments: dying)
    measuring.measure(run, [cases.BY_NAME[name]], [BY_NAME["asyncio"]])
    assert run.samples == {}
    assert run.errors[name]["asyncio"] == f"the {role} exited with status 1: out of luck"


@needs_compiler
def test_two_builds_are_compared_with_intervals() -> None:
    settings = runner.Settings(rounds=6, seconds=0.05, warmup=0.01)
    wanted = cases.select(["protocol-1k-x1", "sleep-0", "client-protocol-x10"], pinning="split")
    text = compare.compare(sys.executable, sys.executable, wanted, settings, lambda _line: None)
    rows = [line for line in text.splitlines() if re.match(r"\| [a-z]+-", line)]
    number = r"\d+\.\d{3}"
    ratio = rf"{number}× \({number}–{number}\)"
    assert [len(re.findall(ratio, row)) for row in rows] == [2, 2, 1], text
    assert re.search(
        r"^Other programs or the host disturbed \d+ of 24 network windows", text, re.MULTILINE
    ), text


# ---- the load generators ---------------------------------------------------------------


@contextlib.contextmanager
def serving(program: str) -> Iterator[subprocess.Popen[str]]:
    """A server, which prints its ports first."""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            yield server
        finally:
            server.kill()


def load(
    server: subprocess.Popen[str],
    mode: str,
    seconds: str,
    connections: int = 1,
    size: str = "64",
    generator: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a load generator, the one in C if no other is named, against a server."""
    assert server.stdout is not None
    port = server.stdout.readline().strip()
    command = [str(generator or native.c_program("epoll_load")), mode, port]
    return subprocess.run(
        [*command, str(connections), size, "0", seconds],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def found(done: subprocess.CompletedProcess[str]) -> dict[str, float]:
    """The result of a load generator."""
    assert done.returncode == 0, done.stderr
    begin, end, result = done.stdout.splitlines()
    assert (begin, end) == ("begin", "end")
    figures: dict[str, float] = json.loads(result)
    return figures


# A server that answers a question wrongly.
STREAM = """
import socket, ssl
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
client, _ = listener.accept()
if {identity!r}:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain({identity!r})
    client = context.wrap_socket(client, server_side=True)
for number in range(100):
    data = client.recv(64)
    answer = {answer} if number == {number} else data
    client.sendall(answer) if answer else client.close()
"""
# A WebSocket's server that answers a frame wrongly. A client's frame has a mask of zeros.
WEBSOCKET = """
import socket
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
client, _ = listener.accept()
assert client.recv(4096).endswith(b'\\r\\n\\r\\n')
client.sendall(b'HTTP/1.1 101 Switching Protocols\\r\\n\\r\\n')
for number in range(100):
    question = client.recv(208)
    assert question[:8] == bytes([0x82, 0xfe, 0, 200, 0, 0, 0, 0])
    data = bytes([0x82, 126, 0, 200]) + question[8:]
    client.sendall({answer} if number == {number} else data)
"""
DIFFERS = ("data[:-1] + b'!'", "an answer differs from its question")
LONGER = ("data + b'!'", "an answer is longer than its question")
CLOSED = ("b''", "the server closed a connection")


@needs_compiler
@pytest.mark.parametrize(
    ("mode", "number", "answer", "complaint"),
    [
        ("echo", 0, *DIFFERS),
        ("echo", 0, *CLOSED),
        ("websocket", 0, *DIFFERS),
        ("websocket", 5, *LONGER),
        # The first answer is decrypted and compared, later ones are counted by their records.
        ("tls", 0, *DIFFERS),
        ("tls", 5, *LONGER),
        ("tls-churn", 0, *DIFFERS),
    ],
)
def test_the_load_generators_refuse_wrong_answers(
    mode: str, number: int, answer: str, complaint: str
) -> None:
    identity, generator = "", None
    if mode.startswith("tls"):
        measurable("tls-1k-x100" if mode == "tls" else "tls-churn-x10")
        identity = str(native.identity())
        generator = native.tls_program() if mode == "tls" else native.go_program()
    stream = WEBSOCKET if mode == "websocket" else STREAM
    program = stream.format(identity=identity, answer=answer, number=number)
    size = "200" if mode == "websocket" else "64"
    with serving(program) as server:
        done = load(server, mode, "60", size=size, generator=generator)
    assert done.returncode == 1
    assert complaint in done.stderr


# Works for each answer.
WORKING = """
import socket
listener = socket.create_server(('127.0.0.1', 0))
print('port', listener.getsockname()[1], flush=True)
client, _ = listener.accept()
while data := client.recv(64):
    sum(range(10_000))
    client.sendall(data)
"""


@needs_compiler
def test_a_window_has_the_accounts_of_both_ends() -> None:
    def child(role: str, *command: str) -> servers.Child:
        return servers.Child(role, command, os.environ, lambda: None)

    with child("server", sys.executable, "-c", WORKING) as server:
        port = server.answer("listen", 20).removeprefix("port ")
        generator = str(native.c_program("epoll_load"))
        with child("load generator", generator, "echo", port, "1", "64", "0", "0.2") as talker:
            others = [server.process.pid] * 2  # as another process at the generator's end
            taken = windows.measure(server, talker, others, machine.usable_cores(), 30)
        assert taken["cores"] == len(machine.usable_cores())
        assert 0 < taken["server_cpu"] < taken["seconds"] * 1.1
        assert taken["client_cpu"] > taken["server_cpu"]  # a process counts once
    with child("server", "sleep", "60") as server:
        with child("load generator", "sleep", "60") as silent, pytest.raises(Failure) as error:
            windows.measure(server, silent, [], [], 0.05)
        assert str(error.value) == "the load generator did not end"
        with (
            child("load generator", generator, "nothing", port) as refused,
            pytest.raises(Failure, match="usage: MODE ADDRESS"),
        ):
            windows.measure(server, refused, [], [], 30)


# Answers each question, with a pause before some answers: those due meanwhile are late too.
PACED = """
import socket, time
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
client, _ = listener.accept()
data, answers, size = b'', 0, {size}
while piece := client.recv(4096):
    data += piece
    while len(data) >= size:
        question, data = data[:size], data[size:]
        answers += 1
        if answers % 25 == 20: time.sleep(0.3)
        client.sendall({answer})
"""
HTTP = ("b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok'", 35)


@needs_compiler
@pytest.mark.parametrize(
    ("mode", "answer", "size"), [("http-paced", *HTTP), ("echo-paced", "question", 64)]
)
def test_late_answer_delays_the_messages_after_it(mode: str, answer: str, size: int) -> None:
    with serving(PACED.format(answer=answer, size=size)) as server:
        done = load(server, mode, "1.5", size="64@100")
    # 100 a second, and a pause of 0.3 s after every 25 answers: most requests were due during a
    # pause, so the median is late. Counted from their sending, one answer of 25 would be late.
    assert found(done)["p50_us"] > 20_000


# Echoes each connection's first bytes, then sends the first one's bytes to all.
MEMBERS = """
import socket
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
members = [listener.accept()[0] for _ in range(3)]
for member in members:
    member.sendall(member.recv(64))
while data := members[0].recv(64):
    for member in members:
        member.sendall({sent})
"""


@needs_compiler
def test_a_broadcast_counts_whole_rounds_of_every_connection() -> None:
    with serving(MEMBERS.format(sent="data")) as server:
        done = load(server, "broadcast", "0.2", connections=3)
    assert found(done)["messages"] % 3 == 0
    with serving(MEMBERS.format(sent="data + b'!'")) as server:
        done = load(server, "broadcast", "60", connections=3)
    assert (done.returncode, done.stderr) == (
        1, "epoll_load: an answer is longer than its question\n",
    )  # fmt: skip


# ---- rounds and their reports -------------------------------------------------------------


class Rounds(runner.Runner):
    """A runner whose samples are made up: the rates of goloop, uvloop's being 1."""

    def __init__(self, settings: runner.Settings, rates: list[float]) -> None:
        """Take the settings; nothing is built."""
        self.settings = settings
        self.alive = {}
        self.rates = rates
        self.said: list[str] = []
        self.say = self.said.append

    def sample(self, case: cases.Case, name: str, number: int = 0) -> results.Sample:
        if self.rates[number] < 0 and name == "goloop":
            raise Failure("it failed")
        return sample(self.rates[number] if name == "goloop" else 1.0)


@pytest.mark.parametrize(
    ("rates", "rounds"),
    [
        # No interval before six rounds; then it is narrow at once.
        ([1.0] * 30, 6),
        # Two far rounds are outside of the interval of twelve, not of fewer: 6 to 8 rounds
        # are bounded by their extremes, 9 to 11 by the second ones.
        ([2.0, 3.0] + [1.0] * 30, 12),
        # The interval is never narrow enough.
        ([1.0, 2.0, 3.0] * 10, 21),
        # goloop fails again and again: nothing to wait for.
        ([1.0, 2.0, -1.0, -1.0] + [1.0] * 30, 5),
    ],
)
def test_rounds_continue_until_the_interval_is_narrow(rates: list[float], rounds: int) -> None:
    measuring = Rounds(runner.Settings(rounds=5, until=0.05, max_rounds=21), rates)
    run = a_run()
    run.samples = {}
    case = cases.BY_NAME["protocol-1k-x100"]
    measuring.measure_cases(run, [case], [BY_NAME["goloop"], BY_NAME["uvloop"]])
    assert run.tried(case.name) == rounds
    fixed = Rounds(runner.Settings(rounds=5), rates)
    run.samples = {}
    fixed.measure_cases(run, [case], [BY_NAME["uvloop"]])
    assert len(run.samples[case.name]["uvloop"]) == 5


def test_ticks_after_a_late_one_count_as_late() -> None:
    assert storm.delays(-0.0005) == [0]
    assert storm.delays(0.0004) == [0.0004]
    assert storm.delays(0.0025) == pytest.approx([0.0025, 0.0015, 0.0005])
    assert storm.percentile([4, 1, 3, 2], 0.5) == 2
    assert storm.percentile(list(range(1, 101)), 0.99) == 99
    assert storm.percentile([7], 0.99) == 7


# ---- several loops in one process ---------------------------------------------------------


def test_measured_processes_get_no_tuning_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MALLOC_TRIM_THRESHOLD_", "GOLOOP_TASKS", "PYTHONPATH", "GOMAXPROCS", "GOGC"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("LANG", "C")
    monkeypatch.setenv("PYTHON_GIL", "0")
    environment = runner.environment()
    assert environment.pop("LANG") == "C"
    assert environment.pop("PYTHON_GIL") == "0"
    assert not [name for name in environment if re.match("MALLOC|PYTHON.|GOM|GOGC|GOLOOP", name)]
