"""Several loops in threads of one process, which make random calls that asyncio allows.

    python loops_storm.py --seconds 60 --seed 7

Four threads live: each makes a loop, runs it for a moment, closes it, and makes the next.  While a
loop runs, its tasks

* serve at a listener that all share, and ask it for echoes;
* post callbacks to each other's loops, and to their own, by call_soon_threadsafe;
* run coroutines there by run_coroutine_threadsafe, await or cancel them;
* arm and cancel timers, wait at pipes of sockets, cancel each other.

Threads without a loop also post, collect garbage, list the tasks of all loops, and ask for
metrics.  The invariants:

* no thread crashes or hangs, and no descriptor or thread is left;
* a callback that a loop has accepted runs, once, in the order of each sender;
* a coroutine that a loop has accepted ends, and its future has the result;
* a client gets its echo, while others connect and disconnect;
* no exception handler is called.

A loop that is about to end sets a flag, waits for current callers, and then counts.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import contextlib
import faulthandler
import gc
import os
import random
import socket
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import goloop

THREADS = 4
ACTORS = 6
# Seconds beyond those of the storm, after which it counts as hanging.
HANG = 120


class Wrong(Exception):
    pass


class Echo(asyncio.Protocol):
    def __init__(self, life: Life) -> None:
        self.life = life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if threading.get_ident() != self.life.ident:
            self.life.storm.wrong("a connection was made in another thread")
        self.transport = transport
        self.life.served.add(self)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.life.served.remove(self)


class Life:
    """A loop, from its beginning to its end."""

    def __init__(self, storm: Storm) -> None:
        self.storm = storm
        self.loop = asyncio.get_running_loop()
        self.ident = threading.get_ident()
        self.served: set[Echo] = set()
        self.ending = False
        # Appending is atomic: a sender enters, looks whether this life is ending, posts, leaves.
        self.entered: deque[None] = deque()
        self.left: deque[None] = deque()
        self.sent: deque[tuple[int, int]] = deque()
        self.ran: list[tuple[int, int]] = []

    # ---- actions of other threads

    def post(self, sender: int, number: int) -> None:
        self.entered.append(None)
        try:
            if not self.ending:
                self.loop.call_soon_threadsafe(self.callback, sender, number)
                self.sent.append((sender, number))
        finally:
            self.left.append(None)

    def run(self, coroutine: Any) -> concurrent.futures.Future[Any] | None:
        self.entered.append(None)
        try:
            if self.ending:
                coroutine.close()
                return None
            return asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        finally:
            self.left.append(None)

    def callback(self, sender: int, number: int) -> None:
        self.ran.append((sender, number))
        if threading.get_ident() != self.ident:
            self.storm.wrong("a callback ran in another thread")

    # ---- its own

    async def live(self, seconds: float, chance: random.Random) -> None:
        storm = self.storm
        self.loop.set_exception_handler(lambda loop, context: storm.wrong(repr(context)))
        server = await storm.listener.create_server(lambda: Echo(self))
        storm.born(self)
        actors = [
            asyncio.create_task(self.act(random.Random(chance.random()))) for _ in range(ACTORS)
        ]
        await asyncio.sleep(seconds)
        storm.died(self)
        for actor in actors:
            actor.cancel()
        for outcome in await asyncio.gather(*actors, return_exceptions=True):
            if isinstance(outcome, Exception):
                storm.wrong(f"an actor: {outcome!r}")
        server.close()
        # A connection that was just begun gets connection_made in the next turn.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        while self.served:
            await asyncio.sleep(0.001)
        self.ending = True
        while len(self.entered) != len(self.left):
            await asyncio.sleep(0)
        last = self.loop.create_future()
        self.loop.call_soon_threadsafe(last.set_result, None)
        await last
        self.count()

    def count(self) -> None:
        sent, ran = Counter(self.sent), Counter(self.ran)
        if sent != ran:
            self.storm.wrong(f"lost: {sent - ran}, not sent: {ran - sent}")
        latest: dict[int, int] = {}
        for sender, number in self.ran:
            if latest.get(sender, -1) >= number:
                self.storm.wrong(f"sender {sender}: {number} after {latest[sender]}")
            latest[sender] = number
        self.storm.counts.update({"callbacks": len(self.ran), "loops": 1})

    async def act(self, chance: random.Random) -> None:
        sender = self.storm.new_sender()
        number = 0
        while True:
            what = chance.randrange(8)
            if what < 3:
                for life in (chance.choice(self.storm.lives), self):
                    life.post(sender, number)
                    number += 1
            elif what == 3:
                await self.ask(chance)
            elif what == 4:
                await self.run_elsewhere(chance)
            elif what == 5:
                timers = [
                    self.loop.call_later(chance.random() / 100, lambda: None) for _ in range(20)
                ]
                await asyncio.sleep(chance.random() / 200)
                for timer in timers:
                    timer.cancel()
            elif what == 6:
                await self.wait_in_vain(chance)
            else:
                await asyncio.sleep(0)

    async def ask(self, chance: random.Random) -> None:
        """An echo of the shared listener."""
        reader, writer = await asyncio.open_connection(*self.storm.address)
        try:
            data = chance.randbytes(chance.choice((1, 100, 10_000, 200_000)))
            writer.write(data)
            if await reader.readexactly(len(data)) != data:
                raise Wrong("another echo")
            self.storm.counts["echoes"] += 1
        finally:
            writer.transport.abort()

    async def run_elsewhere(self, chance: random.Random) -> None:
        """A coroutine in another loop, which is awaited or cancelled."""
        token = chance.random()

        async def runs() -> float:
            await asyncio.sleep(chance.choice((0, 0, 0.001, 10)))
            return token

        future = chance.choice(self.storm.lives).run(runs())
        if future is None:
            return
        self.storm.futures.append(future)
        try:
            async with asyncio.timeout(chance.choice((0.001, 0.05))):
                result = await asyncio.wrap_future(future)
        except (TimeoutError, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
        else:
            if result != token:
                raise Wrong("another result")
            self.storm.counts["coroutines"] += 1

    async def wait_in_vain(self, chance: random.Random) -> None:
        """A receive that is cancelled, or gets its byte."""
        here, there = socket.socketpair()
        with here, there:
            here.setblocking(False)
            receiving = asyncio.create_task(self.loop.sock_recv(here, 10))
            try:
                await asyncio.sleep(0)
                if chance.random() < 0.5:
                    there.send(b".")
                    if await receiving != b".":
                        raise Wrong("another byte")
            finally:
                receiving.cancel()
                await asyncio.wait([receiving])


def looked_at(task: asyncio.Task[Any]) -> None:
    try:
        repr(task)
    except TypeError as exc:
        # asyncio's Python reads a future's callbacks twice, and may find None the second time.
        if traceback.extract_tb(exc.__traceback__)[-1].name != "_format_callbacks":
            raise


class Storm:
    def __init__(self, seconds: float, seed: int) -> None:
        self.seconds = seconds
        self.chance = random.Random(seed)
        self.listener = goloop.SharedListener("127.0.0.1", 0, backlog=200)
        self.address = self.listener.sockets[0].getsockname()
        self.lives: tuple[Life, ...] = ()  # replaced as a whole, for threads that look
        self.changing = threading.Lock()
        self.futures: deque[concurrent.futures.Future[Any]] = deque()
        self.wrongs: deque[str] = deque()
        self.counts = Counter[str]()
        self.over = threading.Event()
        self.senders = iter(range(1 << 60))
        self.lock = threading.Lock()

    def wrong(self, text: str) -> None:
        self.wrongs.append(text)

    def new_sender(self) -> int:
        with self.lock:
            return next(self.senders)

    # ---- threads

    def born(self, life: Life) -> None:
        with self.changing:
            self.lives = (*self.lives, life)

    def died(self, life: Life) -> None:
        with self.changing:
            self.lives = tuple(each for each in self.lives if each is not life)

    def lives_on(self, chance: random.Random) -> None:
        """Run one loop after another."""
        while not self.over.is_set():
            with asyncio.Runner(loop_factory=goloop.new_event_loop) as runner:
                runner.run(self.one(chance))

    async def one(self, chance: random.Random) -> None:
        await Life(self).live(chance.choice((0.05, 0.2, 0.5, 1.0)), chance)

    def posts(self, chance: random.Random) -> None:
        """Without a loop of its own."""
        sender, number = self.new_sender(), 0
        while not self.over.is_set():
            for life in self.lives:
                life.post(sender, number)
                number += 1
                if chance.random() < 0.1:
                    future = life.run(asyncio.sleep(0.01))
                    if future is not None:
                        self.futures.append(future)
                        if chance.random() < 0.5:
                            future.cancel()
            time.sleep(chance.random() / 500)

    def looks(self, chance: random.Random) -> None:
        while not self.over.is_set():
            for life in self.lives:
                # asyncio's set of tasks may change too often to be copied.
                with contextlib.suppress(RuntimeError):
                    for task in asyncio.all_tasks(life.loop):
                        looked_at(task)
                repr(life.loop)
                if isinstance(life.loop, goloop.Loop):
                    life.loop.metrics()
            goloop.metrics()
            goloop.diagnostics()
            time.sleep(chance.random() / 100)

    def collects(self, chance: random.Random) -> None:
        while not self.over.is_set():
            gc.collect(chance.randrange(3))
            time.sleep(chance.random() / 100)

    def guarded(self, function: Callable[[random.Random], None], seed: float) -> None:
        try:
            function(random.Random(seed))
        except BaseException as exc:
            self.wrong(f"{function.__name__}: {exc!r}")
            traceback.print_exc()
            self.over.set()

    def run(self) -> None:
        jobs = [self.lives_on] * THREADS + [self.posts, self.looks, self.collects]
        threads = [
            threading.Thread(target=self.guarded, args=(job, self.chance.random()), name=str(job))
            for job in jobs
        ]
        for thread in threads:
            thread.start()
        self.over.wait(self.seconds)
        self.over.set()
        for thread in threads:
            thread.join()
        self.listener.close()
        left = sum(not future.done() for future in self.futures)
        if left:
            self.wrong(f"{left} coroutines never ended")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    faulthandler.enable()
    faulthandler.dump_traceback_later(arguments.seconds + HANG, exit=True)
    goloop.new_event_loop().close()
    before = descriptors()
    print(f"seed {arguments.seed}", flush=True)
    storm = Storm(arguments.seconds, arguments.seed)
    storm.run()
    gc.collect()
    # Go's runtime opens a poller of its own once, which are two.
    if not before <= descriptors() <= before + 2:
        storm.wrong(f"{before} descriptors before, {descriptors()} after")
    if threading.active_count() != 1:
        storm.wrong(f"threads left: {threading.enumerate()}")
    for name in ("loops", "callbacks", "echoes", "coroutines"):
        if not storm.counts[name]:
            storm.wrong(f"no {name}")
    print(dict(storm.counts), "wrong:", list(storm.wrongs)[:20] or "nothing")
    sys.exit(bool(storm.wrongs))


if __name__ == "__main__":
    main()
