"""The owner of a child: the descriptor that reports its end, and the thread that reaps it.

The descriptor is goloop's (a pidfd): the program may reap the child, or close every number.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest
from conftest import Errors
from protocols import until

import goloop


def pidfds() -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if "pidfd" in os.readlink(f"/proc/self/fd/{name}"):
                found.append(int(name))
        except FileNotFoundError:
            pass
    return found


async def sleeper() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec("sleep", "1000")


def abandoned() -> tuple[goloop.Loop, Any]:
    """A loop, and its child that runs."""
    loop = goloop.Loop()
    child = loop.run_until_complete(sleeper())
    return loop, child


def end(child: Any) -> None:
    """The loop is closed: its transport reaps nothing any more."""
    popen = child._transport._proc
    child._transport.close()
    popen.wait()


def test_a_loop_that_is_closed_closes_the_pidfds_of_its_children() -> None:
    assert pidfds() == []
    loop, child = abandoned()
    assert len(pidfds()) == 1
    loop.close()
    assert pidfds() == []
    end(child)


def test_reused_pidfd_number_is_not_closed() -> None:
    """A program that becomes a daemon closes every descriptor."""
    loop, child = abandoned()
    [number] = pidfds()
    os.close(number)
    reading, writing = os.pipe()
    os.dup2(reading, number)
    loop.close()
    os.write(writing, b"x")
    assert os.read(number, 1) == b"x"
    for fd in {reading, writing, number}:
        os.close(fd)
    end(child)


def test_a_child_that_was_reaped_is_not_mistaken_for_the_next_with_its_number(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The program reaps it, and the kernel gives its number to another child, which runs."""
    stranger = subprocess.Popen(["sleep", "1000"])

    async def main() -> None:
        child = await sleeper()
        transport: Any = child._transport  # type: ignore[attr-defined]
        child.send_signal(signal.SIGKILL)
        os.waitpid(child.pid, 0)
        # The number that goloop knows for the child now belongs to another file.
        wait = os.waitpid
        monkeypatch.setattr(
            os, "waitpid", lambda pid, flags: wait({child.pid: stranger.pid}.get(pid, pid), flags)
        )
        assert await child.wait() == 255
        assert transport.get_returncode() == 255

    goloop.run(main())
    assert "already read" in caplog.text
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_a_kernel_that_cannot_wait_for_pidfds_is_asked_by_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wait = os.waitid

    def waitid(kind: int, number: int, options: int) -> Any:
        if kind == os.P_PIDFD:
            raise OSError(22, "Invalid argument")
        return wait(kind, number, options)

    monkeypatch.setattr(os, "waitid", waitid)

    async def main() -> None:
        child = await asyncio.create_subprocess_shell("exit 7")
        assert await child.wait() == 7
        child = await asyncio.create_subprocess_shell("kill -TERM $$")
        assert await child.wait() == -15

    goloop.run(main())


@pytest.mark.parametrize("thread", [True, False], ids=["thread", "no thread"])
@pytest.mark.parametrize("pidfd", ["refused", "not watched"])
def test_child_has_an_owner_after_any_failure(
    pidfd: str, thread: bool, monkeypatch: pytest.MonkeyPatch, errors: Errors
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError(28, "No space left on device")

    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    class Loop(goloop.Loop):
        def _add_reader(self, *args: Any) -> Any:
            watched = args[0] not in pidfds() or pidfd != "not watched"
            return super()._add_reader(*args) if watched else refuse()

    if pidfd == "refused":
        monkeypatch.setattr(os, "pidfd_open", refuse)

    async def main() -> None:
        if not thread:
            monkeypatch.setattr(threading.Thread, "start", no_thread)
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "input(); raise SystemExit(5)", stdin=subprocess.PIPE
        )
        assert pidfds() == []
        assert await child.communicate(b"\n") == (None, None)
        assert child.returncode == 5
        with pytest.raises(ChildProcessError):
            os.waitpid(child.pid, os.WNOHANG)
        monkeypatch.undo()
        await until(lambda: not [t for t in threading.enumerate() if "waitpid" in t.name])

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main())
