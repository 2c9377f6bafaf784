"""The benchmarks: pages agree with their data, disturbed rows are refused, a row of each kind runs.

No test checks the speed of a loop. The statistics and the verdicts are those of `goloop compare`:
test_compare_verdicts.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from suite_servers import SERVERS

from benchmarks import __main__ as program
from benchmarks import (
    allocator,
    cases,
    clients,
    compare,
    factories,
    micro,
    native,
    quiet,
    real_servers,
    report,
    results,
    runner,
    simulations,
    storm,
    tables,
)
from benchmarks.loops import BY_NAME
from goloop.operations import proc_stat, server_ports
from goloop.operations.compare.measuring import machine
from goloop.operations.compare.measuring.turns import Failure

ROOT = Path(__file__).resolve().parents[2]
CASE = "protocol-1k-x10"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks need Linux")
needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None, reason="the load generator is compiled with cc"
)


# ---- runs that are made up ----------------------------------------------------------------


def sample(rate: float, server_cpu: float = 1.0) -> results.Sample:
    """A quiet second on two cores in which the server used some CPU time."""
    return {
        "messages": rate, "seconds": 1.0, "p50_us": 10.0, "p99_us": 20.0, "client_cpu": 0.5,
        "server_cpu": server_cpu, "cores": 2, "idle": 1.5 - server_cpu, "steal": 0.0,
        "interrupts": 0.0,
    }  # fmt: skip


def a_run(date: str = "2026-01-01 00:00:00", python: str = "3.14.3") -> results.Run:
    """A run with a win, a loss, a failure and a loop that is not there."""
    loops = {name: {"version": f"{name} 1"} for name in ("goloop", "asyncio", "uvloop", "rloop")}
    run = results.Run(
        python=python, build="CPython", command="python -m benchmarks run", date=date,
        machine={
            **{name: f"a {name}" for name in ("processor", "kernel", "libc", "openssl")},
            "cores": "2", "memory": "1 GiB", "packages": "aiohttp 3, uvicorn 0",
            "interrupts": "within",
        },
        client="C epoll", cores="server on core 0, client on core 1", rounds=2, seconds=1.0,
        warmup=0.1, commit="abc",
        loops={
            **loops, "zuvloop": {"error": "zuvloop is not installed"}, "c-epoll": {"version": "C"},
        },
    )  # fmt: skip
    for number in range(2):
        for loop, rate in (("goloop", 120), ("asyncio", 70), ("uvloop", 100), ("c-epoll", 125)):
            run.add("protocol-1k-x10", loop, number, sample(rate * 1000))
        for loop, ns in (("goloop", 200), ("asyncio", 1000), ("uvloop", 100)):
            run.add("sleep-0", loop, number, {"ns": ns, "us": ns / 1000, "best_ns": ns - 1})
    run.fail("protocol-1k-x10", "rloop", "the server was ended by SIGSEGV: ")
    return run


def a_row(
    bad: dict[str, int], rounds: int = 9, day: int = 1, rate: float = 120_000.0, case: str = CASE
) -> results.Run:
    """Return a run of one case: for each loop, the number of its disturbed windows."""
    run = a_run(f"2026-01-0{day} 00:00:00")
    run.samples, run.errors = {}, {}
    run.rounds = rounds
    for loop, count in bad.items():
        for number in range(rounds):
            # 0.5 s of two seconds were others'.
            taken = sample(rate) | ({"idle": 0.0} if number < count else {})
            run.add(case, loop, number, taken)
    return run


# ---- the pages ------------------------------------------------------------------------------


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
    for name in (
        *("performance.json", "index.md", "../README.md"),
        *(path.name for path in docs.glob("performance-*.json")),
    ):
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
    words, _empty, rows = report.losses(dict.fromkeys(run.samples, run)).partition("\n\n")
    assert " ".join(words.split()) == (
        "3 values of 4 cases, measured with asyncio, uvloop, rloop. In 3 of the cases a whole "
        "interval is above 1."
    )
    lines = rows.split("\n")
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]] == [
        ["Protocol echo, 1 KiB ×10", "CPU", "uvloop 1.50× (1.50–1.50)"],
        ["aiohttp hello ×100 at 60 %", "median", "uvloop 1.20× (1.20–1.20)"],
        ["interpreter up to first loop", "ms", "asyncio 2.00× (2.00–2.00)"],
    ]


def test_a_loop_that_misses_the_rate_has_no_figures() -> None:
    case = cases.BY_NAME["fixed-10k-x4"]
    run = a_run()
    for number, rate in enumerate((9_600, 9_600, 2_000)):
        run.add(case.name, "goloop", number, sample(rate) | {"asked": 10_000})
    for number, rate in enumerate((9_400, 9_400, 10_000)):
        run.add(case.name, "uvloop", number, sample(rate) | {"asked": 10_000})
    chosen = {case.name: run}
    assert run.reaches(case.name, "goloop")
    assert not run.reaches(case.name, "uvloop")
    assert run.reaches(case.name, "rloop")
    assert len(run.figures(case.name, "goloop", "p99_us")) == 3
    for key in ("server_us", "p50_us", "p99_us", "server_cpu", "messages"):
        assert run.figures(case.name, "uvloop", key) == {}
    assert set(run.figures(case.name, "uvloop", "rate").values()) == {9_400, 10_000}
    assert report.losses(chosen) == "None of 1 cases, measured with uvloop."
    assert "| not reached |" in tables.paced_table(tables.measured(chosen))
    run.samples[case.name]["goloop"] = run.samples[case.name]["uvloop"]
    assert "goloop does not reach the rate" in report.losses(chosen).splitlines()[-1]


def test_a_terminal_gets_the_tables_of_the_page_and_the_verdicts() -> None:
    run = a_run()
    run.missing["udp-512-x50"] = "there is no network"
    text = report.summary(run, cases.select([CASE, "sleep-0", "udp-512-x50"], pinning="split"))
    assert "### Network and pipes\n\n| case " in text
    beside = "can't tell beside uvloop and asyncio"  # two rounds are too few
    assert f"\n\n- Protocol echo, 1 KiB ×10: {beside}\n- sleep(0): {beside}\n" in text
    assert "medians of 2 rounds. A ratio is the median of the ratios of the rounds" in text
    assert text.endswith("zuvloop: zuvloop is not installed\n\nudp-512-x50: there is no network")
    assert "goloop ÷ c-epoll" in text
    del run.samples[CASE]["c-epoll"]
    assert "c-epoll" not in report.summary(run, cases.select([CASE], pinning="split"))


def test_a_terminal_gets_one_verdict_for_each_case() -> None:
    run = a_row({"goloop": 0, "uvloop": 0, "asyncio": 0})
    for number in range(9):
        run.samples[CASE]["asyncio"][number]["messages"] /= 2
    # Every window of this one was disturbed: it has no figures.
    other = a_row({"goloop": 9, "uvloop": 9}, rate=777_000.0, case="protocol-1k-x100")
    run.samples |= other.samples
    text = report.summary(run, cases.select([CASE, "protocol-1k-x100"], pinning="split"))
    assert "\n- Protocol echo, 1 KiB ×10: no difference from uvloop, faster than asyncio\n" in text
    assert "\n- Protocol echo, 1 KiB ×100: no figures: other programs or the host dist" in text
    assert text.count("×100") == 1
    assert "777k" not in text
    progress = runner._progress(run, cases.BY_NAME["protocol-1k-x100"])
    assert progress == f"protocol-1k-x100: {quiet.NO_FIGURES}"
    assert "goloop 120k" in runner._progress(run, cases.BY_NAME[CASE])
    run.samples[CASE]["goloop"][3]["lost"] = 2
    assert "were sent again: Protocol echo, 1 KiB ×10, goloop 2 of 1,080,000." in report.summary(
        run, cases.select([CASE], pinning="split")
    )


# ---- refused rows -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ((1, 1, 0), None),  # 2 of 27: less than a tenth
        ((1, 1, 1), "3 of 27 windows were disturbed"),
        ((3, 0, 0, 0, 0, 0), None),
        ((4, 0, 0, 0, 0, 0), "4 of 9 windows of goloop were disturbed"),
    ],
)
def test_a_row_is_refused_by_its_share_of_disturbed_windows(
    bad: tuple[int, ...], reason: str | None
) -> None:
    found = quiet.refusal(a_row(dict(zip(BY_NAME, bad, strict=False))), CASE)
    assert (found and found.reason) == reason


def test_a_window_is_judged_by_the_time_of_its_accounts() -> None:
    run = a_row({"goloop": 0}, rounds=1)
    run.samples[CASE]["goloop"][0] |= {"seconds": 0.5, "span": 1.0}
    assert quiet.windows(run, CASE)["goloop"] == quiet.Windows(0, 1)
    run.samples[CASE]["goloop"][0]["idle"] = 0.0  # 0.5 s of two seconds were others'
    assert quiet.windows(run, CASE)["goloop"] == quiet.Windows(1, 1)


def test_a_refused_row_does_not_replace_a_quiet_one() -> None:
    older, newer = a_row({"goloop": 0, "uvloop": 0}), a_row({"goloop": 9, "uvloop": 0}, day=2)
    chosen, refused = quiet.choose([older, newer])
    assert chosen == {"cp314": {CASE: older}}
    assert [(each.run, each.case) for each in refused] == [(newer, CASE)]
    # Measured again: the refused one is of no interest any more.
    newest = a_row({"goloop": 0, "uvloop": 0}, day=3)
    assert quiet.choose([older, newer, newest]) == ({"cp314": {CASE: newest}}, [])


def test_commands_take_the_rows_in_the_way_of_their_run() -> None:
    def refused(case: str, command: str = "", **fields: object) -> quiet.Refusal:
        run = a_run()
        run.command = f"python -m benchmarks {command}"
        vars(run).update(fields)
        return quiet.Refusal(run, case, "")

    free = {"layouts": 5, "gil": "0", "build": "CPython 3.14 free-threading build"}
    found = [
        refused(CASE, "run --cases 'protocol-*' udp --pinning both --rounds 9"),
        refused("udp-512-x50", "run --rounds 9 --loops goloop uvloop"),
        refused(CASE, "run --cases protocol --rounds 9"),
        refused(f"{CASE}-same", "run"),
        refused("sleep-0", "run --cases micro startup"),
        refused("spawn", "run --no-save"),
        refused(CASE, "run", **free),
    ]
    split = "--pinning split --cases protocol-1k-x10"
    assert quiet.commands(found) == [
        f"python3.14 -m benchmarks run --rounds 9 {split}",
        "python3.14 -m benchmarks run --rounds 9 --loops goloop uvloop --cases udp-512-x50",
        f"python3.14 -m benchmarks run --cases {CASE}-same sleep-0 spawn",
        f"PYTHON_GIL=0 python3.14t -m benchmarks run --allocator default {split}",
    ]
    parser = program._parser()
    for command in quiet.commands(found):
        words = command.partition(" -m benchmarks ")[2].split()
        assert parser.parse_args(words).cases == words[words.index("--cases") + 1 :]


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the report write into a directory."""
    monkeypatch.setattr(report, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(program, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(native, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    return tmp_path


def test_the_report_writes_no_figure_of_a_refused_row(
    pages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = a_row({"goloop": 9, "uvloop": 9}, rate=777_000.0)
    bad.add("udp-512-x50", "goloop", 0, sample(555_000.0))
    results.save(pages / "results" / "a.json", [bad])
    assert program.main(["report"]) == 1
    written = [path.read_text() for path in (pages / "docs").rglob("*.*")]
    assert len(written) == 4
    assert not [text for text in written if "777" in text]
    assert "555k" in (pages / "docs" / "performance-tables.md").read_text()
    said = capsys.readouterr()
    assert said.out.split() == [
        "docs/performance.md", "docs/performance-tables.md", "docs/performance.json",
        "docs/img/performance-network-cp314.svg",
    ]  # fmt: skip
    assert "protocol-1k-x10: 18 of 18 windows were disturbed" in said.err
    assert "--cases protocol-1k-x10\n" in said.err
    # Measured again and quiet: all of it is shown, and nothing is refused.
    results.save(pages / "results" / "b.json", [a_row({"goloop": 0}, day=2, rate=333_000.0)])
    assert program.main(["report"]) == 0
    assert "333" in (pages / "docs" / "performance-tables.md").read_text()


def test_runs_of_two_machines_are_not_mixed(
    pages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = a_row({"goloop": 0}, day=2, case="protocol-1k-x100")
    other.machine["processor"] = "another one"
    results.save(pages / "results" / "a.json", [a_row({"goloop": 0})])
    assert program.main(["report"]) == 0
    results.save(pages / "results" / "b.json", [other])
    before = (pages / "docs" / "performance.json").read_text()
    assert program.main(["report"]) == 1
    said = capsys.readouterr().err
    assert "several machines (processor: a processor and another one)" in said
    assert "--machine" in said
    assert (pages / "docs" / "performance.json").read_text() == before


def test_a_report_of_refused_rows_alone_is_refused(
    pages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results.save(pages / "results" / "a.json", [a_row({"goloop": 9})])
    assert program.main(["report"]) == 1
    assert list((pages / "docs").iterdir()) == []
    assert "protocol-1k-x10: 9 of 9 windows were disturbed" in capsys.readouterr().err


# ---- the rows run ---------------------------------------------------------------------------


def test_cases_are_chosen_by_name_pattern_group_and_kind() -> None:
    assert [case.name for case in cases.select(["sleep-0"])] == ["sleep-0"]
    assert {case.group for case in cases.select(["tls", "children"])} == {"tls", "processes"}
    assert cases.select(["full"]) == list(cases.CASES)
    both = [case.name for case in cases.select(["streams-1k-x4"])]
    assert both == ["streams-1k-x4", "streams-1k-x4-same"]
    assert cases.select(["streams-1k-x4"], pinning="same") == cases.select([both[1]])
    # Several loops in one process only where the interpreter lets them run at once.
    usual = cases.select(["all"], free_threaded=True)
    assert cases.select(["all"]) == [case for case in usual if case.kind != "loops"]
    assert cases.BY_NAME["uvicorn-x1"] not in usual
    with pytest.raises(ValueError, match="no case with the pinning 'same' is called 'sleep-0'"):
        cases.select(["sleep-0"], pinning="same")


DOCUMENTED = re.compile(r"(?:-m benchmarks |BENCH_ARGS=')((?:run|quick|compare)\b[^`#\n]*)")


@pytest.mark.parametrize("page", ["docs/benchmarks.md", "docs/settings.md", "benchmarks/README.md"])
def test_documented_commands_name_cases_and_options(page: str) -> None:
    found = DOCUMENTED.findall((ROOT / page).read_text())
    assert found
    for words in found:
        options = program._parser().parse_args(
            shlex.split(words.removesuffix("'") if words.count("'") % 2 else words)
        )
        assert cases.select(getattr(options, "cases", None) or ["all"])


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
    *("protocol-1k-x1", "protocol-1k-x10-same", "streams-1k-x4", "readline-1k-x100", "sock-1k-x4"),
    *("buffered-1k-x10", "churn-x10", "tls-1k-x4", "tls-churn-x10", "udp-512-x50", "unix-1k-x10"),
    *("aiohttp-x4", "uvicorn-x100", "fastapi-x4", "fastapi-h11-x100", "fastapi-sync-x100"),
    *("fastapi-asyncpg-x100", "websockets-x50", "broadcast-x1000", "broadcast-x5000", "pipe-read"),
    *("pipe-write", "client-protocol-x10", "client-protocol-unix-x100-same", "client-aiohttp-x10"),
    *("client-httpx-x20", "client-redis-x10", "client-redis-pipeline-unix-x10"),
    *("client-asyncpg-x60-same", "latency-aiohttp-30", "fixed-2k-x4", "fixed-40k-x100", "spawn"),
    *("idle-memory", "timer-storm-x200", "startup-time", "loops-sleep-x2", "loops-echo-x2"),
    "loops-flood",
)


@needs_compiler
@pytest.mark.parametrize("name", MEASURED)
def test_a_case_is_measured(
    name: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(runner, "BASE", "goloop")  # whose peak a latency's rate is a share of
    monkeypatch.setattr(results, "REACHED", 0)  # a busy machine may be too slow
    measurable(name)
    case = cases.BY_NAME[name]
    # The benchmarks raise the limit themselves.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    request.addfinalizer(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    measuring = a_runner()
    run = measuring.new_run([BY_NAME["goloop"]], "a test", ("c-epoll", "c-uring"), [case])
    measuring.measure(run, [case], [BY_NAME["goloop"]])
    assert run.errors == {}
    there = {ceiling for ceiling in case.ceilings if "version" in run.loops.get(ceiling, {})}
    assert run.samples[name].keys() == {"goloop"} | there
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


def test_the_window_of_a_client_has_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the first one may come after the time of the window."""

    async def burst(tally: clients.Tally) -> None:
        await asyncio.sleep(0.1)
        tally.messages += 1
        while not tally.ending:
            await asyncio.sleep(0.001)

    monkeypatch.setattr(clients, "pause", lambda _word: None)
    assert asyncio.run(clients.measure(burst, 0, 0.01))["messages"] == 1


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


def test_measured_processes_get_no_tuning_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MALLOC_TRIM_THRESHOLD_", "GOLOOP_TASKS", "PYTHONPATH", "GOMAXPROCS", "GOGC"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("LANG", "C")
    monkeypatch.setenv("PYTHON_GIL", "0")
    environment = runner.environment()
    assert environment.pop("LANG") == "C"
    assert environment.pop("PYTHON_GIL") == "0"
    assert not [name for name in environment if re.match("MALLOC|PYTHON.|GOM|GOGC|GOLOOP", name)]


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
    server: subprocess.Popen[str], mode: str, seconds: str, size: str, generator: Path
) -> subprocess.CompletedProcess[str]:
    """Run a load generator with one connection to a server."""
    assert server.stdout is not None
    port = server.stdout.readline().strip()
    return subprocess.run(
        [generator, mode, port, "1", size, "0", seconds],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


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
DIFFERS = ("data[:-1] + b'!'", "an answer differs from its question")


@needs_compiler
@pytest.mark.parametrize(
    ("mode", "number", "answer", "complaint"),
    [
        ("echo", 0, *DIFFERS),
        ("echo", 0, "b''", "the server closed a connection"),
        # The first answer is decrypted and compared, later ones are counted by their records.
        ("tls", 0, *DIFFERS),
        ("tls", 5, "data + b'!'", "an answer is longer than its question"),
        ("tls-churn", 0, *DIFFERS),
    ],
)
def test_the_load_generators_refuse_wrong_answers(
    mode: str, number: int, answer: str, complaint: str
) -> None:
    identity, generator = "", native.c_program("epoll_load")
    if mode != "echo":
        measurable("tls-1k-x100" if mode == "tls" else "tls-churn-x10")
        identity = str(native.identity())
        generator = native.tls_program() if mode == "tls" else native.go_program()
    with serving(STREAM.format(identity=identity, answer=answer, number=number)) as server:
        done = load(server, mode, "60", "64", generator)
    assert done.returncode == 1
    assert complaint in done.stderr


# Swallows the second datagram; answers the fourth late, after it has come again, and so twice.
DATAGRAMS = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(('127.0.0.1', 0))
print(server.getsockname()[1], flush=True)
seen = []
while True:
    data, peer = server.recvfrom(4096)
    seen.append(data)
    if seen.count(data) == 1 and len(set(seen)) in (2, 4): continue
    server.sendto({answer}, peer)
    if len(set(seen)) == 4: server.sendto(data, peer)
"""


@needs_compiler
def test_a_lost_datagram_is_sent_again_and_counted() -> None:
    with serving(DATAGRAMS.format(answer="data")) as server:
        done = load(server, "udp", "1", "64", native.c_program("epoll_load"))
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["lost"] >= 2, done.stderr
    assert result["messages"] > 4


@needs_compiler
@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ("data + b'!'", "an answer is longer than its question"),
        ("data[:-1]", "an answer is shorter than its question"),
        ("data[:-1] + b'!'", "an answer differs from its question"),
        ("b'!' * 64", "an answer differs from its question"),
    ],
)
def test_a_wrong_datagram_is_refused(answer: str, complaint: str) -> None:
    with serving(DATAGRAMS.format(answer=answer)) as server:
        done = load(server, "udp", "60", "64", native.c_program("epoll_load"))
    assert done.returncode == 1
    assert complaint in done.stderr


ECHO = """
import socket
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
client, _ = listener.accept()
while data := client.recv(4096): client.sendall(data)
"""


# The fourth answer comes after the window.
SLOW_ECHO = ECHO.replace(
    "while data := client.recv(4096): client",
    """\
import itertools, time
for number in itertools.count():
    data = client.recv(4096)
    time.sleep(3 * (number == 3))
    client""",
)


def load_with_a_pause(program: str, mode: str, pause: float) -> dict[str, float]:
    """Load a server by one connection for 0.2 s, after a pause at the begin; return the result."""
    with serving(program) as server:
        assert server.stdout is not None
        generator = native.c_program("epoll_load")
        words = [generator, mode, server.stdout.readline().strip(), "1", "64@1000", "0", "0.2"]
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as loading:
            assert loading.stdin is not None
            assert loading.stdout is not None
            assert loading.stdout.readline() == "begin\n"
            with contextlib.suppress(subprocess.TimeoutExpired):
                loading.wait(pause)
            loading.stdin.write("\n")
            loading.stdin.flush()
            said, _ = loading.communicate("\n")
    result: dict[str, float] = json.loads(said.splitlines()[-1])
    return result


@needs_compiler
@pytest.mark.parametrize("mode", ["echo", "echo-paced"])
def test_the_pause_at_the_begin_is_no_part_of_the_window(mode: str) -> None:
    """On a busy machine the reader takes its accounts for longer than the window."""
    pause = 1.0
    result = load_with_a_pause(ECHO, mode, pause)
    # Neither the window nor a latency has the pause.
    assert result["messages"] > 1
    assert result["p50_us"] < pause * 1e6


@needs_compiler
def test_answers_of_the_pause_are_no_part_of_the_window() -> None:
    """The second one arrives during the pause, and the third one is the window's only one."""
    assert load_with_a_pause(SLOW_ECHO, "echo", 0.5)["messages"] == 1


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
        done = load(server, mode, "1.5", "64@100", native.c_program("epoll_load"))
    # 100 a second, and a pause of 0.3 s after every 25 answers: most requests were due during a
    # pause, so the median is late. Counted from their sending, one answer of 25 would be late.
    assert json.loads(done.stdout.splitlines()[-1])["p50_us"] > 20_000, done.stderr


def test_ticks_after_a_late_one_count_as_late() -> None:
    assert storm.delays(-0.0005) == [0]
    assert storm.delays(0.0025) == pytest.approx([0.0025, 0.0015, 0.0005])


# ---- real servers, simulators -----------------------------------------------------


def needs(name: str) -> None:
    """Skip if a server is not installed."""
    if reason := real_servers.missing(name, SERVERS):
        pytest.skip(reason)


def await_end(processes: list[int]) -> None:
    """Wait until none of some processes runs; the test's limit of time ends it otherwise."""
    for process in processes:
        while proc_stat.state(process) not in ("", "Z"):
            os.sched_yield()


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_a_real_server_accepts_on_its_core_and_ends_with_its_folder(name: str) -> None:
    needs(name)
    core = machine.usable_cores()[-1]
    server = real_servers.RealServer(name, core, SERVERS)
    processes = server_ports.family_of(server.pid)
    try:
        socket.create_connection(("127.0.0.1", server.port)).close()
        assert all(os.sched_getaffinity(process) == {core} for process in processes)
        assert name != "redis" or Path(server.path).is_socket()
    finally:
        server.end()
    await_end(processes)
    assert not Path(server.path).parent.exists()


STARTING = """
import sys
sys.path.append("tests/external")
from suite_servers import SERVERS
from benchmarks import real_servers
from goloop.operations import server_ports
server = real_servers.RealServer(sys.argv[1], 0, SERVERS)
print(server.path, *server_ports.family_of(server.pid), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_a_real_server_ends_after_the_benchmarks_were_killed(name: str) -> None:
    needs(name)
    with subprocess.Popen(
        [sys.executable, "-c", STARTING, name], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as starter:  # fmt: skip
        assert starter.stdout is not None
        path, *numbers = starter.stdout.readline().split()
        starter.send_signal(signal.SIGKILL)
    await_end([*map(int, numbers)])
    shutil.rmtree(Path(path).parent)


@pytest.mark.parametrize("simulator", ["goloop", "goloop, shuffle"])
@pytest.mark.parametrize("name", simulations.PROGRAMS)
def test_a_simulator_runs_each_program(simulator: str, name: str) -> None:
    figure = simulations.sample(simulator, name, 0.01)
    assert isinstance(figure, float), figure
    assert figure > 0
