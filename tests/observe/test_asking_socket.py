"""The introspection socket: its owner, and the clients that it serves."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import ended
import pytest
from observed_programs import Program, goloop, running, until

from goloop.operations import introspection
from goloop.operations.commands.client import NoAnswer, ask
from goloop.operations.introspection import address

PROGRAMS = Path(__file__).with_name("programs")

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def answer_at(path: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(path)
        client.sendall(b"GET / HTTP/1.0\n")
        return client.makefile("rb").read()


@linux_only
@pytest.mark.forks
def test_daemons_own_listener_is_not_mistaken_for_goloops(tmp_path: Path) -> None:
    path = str(tmp_path / "app")
    with running((PROGRAMS / "daemon.py", path), ready="") as process:
        pid = int(process.stdout.readline())
        try:
            # While the GIL is held, and when poll(2) begins again by the number.
            assert answer_at(path) == b"app"
            os.kill(pid, signal.SIGSTOP)
            until(lambda: state_of(pid) == "T")
            os.kill(pid, signal.SIGCONT)
            until(lambda: state_of(pid) != "T")
            assert {answer_at(path) for _ in range(20)} == {b"app"}
            told = goloop("top", str(pid)).stderr
            assert f"process {pid} does not answer" in told
            assert "the program has closed its introspection socket" in told
        finally:
            os.kill(pid, signal.SIGKILL)


@linux_only
@pytest.mark.forks
def test_a_daemon_can_have_a_new_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "app")
    with running((PROGRAMS / "daemon.py", path, "again"), ready="") as process:
        pid = int(process.stdout.readline())
        try:
            assert goloop("top", str(pid), "--once").returncode == 0
            assert answer_at(path) == b"app"
        finally:
            os.kill(pid, signal.SIGKILL)


# ---- accepted clients ----------------------------------------------------------------------


@linux_only
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_is_refused_without_python() -> None:
    with running(PROGRAMS / "holds_the_gil.py") as process:
        name = address(process.pid).replace("\0", "@")
        done = ended.python(PROGRAMS / "stranger.py", name, apart=True)
    assert done.stdout == "refused\n"


ISOLATED = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


def container(name: str) -> contextlib.AbstractContextManager[Program]:
    """A process 1 that has the network in common with others."""
    return running((PROGRAMS / "asks_from_a_namespace.py", name), "ready 1\n", before=ISOLATED)


def may_unshare() -> bool:
    """Whether this user, and the machine, have PID namespaces."""
    try:
        done = subprocess.run([*ISOLATED, "true"], capture_output=True, check=False)
        return done.returncode == 0
    except FileNotFoundError:
        return False


namespaces = pytest.mark.skipif(not may_unshare(), reason="no PID namespaces for this user")


@namespaces
def test_containers_with_one_network_do_not_see_each_other() -> None:
    with container("pod_a") as first, container("pod_b") as second:
        for process, name in ((first, "pod_a"), (second, "pod_b")):
            process.say("")
            assert process.stdout.readline() == f"{name}\n"


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


@namespaces
def test_requests_and_answers_of_other_pid_namespaces_are_refused() -> None:
    with container("pod_a") as process:
        inner = os.stat(f"/proc/{child_of(process.pid)}/ns/pid").st_ino
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(f"\0{introspection.NAME}{inner}-1")
            with contextlib.suppress(ConnectionError):
                client.sendall(b'{"ask": "tasks"}\n')
                assert client.recv(100) == b""
    with socket.socket(socket.AF_UNIX) as impostor:
        impostor.bind(f"\0{os.getpid()}-1")
        impostor.listen()
        asks = (PROGRAMS / "asks_another.py", f"{os.getpid()}-")
        with running(asks, before=ISOLATED) as process:
            assert "another process has bound its introspection socket" in process.stdout.readline()


@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="there is no GIL to hold"
)
def test_monitor_answers_do_not_depend_on_the_locale(tmp_path: Path) -> None:
    try:
        made = subprocess.run(
            ["localedef", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")],
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        made = None
    if made is None or not (tmp_path / "de_DE.UTF-8").exists():
        pytest.skip("no locale with a decimal comma can be made here")
    with running(PROGRAMS / "locale_with_a_comma.py", LOCPATH=str(tmp_path)) as process:
        [loop] = until(lambda: partial(process.pid))["loops"]
    assert isinstance(loop["clock"], float)
    assert isinstance(loop["blocked_for"], float)


def partial(pid: int) -> Any:
    """The monitor's answer; None where Python was quick enough, or has the question."""
    with contextlib.suppress(NoAnswer):
        answer = ask(pid, "top")
        return answer if answer.get("partial") else None
    return None


@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="there is no GIL to hold"
)
def test_a_thread_that_is_answering_when_the_gil_is_taken_keeps_no_other_waiting() -> None:
    with running(PROGRAMS / "blocked_later.py") as process, socket.socket(socket.AF_UNIX) as silent:
        silent.connect(address(process.pid))
        process.say("")
        assert until(lambda: partial(process.pid))["loops"]
