"""Bugs that need a timeout between a wake-up and the step of the task that was woken.

asyncio has that order where a timer comes due while the callbacks run of which one wakes the task.
"""

from __future__ import annotations

import asyncio
import collections
import random
from collections.abc import Awaitable, Callable
from typing import Any

from asyncio_cases import (
    NewCondition,
    OldCondition,
    OldLock,
    OldSemaphore,
    new_wait_for,
    old_wait_for,
)
from case import case

from goloop import testing


async def with_timeouts(lock: Any, pairs: int) -> None:
    """Tasks that wait for a lock, some with a timeout, and hold it for some milliseconds."""

    async def hold() -> None:
        try:
            await asyncio.sleep(random.randint(0, 3) / 1000)
        finally:
            lock.release()

    async def work() -> None:
        await asyncio.sleep(random.randint(0, 3) / 1000)
        await lock.acquire()
        await hold()

    async def work_soon() -> None:
        await asyncio.sleep(random.randint(0, 3) / 1000)
        try:
            async with asyncio.timeout(random.randint(1, 4) / 1000):
                await lock.acquire()
        except TimeoutError:
            return
        await hold()

    await asyncio.gather(*(each() for _ in range(pairs) for each in (work, work_soon)))
    await lock.acquire()  # the lock is free


@case("`Semaphore` of 3.11.0, and `timeout()`", "io", testing.SimulationDeadlock)
async def semaphore_timeout(sim: testing.Simulation, fixed: bool) -> None:
    """In the end a task waits although the semaphore is free."""
    await with_timeouts(asyncio.Semaphore() if fixed else OldSemaphore(), 1)


@case("`Lock` of 3.6.4, and `timeout()`", "io", testing.SimulationDeadlock)
async def lock_timeout(sim: testing.Simulation, fixed: bool) -> None:
    """As above."""
    await with_timeouts(asyncio.Lock() if fixed else OldLock(), 3)


@case("`Condition` of 3.12, and `timeout()`", "io", testing.NeverHappened)
async def condition_timeout(sim: testing.Simulation, fixed: bool) -> None:
    """There is an item, and a consumer that waits for one."""
    condition, items = NewCondition() if fixed else OldCondition(), collections.deque[int]()

    async def consume() -> None:
        async with condition.lock:
            while not items:
                await condition.wait()
            items.popleft()

    async def consume_soon() -> None:
        try:
            async with asyncio.timeout(random.uniform(0, 0.5)):
                await consume()
        except TimeoutError:
            pass

    async def produce() -> None:
        await asyncio.sleep(random.uniform(0, 0.5))
        async with condition.lock:
            items.append(1)
            condition.notify()

    tasks = [asyncio.create_task(each()) for each in (consume_soon, consume, produce)]
    sim.eventually("the item is taken", lambda: tasks[2].done() and not items, within=10)
    await asyncio.sleep(20)
    tasks[1].cancel()


class Queue:
    """As asyncio.Queue before 3.5.3 (like bpo-26154): a cancelled waiter wakes no other one."""

    def __init__(self, fixed: bool) -> None:
        self._items: collections.deque[int] = collections.deque()
        self._getters: collections.deque[asyncio.Future[None]] = collections.deque()
        self._fixed = fixed

    def _wake_next(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def put_nowait(self, item: int) -> None:
        self._items.append(item)
        self._wake_next()

    async def get(self) -> int:
        while not self._items:
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if self._fixed and self._items and not getter.cancelled():
                    self._wake_next()
                raise
        return self._items.popleft()


@case("`Queue.get()` takes a wake-up along, and `timeout()`", "io", testing.SimulationDeadlock)
async def queue_timeout(sim: testing.Simulation, fixed: bool) -> None:
    """There is an item, and a consumer that waits for one."""
    queue = Queue(fixed)

    async def consume_soon() -> None:
        try:
            async with asyncio.timeout(random.uniform(0, 0.5)):
                item = await queue.get()
        except TimeoutError:
            return
        queue.put_nowait(item)

    async def produce() -> None:
        await asyncio.sleep(random.uniform(0, 0.5))
        queue.put_nowait(1)

    await asyncio.gather(consume_soon(), queue.get(), produce())


@case("`wait_for()` of 3.11 loses a timeout", "io", testing.NeverHappened)
async def wait_for_timeout(sim: testing.Simulation, fixed: bool) -> None:
    """A consumer continues after its timeout."""
    queue: asyncio.Queue[int] = asyncio.Queue()
    get: Callable[[Awaitable[int], float], Awaitable[int]]
    get = new_wait_for if fixed else old_wait_for

    async def consume() -> None:
        try:
            async with asyncio.timeout(random.randint(1, 3)):
                while True:
                    await get(queue.get(), 1000)
        except TimeoutError:
            pass

    async def produce() -> None:
        await asyncio.sleep(random.randint(1, 3))
        queue.put_nowait(1)

    tasks = [asyncio.create_task(each()) for each in (produce, consume)]
    sim.eventually("the consumer has ended", tasks[1].done, within=10)
    await asyncio.wait(tasks)


class Pool:
    """Hand a returned connection to a waiting task."""

    def __init__(self, size: int, fixed: bool) -> None:
        self.free = list(range(size))
        self._waiters: collections.deque[asyncio.Future[int]] = collections.deque()
        self._fixed = fixed

    async def acquire(self) -> int:
        if self.free:
            return self.free.pop()
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if self._fixed and waiter.done() and not waiter.cancelled():
                self.release(waiter.result())
            raise

    def release(self, connection: int) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        self.free.append(connection)


@case("a pool hands a connection to a task whose timeout is over", "io", testing.NeverHappened)
async def pool_timeout(sim: testing.Simulation, fixed: bool) -> None:
    """Requests at random times."""
    connections = Pool(2, fixed)

    async def request() -> None:
        await asyncio.sleep(random.uniform(0, 1))
        try:
            async with asyncio.timeout(0.2):
                connection = await connections.acquire()
        except TimeoutError:
            return
        await asyncio.sleep(random.uniform(0, 0.3))
        connections.release(connection)

    await asyncio.gather(*(request() for _ in range(20)))
    sim.eventually("all are free", lambda: len(connections.free) == 2, within=1)
