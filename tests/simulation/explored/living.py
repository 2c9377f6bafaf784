"""The lives of tests/fuzz/connections.py in a simulation, over a network full of chance.

No outcomes are compared.  That module has the invariants of a life; this one has those of the end
of all lives: they leave nothing in the loop, in the kernel or in memory.  `faults` are those
that a program does not see.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
import weakref
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))

from fuzz import connections

from goloop import testing

LIVES = 10


class Life(connections.Life):
    """A life that neither stops nor interrupts the loop, because the loop runs the simulation."""

    def __init__(self, run: Run, index: int) -> None:
        super().__init__(run, index)
        self.interrupts = False

    def forbids(self, side: Any, action: str) -> bool:
        return action == "stop" or super().forbids(side, action)

    def fail(self, text: str) -> None:
        self.run.failures += 1
        cast: Any = self.run
        cast.broken.append(f"life {self.index} ({self.kind}, calm={self.calm}): {text}")
        cast.broken.append("   " + "\n   ".join(list(self.events)[-40:]))


class Run(connections.Run):
    """The lives of a seed."""

    def __init__(self, seed: int) -> None:
        # The writing end of a pipe that is ready to be read has lost its reader, on any loop.
        self.spurious = seed % 2
        kinds = [each for each in connections.KINDS if each != "pipe" or not self.spurious]
        super().__init__(
            argparse.Namespace(
                seed=seed, kinds=kinds, loop="goloop", life=None, trail=None, steps=LIVES,
                seconds=None,
            )
        )  # fmt: skip
        self.broken: list[str] = []
        self.kept: list[weakref.ref[Any]] = []

    async def one(self, index: int) -> None:
        life = Life(self, index)
        self.kept += map(weakref.ref, (life, life.left, life.right))
        await life.live()

    def on_context(self, loop: Any, context: dict[str, Any]) -> None:
        if "never retrieved" in context["message"]:
            return  # when that is said is the collector's
        before = self.failures
        super().on_context(loop, context)
        if self.failures > before:
            self.broken.append(f"exception handler: {context!r}")

    def must(self, holds: bool, text: str) -> None:
        if not holds:
            self.broken.append(text)

    async def main(self, sim: testing.Simulation) -> None:
        loop: Any = asyncio.get_running_loop()
        self.loop = loop
        loop.set_exception_handler(self.on_context)
        life: Any = sim._session
        before = life.kernel.open_descriptors()
        chance = random.Random(f"faults {self.options.seed}")
        names = ("short_reads", "short_writes", "one_byte", "interrupted", "would_block")
        names += ("late_readiness", *(["spurious_readiness"] if self.spurious else []))
        sim.faults.set(**{each: 0.2 * chance.random() for each in names if chance.random() < 0.3})
        async with asyncio.timeout(100):
            await self.some(list(range(LIVES)))
        for sock in list(loop._serving):  # whose create_server() was cancelled when it listened
            loop._stop_serving(sock)
        await asyncio.sleep(10)
        tasks = asyncio.all_tasks(loop) - {asyncio.current_task()}
        self.must(not tasks, f"tasks are left: {tasks}")
        self.must(not loop._all_transports(), f"transports are left: {loop._all_transports()}")
        self.must(not loop._registered(), f"the reactor has {loop._registered()}")
        now = life.kernel.open_descriptors()
        self.must(now == before, f"{now} descriptors are open, {before} at the begin")
        figures = loop.metrics()
        for name in ("connections_open", "write_buffer_bytes", "ready"):
            self.must(getattr(figures, name) == 0, f"{name} is {getattr(figures, name)}")

    def left(self) -> list[Any]:
        """Return objects of an ended run that are still in memory."""
        self.open.clear()
        self.started.clear()
        del self.loop
        gc.collect()
        every = [each() for each in (*self.kept, *self.transports)]
        return [each for each in every if each is not None]
