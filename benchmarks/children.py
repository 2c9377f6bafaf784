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


def _clocks() -> tuple[float, float, float, float]:
    """Return the time, and the CPU times: this process's user and system, ended children's."""
    own, ended = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return time.perf_counter(), own.ru_utime, own.ru_stime, ended.ru_utime + ended.ru_stime


async def _measure(case: str, warmup: float, seconds: float) -> dict[str, float]:
    """Run a job for a while."""
    job, children = JOBS[case]
    until = time.perf_counter() + warmup
    while time.perf_counter() < until:
        await job()
    await job()  # at least one, because the very first is slow
    done = 0
    before = _clocks()
    while time.perf_counter() - before[0] < seconds:
        await job()
        done += 1
    spent, user, system, ended = (b - a for a, b in zip(before, _clocks(), strict=True))
    return {
        "messages": done * children,
        "seconds": spent,
        "server_cpu": user + system,
        "server_user": user,
        "server_system": system,
        "client_cpu": ended,
    }


def main(
    factory: Callable[[], AbstractEventLoop], case: str, warmup: str, seconds: str
) -> dict[str, float]:
    """Measure one case on a fresh loop."""
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(_measure(case, float(warmup), float(seconds)))
