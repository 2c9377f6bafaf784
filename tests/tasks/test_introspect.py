"""Answers of a program at its introspection socket; python -m goloop ps PID and pstree PID."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from observed_programs import Program, goloop, running, until

from goloop.operations import introspection, snapshot
from goloop.operations.commands.client import (
    NoAnswer,
    Question,
    ask,
    introspectable_pids,
    process_id,
)
from goloop.operations.introspection import address

PROGRAMS = Path(__file__).with_name("programs")

PROGRAM = (PROGRAMS / "four_tasks.py").read_text()

SILENT = """
print("ready", flush=True)
input()
"""

# From 3.14 on CPython reads the memory of a program that does not answer. Here it fails, as where
# that is not allowed.
UNREADABLE = (PROGRAMS / "unreadable_memory.py").read_text()
BEFORE = UNREADABLE if sys.version_info >= (3, 14) else ""

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")


@pytest.fixture
def program() -> Iterator[Program]:
    with running(PROGRAM) as process:
        yield process


def told(process: Program, **question: Any) -> dict[str, Any]:
    """The answer to a question."""
    pending = Question(process.pid, **question)
    with contextlib.closing(pending):
        answer: dict[str, Any] = until(pending.advance)
        return answer


def raw(pid: int, question: bytes) -> dict[str, Any]:
    """The answer to any bytes."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(address(pid))
        client.sendall(question)
        data = b""
        while part := client.recv(65536):
            data += part
    answer: dict[str, Any] = json.loads(data)
    return answer


# ---- ps and pstree -----------------------------------------------------------------------


def test_ps_lists_the_tasks_and_pstree_their_awaiters_and_lines(program: Program) -> None:
    done = goloop("ps", str(program.pid))
    assert done.returncode == 0, done.stderr
    rows = {line.split()[2]: line for line in done.stdout.splitlines()[2:]}
    assert set(rows) == {"Task-1", "grouped", "gatherer", "gathered"}
    assert " Task-1 " in rows["grouped"]
    assert " Task-1 " in rows["gatherer"]
    assert " gatherer " in rows["gathered"]
    assert "leaf" in rows["grouped"]
    done = goloop("pstree", str(program.pid))
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines() if "(T)" in line]
    assert lines[0] == "└── (T) Task-1"
    assert done.stdout.index("gatherer") < done.stdout.index("gathered")
    assert re.search(r"└── +leaf <string>:10\n", done.stdout)
    assert re.search(r"└── +branch <string>:14\n", done.stdout)


# The tree's lines, of this package and of CPython, which reads the memory of a silent program.
@pytest.mark.parametrize("asked", [True, False])
def test_tree_is_drawn_in_ascii_for_an_encoding_without_its_lines(asked: bool) -> None:
    if not asked and sys.version_info < (3, 14):
        pytest.skip("CPython reads no memory before 3.14")
    source = PROGRAM.replace('"grouped"', r'"\u65e5 \u2500"')
    if not asked:
        source = source.replace("goloop.introspect()\n", "")
    for encoding in ("ascii", "latin-1"):
        with running(source, asked=asked) as process:
            environ = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
            done = goloop("pstree", str(process.pid), **environ)
        if "ermission" in done.stderr:
            pytest.skip("this machine does not let a process look into another")
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii()
        assert "`-- (T) Task-1" in done.stdout
        assert "u2500" not in done.stdout
        if asked:
            assert r"(T) \u65e5 -" in done.stdout


@pytest.mark.skipif(sys.version_info < (3, 14), reason="CPython reads no memory before 3.14")
def test_memory_of_a_silent_program_is_read_and_a_line_feed_in_a_name_breaks_no_table() -> None:
    source = PROGRAM.replace("goloop.introspect()\n", "").replace('"grouped"', '"two\\nlines"')
    with running(source, asked=False) as process:
        done = goloop("ps", str(process.pid))
        tree = goloop("pstree", str(process.pid))
    if "ermission" in done.stderr + done.stdout:
        pytest.skip("this machine does not let a process look into another")
    assert done.returncode == tree.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2 + 4
    for shown in done.stdout, tree.stdout:
        assert all(name in shown for name in ("Task-1", "gatherer", "gathered"))
        [line] = [line for line in shown.splitlines() if "two" in line]
        assert r"two\nlines" in line


def test_no_name_reaches_the_terminal_as_a_command() -> None:
    name = r"\x1b]0;owned\x07\x9b2J\u202ey"
    ascii_name = r"\x1b]0;seized\x07"
    program = PROGRAM.replace('"grouped"', f'"{name}"').replace('"gathered"', f'"{ascii_name}"')
    with running(program) as process:
        for command in ("ps", "pstree"):
            done = goloop(command, str(process.pid))
            assert done.returncode == 0, done.stderr
            assert ascii_name in done.stdout
            assert name in done.stdout
            assert not set(done.stdout) & set("\0\x1b\x07\x9b\u202e")


@linux_only
def test_environment_variables_do_not_hide_the_introspection_socket(program: Program) -> None:
    for folder in ("/nonexistent", "", "relative", "/dev/null"):
        done = goloop("ps", str(program.pid), XDG_RUNTIME_DIR=folder, TMPDIR=folder)
        assert done.returncode == 0, done.stderr


@linux_only
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.forks
def test_another_user_gets_no_answer(program: Program) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setresuid(65534, 65534, 65534)
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(60)
                client.connect(address(program.pid))
                try:
                    code = 2 if client.recv(100) else 0
                except ConnectionResetError:
                    code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@linux_only
def test_root_sees_the_programs_of_others() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    other = "import os; import asyncio, goloop.watchdog; os.setresuid(65534, 65534, 65534)\n"
    with running(other + PROGRAM) as process:
        done = goloop("ps", str(process.pid))
    assert done.returncode == 0, done.stderr
    assert "grouped" in done.stdout


@linux_only
def test_a_name_that_is_taken_does_not_keep_a_program_from_starting() -> None:
    with running(PROGRAMS / "name_is_taken.py", ready="refused\n"):
        pass


@linux_only
def test_answer_under_another_processs_name_is_refused() -> None:
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process,
        socket.socket(socket.AF_UNIX) as impostor,
    ):
        impostor.bind(address(process.pid))
        impostor.listen()
        done = [goloop(command, str(process.pid), before=BEFORE) for command in ("ps", "top")]
        process.kill()
    for each in done:
        assert each.returncode == 1
        assert "another process has bound its introspection socket" in each.stderr


def test_program_without_introspection_opens_no_socket() -> None:
    with running("import goloop" + SILENT, asked=False) as process:
        assert process.pid not in introspectable_pids()
        for command in ("ps", "pstree", "top"):
            done = goloop(command, str(process.pid), before=BEFORE)
            assert done.returncode == 1
            assert f"process {process.pid} does not answer" in done.stderr
            assert "GOLOOP_INTROSPECT=1" in done.stderr
            assert "goloop.introspect()" in done.stderr
            assert done.stdout == ""


def gone() -> int:
    """The id of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.mark.parametrize("command", ["ps", "pstree", "top"])
def test_missing_process_and_invalid_pid_are_errors(command: str) -> None:
    pid = str(gone())
    done = goloop(command, pid)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"there is no process {pid}\n")
    for wrong in ("x", "-1", "0", "1.5", "²", "99999999999", ""):
        done = goloop(command, wrong)
        assert done.returncode == 2, wrong
        assert "usage: python -m goloop" in done.stderr
    assert goloop(command).returncode == 2


def test_zombie_process_counts_as_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read() == b""
        assert until(lambda: not introspection.is_alive(process.pid))
        os.kill(process.pid, 0)
    assert introspection.is_alive(os.getpid())


@linux_only
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_process_of_another_user_is_reported_as_such() -> None:
    # Python's own files may be root's alone.
    become = "import gettext, os, shutil\n"
    become += "from goloop import __main__; from goloop.operations.commands import top\n"
    become += "os.setgroups([]); os.setresuid(65534, 65534, 65534)\n"
    with running(PROGRAM) as process, running(SILENT, asked=False) as silent:
        for each in (process, silent):
            done = goloop("top", str(each.pid), before=BEFORE + become)
            assert done.returncode == 1
            assert f"process {each.pid} belongs to another user" in done.stderr


# ---- the protocol ------------------------------------------------------------------------


def test_each_answer_has_process_id_and_protocol_version(program: Program) -> None:
    for question in (b'{"ask": "tasks"}\n', b'{"ask": "top"}\n', b'{"ask": "x"}\n', b"[\n"):
        answer = raw(program.pid, question)
        assert answer["protocol"] == 1
        assert answer["pid"] == program.pid


def test_a_question_that_is_not_known_is_answered_with_an_error(program: Program) -> None:
    for question in (b'{"ask": "x"}\n', b"{}\n", b"[]\n", b"\n", b"\xff\n", b'{"ask"', b"9" * 4000):
        answer = raw(program.pid, question + (b"" if question.endswith(b"\n") else b"\n"))
        assert set(answer) == {"protocol", "pid", "error"}
    with pytest.raises(NoAnswer, match="does not know the request 'x'"):
        ask(program.pid, "x")
    assert len(ask(program.pid, "tasks")["tasks"]) == 4


def test_silent_client_does_not_block_other_requests(program: Program) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(address(program.pid))
        assert len(ask(program.pid, "tasks")["tasks"]) == 4
        silent.settimeout(60)
        assert silent.recv(65536) == b""  # and the connection is closed


def test_a_copy_of_the_connection_in_a_child_does_not_prolong_the_answer() -> None:
    client, server = socket.socketpair()
    with client, server.dup():
        client.settimeout(60)
        client.sendall(b'{"ask": "top"}\n')
        thread = threading.Thread(target=introspection.handle, args=(server,))
        thread.start()
        data = b""
        while part := client.recv(65536):
            data += part
        thread.join()
    assert json.loads(data)["pid"] == os.getpid()


@contextlib.contextmanager
def answerer(answer: str) -> Iterator[int]:
    """Return the id of a process that gives this answer to any request."""
    with running(PROGRAMS / "answerer.py", asked=False) as process:
        process.say(answer)
        yield process.pid


PARTIAL = {
    "protocol": 1,
    "partial": True,
    "loops": [
        {"blocked_for": 3.25, "stack": [["f", "a.py", 9], ["match\x1b[2J", "/lib/re.py", 7]]}
    ],
}


@linux_only
def test_while_the_gil_is_held_ps_and_pstree_show_the_stack_of_the_loop() -> None:
    with answerer(json.dumps(PARTIAL)) as pid:
        for command in ("ps", "pstree"):
            done = goloop(command, str(pid), before=BEFORE)
            assert done.returncode == 0
            assert (
                "the GIL is held, so Python cannot answer: only values of goloop's monitor"
                in done.stderr
            )
            lines = [line.strip() for line in done.stdout.splitlines()]
            assert lines == [
                "└── loop 1, blocked for 3.2 s",
                r"└── match\x1b[2J /lib/re.py:7",
                "└── f a.py:9",
            ]


@linux_only
def test_invalid_answer_is_an_error_with_its_reason() -> None:
    for answer, reason in (
        ("", "has closed the connection without an answer"),
        ('{"tasks": [', "has sent an incomplete answer"),
        ('{"protocol": 2, "tasks": []}', "runs an incompatible version of goloop"),
        ('"tasks"', "runs an incompatible version of goloop"),
        (r'{"protocol": 1, "error": "no\u001b[2J"}', r"reports an error: no\x1b[2J"),
    ):
        with answerer(answer) as pid:
            done = goloop("ps", str(pid), before=BEFORE)
            assert done.returncode == 1
            assert f"process {pid} {reason}" in done.stderr


def test_a_process_that_keeps_silent_is_given_up() -> None:
    quick = (
        "from goloop.operations.commands import client, top\n"
        "client.Question.__init__.__kwdefaults__['seconds'] = top.SECONDS = 0.2\n"
    )
    with running(PROGRAM) as process:
        process.send_signal(signal.SIGSTOP)
        for command in ("ps", "top"):
            done = goloop(command, str(process.pid), before=quick + BEFORE)
            assert done.returncode == 1
            assert "has not answered for 0.2 seconds" in done.stderr
            assert "GIL" in done.stderr
        process.send_signal(signal.SIGCONT)
        assert len(ask(process.pid, "tasks")["tasks"]) == 4


# ---- contents of an answer ---------------------------------------------------------------

TWO_LOOPS = (PROGRAMS / "two_loops.py").read_text()


@pytest.fixture(scope="module")
def answer() -> Iterator[dict[str, Any]]:
    """Return the answer of a program with two loops."""
    with running(TWO_LOOPS) as process:
        yield {**told(process, ask="top"), "process": process}


def loop_of(answer: dict[str, Any], thread: str) -> dict[str, Any]:
    [loop] = [each for each in answer["loops"] if each["thread"] == thread]
    return dict(loop)


def test_the_process_is_described(answer: dict[str, Any]) -> None:
    import goloop as package

    assert answer["pid"] == answer["process"].pid
    assert answer["program"].startswith(os.path.basename(sys.executable) + " -c ")
    assert answer["python"] == sys.version.split()[0]
    assert answer["goloop"] == package.__version__
    assert 0 < answer["uptime"] < 600
    assert len(answer["loops"]) == 2


def test_each_loop_is_described_with_its_thread(answer: dict[str, Any]) -> None:
    pid = answer["pid"]
    main, other = loop_of(answer, "MainThread"), loop_of(answer, "the other")
    assert main["native_id"] == pid
    assert other["native_id"] not in (0, pid)
    if sys.platform == "linux":
        assert os.path.isdir(f"/proc/{pid}/task/{other['native_id']}")
    assert main["running"]
    assert other["running"]
    assert main["id"] != other["id"]
    assert {row["name"] for row in main["tasks"]} >= {"reads", "waits", "shielded", "blocks"}
    assert [row["stack"][-1][0] for row in other["tasks"]] == ["second"]
    assert (main["task_count"], other["task_count"]) == (len(main["tasks"]), 1)


def test_the_figures_can_be_rebuilt(answer: dict[str, Any]) -> None:
    from goloop.operations.commands.target import metrics_of

    metrics = metrics_of(loop_of(answer, "MainThread")["metrics"])
    assert metrics.tasks == loop_of(answer, "MainThread")["task_count"]
    assert metrics.timers >= 2  # wait_for's too
    assert metrics.connections_open == 2
    assert metrics.connections_accepted == 1
    assert metrics.write_buffer_bytes > 1_000_000
    assert metrics.bytes_sent > 0
    assert metrics.iteration_time.count == metrics.turns > 5
    assert metrics.timer_lateness.percentile(100) > 0


def test_running_task_has_the_position_of_its_thread(answer: dict[str, Any]) -> None:
    loop = loop_of(answer, "MainThread")
    [row] = [row for row in loop["tasks"] if row["name"] == "blocks"]
    assert loop["current"] == row["id"]
    functions = [frame[0] for frame in row["stack"]]
    assert functions[-2:] == ["sinks", "blocks"]
    sinks = row["stack"][-2]
    line = TWO_LOOPS.splitlines()[sinks[2] - 1]
    assert line.endswith("# the line where it sinks")
    assert loop["stack"][: len(row["stack"])] == row["stack"]
    assert loop_of(answer, "the other")["current"] is None


def test_steps_of_asynchronous_generators_are_followed(answer: dict[str, Any]) -> None:
    [row] = [row for row in loop_of(answer, "MainThread")["tasks"] if row["name"] == "reads"]
    assert [frame[0] for frame in row["stack"]] == ["numbers", "reads"]


def test_awaiters_are_reported(answer: dict[str, Any]) -> None:
    rows = {row["name"]: row for row in loop_of(answer, "MainThread")["tasks"]}
    awaiters = {
        name: {awaiter["name"] for awaiter in row["awaiters"]} for name, row in rows.items()
    }
    assert awaiters["shielded"] == {"waits"}
    assert len(awaiters["reads"]) == len(awaiters["waits"]) == 1
    assert awaiters["reads"] == awaiters["waits"]  # the awaiter is first()'s task
    assert awaiters["blocks"] == set()


def test_connections_are_sorted_by_pending_bytes(answer: dict[str, Any]) -> None:
    greedy, reader = loop_of(answer, "MainThread")["connections"]
    assert greedy["protocol"] == "Greedy"
    assert greedy["write_buffer"] > 1_000_000
    assert reader["protocol"] == "StreamReaderProtocol"
    assert reader["write_buffer"] == 0
    for each in (greedy, reader):
        assert re.fullmatch(r"127\.0\.0\.1:\d+", each["peer"])
        assert each["tls"] is False


def test_a_task_is_known_again_and_its_wait_too(answer: dict[str, Any]) -> None:
    later = told(answer["process"], ask="top")
    before, after = loop_of(answer, "the other"), loop_of(later, "the other")
    assert before["tasks"] == after["tasks"]
    [row] = after["tasks"]
    assert row["mark"] > 0
    assert row["wait"] > 0
    assert row["mark"] != row["wait"]


def test_object_at_a_reused_address_gets_a_new_mark() -> None:
    class Thing:
        pass

    marks = snapshot._ObjectNumbers()
    first: Any = Thing()
    number, place = marks.number_of(first), id(first)
    assert marks.number_of(first) == marks.number_if_assigned(first) == number
    del first
    second: Any = Thing()
    marks._known[id(second)] = marks._known.pop(place)  # as if it were at the same address
    assert marks.number_if_assigned(second) is None
    assert marks.number_of(second) not in (0, number)
    assert marks.number_of(7) == marks.number_of(None) == 0  # can't be known again
    del second
    marks.remove_freed()
    assert not marks._known


def test_oldest_tasks_are_reported_if_there_are_many() -> None:
    with running(PROGRAMS / "many_tasks.py") as process:
        for limit in (3, 5, 2):
            [loop] = told(process, ask="top", tasks=limit, connections=0)["loops"]
            names = [row["name"] for row in loop["tasks"]]
            assert names == [f"Task-{number}" for number in range(1, limit + 1)]
            assert loop["task_count"] == 301


@linux_only
def test_connections_of_every_kind_are_reported() -> None:
    support = str(Path(__file__).parents[1] / "support")
    with running(PROGRAMS / "tls_and_pipes.py", PYTHONPATH=support) as process:

        def connections() -> list[dict[str, Any]]:
            [loop] = told(process, ask="top")["loops"]
            return list(loop["connections"])

        until(lambda: len(connections()) == 6, connections)
        found = sorted((each["peer"].split(":")[0], each["tls"]) for each in connections())
        assert [peer for peer, _ in found].count("pipe") == 2
        assert (f"@goloop-test-{process.pid}", False) in found
        secure = [each for each in connections() if each["tls"]]
        assert {each["protocol"] for each in secure} == {"StreamReaderProtocol"}
        assert len(secure) == 2
        assert all(re.fullmatch(r"\[::1\]:\d+", each["peer"]) for each in secure)


def test_introspection_during_constant_changes() -> None:
    with running(PROGRAMS / "churn.py") as process:
        seen_tasks = seen_connections = 0
        for _ in range(40):
            for loop in told(process, ask="top")["loops"]:
                seen_tasks += len(loop["tasks"])
                seen_connections += len(loop["connections"])
            assert isinstance(ask(process.pid, "tasks")["tasks"], list)
        assert seen_tasks > 100
        assert seen_connections > 10
        process.say("")
        assert process.stdout.readline() == "ended well\n"


# ---- forks -----------------------------------------------------------------------------------


@linux_only
def test_forked_workers_answer_for_themselves() -> None:
    with running(PROGRAMS / "forked_workers.py", ready="") as process:
        pids = {int(process.stdout.readline()) for _ in range(3)}
        assert len(pids) == 3
        assert process.pid in pids
        try:
            for pid in pids:
                done = goloop("ps", str(pid))
                assert done.returncode == 0, done.stderr
                assert done.stdout.splitlines()[2].split()[0] == str(pid)  # the main thread's id
                assert "worker" in done.stdout
        finally:
            for pid in pids - {process.pid}:
                os.kill(pid, signal.SIGKILL)


@linux_only
@pytest.mark.forks
def test_forked_child_does_not_report_its_parents_loop() -> None:
    with running(PROGRAMS / "fork_in_a_loop.py", ready="") as process:
        pid = int(process.stdout.readline())
        try:
            rows = ask(pid, "tasks")["tasks"]
            assert [row["stack"][-1][0] for row in rows] == ["child"]
            [loop] = ask(pid, "top")["loops"]
            assert [row["stack"][-1][0] for row in loop["tasks"]] == ["child"]
            [row] = ask(process.pid, "tasks")["tasks"]
            assert row["stack"][-1][0] == "parent"
        finally:
            os.kill(pid, signal.SIGKILL)


# ---- sockets that are files --------------------------------------------------------------------

FILES = "from goloop.operations import introspection; introspection.ABSTRACT = False\n"


def test_socket_files_are_found_and_those_of_dead_processes_removed(tmp_path: Path) -> None:
    place = {"TMPDIR": str(tmp_path)}
    folder = tmp_path / f"goloop-{os.getuid()}"
    folder.mkdir(mode=0o700)
    dead = folder / f"{gone()}.sock"
    dead.touch()
    (folder / "other.sock").touch()
    with running(FILES + PROGRAM, asked=False, **place) as process:
        socket_file = folder / f"{process.pid}.sock"
        assert socket_file.stat().st_mode & 0o777 == 0o600
        assert {each.name for each in folder.iterdir()} == {socket_file.name, "other.sock"}
        done = goloop("ps", str(process.pid), before=FILES + BEFORE, **place)
        assert done.returncode == 0, done.stderr
        assert "grouped" in done.stdout
        dead.touch()
        done = goloop("top", "--all", "--once", before=FILES, **place)
        assert done.returncode == 0, done.stderr
        assert f"pid {process.pid} " in done.stdout
        assert not dead.exists()
    until(lambda: not introspection.is_alive(process.pid))
    assert socket_file.exists()  # the process was killed
    done = goloop("top", "--all", "--once", before=FILES, **place)
    assert done.returncode == 1
    assert "there is no program of this user to show" in done.stderr
    assert not socket_file.exists()


def test_a_program_that_ends_removes_its_socket_file(tmp_path: Path) -> None:
    ending = FILES + "import goloop; goloop.introspect()" + SILENT
    with running(ending, asked=False, TMPDIR=str(tmp_path)) as process:
        socket_file = tmp_path / f"goloop-{os.getuid()}" / f"{process.pid}.sock"
        assert socket_file.is_socket()
        process.communicate("\n", timeout=60)
    assert not socket_file.exists()


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"goloop-{os.getuid()}").mkdir(mode=0o777)
    os.chmod(tmp_path / f"goloop-{os.getuid()}", 0o777)
    refused = FILES + (PROGRAMS / "refused_folder.py").read_text()
    with running(refused, asked=False, TMPDIR=str(tmp_path)):
        pass


def test_process_id_accepts_only_valid_ids() -> None:
    assert process_id("1") == 1
    assert process_id(str(2**31 - 1)) == 2**31 - 1
    for wrong in ("", "0", "-1", "+1", " 1", "1_0", "²", "٣", str(2**31), "9" * 5000):
        with pytest.raises(ValueError, match="is not a process id"):
            process_id(wrong)
