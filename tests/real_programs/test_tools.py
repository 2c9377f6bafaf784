"""Profilers, coverage, and detectors of blocking calls, with a program on goloop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from partial_run import FREE_THREADED

from real_programs.programs import APPS, LOOP, TIME_LIMIT, Programs, needs

pytestmark = pytest.mark.real

TRACED = APPS / "traced_app.py"
# The program's functions that the loop calls: tasks, callbacks, a protocol's method.
FUNCTIONS = {
    *("main", "handle", "in_a_task", "allocate"),
    *("from_the_loop", "from_a_timer", "from_a_watch", "from_another_thread", "at_the_end"),
    *("Echo.connection_made", "Echo.data_received", "Echo.connection_lost"),
}


# ---- VizTracer -----------------------------------------------------------------------------


def test_viztracer_records_every_callback_with_its_task(programs: Programs, tmp_path: Path) -> None:
    needs("viztracer")
    traced = tmp_path / "trace.json"
    said = programs.ends_well("-m", "viztracer", "--log_async", "-o", traced, TRACED)
    assert f"loop: {LOOP} in" in said
    events = json.loads(traced.read_text())["traceEvents"]
    calls = [event for event in events if event["ph"] == "X" and TRACED.name in event["name"]]
    assert {call["name"].split(" (")[0] for call in calls} >= FUNCTIONS
    # Functions that a task runs have their own row.
    rows = {
        event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    tasks = {rows[call["tid"]] for call in calls if call["name"].startswith("in_a_task (")}
    assert len(tasks) == 1
    assert tasks.pop().startswith("Task-")


# ---- py-spy --------------------------------------------------------------------------------


def test_py_spy_names_blocked_coroutines(programs: Programs) -> None:
    tool = Path(sys.executable).with_name("py-spy")
    if not tool.exists():
        pytest.skip("py-spy is not installed: it is in the dependency group `tools`")
    if FREE_THREADED:
        pytest.skip("py-spy 0.4 finds no interpreter in a free-threaded process")
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if os.geteuid() != 0 and scope.exists() and scope.read_text().strip() != "0":
        pytest.skip("only root may look at another process here (ptrace_scope)")
    program = programs.python(APPS / "standing_app.py", GOLOOP_WATCHDOG="0")
    program.until_says(f"loop: {LOOP}")
    done = subprocess.run(
        [tool, "dump", "--pid", str(program.process.pid)],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    frames = [line.split(" (")[0].strip() for line in done.stdout.splitlines()]
    begin = frames.index("stand_still")
    assert frames[begin : begin + 3] == ["stand_still", "inner", "outer"]
    # Of goloop there is no more than the frame that runs the loop.
    assert frames[begin + 3].endswith("run_forever")


# ---- memray --------------------------------------------------------------------------------


def test_memray_attributes_allocations_of_a_coroutine(programs: Programs, tmp_path: Path) -> None:
    needs("memray")
    recorded, found = tmp_path / "memray.bin", tmp_path / "stats.json"
    said = programs.ends_well("-m", "memray", "run", "-o", recorded, TRACED)
    assert f"loop: {LOOP} in" in said
    programs.ends_well("-m", "memray", "stats", "--json", "-n", "30", "-o", found, recorded)
    stats: dict[str, Any] = json.loads(found.read_text())
    by_size = {each["location"]: each["size"] for each in stats["top_allocations_by_size"]}
    (size,) = [size for place, size in by_size.items() if place.startswith("allocate:")]
    assert size >= 1_000_000


# ---- coverage ------------------------------------------------------------------------------


@pytest.mark.parametrize("core", ["ctrace", "sysmon", "pytrace"])
def test_coverage_is_the_same_as_on_asyncio(programs: Programs, tmp_path: Path, core: str) -> None:
    needs("coverage")
    if core == "sysmon" and sys.version_info < (3, 12):
        pytest.skip("sys.monitoring is there from 3.12 on")
    if core == "ctrace" and FREE_THREADED:
        pytest.skip("coverage's wheel for free-threaded Pythons has no tracer of C")
    # Which lines ran, and which ways from line to line; but for the last, which choose the loop.
    last = TRACED.read_text().splitlines().index('if "asyncio" in sys.argv:') + 1
    branch = ["--branch"] if core != "sysmon" or sys.version_info >= (3, 14) else []
    seen = []
    for loop in ("goloop", "asyncio"):
        data, report = tmp_path / loop, tmp_path / f"{loop}.json"
        said = programs.ends_well(
            *("-m", "coverage", "run", *branch, "--concurrency=thread"),
            *(f"--data-file={data}", TRACED, loop),
            COVERAGE_CORE=core,
        )
        assert f"loop: {LOOP if loop == 'goloop' else 'asyncio'}" in said
        programs.ends_well(
            *("-m", "coverage", "json", "-q", f"--data-file={data}", "-o", report),
            *("--include", TRACED),
        )
        (file,) = json.loads(report.read_text())["files"].values()
        lines = {line for line in file["executed_lines"] if line < last}
        ways = {tuple(way) for way in file.get("executed_branches", []) if way[0] < last}
        seen.append((lines, ways))
        assert all(line >= last for line in file["missing_lines"])
    assert seen[0] == seen[1]


# ---- aiodebug ------------------------------------------------------------------------------


def test_aiodebug_finds_slow_callbacks_and_hangs(programs: Programs, tmp_path: Path) -> None:
    needs("aiodebug")
    folder = tmp_path / "stacks"
    folder.mkdir()
    said = programs.ends_well(APPS / "aiodebug_app.py", folder, GOLOOP_WATCHDOG="0")
    assert "found by goloop\n" in said
    assert "in hangs" in min(folder.iterdir()).read_text()


# ---- blockbuster ---------------------------------------------------------------------------


def test_blockbuster_finds_blocking_calls_and_no_false_ones(
    programs: Programs, tmp_path: Path
) -> None:
    needs("blockbuster")
    said = programs.ends_well(APPS / "blockbuster_app.py", tmp_path / "socket", TRACED)
    assert f"works on {LOOP}\n" in said
    assert "found: Blocking call to time.sleep\n" in said
    assert "found: Blocking call to io." in said
    assert "found: Blocking call to socket.socket.recv\n" in said
