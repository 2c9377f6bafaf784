"""python -m goloop top: its figures, its text, and its screen in a real terminal (tmux)."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from observed_programs import Program, goloop, running, until

from goloop._internal.observe import histogram as histograms
from goloop._internal.observe import metrics
from goloop.operations.commands import client, target, terminal, top_view
from goloop.operations.commands import top as top_command

PROGRAMS = Path(__file__).with_name("programs")

PROGRAM = (PROGRAMS / "shown_by_top.py").read_text()

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")


@pytest.fixture
def program() -> Iterator[Program]:
    with running(PROGRAM) as process:
        yield process


def top(*arguments: object, **options: Any) -> Program:
    """`python -m goloop top arguments`, which goes on."""
    command = [sys.executable, "-m", "goloop", "top", *map(str, arguments)]
    return Program(command, stdout=subprocess.PIPE, text=True, **options)


def refreshes(*arguments: str, **environ: str) -> list[dict[str, Any]]:
    """Return the output of `top --json`, refresh by refresh."""
    done = goloop("top", "--json", *arguments, **environ)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


# ---- the figures ---------------------------------------------------------------------------


def test_json_has_an_object_for_each_refresh(program: Program) -> None:
    told = refreshes(str(program.pid), "-n", "3", "--interval", "0.3")
    assert len(told) == 3
    for each in told:
        [process] = each["processes"]
        assert process["pid"] == program.pid
        assert process["partial"] is False
        assert process["python"] == sys.version.split()[0]
        [loop] = process["loops"]
        assert loop["thread"] == "MainThread"
        assert loop["native_id"] == program.pid
        assert loop["task_count"] == len(loop["tasks"]) == 6
        assert len(loop["connections"]) == 2
        assert 0 < loop["utilization"] <= 1
    assert told[0]["time"] < told[1]["time"] < told[2]["time"]


def test_the_figures_are_of_the_time_between_two_refreshes(program: Program) -> None:
    told = refreshes(str(program.pid), "-n", "3", "--interval", "0.3")
    loops = [each["processes"][0]["loops"][0] for each in told]
    assert [loop["since_start"] for loop in loops] == [True, False, False]
    for before, loop in itertools.pairwise(loops):
        interval, now, then = loop["interval"], loop["metrics"], before["metrics"]
        assert interval["iterations"] == now["iterations"] - then["iterations"] > 0
        assert interval["bytes_sent"] == now["bytes_sent"] - then["bytes_sent"] > 0
        assert interval["connections_accepted"] == 0
        assert now["connections_accepted"] == 1
        # states are states
        assert interval["tasks"] == now["tasks"] == 6
        assert interval["connections_open"] == 2
        for name in ("ready_wait", "timer_lateness", "iteration_time"):
            spread = interval[name]
            assert spread["count"] == now[name]["count"] - then[name]["count"] > 0
            assert 0 < spread["p50"] <= spread["p99"] <= spread["max"] <= now[name]["max"]
        assert loop["seconds"] > 0.2


def test_top_separates_waiting_from_moving_tasks(program: Program) -> None:
    told = refreshes(str(program.pid), "-n", "3", "--interval", "0.3")
    tasks = [
        {row["name"]: row for row in each["processes"][0]["loops"][0]["tasks"]} for each in told
    ]
    for name in ("gathers", "Task-9b", "Task-1"):
        seen = [each[name]["seen"] for each in tasks]
        assert seen[0] == 0
        assert 0 < seen[1] < seen[2]
    # The task may be seen twice at its sleep(), but not in the same sleep.
    assert [each["moves"]["seen"] for each in tasks] == [0, 0, 0]
    assert tasks[0]["Task-9b"]["awaiters"] == ["gathers"]
    assert tasks[0]["Task-9b"]["stack"] == [["waits", "<string>", 13]]
    assert tasks[0]["gathers"]["awaiters"] == ["Task-1"]
    assert tasks[0]["Task-1"]["awaiters"] == []


def test_task_that_returns_to_a_line_has_not_waited_there() -> None:
    row = {"id": 5, "mark": 1, "wait": 0, "name": "t", "stack": [["f", "a.py", 1]], "awaiters": []}
    each = target.WatchedProcess(1)

    def seen(iterations: int, current: int | None, now: float) -> float:
        loop = {"id": 9, "metrics": {"iterations": iterations}, "current": current, "tasks": [row]}
        report = each._make_report({"program": "p", "loops": [loop]}, now)
        return float(report["loops"][0]["tasks"][0]["seen"])

    assert seen(100, 5, now=1.0) == 0
    assert seen(100, 5, now=2.0) == 1  # the iteration goes on
    assert seen(120, 5, now=3.0) == 0
    assert seen(140, None, now=4.0) == 0  # the task waits, so others run
    assert seen(160, None, now=6.0) == 2


def test_maximum_covers_the_interval() -> None:
    def histogram(seconds: float, *counts: int) -> histograms.Histogram:
        buckets = [0] * len(histograms.BOUNDS)
        for index, count in enumerate(counts):
            buckets[8 * index] = count
        return histograms.Histogram(sum(counts), seconds, seconds, tuple(buckets))

    earlier = metrics.Metrics(iteration_time=histogram(1.0, 0, 0, 1))
    later = metrics.Metrics(iteration_time=histogram(1.0, 0, 3, 1))
    told = target._percentiles((later - earlier).iteration_time)
    assert told["count"] == 3
    assert told["p50"] == told["p99"] == told["max"] == histograms.MIDDLES[8] * 1e-9
    told = target._percentiles((later - later).iteration_time)
    assert told["count"] == told["p50"] == told["p99"] == told["max"] == 0


def test_utilization_separates_busy_and_idle_loops() -> None:
    found = []
    for busy in ("busy", "idle"):
        with running((PROGRAMS / "turning.py", busy)) as process:
            told = refreshes(str(process.pid), "-n", "2", "--interval", "0.5")
            found.append(told[1]["processes"][0]["loops"][0]["utilization"])
    assert found[0] > 0.5 > found[1]


BLOCKED = (PROGRAMS / "blocked_server.py").read_text()


def test_a_loop_that_hangs_in_a_callback_is_shown_with_where() -> None:
    with running(BLOCKED) as process:

        def blocked_for() -> float:
            [told] = refreshes(str(process.pid), "--once")
            return float(told["processes"][0]["loops"][0]["blocked_for"])

        until(blocked_for)
        told = refreshes(str(process.pid), "-n", "2", "--interval", "0.5")
        loop = told[1]["processes"][0]["loops"][0]
        assert loop["utilization"] > 0.5  # the current iteration is not yet counted
        assert loop["stack"][0][0] == "sits"
        line = loop["stack"][0][2]
        assert BLOCKED.splitlines()[line - 1].endswith("# here")
        [row] = [row for row in loop["tasks"] if row["name"] == "sits"]
        assert row["current"]
        assert row["seen"] > 0
        text = goloop("top", str(process.pid), "--once").stdout
        assert f"\n    sits <string>:{line}\n" in text
        assert re.search(r"blocked for \d", text)
        assert re.search(rf"\n0 +sits +> sits <string>:{line} ", text)


def test_a_loop_that_was_closed_makes_room_for_the_next() -> None:
    with (
        running(PROGRAMS / "one_loop_after_another.py") as process,
        top(process.pid, "--json", "--interval", ".1") as watching,
    ):
        try:
            for _ in range(3):
                [loop] = json.loads(watching.stdout.readline())["processes"][0]["loops"]
            process.say("")
            assert process.stdout.readline() == "ready\n"
            for _ in range(5):
                [process_row] = json.loads(watching.stdout.readline())["processes"]
                for each in process_row["loops"]:
                    assert each["interval"]["iterations"] >= 0
                    assert each["interval"]["time_idle"] >= 0
            assert loop["task_count"] == 1
        finally:
            watching.kill()


# ---- many processes ------------------------------------------------------------------------


@contextlib.contextmanager
def forking() -> Iterator[tuple[int, int]]:
    """A parent and its forked worker, which both answer."""
    with running((PROGRAMS / "forks_and_runs.py").read_text(), ready="") as process:
        pids = {int(process.stdout.readline()) for _ in range(2)}
        [child] = pids - {process.pid}
        try:
            yield process.pid, child
        finally:
            os.kill(child, signal.SIGKILL)


@linux_only
@pytest.mark.forks
def test_all_finds_every_process_that_answers_and_several_can_be_named() -> None:
    with forking() as (parent, child):
        [told] = refreshes("--all", "--once")
        found = {process["pid"]: process for process in told["processes"]}
        assert {parent, child} <= set(found)
        for pid in (parent, child):
            [loop] = found[pid]["loops"]
            assert [row["stack"][0][0] for row in loop["tasks"]] == ["worker"]
            assert loop["native_id"] == pid
        [told] = refreshes(str(child), str(parent), "--once")
        assert [process["pid"] for process in told["processes"]] == sorted((parent, child))
        text = goloop("top", "--all", "--once").stdout
        for pid in (parent, child):
            assert f"pid {pid} " in text
            assert re.search(rf"^{pid} +0 +Task-1 +worker <string>:13$", text, re.MULTILINE)
    # Programs of other tests may answer, and end while they are asked.
    left = goloop("top", "--json", "--all", "--once")
    assert left.returncode == 0 or "there is no program of this user to show" in left.stderr
    told = json.loads(left.stdout) if left.returncode == 0 else {"processes": []}
    assert not {parent, child} & {process["pid"] for process in told["processes"]}


@linux_only
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_all_omits_programs_of_other_users() -> None:
    # Python's own files may be root's alone.
    become = "import os; import asyncio, goloop, goloop.watchdog\n"
    become += "os.setresuid(65534, 65534, 65534)\n"
    imports = "import gettext, os, selectors, shutil\nfrom goloop import __main__\n"
    imports += "from goloop._internal.observe import metrics\n"
    imports += "from goloop.operations.commands import top\n"
    with running(PROGRAM) as ours, running(become + PROGRAM) as theirs:
        done = goloop("top", "--all", "--once", "--json", before=imports + become)
        assert done.returncode == 0, done.stderr
        found = {process["pid"] for process in json.loads(done.stdout)["processes"]}
        assert theirs.pid in found
        assert ours.pid not in found
        [told] = refreshes("--all", "--once")  # root's
        assert {ours.pid, theirs.pid} <= {process["pid"] for process in told["processes"]}


@linux_only
def test_a_program_that_is_still_importing_goloop_is_waited_for() -> None:
    """The library is loaded before the socket is open: the first request is refused."""
    with running(PROGRAMS / "imports_slowly.py") as process:
        told = goloop("top", str(process.pid), "--once", "--json")
        assert told.returncode == 0, told.stderr


@contextlib.contextmanager
def parent_of_loops(*, imports: bool, asked: bool = True) -> Iterator[tuple[int, list[int]]]:
    """A process without a loop, and the two below it that have one; a third child has none."""
    program = (PROGRAMS / "parent_of_loops.py", "imports" if imports else "")
    with running(program, ready="", asked=asked) as process:
        told = sorted(int(process.stdout.readline()) for _ in range(3))
        assert told[0] == 0
        yield process.pid, told[1:]


@linux_only
def test_child_processes_with_loops_are_named_for_a_parent_without_one() -> None:
    begin = "\n  no loop is open; child processes with one:\n"
    with parent_of_loops(imports=True) as (parent, (first, second)):
        both = f"{begin}    goloop top {first}\n    goloop top {second}\n"
        # On a busy machine a child may answer too late.
        until(lambda: both in goloop("top", str(parent), "--once").stdout)

        def told() -> Any:
            [process] = refreshes(str(parent), "--once")[0]["processes"]
            return process["loops"], process["children"]

        until(lambda: told() == ([], [first, second]))
        os.kill(first, signal.SIGSTOP)
        try:
            one = f"{begin}    goloop top {second}\n"
            until(lambda: one in goloop("top", str(parent), "--once").stdout)
        finally:
            os.kill(first, signal.SIGCONT)


@linux_only
@pytest.mark.parametrize("asked", [True, False])
def test_child_processes_with_loops_are_named_for_a_parent_without_goloop(asked: bool) -> None:
    with parent_of_loops(imports=False, asked=asked) as (parent, (first, second)):
        told = (
            f"process {parent} does not answer; its child processes {first} and {second} do: "
            f"give the id {first}\n"
        )
        until(lambda: goloop("top", str(parent), "--once").stderr == told)
        done = goloop("top", str(parent), "--once")
        assert (done.returncode, done.stdout) == (1, "")


def test_many_child_processes_are_counted() -> None:
    told = client.describe_no_loop([*range(20, 25)])
    assert told[1:] == [f"  goloop top {pid}" for pid in range(20, 25)]
    told = client.describe_no_loop([*range(20, 30)])
    assert told[5:] == ["  goloop top 24", "  and 5 more"]
    assert client.describe_no_loop([]) == ["no loop is open"]
    named = client._named_children
    assert named([20]) == "child process 20"
    assert named([*range(20, 25)]) == "child processes 20, 21, 22, 23 and 24"
    assert named([*range(20, 30)]) == "child processes 20, 21, 22, 23 and 6 others"


# ---- while the GIL is held -----------------------------------------------------------------


def test_top_shows_the_monitors_data_while_the_gil_is_held() -> None:
    with running(PROGRAMS / "holds_the_gil_for_top.py") as process:
        with top("--json", "--interval", "0.3", process.pid) as watching:
            try:
                lines = iter(watching.stdout.readline, "")
                reports = (json.loads(line)["processes"][0] for line in lines)
                first = next(reports)
                assert first["partial"] is False
                process.say("")
                for told in reports:
                    if told["partial"]:
                        break
                    first = told
            finally:
                watching.kill()
        assert told["program"] == first["program"]
        [before], [loop] = first["loops"], told["loops"]
        assert loop["blocked_for"] == 50
        assert loop["utilization"] == 1  # blocked for longer than the interval
        assert loop["id"] == before["id"]
        assert loop["interval"]["bytes_sent"] > 0
        known = {"time_busy", "time_idle", "turns", "bytes_sent", "iteration_time"}
        assert set(loop["interval"]) == set(loop["metrics"]) == known
        assert not {"tasks", "task_count", "thread", "connections"} & set(loop)
        text = goloop("top", str(process.pid), "--once").stdout
    assert "the GIL is held, so Python cannot answer: only values of goloop's monitor" in text
    assert (
        "blocked for 50.0 s in\n    match\\x1b[2J lib/re.py:7\n    slow app/views.py:12\n" in text
    )
    assert os.path.basename(sys.executable) in text.splitlines()[0]  # of the process's command line


def test_several_loops_are_known_by_their_numbers_while_the_gil_is_held() -> None:
    def loop(number: int, **facts: Any) -> dict[str, Any]:
        return {"number": number, "metrics": {"turns": number * 10, "time_busy": 0}, **facts}

    process = target.WatchedProcess(os.getpid())
    whole = [loop(number, id=100 + number, tasks=[]) for number in (1, 2)]
    process._make_report({"loops": whole}, 1.0)
    # The monitor's list has the last one first.
    told = process._make_report({"partial": True, "loops": [loop(2), loop(1)]}, 2.0)
    assert [each["id"] for each in told["loops"]] == [102, 101]
    assert [each["interval"]["turns"] for each in told["loops"]] == [0, 0]


@linux_only
@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="its stack is read without the GIL"
)
def test_a_regular_expression_does_not_keep_the_program_from_being_looked_at() -> None:
    with running((PROGRAMS / "long_regular_expression.py").read_text()) as process:

        def partial() -> dict[str, Any] | None:
            [told] = refreshes(str(process.pid), "--once")[0]["processes"]
            return told if told["partial"] else None

        [loop] = until(partial)["loops"]
        assert loop["stack"][0][1].endswith("re/__init__.py")
        assert [frame[0] for frame in loop["stack"][1:3]] == ["slow", "main"]
        assert loop["stack"][1][1:] == ["<string>", 11]
        assert loop["blocked_for"] > 0
        assert loop["metrics"]["turns"] > 0
        assert loop["metrics"]["timer_lateness"]["count"] > 0
        first, second = refreshes(str(process.pid), "-n", "2", "--interval", "0.5")
        [before], [after] = (each["processes"][0]["loops"] for each in (first, second))
        assert before["blocked_for"] < after["blocked_for"]
        assert after["utilization"] == 1
        text = goloop("top", str(process.pid), "--once").stdout
        assert "\n    slow <string>:11\n    main <string>:16\n" in text


# ---- plain text and the command line -----------------------------------------------------------


def test_output_without_a_terminal_is_plain(program: Program) -> None:
    done = goloop("top", str(program.pid), "-n", "2", "--interval", "0.2", TERM="xterm-256color")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    blocks = [block.splitlines() for block in re.split(r"\n\n(?=python)", done.stdout)]
    assert len(blocks) == 2
    for block in blocks:
        assert f"pid {program.pid}" in block[0]
        text = "\n".join(block)
        for word in ("iterations/s", "ready wait", "timer delay", "write buffers", "in ", "out "):
            assert word in text
        assert re.search(r"^\S.*  Task-9b +waits <string>:13 +gathers$", text, re.MULTILINE)
        assert re.search(r"^127\.0\.0\.1:\d+ +StreamReaderProtocol +0 B$", text, re.MULTILINE)
    assert "since the start" in "\n".join(blocks[0])
    assert "over 0." in "\n".join(blocks[1])


@pytest.mark.parametrize(("given", "columns"), [("", 120), ("70", 70), ("1", 40), ("no", 120)])
def test_lines_without_a_terminal_are_not_longer_than_columns(
    monkeypatch: pytest.MonkeyPatch, given: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", given)
    report = a_report(1)
    for loop in report["loops"]:
        for task in loop["tasks"]:
            task["stack"] = [["a_function", "/srv/a_folder/a_file.py", 10]] * 30
    output = io.StringIO()
    top_command._print_text(terminal.Terminal(output), [report])
    widths = [terminal.width(line) for line in output.getvalue().splitlines()]
    assert max(widths) == columns


@pytest.fixture
def starting() -> Iterator[Program]:
    """Yield a program that imports goloop when it gets a line."""
    with running(PROGRAMS / "imports_late.py", ready="started\n") as process:
        yield process


@pytest.mark.skipif(sys.platform != "linux", reason="the environment is read from /proc")
def test_top_waits_for_a_program_that_has_not_imported_goloop(
    starting: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = []

    def sleep(seconds: float) -> None:
        """Stand for time.sleep() between two requests: the program imports goloop."""
        if not pauses:
            starting.say("")
            assert starting.stdout.readline() == "imported\n"
        pauses.append(seconds)

    monkeypatch.setattr("time.sleep", sleep)
    shown: list[Any] = []
    top_command.Top([starting.pid], 1.0, 1).print(shown.append)
    assert len(pauses) == 1
    [[report]] = shown
    assert report["pid"] == starting.pid
    assert "error" not in report


@pytest.mark.skipif(sys.platform != "linux", reason="the environment is read from /proc")
def test_program_that_does_not_import_goloop_is_told_apart(starting: Program) -> None:
    never = top_command.Top([starting.pid], 1.0, 1)
    never._patient_until = 0.0
    with pytest.raises(top_command._NothingToShow) as caught:
        never.print(lambda reports: None)
    assert str(caught.value).startswith(
        f"process {starting.pid} was started with GOLOOP_INTROSPECT=1, but does not answer: "
    )
    assert "start it with" not in str(caught.value)
    done = goloop("slow", str(starting.pid))
    assert done.returncode == 1
    assert "it has not imported goloop yet" in done.stderr


def test_shares_of_a_loops_tasks_add_up_to_at_most_1() -> None:
    tasks = [{"share": 0.8}, {"share": None}, {"share": 0.4}]
    target._limit_sum(tasks, "share")
    assert [each["share"] for each in tasks] == pytest.approx([2 / 3, None, 1 / 3])
    target._limit_sum(tasks[1:], "share")
    assert tasks[2]["share"] == pytest.approx(1 / 3)


def test_a_terminal_without_unicode_gets_ascii() -> None:
    with running(PROGRAM, NAME=r"\u65e5\u672c") as program:
        ascii = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "COLUMNS": "120"}
        done = goloop("top", str(program.pid), "--once", **ascii)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert r"\u65e5\u672c" in done.stdout
    assert re.search(r"[#-]{20} +\d+%", done.stdout)


def test_closed_output_ends_top_quietly(program: Program) -> None:
    env = {**os.environ, "PYTHONUNBUFFERED": ""}
    words = (program.pid, "--interval", "0.1")
    with top(*words, env=env, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 0


def test_top_ends_with_its_program(program: Program) -> None:
    with top(program.pid, "--interval", "0.1", stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        program.kill()
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 1
        assert errors == f"process {program.pid} has ended\n"


def test_arguments_that_make_no_sense_are_refused() -> None:
    pid = str(os.getpid())
    for arguments, reason in (
        ([], "give process ids or --all"),
        (["--all", pid], "give process ids or --all"),
        ([pid, "--interval", "0"], "must be a number of seconds from 0.1 to 86400, got '0'"),
        ([pid, "--interval", "nan"], "must be a number of seconds from 0.1 to 86400, got 'nan'"),
        ([pid, "-n", "0"], "must be a number of refreshes >= 1, got '0'"),
        (["x"], "'x' is not a process id"),
        ([pid, "--fast"], "unrecognized arguments: --fast"),
    ):
        done = goloop("top", *arguments)
        assert done.returncode == 2
        assert "usage: python -m goloop top" in done.stderr
        assert reason in done.stderr


def test_the_help_names_the_commands() -> None:
    assert "top PID|--all" in goloop("--help").stdout
    assert "--interval" in goloop("top", "--help").stdout


# ---- texts in columns ---------------------------------------------------------------------------


FORMATTED = [
    (top_view.format_count, [
        (0, "0"), (0.25, "0.2"), (9, "9"), (12.3, "12"), (9999, "9999"), (10_000, "10.0k"),
        (123_456, "123k"), (1.5e6, "1.5M"), (2e9, "2.0G"), (5e13, "50000G")]),
    (top_view.format_bytes, [
        (0, "0 B"), (999, "999 B"), (999.9, "1.0 kB"), (1500, "1.5 kB"), (123_456, "123 kB"),
        (2_000_000, "2.0 MB"), (3e9, "3.0 GB"), (4e12, "4.0 TB"), (5e15, "5000 TB")]),
    (top_view.format_duration, [
        (0, "0"), (-1, "0"), (5e-9, "5.0 ns"), (85e-6, "85.0 µs"), (850e-6, "850 µs"),
        (1.2e-3, "1.2 ms"), (0.5, "500 ms"), (0.9999, "1.0 s"), (59, "59.0 s"), (61, "1 min 1 s"),
        (3700, "1 h 1 min"), (90_000, "1 d 1 h")]),
]  # fmt: skip


@pytest.mark.parametrize(("format", "texts"), FORMATTED)
def test_numbers_sizes_and_durations(
    format: Callable[[float], str], texts: list[tuple[float, str]]
) -> None:
    assert [(value, format(value)) for value, _ in texts] == texts


@pytest.mark.parametrize(
    ("text", "columns", "fits"),
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("abc", 1, "…"), ("abc", 0, ""), ("", 0, ""),
     ("日本語", 6, "日本語"), ("日本語", 5, "日本…"), ("日本語", 4, "日…"),
     ("e\u0301e\u0301", 2, "e\u0301e\u0301")],
)  # fmt: skip
def test_texts_are_cut_by_the_columns_that_they_take(text: str, columns: int, fits: str) -> None:
    assert terminal.cut(text, columns) == fits
    assert terminal.width(terminal.pad(text, columns)) == columns


def test_nothing_that_commands_a_terminal_is_printable() -> None:
    every = "".join(map(chr, range(0x11_0000)))
    shown = terminal.printable(every)
    assert not {unicodedata.category(each) for each in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert terminal.printable("a b\\é日") == "a b\\é日"
    assert terminal.printable("\x1b[31m\x9b\n\u202e\ud800") == r"\x1b[31m\x9b\n\u202e\ud800"


def test_unencodable_characters_are_escaped() -> None:
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    shown = terminal.Terminal(ascii_only)
    assert shown.render([("5 µs", "1"), (" 日 …", "")]) == r"5 us \u65e5 \u2026"
    assert shown.render([("abcdef", "")], 4) == "abc~"
    latin = terminal.Terminal(io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
    assert latin.render([("5 µs é 日", "")]) == r"5 µs é \u65e5"


@pytest.mark.parametrize(
    ("typed", "keys"),
    [("q", "q"), ("sp", "sp"), ("\x1b[A", "k"), ("\x1b[Cs", "s"), ("x\x1b[1;5Cs\x1bOPq", "xsq"),
     ("\x1bOB\x1b[5~\x1b[6~\x1b[H\x1b[4~", "jb gG"),
     ("\x1b", ""), ("\x1bq", ""), ("\x1b[", ""), ("é\xff", "é\xff")],
)  # fmt: skip
def test_keys_without_a_character_are_passed_over(
    monkeypatch: pytest.MonkeyPatch, typed: str, keys: str
) -> None:
    leader, follower = os.openpty()
    with open(follower, encoding="utf-8") as keyboard:
        monkeypatch.setattr(sys, "stdin", keyboard)
        screen = terminal.Screen(terminal.Terminal(Screen()))
        with screen:  # as the terminal was, keys would come with the end of the line
            os.write(leader, typed.encode())
            assert screen.keys() == keys
        os.close(leader)
        assert screen.keys() == ""
        assert screen.keyboard is None


class Screen(io.StringIO):
    """A terminal of no particular size."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


NAMES = ("日本語のタスク" * 4, "\x1b[2J" * 5, "e\u0301" * 30, "plain", "")


def a_report(pid: int) -> dict[str, Any]:
    spread = {"count": 3, "sum": 1.0, "p50": 1e-6, "p99": 2e-3, "max": 0.25}
    figures: dict[str, Any] = dict.fromkeys(
        ("iterations", "ready", "timers", "tasks", "connections_open", "connections_accepted",
         "write_buffer_bytes", "bytes_received", "bytes_sent", "tls_handshakes",
         "tls_handshake_failures", "dns_lookups", "threadsafe_calls", "late_writes",
         "connections_refused", "accept_failures", "unhandled_exceptions", "blocked_spells",
         "time_blocked", "gc_time"), 12345)  # fmt: skip
    figures |= dict.fromkeys(("ready_wait", "timer_lateness", "iteration_time"), spread)
    tasks = [
        {"id": n, "mark": n, "name": name, "current": n == 1, "seen": n, "awaiters": list(NAMES),
         "loop_share": n / 100, "cpu_share": None if n == 2 else 1.0,
         "stack": [["函数\x9b", "/a/b/c.py", 10], ["f", "", 0]]}
        for n, name in enumerate(NAMES * 4)
    ]  # fmt: skip
    connections = [
        {"peer": name, "protocol": name, "tls": True, "write_buffer": 10**9} for name in NAMES * 4
    ]
    loop = {
        "id": 1, "thread": "t\x1bread", "native_id": pid, "running": True, "blocked_for": 1.5,
        "seconds": 1.0, "since_start": False, "utilization": 0.97, "interval": figures,
        "metrics": figures, "stack": [["f\x07", "x.py", 1]] * 20, "task_count": 500,
        "tasks": tasks, "connections": connections,
    }  # fmt: skip
    other = {**loop, "metrics": None, "running": False, "tasks": [], "connections": []}
    return {"pid": pid, "program": "python \x1b]0;x\x07.py", "python": "3.13.0", "goloop": "0",
            "uptime": 7e5, "partial": False, "loops": [loop, other]}  # fmt: skip


@pytest.mark.parametrize("several", [False, True])
def test_the_view_fits_into_any_terminal(monkeypatch: pytest.MonkeyPatch, several: bool) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    reports = [a_report(1), a_report(2), {"pid": 3, "error": "no\x1b" * 99}][: 3 if several else 1]
    shown = terminal.Terminal(Screen())
    widths, heights = (*range(1, 12), 20, 40, 70, 80, 100, 200), (*range(1, 16), 24, 40, 59)
    for columns, rows in itertools.product(widths, heights):
        view = top_view.View(shown, columns, rows)
        lines = view.lines(reports, {1: 3.0}, "the foot")
        assert len(lines) == rows
        for line in lines:
            text = shown.render(line, columns)
            bare = re.sub(r"\x1b\[[0-9;]*m", "", text)
            assert terminal.width(bare) <= columns, (columns, rows, bare)
            assert bare == terminal.printable(bare)
        assert shown.render(lines[-1], 100).startswith("\x1b[2mthe foot")


def test_several_loops_have_a_line_each_and_the_rest_scrolls() -> None:
    report = a_report(1)
    loop = {**report["loops"][0], "blocked_for": 0.0}
    report["loops"] = [{**loop, "thread": f"loop-{n}"} for n in range(6)]
    report["loops"][3] |= {"blocked_for": 2.5, "stack": [["reckons", "/a/sums.py", 7]]}
    view = top_view.View(terminal.Terminal(Screen()), 80, 24)

    def shown() -> list[str]:
        lines = view.lines([report], {}, "the foot")
        assert len(lines) == 24
        return ["".join(text for text, _ in line) for line in lines]

    first = shown()
    assert [line.split()[1] for line in first[1:7]] == [f"loop-{n}" for n in range(6)]
    assert "blocked for 2.5 s in reckons a/sums.py:7" in first[4]
    assert first[8].startswith("SEEN FOR")
    assert any(line.startswith("CONNECTION TO") for line in first)
    assert first[-1] == "the foot   ↑↓ scroll"
    view.scroll("j")
    assert shown()[0] == first[1]
    view.scroll(" ")
    assert shown()[-1] == first[-1]
    view.scroll("G")
    last = shown()
    assert last[-2].endswith("1.0 GB")
    view.scroll("j")
    assert shown() == last
    view.scroll("b")
    assert shown() != last
    view.scroll("g")
    assert shown() == first
    # All that was to be seen on the way.
    names: set[str] = set()
    passed: list[str] = []
    while (screen := shown()) != passed:
        names |= {line.split()[1] for line in screen if line.startswith("  loop")}
        passed = screen
        view.scroll(" ")
    assert names == {f"loop-{n}" for n in range(6)}
    # No more loops than half of the screen has room for.
    report["loops"] = [{**loop, "thread": f"loop-{n}"} for n in range(40)]
    view.scroll("g")
    many = shown()
    assert many[11].strip() == "... 30 more loops"
    assert many[13].startswith("SEEN FOR")
    view.resize(80, 200)
    assert "more loops" not in "".join(
        "".join(t for t, _ in line) for line in view.lines([report], {}, "f")
    )


def test_the_view_is_in_the_order_that_was_chosen() -> None:
    report = a_report(1)
    tasks = report["loops"][0]["tasks"]
    del tasks[3:]
    for row, name, seen in zip(tasks, ("b10", "b9", "a"), (1, 3, 2), strict=True):
        row |= {"name": name, "seen": seen}
    view = top_view.View(terminal.Terminal(io.StringIO()), None, None)
    found = {}
    for order in top_view.ORDERS:
        view.order = order
        text = "\n".join("".join(text for text, _ in line) for line in view.lines([report], {}))
        found[order] = re.findall(r"^\S+ s +[\d.]+% +(?:100%)? +(b10|b9|a) ", text, re.MULTILINE)
    assert found == {
        "time": ["b9", "a", "b10"],
        "age": ["b10", "b9", "a"],
        "name": ["a", "b9", "b10"],
        "share": ["a", "b9", "b10"],
    }


def test_top_reports_each_tasks_share_of_the_loop() -> None:
    with running(PROGRAMS / "shares_of_tasks.py", GOLOOP_PROFILE="200") as process:
        done = goloop("top", str(process.pid), "--json", "-n", "2", "--interval", "3")
    first, last = (json.loads(line) for line in done.stdout.splitlines())
    for report, known in ((first, False), (last, True)):
        rows = {row["name"]: row for row in report["processes"][0]["loops"][0]["tasks"]}
        for name in ("spins", "waits"):
            assert (rows[name]["loop_share"] is not None) == known
    assert 0.3 < rows["spins"]["loop_share"] <= 1.0
    assert 0 < rows["spins"]["cpu_share"] <= 1.0
    assert rows["waits"]["loop_share"] < 0.1


# ---- the screen ----------------------------------------------------------------------------------


class Tmux:
    """A terminal of tmux with a shell in it."""

    _numbers = itertools.count()

    def __init__(self, folder: Path) -> None:
        self._socket = str(folder / f"tmux-{next(self._numbers)}")
        env = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        for name in ("TMUX", "NO_COLOR", "ENV"):
            env.pop(name, None)
        start = ["-u", "-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30"]
        start += ["-c", str(folder), "sh"]
        subprocess.run(["tmux", "-S", self._socket, *start], env=env, check=True, timeout=60)
        self.until_shown(r"^[$#]")

    def do(self, *command: str) -> str:
        """A command of tmux."""
        return subprocess.run(
            ["tmux", "-S", self._socket, *command],
            capture_output=True, text=True, check=True, timeout=60,
        ).stdout  # fmt: skip

    def text(self, *options: str) -> str:
        return self.do("capture-pane", "-p", *options)

    def keys(self, *keys: str) -> None:
        self.do("send-keys", *keys)

    def type(self, line: str) -> None:
        """A line for the shell."""
        self.do("send-keys", "-l", line)
        self.keys("Enter")

    def top(
        self,
        *arguments: str,
        environ: str = "",
        then: str = "echo status=$?",
        keyless: bool = False,
    ) -> None:
        command = shlex.join([sys.executable, "-m", "goloop", "top", *arguments])
        command += " < /dev/null" if keyless else ""
        self.type(f"{environ} {command}; {then}")

    def until(self, condition: Callable[[], Any]) -> Any:
        return until(condition, self.text)

    def until_shown(self, pattern: str) -> re.Match[str]:
        found: re.Match[str] = self.until(lambda: re.search(pattern, self.text(), re.MULTILINE))
        return found

    def until_drawn(self) -> None:
        """The screen of top with the first answer."""
        self.until_shown(r"iterations/s(?s:.*)^q quit")

    def quit(self, shown: str = "status=0$") -> None:
        """End top, and wait until the shell prints its exit status."""
        self.keys("q")
        self.until_shown(shown)  # the prompt may stand before it

    def fact(self, name: str) -> str:
        return self.do("display-message", "-p", f"#{{{name}}}").strip()

    def close(self) -> None:
        self.do("kill-server")


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("there is no tmux here")
    tmux = Tmux(tmp_path)
    yield tmux
    tmux.close()


def test_the_screen_shows_the_program_and_gives_the_terminal_back(
    screen: Tmux, program: Program
) -> None:
    screen.type("stty -a > before; echo kept")
    screen.until_shown("^kept$")
    before = screen.text()
    screen.top(str(program.pid), "--interval", "0.2", then="echo status=$?; stty -a > after")
    screen.until_shown(r"^q quit   p pause   s order: time at the same line$")
    screen.until_shown(r"over 0\.\d s")
    text = screen.text()
    assert len(text.splitlines()) == 30
    assert re.match(rf"python\S* -c .*  pid {program.pid}  Python {sys.version.split()[0]}  ", text)
    assert re.search(r"^  loop MainThread \d+  [█░]{12} +\d+%   \S+ iterations/s ", text, re.M)
    assert re.search(r"^    ready wait .*s / .*s / .*s   timer delay ", text, re.M)
    assert re.search(r"^    ready \d+   timers \d+   tasks 6   connections 2$", text, re.M)
    assert re.search(r"in \S+ k?B/s   out \S+ k?B/s", text)
    assert re.search(r"^SEEN FOR  %LOOP  %CPU   TASK \(6\) +AT +AWAITED BY$", text, re.M)
    assert re.search(
        r"^\S+ m?s +(?:[\d.]+% +){0,2}gathers +gathers <string>:\d+ +Task-1$", text, re.M
    )
    assert re.search(r"^CONNECTION TO \(2\) +PROTOCOL +WRITE BUFFER$", text, re.M)
    assert screen.fact("alternate_on") == "1"
    assert screen.fact("cursor_flag") == "0"
    assert screen.fact("wrap_flag") == "0"
    # The tasks that wait longest come first, and the moving one last.
    screen.until(lambda: order(screen)[-2:].count("moves") == 1 and len(order(screen)) == 6)
    screen.quit()
    assert screen.text().startswith(before.rstrip())
    assert screen.fact("alternate_on") == "0"
    assert screen.fact("cursor_flag") == "1"
    assert screen.fact("wrap_flag") == "1"
    screen.type("cmp before after && echo modes-$((40+2))")
    screen.until_shown("modes-42$")  # the prompt may stand before it


def order(screen: Tmux) -> list[str]:
    """The tasks as they are listed."""
    return re.findall(
        r"^\S+(?: m?s)? +(?:[\d.]+% +){0,2}(Task-\S+|gathers|moves) ", screen.text(), re.MULTILINE
    )


def test_keys_change_the_order_and_pause(screen: Tmux, program: Program) -> None:
    screen.top(str(program.pid), "--interval", "0.2")
    screen.until_shown("s order: time at the same line$")
    screen.keys("s")
    screen.until_shown("s order: age$")
    assert order(screen)[0] == "Task-1"
    screen.keys("s")
    screen.until_shown("s order: name$")
    names = order(screen)
    assert names.index("Task-9b") < names.index("Task-10b") < names.index("gathers")
    assert names[-1] == "moves"
    screen.keys("p")
    screen.until_shown("PAUSED$")
    paused = screen.text()
    screen.keys("Right", "x")  # mean nothing
    screen.keys("s")
    screen.until_shown("s order: share of the loop   PAUSED$")
    screen.keys("s")
    screen.until_shown("s order: time at the same line   PAUSED$")
    assert screen.text().splitlines()[1:4] == paused.splitlines()[1:4]
    screen.keys("p")
    screen.until_shown("p pause   s order: time at the same line$")
    screen.until(lambda: screen.text().splitlines()[1:4] != paused.splitlines()[1:4])
    screen.quit()


def test_terminal_resize_takes_effect_at_once(screen: Tmux, program: Program) -> None:
    screen.top(str(program.pid), "--interval", "3600")
    screen.until_drawn()
    for columns, rows in ((60, 12), (130, 40), (20, 5), (100, 30)):
        screen.do("resize-window", "-x", str(columns), "-y", str(rows))

        def drawn(columns: int = columns, rows: int = rows) -> bool:
            lines = screen.text().splitlines()
            foot = "q quit   p pause   s order: time at the same line"
            feet = [terminal.cut(each, columns) for each in (foot, f"{foot}   ↑↓ scroll")]
            whole = len(lines) == rows and lines[-1] in feet
            # The head is cut at the right edge.
            head = lines[0]
            return whole and terminal.width(head) == columns and f"pid {program.pid}" in head

        screen.until(drawn)
    screen.quit()


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 128 + 15), (signal.SIGHUP, 128 + 1), (signal.SIGINT, 130)],
)
def test_signal_ends_top_and_restores_the_terminal(
    screen: Tmux, program: Program, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    screen.type("stty -a > before; echo kept")
    screen.until_shown("^kept$")
    tell = "sh -c 'echo $$ > pid; exec \"$@\"' sh"
    screen.top(str(program.pid), environ=tell, then="echo status=$?; stty -a > after")
    screen.until_drawn()
    if number == signal.SIGINT:
        screen.keys("C-c")
    else:
        os.kill(int((tmp_path / "pid").read_text()), number)
    screen.until_shown(f"status={status}$")
    assert screen.fact("alternate_on") == "0"
    assert screen.fact("cursor_flag") == "1"
    assert "kept" in screen.text()
    assert "Traceback" not in screen.text()
    screen.type("cmp before after && echo modes-$((40+2))")
    screen.until_shown("modes-42$")  # the prompt may stand before it


def test_stopped_top_restores_the_terminal_until_continued(screen: Tmux, program: Program) -> None:
    screen.type("bash --norc -i")
    screen.until_shown(r"^bash\S*[$#]")
    screen.top(str(program.pid), "--interval", "0.2")
    screen.until_drawn()
    screen.keys("C-z")
    screen.until_shown("Stopped")
    assert screen.fact("alternate_on") == "0"
    assert screen.fact("cursor_flag") == "1"
    screen.type("fg")
    screen.until_drawn()
    assert screen.fact("alternate_on") == "1"
    screen.keys("s")
    screen.until_shown("s order: age$")
    screen.keys("q")
    screen.until(lambda: screen.fact("alternate_on") == "0")


def test_a_program_that_ends_leaves_a_message(screen: Tmux, program: Program) -> None:
    screen.top(str(program.pid), "--interval", "0.2")
    screen.until_drawn()
    program.kill()
    screen.until_shown(f"^process {program.pid} has ended$")
    screen.until_shown("status=1$")
    assert screen.fact("alternate_on") == "0"


def test_a_number_of_refreshes_ends_the_screen_too(screen: Tmux, program: Program) -> None:
    screen.top(str(program.pid), "-n", "2", "--interval", "0.2")
    screen.until_shown("status=0$")
    assert "q quit" not in screen.text()


def test_once_leaves_its_text_on_the_terminal(screen: Tmux, program: Program) -> None:
    screen.top(str(program.pid), "--once")
    screen.until_shown("status=0$")
    text = screen.text()
    assert f"pid {program.pid} " in text
    assert "q quit" not in text
    assert re.search("^SEEN FOR +%LOOP +%CPU +TASK", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 100


def test_a_name_does_not_command_the_terminal(screen: Tmux) -> None:
    name = r"\x1b]0;owned\x07\x1b[2J\x9b5;5H\r\n\u202e日本"
    with running(PROGRAM, NAME=name.replace("日本", r"\u65e5\u672c")) as program:
        title = screen.fact("pane_title")
        screen.top(str(program.pid), "--interval", "0.2")
        shown = screen.until_shown(r"^\S+(?: m?s)? +(?:[\d.]+% +){0,2}(\\x1b\]0;owned\\x07\\\S*)")
        assert name.startswith(shown[1].removesuffix("…"))
        assert screen.text().startswith("python")
        screen.do("resize-window", "-x", "250", "-y", "30")
        screen.until(lambda: name in screen.text())
        assert screen.fact("pane_title") == title
        row = next(line for line in screen.text().splitlines() if name in line)
        other = next(line for line in screen.text().splitlines() if " gathers " in line)
        # Two columns for each of the two wide characters.
        assert row.index(" waits ") + 2 == other.index(" gathers <")
        screen.quit()


def test_colours_can_be_switched_off(screen: Tmux, program: Program) -> None:
    screen.top(str(program.pid))
    screen.until_drawn()
    assert "\x1b[" in screen.text("-e")
    screen.quit()
    screen.top(str(program.pid), environ="NO_COLOR=1", then="echo second=$?")
    screen.until_drawn()
    assert "\x1b[" not in screen.text("-e")
    screen.quit("second=0$")


def test_a_dumb_terminal_gets_plain_text(screen: Tmux, program: Program) -> None:
    screen.top(str(program.pid), "-n", "1", environ="TERM=dumb")
    screen.until_shown("status=0$")
    assert "q quit" not in screen.text()
    assert re.search("^SEEN FOR +%LOOP +%CPU +TASK", screen.text(), re.MULTILINE)
    assert "\x1b[" not in screen.text("-e")


def test_unresponsive_program_is_shown_until_it_answers(screen: Tmux, program: Program) -> None:
    screen.top(str(program.pid), "--interval", "0.2")
    screen.until_drawn()
    program.send_signal(signal.SIGSTOP)
    screen.until_shown(r"^  no answer for \d.* s: its GIL is held, or it is stopped$")
    screen.keys("s")  # the terminal still reads keys
    screen.until_shown("s order: age$")
    program.send_signal(signal.SIGCONT)
    screen.until(lambda: "no answer" not in screen.text())
    screen.quit()


@linux_only
@pytest.mark.forks
def test_the_screen_of_all_follows_those_that_come_and_go(screen: Tmux, program: Program) -> None:
    # High enough for the processes of other tests, which answer as well.
    screen.do("resize-window", "-x", "150", "-y", "400")
    screen.top("--all", "--interval", "0.2")
    screen.until_shown(rf"  pid {program.pid}  Python")
    with forking() as pids:
        for pid in pids:
            screen.until_shown(rf"  pid {pid}  Python")
            screen.until_shown(rf"^  loop MainThread {pid}  .*iterations/s   ready wait p99 ")
            # From the second refresh on there are columns of shares before the name.
            screen.until_shown(rf"^{pid} .* Task-1 +worker <string>:13")
    screen.until(lambda: not any(re.search(rf"\b{pid}\b", screen.text()) for pid in pids))
    assert f"pid {program.pid}" in screen.text()
    screen.quit()


def test_six_loops_on_a_small_terminal(screen: Tmux) -> None:
    def of() -> list[str]:
        return re.findall(r" (of-\d-\d) ", screen.text())

    screen.do("resize-window", "-x", "80", "-y", "24")
    with running(PROGRAMS / "six_loops.py") as process:
        screen.top(str(process.pid), "--interval", "0.2")
        screen.until_drawn()
        screen.until_shown(r"scroll$")
        lines = screen.text().splitlines()
        assert [line[:15] for line in lines[1:7]] == [f"  loop goloop-{n}" for n in range(6)]
        assert len(of()) >= 10
        screen.keys("s")
        screen.until_shown("order: age")
        screen.keys("s")
        screen.until_shown("order: name")
        seen = set(of())
        screen.keys("End")
        screen.until(lambda: not re.search("^  loop", screen.text(), re.MULTILINE))
        screen.until(lambda: len(seen | set(of())) > len(seen))
        screen.keys("Home")
        screen.until_shown("^  loop goloop-0 ")
        screen.keys("Down", "Down")
        screen.until(lambda: screen.text().startswith("  loop goloop-1 "))
        screen.keys("Up")
        screen.until(lambda: screen.text().startswith("  loop goloop-0 "))
        screen.quit()


def test_top_without_a_keyboard_is_ended_by_signals(screen: Tmux, program: Program) -> None:
    screen.top(str(program.pid), "--interval", "0.2", keyless=True)
    screen.until_drawn()
    screen.keys("C-c")
    screen.until_shown("status=130$")
