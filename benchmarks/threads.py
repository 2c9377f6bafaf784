"""Times one loop or several in one process, each in a thread of its own.

Each thread has its own loop, does the same work and counts it until it is told to stop.
The main thread looks at the counts at both ends of a window.  A sample is the work of all
loops together and has the form of a network sample: the server is this process, and there
is no client.

The threads share functions and nothing else that a case would write to, not even the count
of an object's references: how two cores hand over a line of memory is no case's subject.
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
from dataclasses import dataclass

# Operations between two looks at the flag that ends them.
BATCH = 100
# Timers that are armed at any time, and their delays in seconds: more come due than any
# loop can serve, so that none ever waits for one.
TIMERS = 2_000
DELAYS = range(50, 500, 7)  # microseconds
# Calls that a flooding thread makes in a row, and how many such rows may be under way.
FLOOD, FLOODS = 1_000, 4
# How long to wait for the first work of a loop, and for its end.
PATIENCE = 20.0


class Worker:
    """One loop's part of the work: how much it has done, and whether it is to stop."""

    loop: AbstractEventLoop  # once its thread runs
    ended: asyncio.Event  # of that loop: nothing is counted any more
    peer: Worker  # the next one, or itself

    def __init__(self, number: int) -> None:
        """Have done nothing yet."""
        self.number = number
        self.done = 0
        self.stopping = False
        self.error: BaseException | None = None
        # For a flood: the number of calls, and the time of the calling threads.
        self.calls = self.calling_ns = 0


def _nothing() -> None:
    pass


async def _no_op() -> None:
    pass


def burn() -> int:
    """Compute for about 50 microseconds: the same each time, in Python alone."""
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
    """One task yields to the loop."""
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
    """Many timers: each arms the next when it fires, and one more, which is cancelled."""
    call_later = worker.loop.call_later
    # Made here, so that they are this thread's own.
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
    """Have the other loop do the same."""
    worker.done += 1
    if not worker.stopping:
        worker.peer.loop.call_soon_threadsafe(hit, worker.peer)


async def ping_pong(worker: Worker) -> None:
    """Two loops post to each other, with one call under way at any time."""
    if worker.number == 0:
        hit(worker)
    await worker.ended.wait()


async def flood(worker: Worker) -> None:
    """A thread without a loop posts as fast as it can."""
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
    room.release()  # nothing arrives any more
    thread.join()


Job = Callable[[Worker], Awaitable[None]]
JOBS: dict[str, tuple[Job, int]] = {  # and the operations of one call
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

    No loop is used before all are there, or closed while another may still post to it.
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
        pass  # another one failed, and has the error
    except BaseException as error:
        worker.error = error
        meeting.abort()


@dataclass(frozen=True)
class Reading:
    """The number of operations up to some time, and their cost."""

    at: float
    done: int
    user: float
    system: float
    calls: int
    calling_ns: int


def read(workers: list[Worker]) -> Reading:
    """Add up the work of all loops, and take the process's CPU time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Reading(
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
        with contextlib.suppress(AttributeError, RuntimeError):  # no loop yet, or none any more
            worker.loop.call_soon_threadsafe(worker.ended.set)
    for thread in threads:
        thread.join(PATIENCE)


def main(
    factory: Callable[[], AbstractEventLoop],
    case: str,
    loops: int,
    warmup: float,
    seconds: float,
) -> dict[str, float]:
    """Measure so many fresh loops."""
    job, parts = JOBS[case]
    workers = [Worker(number) for number in range(loops)]
    for worker in workers:
        worker.peer = workers[(worker.number + 1) % loops]
    meeting = threading.Barrier(loops)
    # Daemons, so that the process ends where one of them does not.
    threads = [
        threading.Thread(target=_work, args=(factory, job, worker, meeting), daemon=True)
        for worker in workers
    ]
    for thread in threads:
        thread.start()
    try:
        _wait(workers, lambda: all(worker.done for worker in workers), "begin")
        time.sleep(warmup)
        first = read(workers)
        time.sleep(seconds)
        # A window in which nothing came to its end is no figure.
        _wait(workers, lambda: read(workers).done > first.done, "go on")
        last = read(workers)
    finally:
        _end(workers, threads)  # where one failed, the others still work
    _wait(workers, lambda: not any(thread.is_alive() for thread in threads), "end")
    _look(workers)
    user, system = last.user - first.user, last.system - first.system
    sample = {
        "messages": (last.done - first.done) / parts,
        "seconds": last.at - first.at,
        "server_cpu": user + system,
        "server_user": user,
        "server_system": system,
        "gil": float(has_gil()),
    }
    if last.calls > first.calls:
        sample["call_ns"] = (last.calling_ns - first.calling_ns) / (last.calls - first.calls)
    return sample


def has_gil() -> bool:
    """Whether one thread at a time runs Python in this process, as it stands now."""
    enabled: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return enabled()
