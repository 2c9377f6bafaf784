"""python -m goloop ps PID and pstree PID."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest

from goloop.introspection import address

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


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")


@contextlib.contextmanager
def running(program: str, ready: str = "ready\n") -> Iterator[subprocess.Popen[str]]:
    """The program, from the line that it prints when it is ready."""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "GOLOOP_INTROSPECT": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            if ready:
                assert process.stdout.readline() == ready
            yield process
        finally:
            process.kill()


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    with running(PROGRAM) as process:
        yield process


def goloop(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "goloop", *arguments],
        env={**os.environ, **environ},
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


def test_the_tree_tells_files_and_lines(program: subprocess.Popen[str]) -> None:
    lines = [line.strip() for line in goloop("pstree", str(program.pid)).stdout.splitlines()]
    assert "└── leaf <string>:6" in lines
    assert "└── branch <string>:8" in lines


@linux_only
def test_no_setting_of_either_side_hides_it(program: subprocess.Popen[str]) -> None:
    for folder in ("/nonexistent", "", "relative", "/dev/null"):
        done = goloop("ps", str(program.pid), XDG_RUNTIME_DIR=folder, TMPDIR=folder)
        assert done.returncode == 0, done.stderr


@linux_only
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_gets_no_answer(program: subprocess.Popen[str]) -> None:
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
    other = "import os; import asyncio, goloop; os.setresuid(65534, 65534, 65534)\n"
    with running(other + PROGRAM) as process:
        done = goloop("ps", str(process.pid))
    assert done.returncode == 0, done.stderr
    assert "grouped" in done.stdout


FORKS = """
import asyncio, os, sys, warnings
warnings.simplefilter("ignore")
import goloop
async def worker():
    os.write(1, b"%d\\n" % os.getpid())  # in one piece
    await asyncio.get_running_loop().create_future()
async def main():
    await asyncio.sleep(0)
goloop.run(main())
for _ in range(2):
    if os.fork() == 0:
        asyncio.run(worker(), loop_factory=goloop.new_event_loop) if sys.version_info >= (3, 12) \
            else goloop.run(worker())
goloop.run(worker())
"""


@linux_only
def test_forked_workers_answer_for_themselves() -> None:
    with running(FORKS, ready="") as process:
        assert process.stdout is not None
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


TAKEN = """
import os, socket, sys, warnings
squatter = socket.socket(socket.AF_UNIX)
squatter.bind(f"\\0goloop-introspect-{os.getpid()}")
squatter.listen()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import goloop
assert len(caught) == 1 and caught[0].category is RuntimeWarning, caught
assert "goloop ps" in str(caught[0].message)
try:
    goloop.introspect()
except OSError:
    print("refused", flush=True)
squatter.close()
goloop.introspect()
goloop.introspect()
"""


@linux_only
def test_a_name_that_is_taken_does_not_keep_a_program_from_starting() -> None:
    with running(TAKEN, ready="refused\n"):
        pass


@linux_only
def test_an_answer_in_anothers_name_is_refused() -> None:
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process,
        socket.socket(socket.AF_UNIX) as impostor,
    ):
        impostor.bind(address(process.pid))
        impostor.listen()
        done = goloop("ps", str(process.pid))
        process.kill()
    assert done.returncode == 1
    assert "another process answers in its name" in done.stderr


def test_a_program_that_was_not_asked_opens_nothing() -> None:
    done = goloop("ps", str(os.getpid()))
    assert done.returncode == 1
    assert "GOLOOP_INTROSPECT=1" in done.stderr
    assert goloop("ps").returncode == 2
