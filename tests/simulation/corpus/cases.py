"""Bugs that real programs had, each with the version that is right.

A case is a coroutine function that takes the simulation and the version.  Times are whole seconds
where a bug needs two things at once, as timeouts of programs are.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import random
from collections.abc import Awaitable, Callable
from typing import Any

from goloop import testing


@dataclasses.dataclass(frozen=True)
class Case:
    """A bug."""

    name: str
    policy: str
    main: Callable[[testing.Simulation, bool], Awaitable[None]]
    errors: tuple[type[BaseException], ...]


CASES: list[Case] = []


def case(name: str, policy: str, *errors: type[BaseException]) -> Callable[[Any], Any]:
    def decorate(main: Any) -> Any:
        CASES.append(Case(name, policy, main, errors))
        return main

    return decorate


# ---- asyncio.Semaphore before 3.11.1 (gh-90155) --------------------------------------------------


class OldSemaphore:
    """A waiter that is cancelled when it has been woken leaves `_woken` set."""

    def __init__(self) -> None:
        self._value = 1
        self._woken = False
        self._waiters: collections.deque[asyncio.Future[None]] = collections.deque()

    def _wake_next(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._woken = True
                return

    async def acquire(self) -> None:
        while self._woken or self._value <= 0:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
                self._woken = False
            except asyncio.CancelledError:
                self._wake_next()
                raise
        self._value -= 1

    def release(self) -> None:
        self._value += 1
        self._wake_next()


# ---- asyncio.Lock before 3.6.5 (bpo-32734) -------------------------------------------------------


class OldLock:
    """A waiter that is cancelled when it has been woken wakes no other one."""

    def __init__(self) -> None:
        self._locked = False
        self._waiters: collections.deque[asyncio.Future[None]] = collections.deque()

    async def acquire(self) -> None:
        if not self._locked and all(each.cancelled() for each in self._waiters):
            self._locked = True
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
            self._locked = True
        finally:
            self._waiters.remove(waiter)

    def release(self) -> None:
        self._locked = False
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
                break


async def with_impatience(lock: Any) -> None:
    """Tasks that wait for a lock and hold it for some seconds; some are cancelled meanwhile."""

    async def work() -> None:
        await asyncio.sleep(random.randint(0, 3))
        await lock.acquire()
        try:
            await asyncio.sleep(random.randint(1, 3))
        finally:
            lock.release()

    async def give_up(task: asyncio.Task[None]) -> None:
        await asyncio.sleep(random.randint(1, 8))
        task.cancel()

    workers = [asyncio.create_task(work()) for _ in range(5)]
    givers = [asyncio.create_task(give_up(each)) for each in workers[:3]]
    await asyncio.wait([*workers, *givers])
    await lock.acquire()  # it is free


@case("`Semaphore` of 3.11.0 (gh-90155)", "pct:3", testing.SimulationDeadlock)
async def semaphore(sim: testing.Simulation, fixed: bool) -> None:
    """At last a task waits for a semaphore that is free."""
    await with_impatience(asyncio.Semaphore() if fixed else OldSemaphore())


@case("`Lock` of 3.6.4 (bpo-32734)", "shuffle", testing.SimulationDeadlock)
async def lock(sim: testing.Simulation, fixed: bool) -> None:
    """As above."""
    await with_impatience(asyncio.Lock() if fixed else OldLock())


# ---- asyncio.wait_for before 3.12 (gh-86296) -----------------------------------------------------


async def old_wait_for(work: Awaitable[Any], timeout: float) -> Any:
    """Where it is cancelled when the work is done, it returns, and the cancellation is lost."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def end(*_: object) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = loop.call_later(timeout, end)
    future = asyncio.ensure_future(work)
    future.add_done_callback(end)
    try:
        try:
            await waiter
        except asyncio.CancelledError:
            if future.done():
                return future.result()
            future.cancel()
            await asyncio.wait([future])
            raise
        if future.done():
            return future.result()
        future.cancel()
        await asyncio.wait([future])
        raise TimeoutError
    finally:
        timer.cancel()


async def new_wait_for(work: Awaitable[Any], timeout: float) -> Any:
    """As 3.12's."""
    async with asyncio.timeout(timeout):
        return await work


@case("`wait_for()` of 3.11 loses a cancellation (gh-86296)", "pct:3", testing.NeverHappened)
async def wait_for(sim: testing.Simulation, fixed: bool) -> None:
    """A consumer that was cancelled goes on."""
    queue: asyncio.Queue[int] = asyncio.Queue()

    async def consume() -> None:
        while True:
            await (new_wait_for if fixed else old_wait_for)(queue.get(), 1000)

    async def produce() -> None:
        await asyncio.sleep(random.randint(1, 3))
        queue.put_nowait(1)

    consumer, producer = asyncio.create_task(consume()), asyncio.create_task(produce())
    await asyncio.sleep(random.randint(1, 3))
    consumer.cancel()
    sim.eventually("the consumer has ended", consumer.done, within=10)
    await asyncio.wait([consumer, producer])


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
    """Timeouts strike in the ping."""
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
    """A queue whose join() waits until it is empty, and no job is being done."""

    def __init__(self, fixed: bool) -> None:
        self._jobs: asyncio.Queue[int] = asyncio.Queue()
        self._busy = 0
        self._fixed = fixed

    def put(self, job: int) -> None:
        self._jobs.put_nowait(job)

    async def get(self) -> int:
        job = await self._jobs.get()
        self._busy += self._fixed
        await asyncio.sleep(random.uniform(0, 0.0005))  # it is logged
        self._busy += not self._fixed
        return job

    def done(self) -> None:
        self._busy -= 1

    async def join(self) -> None:
        while self._busy or not self._jobs.empty():
            await asyncio.sleep(0.01)


@case("`join()` of a queue that counts a job late", "io", AssertionError)
async def join(sim: testing.Simulation, fixed: bool) -> None:
    """The last job was taken, and is no work yet when join() looks."""
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
    idle: set[asyncio.Task[None]] = set()
    counts = collections.Counter[str]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task: Any = asyncio.current_task()
        try:
            idle.add(task)
            while await reader.readline():
                counts["requests"] += 1
                if fixed:
                    idle.discard(task)
                await asyncio.to_thread(int)  # it is parsed
                idle.discard(task)
                await asyncio.sleep(random.uniform(0, 0.05))
                writer.write(b"answer\n")
                counts["answers"] += 1
                idle.add(task)
                if not server.is_serving():
                    break
        except asyncio.CancelledError:
            pass  # it was idle
        finally:
            idle.discard(task)
            writer.close()

    async def ask() -> None:
        await asyncio.sleep(random.uniform(0, 1))
        try:
            reader, writer = await asyncio.open_connection("localhost", 80)
        except OSError:
            return
        writer.write(b"request\n")
        with contextlib.suppress(ConnectionError):  # it came too late
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
