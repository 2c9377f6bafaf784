"""Jobs in threads of their own, which a simulation runs in its thread."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor

import pytest

from goloop import testing
from goloop.testing.simulated import threads

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")


def test_reports_of_a_job_arrive_at_its_simulated_times() -> None:
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


# ---- executors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_thread_takes_jobs_in_their_order(seed: int) -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        got: list[int] = []
        with ThreadPoolExecutor(1) as executor:
            await asyncio.gather(*(loop.run_in_executor(executor, got.append, n) for n in range(6)))
        return got

    assert testing.run(main, seed=seed).value == [0, 1, 2, 3, 4, 5]


def test_an_executor_runs_as_many_jobs_at_once_as_it_has_threads() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        executor = ThreadPoolExecutor(2)
        await asyncio.gather(*(loop.run_in_executor(executor, time.sleep, 10) for _ in range(5)))
        return loop.time() - 1

    assert testing.run(main).value == pytest.approx(30, abs=0.2)
    ends = {tuple(testing.run(two_at_once, seed=seed).value) for seed in range(20)}
    assert ends == {("a", "b"), ("b", "a")}


async def two_at_once() -> list[str]:
    loop = asyncio.get_running_loop()
    got: list[str] = []
    executor = ThreadPoolExecutor(2)
    await asyncio.gather(*(loop.run_in_executor(executor, got.append, each) for each in "ab"))
    return got


def test_overtaken_job_cannot_be_cancelled() -> None:
    async def main() -> tuple[bool, list[str]]:
        executor = ThreadPoolExecutor(2)
        got: list[str] = []
        first = executor.submit(got.append, "first")
        second = executor.submit(got.append, "second")
        second.result()
        could = first.cancel()
        executor.shutdown()
        return could, sorted(got)

    for seed in range(10):
        assert testing.run(main, seed=seed).value == (False, ["first", "second"])


def test_the_end_of_an_executor_waits_for_its_jobs() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        done: list[str] = []

        def job(name: str) -> None:
            time.sleep(10)
            done.append(f"{name} {round(time.monotonic()) - 1}")

        with ThreadPoolExecutor(1) as executor:
            ended = [loop.run_in_executor(executor, job, "with") for _ in range(2)]
        assert len(done) == 2
        await asyncio.gather(*ended)
        loop.run_in_executor(None, job, "default")
        await loop.shutdown_default_executor()
        return done

    assert testing.run(main).value == ["with 10", "with 20", "default 30"]


def test_jobs_that_are_left_are_waited_for_as_asyncio_run_does() -> None:
    done: list[float] = []

    async def main() -> None:
        asyncio.get_running_loop().run_in_executor(None, done.append, 1)

    testing.run(main)
    assert done == [1]


@testing.simulate(seeds=1)
async def test_shut_down_executor_refuses_jobs() -> None:
    loop = asyncio.get_running_loop()
    executor = ThreadPoolExecutor(1)
    executor.submit(int).result()
    left = [executor.submit(int) for _ in range(2)]
    executor.shutdown(cancel_futures=True)
    assert all(each.cancelled() for each in left)
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        await loop.run_in_executor(executor, int)
    await loop.shutdown_default_executor()
    with pytest.raises(RuntimeError, match="Executor shutdown has been called"):
        await loop.run_in_executor(None, int)


def test_an_executor_of_one_host_ends_with_it() -> None:
    executor = ThreadPoolExecutor(1)
    done: list[str] = []

    async def begin(name: str) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(executor, time.sleep, 5)
        await loop.run_in_executor(executor, done.append, name)
        await loop.shutdown_default_executor()

    async def main(sim: testing.Simulation) -> None:
        a, b = sim.host("a"), sim.host("b")
        a.spawn(begin, "a")
        await asyncio.sleep(1)
        a.kill()
        await b.spawn(begin, "b")
        await asyncio.to_thread(done.append, "main")

    testing.run(main)
    assert done == ["b", "main"]


def test_each_thread_is_initialized() -> None:
    begun: list[str] = []

    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        executor = ThreadPoolExecutor(2, initializer=begun.append, initargs=("thread",))
        jobs = (loop.run_in_executor(executor, lambda: len(begun)) for _ in range(6))
        return await asyncio.gather(*jobs)

    assert 0 not in testing.run(main).value
    assert begun == ["thread", "thread"]


def test_an_initializer_that_fails_breaks_the_executor(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        executor = ThreadPoolExecutor(1, initializer=lambda: 1 / 0)
        jobs = [loop.run_in_executor(executor, int) for _ in range(3)]
        for each in await asyncio.gather(*jobs, return_exceptions=True):
            assert isinstance(each, BrokenExecutor)
        with pytest.raises(BrokenExecutor):
            executor.submit(int)
        executor.shutdown()

    testing.run(main)
    assert "Exception in initializer" in caplog.text


def test_exception_of_a_job_is_set_on_its_future() -> None:
    async def main() -> str:
        with pytest.raises(SystemExit):
            await asyncio.to_thread(sys.exit, 3)
        if sys.version_info >= (3, 13):  # before, asyncio's future never has a StopIteration
            with pytest.raises(RuntimeError, match="StopIteration"):
                await asyncio.to_thread(next, iter(()))
        return "went on"

    assert testing.run(main).value == "went on"


def test_waiting_for_an_executors_job_lets_time_pass() -> None:
    async def main() -> list[int]:
        executor = ThreadPoolExecutor(2)
        late = executor.submit(time.sleep, 20)
        with pytest.raises(futures.TimeoutError):
            late.result(timeout=5)
        assert round(time.monotonic() - 1) == 5
        late.result()
        assert round(time.monotonic() - 1) == 20
        return list(executor.map(abs, range(4)))

    assert testing.run(main).value == [0, 1, 2, 3]


def test_a_job_that_waits_for_its_own_executor_is_found() -> None:
    async def main() -> None:
        executor = ThreadPoolExecutor(1)
        await asyncio.wrap_future(executor.submit(lambda: executor.submit(int).result()))

    with pytest.raises(testing.EscapedSimulation, match="would never end"):
        testing.run(main)


# ---- waits that nothing can end ------------------------------------------------------------------


def held() -> threading.Lock:
    """Return a lock that is never released."""
    lock = threading.Lock()
    lock.acquire()
    return lock


def enters() -> None:
    with held():
        pass


def waits_for_condition() -> None:
    condition = threading.Condition()
    with condition:
        condition.wait_for(lambda: False, timeout=1)


@pytest.mark.parametrize("in_job", [True, False])
@pytest.mark.parametrize(
    "wait",
    [
        lambda: queue.Queue[int]().get(timeout=1),
        lambda: queue.SimpleQueue[int]().get(timeout=1),
        lambda: queue.SimpleQueue[int]().get(),
        lambda: threading.Event().wait(2),
        lambda: threading.Event().wait(),
        lambda: threading.Semaphore(0).acquire(timeout=2),
        lambda: held().acquire(timeout=2),
        lambda: held().acquire(),
        waits_for_condition,
        enters,
    ],
)
def test_a_wait_that_nothing_can_end_is_found(
    wait: Callable[[], object], in_job: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "PATIENCE", 0.01)

    async def main() -> None:
        with contextlib.suppress(Exception):  # the simulation ends with it in any case
            if in_job:
                await asyncio.to_thread(wait)
            else:
                wait()

    with pytest.raises(testing.EscapedSimulation, match="let a coroutine wait"):
        testing.run(main)


def test_looks_at_locks_and_waits_for_other_threads_go_on() -> None:
    async def main() -> int:
        lock = held()
        assert not lock.acquire(blocking=False)
        assert not lock.acquire(timeout=0)
        with pytest.raises(ValueError, match="timeout"):
            lock.acquire(timeout=-2)
        lock.release()
        with lock:
            assert lock.locked()
        with pytest.raises(queue.Empty):
            queue.Queue[int]().get(timeout=0)
        with pytest.raises(queue.Empty):
            queue.SimpleQueue[int]().get(block=False)
        numbers: queue.Queue[int] = queue.Queue()
        thread = threading.Thread(target=numbers.put, args=(3,))
        thread.start()
        thread.join()
        return numbers.get(timeout=1)

    assert testing.run(main).value == 3
