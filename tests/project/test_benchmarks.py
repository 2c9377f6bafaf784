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
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from benchmark_runs import a_run, sample, window

from benchmarks import __main__ as program
from benchmarks import (
    allocator,
    cases,
    clients,
    compare,
    factories,
    front,
    machine,
    micro,
    native,
    plot,
    quiet,
    report,
    results,
    runner,
    servers,
    storm,
)
from benchmarks.loops import BY_NAME
from benchmarks.stats import (
    Ratio,
    claim,
    interval,
    others,
    paired_ratio,
    rank,
    ratio_of,
    short,
    summarize,
)

PROGRAMS = Path(__file__).with_name("programs")

ROOT = Path(__file__).resolve().parents[2]

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None, reason="the load generator is compiled with cc"
)


# ---- arithmetic -------------------------------------------------------------------


def test_a_summary_is_median_and_extremes() -> None:
    summary = summarize([5.0, 1.0, 3.0])
    assert (summary.median, summary.minimum, summary.maximum, summary.rounds) == (3, 1, 5, 3)
    assert summarize([1.0, 2.0]).median == 1.5


def test_ratios_are_taken_inside_rounds() -> None:
    # The machine was twice as slow in round 1: the ratio of the medians would be
    # 150/100, the ratio inside each round is 2.
    assert paired_ratio({0: 200, 1: 100, 2: 200}, {0: 100, 1: 50, 2: 100}) == 2


def test_a_ratio_skips_rounds_that_one_side_lacks() -> None:
    assert paired_ratio({0: 10, 2: 30}, {1: 5, 2: 10}) == 3
    assert paired_ratio({0: 10}, {1: 5}) is None
    assert paired_ratio({}, {}) is None
    assert paired_ratio({0: 10}, {0: 0}) is None


# Ranks of the 95 % interval of a median, as the tables of the sign test have them: twice
# the sum of the binomial below is at most 0.05, and with one term more it is above.
RANKS = {
    6: 1, 7: 1, 8: 1, 9: 2, 10: 2, 11: 2, 12: 3, 13: 3, 14: 3, 15: 4, 16: 4, 17: 5, 18: 5,
    19: 5, 20: 6, 21: 6, 22: 6, 23: 7, 24: 7, 25: 8, 30: 10, 40: 14, 50: 18, 100: 40,
}  # fmt: skip


def test_the_medians_interval_has_the_binomials_ranks() -> None:
    assert {n: rank(n) for n in RANKS} == RANKS
    assert [rank(n) for n in range(6)] == [None] * 6


def test_an_interval_is_of_the_ordered_values() -> None:
    assert interval([5, 1, 4, 2, 3, 6]) == (1, 6)
    assert interval([9, 1, 8, 2, 7, 3, 6, 4, 5]) == (2, 8)
    assert interval([1, 2, 3, 4, 5]) is None
    assert interval([]) is None


def test_a_claim_has_its_interval_where_the_rounds_suffice() -> None:
    ours = {number: 1.0 + number / 100 for number in range(7)}
    ones = dict.fromkeys(range(7), 1.0)
    assert ratio_of(ours, ones) == Ratio(1.03, 1.0, 1.06)
    assert claim(ours, ones) == "1.03× (1.00–1.06)"
    assert claim(ours, ones, "") == "1.03 (1.00–1.06)"
    assert claim(ours, {0: 1.0}) == "1.00×"
    assert claim(ours, {}) == "–"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (0.1234, "0.12"), (9.994, "9.99"), (9.996, "10.0"), (99.94, "99.9"),
        (99.96, "100"), (999.4, "999"), (999.6, "1.00k"), (183_412, "183k"), (999_600, "1.00M"),
        (-1_500, "-1.50k"),
    ],
)  # fmt: skip
def test_figures_have_three_digits(value: float, text: str) -> None:
    assert short(value) == text


def test_others_share_excludes_client_server_and_idle_time() -> None:
    def share(apart: bool = False, **changed: float) -> float | None:
        return others(window(**changed), interrupts_apart=apart)

    assert share() == 0
    assert share(idle=0.6) == pytest.approx(0.2)
    assert share(idle=0.6, interrupts=0.4, apart=True) == pytest.approx(0)
    # The time that the host took is known by itself, in any column of the kernel.
    assert share(steal=0.3) == pytest.approx(0.15)
    assert share(idle=0.6, steal=0.4) == pytest.approx(0.2)
    # Idle time is told in steps, so that the sum may be more than the whole.
    assert share(idle=1.02) == 0


# ---- runs -------------------------------------------------------------------------


def test_a_run_survives_its_file(tmp_path: Path) -> None:
    runs = [a_run(), a_run(python="3.13.0")]
    results.save(tmp_path / "runs.json", runs)
    assert results.load(tmp_path / "runs.json") == runs
    assert json.loads((tmp_path / "runs.json").read_text())["format"] == results.FORMAT
    assert [path.name for path in tmp_path.iterdir()] == ["runs.json"]


# ---- the report ---------------------------------------------------------------------

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the page of some runs, without plots: matplotlib is not a test's requirement."""
    monkeypatch.setattr(report, "DOCS", tmp_path)
    monkeypatch.setattr(plot, "draw", lambda *_: [tmp_path / "img" / "a.svg"])
    kept, page = tmp_path / "results" / "a.json", tmp_path / "performance-tables.md"

    def written(*runs: results.Run) -> str:
        results.save(kept, runs)
        assert page in report.write(kept.parent).files
        text = page.read_text()
        # The short page alone has the losses.
        assert "Where other loops are faster" not in text
        short = (tmp_path / "performance.md").read_text()
        tags = results.latest(runs)
        assert all(report.losses(tags[tag]) in short for tag in tags if tags[tag])
        # The page can be written again from its own data.
        kept.unlink()
        report.write(kept.parent)
        assert page.read_text() == text
        return text

    return written


def part(page: str, heading: str) -> str:
    """Return the text below a heading, or after a sentence."""
    assert heading in page
    end = "\n## " if heading.startswith("## ") else "\n##"
    return page.partition(heading)[2].partition(end)[0]


def row(text: str, name: str) -> list[str]:
    """The cells of the first table row of a case, or of a title, without the title."""
    title = cases.BY_NAME[name].title if name in cases.BY_NAME else name
    line = next(line for line in text.splitlines() if line.startswith(f"| {title} "))
    return [cell.strip() for cell in line.strip("| ").split("|")][1:]


def a_newer_run(rounds: int = 7) -> results.Run:
    """A run of today's form: disarmed, with intervals, CPU by mode and new rows."""
    run = a_run("2026-01-02 00:00:00")
    run.allocator = dict(allocator.STEADY)
    run.until, run.max_rounds = 0.05, 21
    run.samples, run.errors = {}, {}
    for number in range(rounds):
        for loop, rate in (("goloop", 120 + number), ("uvloop", 100), ("c-epoll", 125)):
            taken = sample(rate * 1000, server_cpu=0.6)
            taken |= {"server_user": 0.2, "server_system": 0.4}
            taken |= {"user_instructions": taken["messages"] * 5000}
            run.add("protocol-1k-x10", loop, number, taken)
        for loop, one, two in (("goloop", 90, 200), ("uvloop", 180, 100)):
            run.add("client-protocol-x10", loop, number, sample(one * 1000, server_cpu=0.9))
            run.add("client-protocol-x10-same", loop, number, sample(two * 1000, server_cpu=0.8))
        for loop, rate, late in (("goloop", 1_960, 80.0), ("uvloop", 1_800, 90.0)):
            asked = {"asked": 2_000.0, "p50_us": late / 2, "p99_us": late}
            run.add("fixed-2k-x4", loop, number, {**sample(rate, server_cpu=0.0098), **asked})
        for loop, late in (("goloop", 100.0), ("uvloop", 400.0)):
            asked = {"asked": 30_000.0, "p50_us": late / 2, "p99_us": late}
            run.add("latency-aiohttp-60", loop, number, {**sample(30_000), **asked})
            run.add("timer-storm-x200", loop, number, {"p99_us": late, "messages": 200})
            run.add("idle-memory", loop, number, {"bytes": late, "messages": 10_000})
        run.add("idle-memory", "c-epoll", number, {"bytes": 48.0, "messages": 10_000})
        for loop, ns in (("goloop", 200.0), ("uvloop", 400.0), (cases.PYTHON, 150.0)):
            run.add("gather", loop, number, {"ns": ns, "us": ns / 1e3, "best_ns": ns})
    return run


def a_free_threaded_run() -> results.Run:
    """A run of one loop and of two: uvloop under the GIL, and goloop crashed in a case."""
    run = a_run()
    run.build = "CPython 3.14.3 free-threading build (main)"
    run.gil = "0"
    run.samples, run.errors = {}, {}

    def taken(rate: float, **more: float) -> results.Sample:
        return {"messages": rate, "seconds": 1.0, "server_cpu": 1.0, "gil": 0.0, **more}

    for number in range(6):
        for loop, one, two in (("goloop", 1e6, 1.9e6), ("uvloop", 5e5, 4e5)):
            gil = float(loop == "uvloop")
            run.add("loops-sleep-x1", loop, number, taken(one, gil=gil))
            run.add("loops-sleep-x2", loop, number, taken(two, gil=gil))
        run.add("loops-tasks-x1", "goloop", number, taken(1e5))
        run.add("loops-flood", "goloop", number, taken(1e6, call_ns=75.0))
        run.add("loops-pingpong", "goloop", number, taken(2e4))
    run.fail("loops-tasks-x2", "goloop", "was ended by SIGSEGV")
    return run


NETWORK = "### Network and pipes"
FREE_THREADED = "## CPython 3.14.3, free-threaded"
SLEEPS = "sleep(0), steps/s"
CLIENT, SHARED = "client-protocol-x10", "client-protocol-x10-same"
# Rows of the page of all three runs: heading, case or title, and the first cells.
ROWS = [
    (NETWORK, "protocol-1k-x10", ["100k", "123k", "1.23× (1.20–1.26)", "0.98× (0.96–1.01)"]),
    (report.COSTS, "protocol-1k-x10", ["4.88 (1.63 + 3.25)"]),
    ("Instructions of the server in user mode", "protocol-1k-x10", ["5.00k", "5.00k", "5.00k"]),
    ("### Clients of real servers", CLIENT, ["180k", "90.0k", "0.50× (0.50–0.50)"]),
    (report.CLIENT_COSTS, CLIENT, ["10.0", "5.00", "2.00× (2.00–2.00)"]),
    ("### Both ends on the same core", SHARED, ["100k", "200k", "2.00× (2.00–2.00)"]),
    (report.SHARED_COSTS, SHARED, ["4.00", "8.00", "0.50× (0.50–0.50)"]),
    ("### Messages at a fixed rate", "fixed-2k-x4",
     ["2.00k", "5.00 / 40.0 / 80.0", "not reached", "–", "–", "–"]),
    ("### Latency at a share of the peak rate", "latency-aiohttp-60",
     ["30.0k", "50.0 / 100", "200 / 400", "0.25× (0.25–0.25)", "0.25× (0.25–0.25)"]),
    ("### Operations of the loop", "gather", ["200", "–", "400", "150"]),
    ("### Timers while others shake hands", "timer-storm-x200", ["100", "400"]),
    ("### Memory of a connection", "idle-memory", ["100", "400", "48.0"]),
    (FREE_THREADED, SLEEPS,
     ["1.00M", "1.90M", "1.90× (1.90–1.90)", "500k", "400k", "0.80× (0.80–0.80)"]),
    (FREE_THREADED, "create_task + await, tasks/s", ["100k", "failed", "–"]),
    (FREE_THREADED, "call_soon_threadsafe there and back, round trips/s", ["–", "20.0k", "–"]),
    (report.CALLS, "loops-flood", ["75.0"]),
    (report.SEVERAL_COSTS, "loops-flood", ["1.00"]),
]  # fmt: skip
SENTENCES = [
    # Machine and versions; how each run was taken.
    "a processor", "a kernel", "uvloop 1", "goloop 1",
    "load generator: C epoll; the allocator as it comes.", "MALLOC_TRIM_THRESHOLD_=",
    "2 to 21 rounds (until the interval of goloop ÷ uvloop was within ± 5%)",
    "; PYTHON_GIL=0.",
    # Failures.
    "one thread at a time run: uvloop.",
    "goloop finished 0 of 2 rounds: was ended by SIGSEGV",
    "- Not measured: zuvloop (zuvloop is not installed).",
]  # fmt: skip


def test_the_page_has_each_figure_in_its_table(write: Write) -> None:
    page = write(a_run(), a_newer_run(), a_free_threaded_run())
    assert [text for text in SENTENCES if text not in page] == []
    shown = [
        (where, name, row(part(page, where), name)[: len(cells)]) for where, name, cells in ROWS
    ]
    assert shown == ROWS


def test_usual_rows_have_both_pinnings_side_by_side() -> None:
    run = a_newer_run()
    split = report.usual({"cp314": {"protocol-1k-x10": run, CLIENT: run}})
    assert "same core" not in split.partition("| case")[2]
    shown = report.usual({"cp314": dict.fromkeys(run.samples, run)})
    assert [
        re.sub(" +", " ", line) for line in shown.splitlines() if line.startswith("| case")
    ] == [
        "| case | rate ÷ uvloop | CPU ÷ uvloop | same core: rate ÷ uvloop | "
        "same core: CPU ÷ uvloop |"
    ]
    assert row(shown, CLIENT) == [
        "0.50 (0.50–0.50)", "2.00 (2.00–2.00)", "2.00 (2.00–2.00)", "0.50 (0.50–0.50)"
    ]  # fmt: skip
    assert row(shown, "protocol-1k-x10")[2:] == ["–", "–"]


def test_a_row_is_lost_with_either_pinning() -> None:
    run = a_newer_run()
    lines = report.losses({CLIENT: run, SHARED: run}).splitlines()
    assert [line.split("|")[1].strip() for line in lines[4:]] == [cases.BY_NAME[CLIENT].title] * 2
    assert front._losses({CLIENT: run, SHARED: run}, "").startswith(
        "Another loop is better by more than 2% in 2 of 4 measured values"
    )


def test_front_pages_agree_with_the_data(tmp_path: Path) -> None:
    """Tables, losses and the picture of the tree are those of docs/performance.json."""
    chosen, _refused = quiet.choose(results.load(ROOT / "docs" / "performance.json"))
    for page, images, pages in report.front_pages():
        text = page.read_text()
        assert front.rewritten(text, chosen, images, pages) == text
    for image in front.draw(chosen, tmp_path):
        assert image.read_text() == (ROOT / "docs" / "img" / front.IMAGE).read_text()


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
    few = {
        *(f"protocol-1k-x{connections}" for connections in (1, 2, 4, 10, 100)),
        *("streams-1k-x4", "tls-1k-x4", "aiohttp-x4", "sock-1k-x4", "unix-1k-x4", "unix-1k-x10"),
        *("fastapi-x4", "fastapi-x100", "broadcast-x1000", "broadcast-x5000"),
        *(f"fixed-{rate}-x{few}" for rate in ("2k", "10k", "40k") for few in (4, 10, 100)),
    }
    assert few - {case.name for case in usual} == set()
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
            alone = case.pinning == "same" or not machine.cores().apart
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
def test_a_client_that_dies_is_a_failure_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measuring = a_runner()
    run = measuring.new_run([BY_NAME["asyncio"]], "a test", (), [])
    dying = "print('path /', flush=True); input(); exit('out of luck')"
    monkeypatch.setattr(
        measuring, "_python_command", lambda _arguments: [sys.executable, "-c", dying]
    )
    measuring.measure(run, [cases.BY_NAME["client-protocol-x10"]], [BY_NAME["asyncio"]])
    assert run.samples == {}
    assert run.errors["client-protocol-x10"]["asyncio"] == (
        "the client exited with status 1: out of luck"
    )


@needs_compiler
def test_a_server_that_dies_is_a_failure_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measuring = a_runner()
    run = measuring.new_run([BY_NAME["asyncio"]], "a test", ())
    dying = [sys.executable, "-c", "import sys; print('a log line'); sys.exit('out of luck')"]
    monkeypatch.setattr(measuring, "_python_command", lambda _arguments: dying)
    measuring.measure(run, [cases.BY_NAME["protocol-1k-x1"]], [BY_NAME["asyncio"]])
    assert run.samples == {}
    assert run.errors["protocol-1k-x1"]["asyncio"] == (
        "the server exited with status 1: out of luck"
    )


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
        r"^In \d+ of 24 network windows other programs or the host", text, re.MULTILINE
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
    others: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a load generator, the one in C if no other is named, against a server.

    The process ids `others` follow the id of the server.
    """
    assert server.stdout is not None
    port = server.stdout.readline().strip()
    command = [str(generator or native.c_program("epoll_load")), mode, port]
    command += [str(connections), size, "0", seconds, f"{server.pid}{others}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


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


# Works for each answer, and has its own process counted as another one at the client's end.
WORKING = (PROGRAMS / "benchmarked_server.py").read_text()


@needs_compiler
def test_other_processes_count_as_the_clients_end() -> None:
    found = []
    for others_of in ("", ",{0}", ",{0},{0}"):
        with serving(WORKING) as server:
            done = load(server, "echo", "0.2", others=others_of.format(server.pid))
        assert done.returncode == 0, done.stderr
        taken = json.loads(done.stdout)
        found.append(int(taken["client_cpu"] / taken["server_cpu"]))
    assert found == [0, 1, 2]


def test_a_client_reads_the_clocks_of_processes() -> None:
    pid = os.getpid()
    first = time.process_time()
    once, twice = (clients.read_account([pid] * count, set()).server for count in (1, 2))
    assert first <= once <= twice / 2 <= time.process_time()
    assert clients.read_account([2**22 + 1], set()) == clients.Account(0, (0, 0, 0))


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
    assert done.returncode == 0, done.stderr
    # 100 a second, and a pause of 0.3 s after every 25 answers: most requests were due during a
    # pause, so the median is late. Counted from their sending, one answer of 25 would be late.
    assert json.loads(done.stdout)["p50_us"] > 20_000


@needs_compiler
def test_a_paced_mode_needs_its_rate() -> None:
    with serving(PACED.format(answer="question", size=64)) as server:
        done = load(server, "echo-paced", "1", size="64")
    assert (done.returncode, done.stderr) == (1, "epoll_load: a paced mode needs SIZE@RATE\n")


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
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["messages"] % 3 == 0
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

    def _sample(self, case: cases.Case, name: str, number: int = 0) -> results.Sample:
        if self.rates[number] < 0 and name == "goloop":
            raise servers.Failure("it failed")
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
