"""Child processes: their end, their output, and other code that looks after children.

GOLOOP_TEST_CHILDREN sets how many the long test starts (200 where it is unset).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from protocols import turns, until

Loop = asyncio.AbstractEventLoop

CHILDREN = int(os.environ.get("GOLOOP_TEST_CHILDREN", "200"))


@pytest.fixture(autouse=True)
def _reaper(loop_name: str) -> None:
    if loop_name == "asyncio" and sys.version_info < (3, 12):
        pytest.skip("asyncio has a thread per child before 3.12, which outlives the test")


async def python(source: str, **options: Any) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, "-c", source, **options)


@pytest.mark.parametrize("how", ["kill", "terminate", "send_signal"])
async def test_a_signal_for_a_child_that_has_ended_is_a_lookup_error(loop: Loop, how: str) -> None:
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()
    await turns(3)
    arguments = [signal.SIGUSR1] if how == "send_signal" else []
    with pytest.raises(ProcessLookupError):
        getattr(process, how)(*arguments)


async def test_a_program_that_cannot_be_started_raises_the_kernels_error(
    loop: Loop, tmp_path: Path
) -> None:
    """The exception is the kernel's, and no child and no descriptor is left."""
    with pytest.raises(FileNotFoundError):
        await asyncio.create_subprocess_exec(tmp_path / "missing")
    data = tmp_path / "data"
    data.write_bytes(b"\x7fELF and no more")
    with pytest.raises(PermissionError):
        await asyncio.create_subprocess_exec(data)
    data.chmod(0o700)
    with pytest.raises(OSError, match="Exec format error"):
        await asyncio.create_subprocess_exec(data, stdout=subprocess.PIPE)
    with pytest.raises(NotADirectoryError):
        await asyncio.create_subprocess_exec(data / "below", stdin=subprocess.PIPE)
    with pytest.raises(FileNotFoundError) as caught:
        await asyncio.create_subprocess_exec("true", cwd=tmp_path / "nowhere")
    assert os.fspath(caught.value.filename) == os.fspath(tmp_path / "nowhere")
    with pytest.raises(subprocess.SubprocessError, match="preexec_fn"):
        await asyncio.create_subprocess_exec("true", preexec_fn=lambda: 1 / 0)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


async def test_input_unread_by_an_ended_child_is_dropped(loop: Loop) -> None:
    """Input that is not yet written when the child ends is dropped, not awaited."""
    child = await asyncio.create_subprocess_exec("true", stdin=subprocess.PIPE)
    assert child.stdin is not None
    child.stdin.write(b"x" * 1_000_000)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # or it has ended already
        await child.stdin.drain()
    assert await child.wait() == 0
    assert child.stdin.transport.get_write_buffer_size() == 0


async def test_five_megabytes_come_back_from_a_child_unchanged(loop: Loop) -> None:
    child = await asyncio.create_subprocess_exec(
        "cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    data = os.urandom(5_000_000)
    assert (await child.communicate(data))[0] == data
    assert child.returncode == 0


async def test_pipes_of_a_child_are_transports(loop: Loop) -> None:
    transport, calls = await loop.subprocess_exec(Calls, "cat")
    stdin, stdout = (transport.get_pipe_transport(fd) for fd in (0, 1))
    assert isinstance(stdin, asyncio.WriteTransport)
    assert isinstance(stdout, asyncio.ReadTransport)
    stdout.pause_reading()
    stdin.write(b"abc")
    stdin.write_eof()
    assert stdin.is_closing()
    await until(lambda: "exited" in calls.calls)
    assert ("data", 1, b"abc") not in calls.calls
    stdout.resume_reading()
    await calls.lost
    assert ("data", 1, b"abc") in calls.calls
    assert calls.calls[-1] == "lost"
    transport.close()


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


async def test_connection_lost_is_a_subprocess_protocols_last_call(loop: Loop) -> None:
    transport, calls = await loop.subprocess_exec(
        Calls, "sh", "-c", "echo last words", stdin=None, stderr=None
    )
    await calls.lost
    assert calls.calls[-1] == "lost"
    assert set(calls.calls) == {("data", 1, b"last words\n"), ("pipe lost", 1), "exited", "lost"}
    assert len(calls.calls) == 4
    assert transport.get_returncode() == 0
    transport.close()


async def test_each_of_many_short_children_gives_its_exit_code(loop: Loop) -> None:
    async def one(code: int) -> int | None:
        child = await asyncio.create_subprocess_exec("sh", "-c", f"exit {code}")
        return await child.wait()

    assert await asyncio.gather(*map(one, range(40))) == list(range(40))
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


async def test_five_hundred_children_at_once_give_output_and_exit_code(loop: Loop) -> None:
    async def one(number: int) -> tuple[bytes, int | None]:
        child = await asyncio.create_subprocess_exec(
            "sh", "-c", f"echo {number}; exit {number % 256}", stdout=subprocess.PIPE
        )
        return (await child.communicate())[0], child.returncode

    answers = await asyncio.gather(*map(one, range(500)))
    assert answers == [(b"%d\n" % number, number % 256) for number in range(500)]
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.goloop_only("nothing of asyncio's is to be proven")
async def test_many_children_leave_no_fd_and_no_zombie(loop: Loop) -> None:
    """Run children in sequence and in parallel: no fd, no zombie and no output is left over."""

    async def plain() -> None:
        child = await asyncio.create_subprocess_exec("true")
        assert await child.wait() == 0

    async def piped() -> None:
        child = await asyncio.create_subprocess_exec(
            "echo", "x", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert await child.communicate() == (b"x\n", b"")

    async def killed() -> None:
        child = await asyncio.create_subprocess_exec("sleep", "60", stdout=subprocess.PIPE)
        child.kill()
        assert await child.wait() == -signal.SIGKILL

    async def missing() -> None:
        with pytest.raises(FileNotFoundError):
            await asyncio.create_subprocess_exec("/nowhere/at/all", stdout=subprocess.PIPE)

    kinds = [plain, piped, killed, missing]
    await asyncio.gather(*(kind() for kind in kinds))
    fds = len(os.listdir("/proc/self/fd"))
    for start in range(0, CHILDREN, 2 * len(kinds)):
        for kind in kinds:
            await kind()
        await asyncio.gather(*(kind() for kind in kinds))
        if start % 1000 == 0:
            assert len(os.listdir("/proc/self/fd")) <= fds + 3  # some are being closed
            with pytest.raises(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
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


async def test_children_of_other_code_are_not_reaped(loop: Loop) -> None:
    theirs = subprocess.Popen(["sh", "-c", "exit 3"])
    ours = await asyncio.create_subprocess_exec("sh", "-c", "exit 4")
    assert await ours.wait() == 4
    assert theirs.wait() == 3


async def test_a_child_that_somebody_else_has_waited_for_ends_with_255(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    child = await python("input()", stdin=subprocess.PIPE)
    child.kill()
    # The loop does not run here, so this is first.
    os.waitpid(child.pid, 0)
    assert await child.wait() == 255
    assert f"{child.pid}" in caplog.text
    assert "255" in caplog.text


@pytest.mark.goloop_only("asyncio decides once per process")
async def test_exit_codes_are_reported_without_pidfds(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int, flags: int = 0) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "pidfd_open", refuse)
    child = await asyncio.create_subprocess_exec("sh", "-c", "exit 9")
    assert await child.wait() == 9


@pytest.mark.goloop_only("asyncio asks one before 3.14")
async def test_no_child_watcher_is_asked(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise AssertionError("asked for a child watcher")

    monkeypatch.setattr(asyncio.events, "get_child_watcher", refuse, raising=False)
    child = await asyncio.create_subprocess_exec("true")
    assert await child.wait() == 0


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="3.14 has no child watchers")
@pytest.mark.goloop_only("asyncio asks it")
async def test_a_child_watcher_may_be_set(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.get_event_loop_policy(), "_watcher", None, raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        watcher = asyncio.SafeChildWatcher()  # type: ignore[attr-defined, unused-ignore]
        asyncio.set_child_watcher(watcher)  # type: ignore[attr-defined, unused-ignore]
        assert asyncio.get_child_watcher() is watcher  # type: ignore[attr-defined, unused-ignore]
    child = await asyncio.create_subprocess_exec("sh", "-c", "exit 5")
    assert await child.wait() == 5
    assert not watcher._callbacks
    watcher.close()


async def test_a_cancelled_start_leaves_no_child(loop: Loop) -> None:
    starting = asyncio.ensure_future(asyncio.create_subprocess_exec("sleep", "60"))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
