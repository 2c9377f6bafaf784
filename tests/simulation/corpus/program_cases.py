"""Bugs of programs on one host."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
from typing import Any

from case import case

from goloop import testing

# ---- a pool that loses a connection where its user is cancelled ----------------------------------


class Pool:
    """Connections, which are asked whether they live before they are given out."""

    def __init__(self, size: int, fixed: bool) -> None:
        self.free = list(range(size))
        self._fixed = fixed
        self._wakeups = asyncio.Condition()

    async def acquire(self) -> int:
        async with self._wakeups:
            await self._wakeups.wait_for(lambda: self.free)
            connection = self.free.pop()
        try:
            await asyncio.sleep(random.uniform(0, 0.01))  # a ping
        except BaseException:
            if self._fixed:
                await self.release(connection)
            raise
        return connection

    async def release(self, connection: int) -> None:
        self.free.append(connection)
        async with self._wakeups:
            self._wakeups.notify()


@case("a pool loses a connection on cancellation", "io", testing.NeverHappened)
async def pool(sim: testing.Simulation, fixed: bool) -> None:
    """Timeouts cancel requests during the ping."""
    connections = Pool(3, fixed)

    async def request() -> None:
        await asyncio.sleep(random.uniform(0, 2))
        try:
            async with asyncio.timeout(0.5):
                connection = await connections.acquire()
        except TimeoutError:
            return
        await asyncio.sleep(random.uniform(0, 1))
        await connections.release(connection)

    await asyncio.gather(*(request() for _ in range(20)))
    sim.eventually("all are free", lambda: len(connections.free) == 3, within=1)


# ---- a queue whose join() returns early ----------------------------------------------------------


class Jobs:
    """A queue with a join() that waits until the queue is empty and no job is being done."""

    def __init__(self, fixed: bool) -> None:
        self._jobs: asyncio.Queue[int] = asyncio.Queue()
        self._busy = 0
        self._fixed = fixed

    def put(self, job: int) -> None:
        self._jobs.put_nowait(job)

    async def get(self) -> int:
        job = await self._jobs.get()
        self._busy += self._fixed
        await asyncio.sleep(random.uniform(0, 0.0005))  # write a log record
        self._busy += not self._fixed
        return job

    def done(self) -> None:
        self._busy -= 1

    async def join(self) -> None:
        while self._busy or not self._jobs.empty():
            await asyncio.sleep(0.01)


@case("`join()` of a queue that counts a job late", "io", AssertionError)
async def join(sim: testing.Simulation, fixed: bool) -> None:
    """The last job has been taken but does not yet count as work when join() looks."""
    jobs, done = Jobs(fixed), []

    async def work() -> None:
        while True:
            job = await jobs.get()
            await asyncio.sleep(random.uniform(0, 0.02))
            done.append(job)
            jobs.done()

    for job in range(10):
        jobs.put(job)
    worker = asyncio.create_task(work())
    await jobs.join()
    worker.cancel()
    assert len(done) == 10


# ---- a server that drops requests when it ends ---------------------------------------------------


@case("a graceful shutdown drops a request", "io", AssertionError)
async def shutdown(sim: testing.Simulation, fixed: bool) -> None:
    """A request that was read is no work yet while it is parsed."""
    idle: dict[asyncio.Task[None], None] = {}  # a set of tasks has no order of its own
    counts = collections.Counter[str]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task: Any = asyncio.current_task()
        try:
            idle[task] = None
            while await reader.readline():
                counts["requests"] += 1
                if fixed:
                    idle.pop(task, None)
                await asyncio.to_thread(int)  # parse the request
                idle.pop(task, None)
                await asyncio.sleep(random.uniform(0, 0.05))
                writer.write(b"answer\n")
                counts["answers"] += 1
                idle[task] = None
                if not server.is_serving():
                    break
        except asyncio.CancelledError:
            pass  # the connection was idle
        finally:
            idle.pop(task, None)
            writer.close()

    async def ask() -> None:
        await asyncio.sleep(random.uniform(0, 1))
        try:
            reader, writer = await asyncio.open_connection("localhost", 80)
        except OSError:
            return
        writer.write(b"request\n")
        with contextlib.suppress(ConnectionError):  # the answer came too late
            await reader.readline()
        writer.close()

    server = await asyncio.start_server(serve, "localhost", 80)
    clients = [asyncio.create_task(ask()) for _ in range(5)]
    await asyncio.sleep(random.uniform(0, 1))
    server.close()
    for each in tuple(idle):
        each.cancel()
    await asyncio.gather(*clients)
    await asyncio.sleep(1)
    assert counts["requests"] == counts["answers"]
