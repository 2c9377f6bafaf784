"""Times child processes under a loop, inside one process of that loop's own.

A case starts children one after the other until its seconds have passed and counts
them.  Its sample has the form of a network sample: the server is the loop's process,
the client its children, and all of them share the core that the process is pinned to.
So the rate includes the full cost of a child from the call to its return code.  The CPU
time of a message is the loop's own part, without the child's part.
"""

from __future__ import annotations

import asyncio
import resource
import time
from asyncio import AbstractEventLoop
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

TRUE = "/bin/true"
CAT = "/bin/cat"
TEXT = b"sixty-four bytes go to the child and must come back unchanged.\n\n"


async def spawn() -> None:
    """A child that does nothing: start it, and learn its return code."""
    child = await asyncio.create_subprocess_exec(TRUE)
    if await child.wait() != 0:
        raise ValueError("a child did not end with 0")


async def communicate() -> None:
    """A child with two pipes: write, read to the end, learn the return code."""
    child = await asyncio.create_subprocess_exec(CAT, stdin=PIPE, stdout=PIPE)
    output, _ = await child.communicate(TEXT)
    if output != TEXT or child.returncode != 0:
        raise ValueError("a child's output differs from its input")


async def spawn_many() -> None:
    """As spawn, with 20 children under way at any time."""
    await asyncio.gather(*(spawn() for _ in range(BATCH)))


BATCH = 20
JOBS: dict[str, tuple[Callable[[], Awaitable[None]], int]] = {  # and children in each
    "spawn": (spawn, 1),
    "spawn-x20": (spawn_many, BATCH),
    "communicate": (communicate, 1),
}


@dataclass(frozen=True)
class Done:
    """The number of children in a window, and their cost: user and system CPU."""

    jobs: int
    seconds: float
    own: tuple[float, float]  # of the loop's process
    theirs: tuple[float, float]  # of the ended children


def _cpu(who: int) -> tuple[float, float]:
    """Return the seconds of CPU of this process, or of its children that have ended."""
    used = resource.getrusage(who)
    return used.ru_utime, used.ru_stime


def _since(who: int, before: tuple[float, float]) -> tuple[float, float]:
    user, system = _cpu(who)
    return user - before[0], system - before[1]


async def _measure(job: Callable[[], Awaitable[None]], warmup: float, seconds: float) -> Done:
    """Run a job for a while."""
    until = time.perf_counter() + warmup
    while time.perf_counter() < until:
        await job()
    await job()  # at least one, because the very first is slow
    done = 0
    began, own = time.perf_counter(), _cpu(resource.RUSAGE_SELF)
    children = _cpu(resource.RUSAGE_CHILDREN)
    while time.perf_counter() - began < seconds:
        await job()
        done += 1
    return Done(
        done,
        time.perf_counter() - began,
        _since(resource.RUSAGE_SELF, own),
        _since(resource.RUSAGE_CHILDREN, children),
    )


def main(
    factory: Callable[[], AbstractEventLoop], case: str, warmup: float, seconds: float
) -> dict[str, float]:
    """Measure one case on a fresh loop."""
    job, children = JOBS[case]
    with asyncio.Runner(loop_factory=factory) as runner:
        done = runner.run(_measure(job, warmup, seconds))
    return {
        "messages": done.jobs * children,
        "seconds": done.seconds,
        "server_cpu": sum(done.own),
        "server_user": done.own[0],
        "server_system": done.own[1],
        "client_cpu": sum(done.theirs),
    }
