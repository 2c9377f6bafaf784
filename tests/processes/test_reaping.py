"""A child is reaped and its transport notified in one callback of the loop.

In between, the child's number could be given to another process, and a transport that
knows of no end would send its signals there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from typing import Any

import pytest
from protocols import until

import goloop

Loop = asyncio.AbstractEventLoop


@pytest.fixture(params=["pidfd", "thread"])
def watcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the child's end is seen; a sandbox may refuse a pidfd."""

    def refused(pid: int, flags: int = 0) -> int:
        raise PermissionError

    if request.param == "thread":
        monkeypatch.setattr(os, "pidfd_open", refused)
    name: str = request.param
    return name


def test_child_is_reaped_and_reported_at_once(watcher: str, no_leaks: None) -> None:
    told: list[Any] = []

    class Watching(goloop.Loop):
        def _reap(self, pid: int, pidfd: int) -> int:
            threads.append(threading.current_thread())
            code = super()._reap(pid, pidfd)
            # The call comes before the next callback of the ready queue.
            self.call_soon(lambda: told.append(child._transport.get_returncode()))
            return code

    threads: list[threading.Thread] = []
    child: Any = None

    async def main() -> None:
        nonlocal child
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
        assert await child.wait() == 0
        await until(lambda: told)

    with asyncio.Runner(loop_factory=Watching) as runner:
        runner.run(main())
    assert told == [0]
    assert threads == [threading.main_thread()]


def test_a_child_that_ended_is_there_until_the_loop_runs(watcher: str, no_leaks: None) -> None:
    async def main() -> None:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE
        )
        threads = [each for each in threading.enumerate() if f"-{child.pid}" in each.name]
        assert len(threads) == (watcher == "thread")
        child.kill()
        for each in threads:
            each.join()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert child.returncode is None
        child.kill()  # harmless: the number is still its own
        assert await child.wait() == -signal.SIGKILL

    goloop.run(main())
