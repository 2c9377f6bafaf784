"""Jobs in threads of their own, which a simulation runs in its thread."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import pytest

from goloop import testing

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")


def test_what_a_job_reports_comes_when_the_job_has_slept_so_long() -> None:
    told = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def tell(what: str) -> None:
            told.append((what, round(loop.time() - began)))

        def job() -> None:
            for second in range(3):
                loop.call_soon_threadsafe(tell, f"slept {second}")
                time.sleep(10)

        began = loop.time()
        await asyncio.to_thread(job)
        tell("done")

    testing.run(main)
    assert told == [("slept 0", 0), ("slept 1", 10), ("slept 2", 20), ("done", 30)]


def test_workers_of_anyio_are_an_executor_of_the_simulation() -> None:
    anyio = pytest.importorskip("anyio")
    before = threading.active_count()

    def job(n: int) -> int:
        time.sleep(n)
        if n == 3:
            raise ValueError("three")
        return n

    async def main() -> list[int]:
        done: list[int] = []

        async def one(n: int) -> None:
            done.append(await anyio.to_thread.run_sync(job, n))

        async with anyio.create_task_group() as group:
            for n in (20, 10, 5):
                group.start_soon(one, n)
        with pytest.raises(ValueError, match="three"):
            await anyio.to_thread.run_sync(job, 3)
        with anyio.move_on_after(2) as scope:
            await anyio.to_thread.run_sync(job, 30, abandon_on_cancel=True)
        assert scope.cancelled_caught
        assert threading.active_count() == before
        return done

    result = testing.run(main)
    assert result.value == [5, 10, 20]
    assert result.time == pytest.approx(25, abs=0.2)
    assert testing.run(main).trace == result.trace
