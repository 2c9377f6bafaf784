"""Bugs that asyncio had."""

from __future__ import annotations

import asyncio
import collections
import random
from collections.abc import Awaitable
from typing import Any

from case import case

from goloop import testing

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
    await lock.acquire()  # the lock is free


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
    """If cancelled when the work is done, it returns, and the cancellation is lost."""
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


# ---- asyncio.Condition before 3.13 (gh-112202) ---------------------------------------------------


class OldCondition:
    """A waiter that is cancelled when it has been notified takes the notification along."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self._waiters: collections.deque[asyncio.Future[None]] = collections.deque()

    async def wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self.lock.release()
        try:
            await waiter
        except asyncio.CancelledError:
            self.cancelled()
            raise
        finally:
            self._waiters.remove(waiter)
            await self.lock.acquire()

    def cancelled(self) -> None:
        pass

    def notify(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
                break


class NewCondition(OldCondition):
    """As 3.13's: another one is notified instead."""

    def cancelled(self) -> None:
        self.notify()


@case("`Condition` of 3.12 (gh-112202)", "shuffle", testing.NeverHappened)
async def condition(sim: testing.Simulation, fixed: bool) -> None:
    """There is an item, and a consumer that waits for one."""
    condition, items = NewCondition() if fixed else OldCondition(), collections.deque[int]()

    async def consume() -> None:
        async with condition.lock:
            while not items:
                await condition.wait()
            items.popleft()

    async def produce() -> None:
        await asyncio.sleep(random.randint(1, 5))
        async with condition.lock:
            items.append(1)
            condition.notify()

    tasks = [asyncio.create_task(each()) for each in (consume, consume, produce)]
    await asyncio.sleep(random.randint(1, 5))
    tasks[0].cancel()
    sim.eventually("the item is taken", lambda: tasks[2].done() and not items, within=10)
    await tasks[2]
    await asyncio.sleep(10)
    tasks[1].cancel()
