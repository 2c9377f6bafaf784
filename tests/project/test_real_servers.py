"""The real servers of the benchmarks: each starts in a folder of its own, and ends for good."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import cases, real_servers, runner
from goloop.operations import server_ports
from goloop.operations.compare.measuring import machine
from goloop.operations.compare.measuring.turns import Failure

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks need Linux")

PROGRAMS = sorted(real_servers.PROGRAMS)


def needs(name: str) -> None:
    """Skip if a server is not installed."""
    if real_servers.missing(name):
        pytest.skip(real_servers.missing(name))


def is_there(process: int) -> bool:
    """Return true if a process runs; one that waits to be reaped does not."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def await_end(processes: list[int]) -> None:
    """Wait until none of some processes runs; the test's limit of time ends it otherwise."""
    for process in processes:
        while is_there(process):
            os.sched_yield()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_real_server_accepts_on_its_core_and_ends_with_its_folder(name: str) -> None:
    needs(name)
    core = machine.usable_cores()[-1]
    server = real_servers.RealServer(name, core)
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
from benchmarks import real_servers
from goloop.operations import server_ports
server = real_servers.RealServer(sys.argv[1], 0)
print(server.path, *server_ports.family_of(server.pid), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("name", PROGRAMS)
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


def test_a_server_that_does_not_start_is_a_failure_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dying = [sys.executable, "-c", "exit('out of luck')"]
    program = real_servers.Program(("nginx",), "-v", lambda _place, _port: (dying, None, b""))
    monkeypatch.setitem(real_servers.PROGRAMS, "nginx", program)
    with pytest.raises(Failure, match="nginx exited with status 1: out of luck"):
        real_servers.RealServer("nginx", machine.usable_cores()[-1])


def test_rows_of_a_server_that_is_not_installed_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(real_servers, "_where", lambda name: name == "postgres" or None)
    reasons = {"nginx": "nginx", "redis": "redis-server", "postgres": "initdb"}
    assert {name: real_servers.missing(name) for name in reasons} == {
        name: f"{program} is not installed" for name, program in reasons.items()
    }
    measuring = runner.Runner.__new__(runner.Runner)
    wanted = [case for case in cases.select(["clients"]) if case.service == "redis"]
    packages = {"redis": "redis 8"}
    assert set(measuring._missing(wanted, packages).values()) == {"redis-server is not installed"}
    assert real_servers.versions(PROGRAMS) == ""
