"""A storm in which a program closes goloop's own descriptors, and others get their numbers.

    python tests/fuzz/own_fd_storm.py [--rounds 300] [--seed 1]

A program that makes itself a daemon closes "all" descriptors; a library closes one too many.  In
each round a loop is made, and used so that it has all of its descriptors: its poller, wakeup
and signal pipe, and the socket of goloop.introspect().  Some of them are closed, before or
while the loop runs, and strangers move in under their numbers: pipes, eventfds, sockets that
listen, others that are connected, pollers.  The loop is used and closed then, and other threads
wake it.  It may raise OSError.  No byte may enter or leave a stranger, no connection may be taken
from it, and it stays open.

The signal pipe is left alone while CPython may write a signal's number to it
(docs/internals/descriptors.md).

The program prints one line for each thing that must not be, then a count, and exits with 1 if there
was any.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import os
import random
import select
import socket
import sys
import threading
import time
from collections.abc import Callable

import goloop
from goloop.operations import introspection

HIGH = 300  # descriptors of the storm itself have higher numbers


def high(fd: int) -> int:
    """Move a descriptor to a high number."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH)
    os.close(fd)
    return moved


def own() -> set[int]:
    """The descriptors that are open below the storm's own."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            os.fstat(int(name))  # not the one of listdir
            found.add(int(name))
    return {fd for fd in found if 2 < fd < HIGH}


def is_waited_for(fd: int) -> bool:
    """Whether a poller has it."""
    for number in own():
        with contextlib.suppress(OSError), open(f"/proc/self/fdinfo/{number}") as facts:
            if any(line.split()[:2] == ["tfd:", str(fd)] for line in facts):
                return True
    return False


def nothing_from(fd: int) -> bool:
    try:
        os.read(fd, 100)
    except BlockingIOError:
        return True
    return False


class Stranger:
    """A file that has nothing to do with the loop, under a number that was the loop's."""

    def __init__(self, number: int, kind: str) -> None:
        self.number, self.kind = number, kind
        self.kept: list[int] = []
        self.check: Callable[[], bool] = getattr(self, kind)()
        os.dup2(self.kept[0], number, inheritable=False)

    def keep(self, *fds: int) -> list[int]:
        self.kept += [high(fd) for fd in fds]
        for fd in self.kept:
            os.set_blocking(fd, False)
        return self.kept

    def pipe_to_read(self) -> Callable[[], bool]:
        reading, writing = self.keep(*os.pipe())
        os.write(writing, b"ours")
        return lambda: os.read(reading, 100) == b"ours" and nothing_from(reading)

    def pipe_to_write(self) -> Callable[[], bool]:
        reading, writing = os.pipe()
        _, reading = self.keep(writing, reading)
        return lambda: nothing_from(reading)

    def counter(self) -> Callable[[], bool]:
        [fd] = self.keep(os.eventfd(7))
        return lambda: os.eventfd_read(fd) == 7 and nothing_from(fd)

    def listener(self) -> Callable[[], bool]:
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind("")
            server.listen()
            client.connect(server.getsockname())
            client.send(b"ours")
            fds = self.keep(server.detach(), client.detach())

        def check() -> bool:
            with socket.socket(fileno=os.dup(fds[0])) as server, server.accept()[0] as taken:
                return taken.recv(100) == b"ours" and nothing_from(fds[1])

        return check

    def connection(self) -> Callable[[], bool]:
        near, far = socket.socketpair()
        far.send(b"ours")
        first, second = self.keep(near.detach(), far.detach())
        return lambda: (
            os.read(first, 100) == b"ours" and nothing_from(first) and nothing_from(second)
        )

    def poller(self) -> Callable[[], bool]:
        event = high(os.eventfd(1))
        poll = select.epoll()
        poll.register(event, select.EPOLLIN)
        [fd, _] = self.keep(os.dup(poll.fileno()), os.dup(event))
        poll.close()
        self.kept.append(event)

        def check() -> bool:
            with open(f"/proc/self/fdinfo/{fd}") as file:
                return sum(line.startswith("tfd:") for line in file) == 1

        return check

    def over(self) -> bool:
        """Return true if no thread has used it; it ends."""
        good = True
        try:
            good = os.path.sameopenfile(self.number, self.kept[0])
            good = good and self.check()
        except OSError:
            good = False
        for fd in [*self.kept, self.number]:
            with contextlib.suppress(OSError):
                os.close(fd)
        return good


KINDS = ["pipe_to_read", "pipe_to_write", "counter", "listener", "connection"]


class Round:
    """A loop, and its outcome."""

    begun: socket.socket | None = None  # the socket at which introspect()'s thread waits

    def __init__(self, generator: random.Random, before: set[int]) -> None:
        self.random = generator
        self.before = before
        self.strangers: list[Stranger] = []
        goloop.introspect()
        self.loop = goloop.new_event_loop()

    async def use(self) -> None:
        """Exchange bytes over many connections."""
        pairs = [socket.socketpair() for _ in range(16)]
        ends = [await asyncio.open_connection(sock=sock) for pair in pairs for sock in pair]
        for _, writer in ends:
            writer.write(b"x")
        for reader, _ in ends:
            await reader.readexactly(1)
        for _, writer in ends:
            writer.close()
        await asyncio.sleep(0)

    def steal(self, kinds: list[str]) -> None:
        """Closes some of the loop's descriptors, and gives their numbers to strangers."""
        # A thread of introspect() that has just begun makes a poller, and then waits by it: whose
        # number changes hands between two calls can only use another's.
        while introspection._serving is not Round.begun:
            time.sleep(0.001)
            if is_waited_for(introspection._serving.fileno()):  # type: ignore[union-attr]
                Round.begun = introspection._serving
        mine = sorted(own() - self.before)
        for number in self.random.sample(mine, self.random.randint(1, len(mine))):
            os.close(number)
            self.strangers.append(Stranger(number, self.random.choice(kinds)))

    async def stolen_from(self) -> None:
        await self.use()
        self.steal(KINDS)
        for _ in range(3):
            await asyncio.sleep(0.001)
        await self.use()

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # closed
            for _ in range(20):
                self.loop.call_soon_threadsafe(int)

    def run(self) -> list[str]:
        self.loop.run_until_complete(self.use())
        threads = [threading.Thread(target=self.wake) for _ in range(2)]
        if self.random.random() < 0.5:
            self.steal([*KINDS, "poller"])
        for thread in threads:
            thread.start()
        for main in (self.stolen_from, self.use)[bool(self.strangers) :]:
            with contextlib.suppress(OSError):
                self.loop.run_until_complete(main())
        for thread in threads:
            thread.join()
        with contextlib.suppress(OSError):
            goloop.introspect()
        self.loop.close()
        return [each.kind for each in self.strangers if not each.over()]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    # The first loop starts Go.  Descriptors that exist then are not closed by the storm.
    goloop.new_event_loop().close()
    before = own()
    wrong = stolen = 0
    for number in range(options.rounds):
        one = Round(random.Random(f"{options.seed} {number}"), before)
        for kind in one.run():
            print(f"round {number}: a {kind} was touched")
            wrong += 1
        stolen += len(one.strangers)
    print(f"{stolen} descriptors stolen in {options.rounds} rounds, wrong: {wrong or 'nothing'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
