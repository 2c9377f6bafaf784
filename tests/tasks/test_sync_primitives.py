"""Semaphore, Lock, Event, Condition and Queue under random cancellation.

A schedule drawn from a seed starts tasks, releases and cancels at random moments;
the invariants of each primitive are looked at after every step of the loop.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

Loop = asyncio.AbstractEventLoop
SEEDS = range(12)
STEPS = 250


async def settle(count: int = 12) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Crowd:
    """Tasks that wait for something, run for a while, and may be cancelled at any moment."""

    def __init__(self, generator: random.Random) -> None:
        self.generator = generator
        self.tasks: set[asyncio.Task[Any]] = set()

    def start(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def cancel_one(self) -> None:
        if self.tasks:
            self.generator.choice(sorted(self.tasks, key=lambda task: task.get_name())).cancel()

    async def pause(self) -> None:
        for _ in range(self.generator.randrange(5)):
            await asyncio.sleep(0)

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.mark.parametrize("seed", SEEDS)
async def test_semaphore_loses_and_makes_no_permit(loop: Loop, seed: int) -> None:
    """Everyone who came is waiting, running, cancelled or finished; no permit is lost or made.

    The level is what those who run leave. At every step it covers the waiters that
    were woken, each of whom has a permit set aside, and what is free besides.
    """
    generator = random.Random(seed)
    crowd = Crowd(generator)
    permits = generator.randint(1, 4)
    semaphore: Any = asyncio.Semaphore(permits)
    came = waiting = running = cancelled = finished = 0

    async def work() -> None:
        nonlocal came, waiting, running, cancelled, finished
        came += 1
        waiting += 1
        entered = False
        try:
            async with semaphore:
                entered = True
                waiting -= 1
                running += 1
                try:
                    await crowd.pause()
                finally:
                    running -= 1
            finished += 1
        except asyncio.CancelledError:
            cancelled += 1
            if not entered:
                waiting -= 1
            raise

    def check() -> None:
        assert came == waiting + running + cancelled + finished
        queue = list(semaphore._waiters or ())
        assert len(queue) <= waiting
        woken = sum(future.done() and not future.cancelled() for future in queue)
        level = permits - running
        assert level >= woken
        assert level == semaphore._value + woken

    for _ in range(STEPS):
        action = generator.random()
        if action < 0.5:
            crowd.start(work())
        elif action < 0.8:
            crowd.cancel_one()
        check()
        await asyncio.sleep(0)
        check()
    await crowd.end()
    check()
    assert waiting == running == 0
    assert cancelled > 0
    assert finished > 0
    assert semaphore._value == permits
    # All permits can be taken, and not one more.
    for _ in range(permits):
        await asyncio.wait_for(semaphore.acquire(), 10)
    assert semaphore.locked()
    for _ in range(permits):
        semaphore.release()


@pytest.mark.parametrize("seed", SEEDS)
async def test_semaphore_is_fair(loop: Loop, seed: int) -> None:
    """Whoever is not cancelled gets it in the order of asking."""
    generator = random.Random(seed)
    semaphore = asyncio.Semaphore(1)
    got: list[int] = []
    await semaphore.acquire()

    async def work(number: int) -> None:
        async with semaphore:
            got.append(number)
            for _ in range(generator.randrange(3)):
                await asyncio.sleep(0)

    tasks = [asyncio.ensure_future(work(number)) for number in range(30)]
    await asyncio.sleep(0)
    gone = generator.sample(range(30), 10)
    for number in gone[:5]:
        tasks[number].cancel()
    semaphore.release()
    for number in gone[5:]:
        if number not in got:
            tasks[number].cancel()
            await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert got == sorted(got)
    assert set(range(30)) - set(gone) <= set(got)


@pytest.mark.parametrize("seed", SEEDS)
async def test_lock_has_one_holder_at_most_and_ends_free(loop: Loop, seed: int) -> None:
    generator = random.Random(seed)
    crowd = Crowd(generator)
    lock = asyncio.Lock()
    holders = entered = 0

    async def work() -> None:
        nonlocal holders, entered
        async with lock:
            holders += 1
            entered += 1
            assert holders == 1
            assert lock.locked()
            try:
                await crowd.pause()
            finally:
                holders -= 1

    for _ in range(STEPS):
        action = generator.random()
        if action < 0.5:
            crowd.start(work())
        elif action < 0.8:
            crowd.cancel_one()
        await asyncio.sleep(0)
        assert holders <= 1
        if holders:
            assert lock.locked()
    await crowd.end()
    await settle()
    assert holders == 0
    assert entered > 0
    assert not lock.locked()
    await asyncio.wait_for(lock.acquire(), 10)
    lock.release()


@pytest.mark.parametrize("seed", SEEDS)
async def test_event_releases_everybody_who_waited_and_nobody_else(loop: Loop, seed: int) -> None:
    """Everybody who waited when it was set is released, and nobody else."""
    generator = random.Random(seed)
    crowd = Crowd(generator)
    event = asyncio.Event()
    waiting: set[int] = set()
    released: set[int] = set()
    cancelled: set[int] = set()
    count = 0

    async def work(number: int) -> None:
        waiting.add(number)
        try:
            await event.wait()
            released.add(number)
        except asyncio.CancelledError:
            cancelled.add(number)
            raise
        finally:
            waiting.discard(number)

    for _ in range(STEPS):
        action = generator.random()
        if action < 0.5:
            count += 1
            crowd.start(work(count))
        elif action < 0.7:
            crowd.cancel_one()
        elif action < 0.8:
            there = set(waiting)
            event.set()
            event.clear()
            await settle(3)
            assert there <= released | cancelled
        before = set(released)
        await asyncio.sleep(0)
        assert not event.is_set()
        assert released == before
    event.set()
    await settle()
    assert not waiting
    await crowd.end()
    assert not released & cancelled


@pytest.mark.parametrize("seed", SEEDS)
async def test_condition_loses_no_notification(loop: Loop, seed: int) -> None:
    """No notification is lost with a waiter that is cancelled; the lock is held inside."""
    generator = random.Random(seed)
    crowd = Crowd(generator)
    condition = asyncio.Condition()
    items = consumed = produced = 0

    async def consume() -> None:
        nonlocal items, consumed
        async with condition:
            while not items:
                await condition.wait()
            assert condition.locked()
            items -= 1
            consumed += 1

    async def produce() -> None:
        nonlocal items, produced
        async with condition:
            items += 1
            produced += 1
            condition.notify()

    for _ in range(STEPS):
        action = generator.random()
        if action < 0.4:
            crowd.start(consume())
        elif action < 0.7:
            await produce()
        elif action < 0.85:
            crowd.cancel_one()
        await asyncio.sleep(0)
        assert items == produced - consumed
        assert items >= 0
    async with condition:
        condition.notify_all()
    await settle(60)
    # Whoever still waits has nothing to take.
    assert items == 0 or not crowd.tasks
    await crowd.end()
    assert not condition.locked()


@pytest.mark.parametrize("kind", [asyncio.Queue, asyncio.LifoQueue, asyncio.PriorityQueue])
@pytest.mark.parametrize("seed", SEEDS)
async def test_queue_loses_and_doubles_nothing(loop: Loop, seed: int, kind: Any) -> None:
    """Nothing is lost or doubled: what was put is taken, or in the queue."""
    generator = random.Random(seed)
    crowd = Crowd(generator)
    size = generator.choice([0, 1, 3])
    queue = kind(maxsize=size)
    put: list[int] = []
    taken: list[int] = []
    count = 0

    async def producer(number: int) -> None:
        await queue.put(number)
        put.append(number)

    async def consumer() -> None:
        # Nothing may be awaited between taking and noting.
        taken.append(await queue.get())
        queue.task_done()

    for _ in range(STEPS):
        action = generator.random()
        if action < 0.35:
            count += 1
            crowd.start(producer(count))
        elif action < 0.7:
            crowd.start(consumer())
        elif action < 0.9:
            crowd.cancel_one()
        await asyncio.sleep(0)
        assert size == 0 or queue.qsize() <= size
    for task in list(crowd.tasks):
        task.cancel()
    await settle()
    rest = []
    while not queue.empty():
        rest.append(queue.get_nowait())
        queue.task_done()
    assert sorted(taken + rest) == sorted(put)
    assert len(set(taken)) == len(taken)
    if kind is asyncio.Queue:
        assert taken == [number for number in put if number in set(taken)]
    await asyncio.wait_for(queue.join(), 10)


@pytest.mark.parametrize("seed", SEEDS)
async def test_cancelled_timeouts_and_task_groups_leave_nobody_behind(
    loop: Loop, seed: int
) -> None:
    """Cancellation from within and without meets in every order; nobody is left behind."""
    generator = random.Random(seed)
    alive = 0

    async def leaf() -> None:
        nonlocal alive
        alive += 1
        try:
            for _ in range(generator.randrange(30)):
                await asyncio.sleep(0)
            if generator.random() < 0.1:
                raise ZeroDivisionError
        finally:
            alive -= 1

    async def branch(depth: int) -> None:
        nonlocal alive
        alive += 1
        try:
            async with asyncio.timeout(generator.choice([None, 0, 0.0005, 1])):
                async with asyncio.TaskGroup() as group:
                    for _ in range(generator.randrange(1, 4)):
                        group.create_task(branch(depth - 1) if depth else leaf())
        except* (TimeoutError, ZeroDivisionError):
            pass
        finally:
            alive -= 1

    for _ in range(15):
        task = asyncio.ensure_future(branch(2))
        if generator.random() < 0.5:
            await settle(generator.randrange(20))
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert alive == 0
        assert task.cancelled() or task.exception() is None
