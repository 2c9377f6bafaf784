"""Times one loop or several in one process, each in a thread of its own.

Each thread has its own loop, does the same work and counts it until a flag stops it.
The main thread reads the counts at both ends of a window.  A sample is the work of all
loops together and has the form of a network sample: the server is this process, and there
is no client.

The threads share functions, but no object that a case writes to, not even through a reference
count: no case is meant to measure the transfer of cache lines between cores.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
import threading
import time
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable

# Operations between two checks of the flag that ends the work.
BATCH = 100
# The number of armed timers, and their delays in seconds: more are due than any loop can
# run, so that no loop is ever idle.
TIMERS = 2_000
DELAYS = range(50, 500, 7)  # microseconds
# The calls that a flooding thread makes in a row, and the limit of pending rows.
FLOOD, FLOODS = 1_000, 4
# The limit of the wait for the first work of a loop, and for its end.
PATIENCE = 20.0


class Worker:
    """The work of a loop: its count, and the flag that stops it."""

    loop: AbstractEventLoop  # set once its thread runs
    ended: asyncio.Event  # of that loop; set when counting has ended
    peer: Worker  # the next worker, or itself

    def __init__(self, number: int) -> None:
        """Start with counts of 0."""
        self.number = number
        self.done = 0
        self.stopping = False
        self.error: BaseException | None = None
        # Of a flood: the number of calls, and the time of the calling threads.
        self.calls = self.calling_ns = 0


def _nothing() -> None:
    pass


async def _no_op() -> None:
    pass


def burn() -> int:
    """Compute for about 50 microseconds: the same work each time, in pure Python."""
    value = 1
    for step in range(1_000):
        value = (value * 31 + step) & 1_023
    return value


async def burns(worker: Worker) -> None:
    """Compute, with little use of the loop: the limit of interpreter and machine."""
    while not worker.stopping:
        burn()
        worker.done += 1
        await asyncio.sleep(0)


async def sleeps(worker: Worker) -> None:
    """Yield to the loop from a single task."""
    while not worker.stopping:
        for _ in range(BATCH):
            await asyncio.sleep(0)
        worker.done += BATCH


async def tasks(worker: Worker) -> None:
    """Make a task and await it."""
    create = worker.loop.create_task
    while not worker.stopping:
        for _ in range(BATCH):
            await create(_no_op())
        worker.done += BATCH


async def timers(worker: Worker) -> None:
    """Run many timers: each arms the next when it fires, and one more, which is cancelled."""
    call_later = worker.loop.call_later
    # Made here, so that these objects belong to this thread only.
    delays = [delay / 1e6 for delay in DELAYS]

    def fire() -> None:
        worker.done += 1
        if not worker.stopping:
            call_later(60, _nothing).cancel()
            call_later(delays[worker.done % len(delays)], fire)

    for _ in range(TIMERS):
        call_later(delays[0], fire)
    await worker.ended.wait()


def hit(worker: Worker) -> None:
    """Post a call of this function to the other loop."""
    worker.done += 1
    if not worker.stopping:
        worker.peer.loop.call_soon_threadsafe(hit, worker.peer)


async def ping_pong(worker: Worker) -> None:
    """Let two loops post to each other, with one pending call at any time."""
    if worker.number == 0:
        hit(worker)
    await worker.ended.wait()


async def flood(worker: Worker) -> None:
    """Post from a thread without a loop, as fast as possible."""
    room = threading.Semaphore(FLOODS)

    def arrived() -> None:
        worker.done += FLOOD
        room.release()

    def post() -> None:
        call = worker.loop.call_soon_threadsafe
        while not worker.stopping:
            room.acquire()
            began = time.perf_counter_ns()
            for _ in range(FLOOD - 1):
                call(_nothing)
            call(arrived)
            worker.calling_ns += time.perf_counter_ns() - began
            worker.calls += FLOOD

    thread = threading.Thread(target=post)
    thread.start()
    await worker.ended.wait()
    room.release()  # for the posting thread: the ended loop releases no more
    thread.join()


Job = Callable[[Worker], Awaitable[None]]
JOBS: dict[str, tuple[Job, int]] = {  # with the operations of one call
    "loops-burn": (burns, 1),
    "loops-sleep": (sleeps, 1),
    "loops-tasks": (tasks, 1),
    "loops-timers": (timers, 1),
    "loops-pingpong": (ping_pong, 2),
    "loops-flood": (flood, 1),
}


def _work(
    factory: Callable[[], AbstractEventLoop],
    job: Job,
    worker: Worker,
    meeting: threading.Barrier,
) -> None:
    """Run a worker's loop, in its thread.

    No loop is used before all exist, or closed while another may still post to it.
    """

    async def run() -> None:
        worker.loop = asyncio.get_running_loop()
        worker.ended = asyncio.Event()
        meeting.wait()
        await job(worker)
        await worker.ended.wait()

    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(run())
            meeting.wait()
    except threading.BrokenBarrierError:
        pass  # another worker failed, and has the error
    except BaseException as error:
        worker.error = error
        meeting.abort()


def read(workers: list[Worker]) -> tuple[float, int, float, float, int, int]:
    """Return the time, the work of all loops, the process's CPU times, and a flood's calls."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (
        time.perf_counter(),
        sum(worker.done for worker in workers),
        used.ru_utime,
        used.ru_stime,
        sum(worker.calls for worker in workers),
        sum(worker.calling_ns for worker in workers),
    )


def _wait(workers: list[Worker], finished: Callable[[], bool], what: str) -> None:
    """Wait until all threads have reached a state; re-raise an error of one of them."""
    until = time.monotonic() + PATIENCE
    while not finished():
        if time.monotonic() > until:
            raise TimeoutError(f"a loop did not {what} within {PATIENCE:.0f} s")
        _look(workers)
        time.sleep(0.001)


def _look(workers: list[Worker]) -> None:
    for worker in workers:
        if worker.error is not None:
            raise worker.error


def _end(workers: list[Worker], threads: list[threading.Thread]) -> None:
    for worker in workers:
        worker.stopping = True
    for worker in workers:
        with contextlib.suppress(AttributeError, RuntimeError):  # no loop yet, or a closed one
            worker.loop.call_soon_threadsafe(worker.ended.set)
    for thread in threads:
        thread.join(PATIENCE)


def main(
    factory: Callable[[], AbstractEventLoop], case: str, loops: str, warmup: str, seconds: str
) -> dict[str, float]:
    """Measure fresh loops, each in a thread."""
    job, parts = JOBS[case]
    workers = [Worker(number) for number in range(int(loops))]
    for worker in workers:
        worker.peer = workers[(worker.number + 1) % len(workers)]
    meeting = threading.Barrier(len(workers))
    # Daemons, so that the process ends even if a thread does not.
    threads = [
        threading.Thread(target=_work, args=(factory, job, worker, meeting), daemon=True)
        for worker in workers
    ]
    for thread in threads:
        thread.start()
    try:
        _wait(workers, lambda: all(worker.done for worker in workers), "begin")
        time.sleep(float(warmup))
        first = read(workers)
        time.sleep(float(seconds))
        # A window without a finished operation has no rate, so wait for one.
        _wait(workers, lambda: read(workers)[1] > first[1], "go on")
        last = read(workers)
    finally:
        _end(workers, threads)  # if one failed, the others still work
    _wait(workers, lambda: not any(thread.is_alive() for thread in threads), "end")
    _look(workers)
    spent, done, user, system, calls, ns = (b - a for a, b in zip(first, last, strict=True))
    return {
        "messages": done / parts,
        "seconds": spent,
        "server_cpu": user + system,
        "server_user": user,
        "server_system": system,
        "gil": float(getattr(sys, "_is_gil_enabled", lambda: True)()),
        **({"call_ns": ns / calls} if calls else {}),
    }
