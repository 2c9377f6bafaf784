"""Child processes: their end, their output, and who else may look after children."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from protocols import until

Loop = asyncio.AbstractEventLoop


@pytest.fixture(autouse=True)
def _reaper(loop_name: str) -> None:
    if loop_name == "asyncio" and sys.version_info < (3, 12):
        pytest.skip("asyncio has a thread per child before 3.12, which outlives the test")


async def python(source: str, **options: Any) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, "-c", source, **options)


async def test_output_input_and_exit_code(loop: Loop) -> None:
    child = await python(
        "import sys; print(sys.stdin.read()[::-1]); print('oh', file=sys.stderr); sys.exit(7)",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert await child.communicate(b"abc") == (b"cba\n", b"oh\n")
    assert child.returncode == 7


async def test_shell(loop: Loop) -> None:
    child = await asyncio.create_subprocess_shell("echo $((6*7))", stdout=subprocess.PIPE)
    assert (await child.communicate())[0] == b"42\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1])
async def test_killed_by_a_signal(loop: Loop, number: int) -> None:
    child = await python("input()", stdin=subprocess.PIPE)
    child.send_signal(number)
    assert await child.wait() == -number


async def test_no_such_program(loop: Loop) -> None:
    with pytest.raises(FileNotFoundError):
        await asyncio.create_subprocess_exec("/nowhere/at/all")


class Calls(asyncio.SubprocessProtocol):
    """Notes the calls in order."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.lost = asyncio.get_running_loop().create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.calls.append(("data", fd, data))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self.calls.append(("pipe lost", fd))

    def process_exited(self) -> None:
        self.calls.append("exited")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")
        self.lost.set_result(None)


async def test_order_of_calls(loop: Loop) -> None:
    transport, calls = await loop.subprocess_exec(
        Calls, "sh", "-c", "echo last words", stdin=None, stderr=None
    )
    await calls.lost
    assert calls.calls[-1] == "lost"
    assert set(calls.calls) == {("data", 1, b"last words\n"), ("pipe lost", 1), "exited", "lost"}
    assert len(calls.calls) == 4
    assert transport.get_returncode() == 0
    transport.close()


async def test_many_short_children(loop: Loop) -> None:
    async def one(code: int) -> int | None:
        child = await asyncio.create_subprocess_exec("sh", "-c", f"exit {code}")
        return await child.wait()

    assert await asyncio.gather(*map(one, range(40))) == list(range(40))
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


async def test_sigchld_stays_the_users(loop: Loop) -> None:
    seen = []
    previous = signal.signal(signal.SIGCHLD, lambda *_: seen.append("user"))
    try:
        child = await asyncio.create_subprocess_exec("true")
        assert await child.wait() == 0
        await until(lambda: seen)
    finally:
        signal.signal(signal.SIGCHLD, previous)


async def test_children_of_others_are_left_alone(loop: Loop) -> None:
    theirs = subprocess.Popen(["sh", "-c", "exit 3"])
    ours = await asyncio.create_subprocess_exec("sh", "-c", "exit 4")
    assert await ours.wait() == 4
    assert theirs.wait() == 3


async def test_a_child_that_somebody_else_has_waited_for(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    child = await python("input()", stdin=subprocess.PIPE)
    child.kill()
    # The loop does not run here, so this is first.
    os.waitpid(child.pid, 0)
    assert await child.wait() == 255
    assert f"{child.pid}" in caplog.text
    assert "255" in caplog.text


async def test_without_pidfds(loop: Loop, loop_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if loop_name == "asyncio":
        pytest.skip("asyncio decides once per process")

    def refuse(pid: int, flags: int = 0) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "pidfd_open", refuse)
    child = await asyncio.create_subprocess_exec("sh", "-c", "exit 9")
    assert await child.wait() == 9


async def test_no_child_watcher_is_asked(
    loop: Loop, loop_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loop_name == "asyncio":
        pytest.skip("asyncio asks one before 3.14")

    def refuse() -> None:
        raise AssertionError("asked for a child watcher")

    monkeypatch.setattr(asyncio.events, "get_child_watcher", refuse, raising=False)
    child = await asyncio.create_subprocess_exec("true")
    assert await child.wait() == 0


async def test_a_cancelled_start_leaves_no_child(loop: Loop) -> None:
    starting = asyncio.ensure_future(asyncio.create_subprocess_exec("sleep", "60"))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
