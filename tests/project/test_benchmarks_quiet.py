"""Refused rows, rates that are not reached, and the machine's facts in the benchmarks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from benchmark_runs import a_run, sample

from benchmarks import __main__ as program
from benchmarks import (
    cases,
    conditions,
    loops,
    native,
    quiet,
    report,
    results,
    tables,
)
from goloop.operations.compare.measuring import machine

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None, reason="the program of the costs is compiled with cc"
)

CASE = "protocol-1k-x10"


# ---- disturbed rows ------------------------------------------------------------------


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


def test_a_row_is_refused_by_the_share_of_its_disturbed_windows() -> None:
    reasons = {
        (1, 0, 0): None,
        (0, 0, 0): None,
        (1, 1, 0): None,  # 2 of 27: less than a tenth
        (1, 1, 1): "3 of 27 windows were disturbed",
        (2, 0, 0): None,
    }
    found = {
        bad: quiet.refusal(
            a_row(dict(zip(("goloop", "asyncio", "uvloop"), bad, strict=True))), CASE
        )
        for bad in reasons
    }
    assert {bad: each and each.reason for bad, each in found.items()} == reasons


def test_a_row_is_refused_by_the_share_of_one_loop() -> None:
    names = list(loops.BY_NAME)[:6]
    row = a_row({**dict.fromkeys(names, 0), "uvloop": 3})
    assert quiet.refusal(row, CASE) is None
    row = a_row({**dict.fromkeys(names, 0), "uvloop": 4})
    found = quiet.refusal(row, CASE)
    assert found is not None
    assert found.reason == "4 of 9 windows of uvloop were disturbed"
    assert str(found) == "CPython 3.14.3, protocol-1k-x10: 4 of 9 windows of uvloop were disturbed"


def test_windows_without_an_account_are_not_judged() -> None:
    row = a_row({"goloop": 9})
    assert quiet.windows(row, CASE) == {"goloop": quiet.Windows(9, 9, 0)}
    for each in row.samples[CASE]["goloop"].values():
        each["cores"] = 0
    assert quiet.windows(row, CASE) == {"goloop": quiet.Windows(0, 0, 9)}
    assert quiet.refusal(row, CASE) is None
    assert quiet.refusal(row, "sleep-0") is None


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


def test_a_report_of_refused_rows_alone_is_refused(
    pages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results.save(pages / "results" / "a.json", [a_row({"goloop": 9})])
    assert program.main(["report"]) == 1
    assert list((pages / "docs").iterdir()) == []
    assert "protocol-1k-x10: 9 of 9 windows were disturbed" in capsys.readouterr().err


# ---- rates that are not reached --------------------------------------------------------


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


# ---- the machine -----------------------------------------------------------------------

X86 = """\
processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 2
model name\t: A processor
stepping\t: 1
flags\t\t: fpu {flag}

processor\t: 1
model\t\t: 99
"""
ARM = """\
processor\t: 0
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
"""


@pytest.mark.parametrize(
    ("cpuinfo", "words"),
    [
        (X86, "AuthenticAMD family 26, model 2, stepping 1"),
        (ARM, "implementer 0x41, variant 0x3, part 0xd0c"),
        ("", "unknown"),
        ("model\t: 3\n", "unknown"),
    ],
)
def test_the_processors_family_is_that_of_the_first_one(cpuinfo: str, words: str) -> None:
    assert machine.family(cpuinfo.splitlines()) == words


@pytest.mark.parametrize(
    ("flag", "by_cpuid", "named", "computer", "words"),
    [
        ("", "", [], [["Maker"], ["Desk"]], "none"),
        ("hypervisor", "", [], [[], []], "unnamed"),
        ("hypervisor", "KVMKVMKVM", [], [["Maker"], ["Machine 5"]], "KVMKVMKVM (Maker Machine 5)"),
        ("", "", ["xen"], [[], []], "xen"),
        ("hypervisor", "Microsoft Hv", ["other"], [[], ["Model"]], "Microsoft Hv (Model)"),
    ],
)
def test_a_hypervisor_is_named_by_what_is_known(
    flag: str, by_cpuid: str, named: list[str], computer: list[list[str]], words: str
) -> None:
    cpuinfo = X86.format(flag=flag).splitlines()
    assert machine.hypervisor_name(cpuinfo, by_cpuid, named, computer) == words


@needs_compiler
def test_the_costs_of_the_machine_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = machine.usable_cores()
    found = native.machine_costs(cores[0], cores[-1])
    assert float(found["null_call_ns"]) > 0
    assert ("wake_us" in found) == (len(cores) > 1)
    assert float(found.get("wake_us", 1)) > 0

    def refuse(_name: str) -> Path:
        raise native.BuildError("no C compiler is on PATH")

    monkeypatch.setattr(native, "c_program", refuse)
    assert native.machine_costs(cores[0], cores[-1]) == {}


def test_the_pages_name_each_machine_with_its_costs() -> None:
    run, again, older = a_row({"goloop": 0}), a_row({"goloop": 0}, case="sock-1k-x4"), a_run()
    facts = {
        "family": "AuthenticAMD family 26, model 2, stepping 1",
        "hypervisor": "KVMKVMKVM",
        "null_call_ns": "48.2",
    }
    run.machine = {**run.machine, **facts, "wake_us": "3.05"}
    again.machine = {**run.machine, "null_call_ns": "51.7"}
    del older.samples[CASE]
    chosen = {CASE: run, "sock-1k-x4": again}
    assert conditions.facts(chosen).splitlines()[:2] == [
        "- Machine: a processor (family 26, model 2), 2 cores, a kernel, hypervisor: KVM, 1 GiB, "
        "a libc; server on core 0, client on core 1.",
        "- Its costs, measured before each run: a system call that does nothing: 48.2 to 51.7 ns; "
        "a wake-up between two threads on two cores: 3.05 µs.",
    ]
    assert "on a processor (family 26, model 2), 2 cores, a kernel, hypervisor: KVM;" in " ".join(
        report.usual({"cp314": chosen}).split()
    )
    lines = conditions.facts({**chosen, "sleep-0": older}).splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == [
        "- Machine", "- Its costs, measured before each run", "- Machine",
    ]  # fmt: skip
    assert lines[2] == (
        "- Machine: a processor, 2 cores, 1 GiB, a kernel, a libc; server on core 0, "
        "client on core 1. Rows on this machine: 1."
    )
