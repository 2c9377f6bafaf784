"""python -m goloop ps PID and pstree PID."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator

import pytest

from goloop.introspection import socket_path

PROGRAM = """
import asyncio, goloop
goloop.introspect()
assert callable(goloop.introspect)
async def leaf():
    await asyncio.get_running_loop().create_future()
async def branch():
    await asyncio.gather(asyncio.create_task(leaf(), name="gathered"))
async def main():
    async with asyncio.TaskGroup() as group:
        group.create_task(leaf(), name="grouped")
        group.create_task(branch(), name="gatherer")
        for _ in range(5):
            await asyncio.sleep(0)
        print("ready", flush=True)
goloop.run(main())
"""

# CPython 3.14 reads the other process's memory, which not every machine allows.
pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="CPython's own tool does it from Python 3.14 on"
)


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "GOLOOP_INTROSPECT": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()
    os.unlink(socket_path(process.pid))


def goloop(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "goloop", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_ps_lists_the_tasks_and_pstree_their_awaiters(program: subprocess.Popen[str]) -> None:
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


def test_the_socket_is_its_users_alone(program: subprocess.Popen[str]) -> None:
    path = socket_path(program.pid)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700


def test_a_program_that_was_not_asked_opens_nothing() -> None:
    assert not os.path.exists(socket_path(os.getpid()))
    done = goloop("ps", str(os.getpid()))
    assert done.returncode == 1
    assert "GOLOOP_INTROSPECT=1" in done.stderr
    assert goloop("ps").returncode == 2
