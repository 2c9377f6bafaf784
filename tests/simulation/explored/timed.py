"""The random programs of tests/random_programs with timers, timeouts and jobs, in virtual time.

No two timers of a program are due at the same moment, for which asyncio promises no order.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "random_programs"))

import program as untimed

TIMED = ["pause", "later", "at", "cancel_timer", "job", "look_up", "threadsafe"]


class Program(untimed.Program):
    """A program of the simulation."""

    many = [*untimed.SIMPLE, *TIMED, *TIMED]
    nested = (*untimed.NESTED, "within", "wait_until")


class Run(untimed.Run):
    """An execution of a program in a simulation."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.random = random.Random(f"moments {program.seed}")
        self.timers: list[asyncio.TimerHandle] = []

    def log(self, *words: object) -> None:
        super().log(round(self.loop.time() * 1e9), *words)

    def moment(self) -> float:
        """Seconds, of which no others have the same."""
        return self.random.randrange(1, 5_000_000) / 1e9

    def no_time(self) -> float:
        """wait(timeout=0) sets a timer, and of three at a moment asyncio's heap takes the last
        before the second."""
        return self.moment()

    async def let_run(self) -> None:
        for _ in range(20):
            await super().let_run()
            await asyncio.sleep(self.moment())

    async def do_pause(self, number: int) -> None:
        await asyncio.sleep(self.moment())

    async def do_later(self, number: int) -> None:
        self.timers.append(self.loop.call_later(self.moment(), self.log, "later", number))

    async def do_at(self, number: int) -> None:
        when = self.loop.time() + self.moment()
        self.timers.append(self.loop.call_at(when, self.log, "at", number))

    async def do_cancel_timer(self, number: int) -> Any:
        if not self.timers:
            return None
        timer = self.timers.pop(number % len(self.timers))
        timer.cancel()
        return timer.cancelled()

    async def do_job(self, number: int) -> Any:
        return await self.loop.run_in_executor(None, self.job, number)

    def job(self, number: int) -> int:
        if number == 5:
            raise untimed.Failure(number)
        return number

    async def do_look_up(self, number: int) -> int:
        return len(await self.loop.getaddrinfo("localhost", number))

    async def do_threadsafe(self, number: int) -> None:
        self.loop.call_soon_threadsafe(self.log, "threadsafe", number)

    async def do_within(self, number: int, inner: list[Any], flag: bool) -> None:
        async with asyncio.timeout(self.moment()):
            for operation in inner:
                await self.perform(operation)

    async def do_wait_until(self, number: int, inner: list[Any], flag: bool) -> Any:
        tasks = [self.loop.create_task(self.spawn([each])) for each in inner]
        done, pending = await asyncio.wait(tasks, timeout=self.moment())
        for task in sorted(pending, key=tasks.index):
            task.cancel()
        return len(done), len(pending)


async def main(seed: int, reports: list[str]) -> list[str]:
    """The trace of the program of a seed, on the running loop."""
    loop = asyncio.get_running_loop()

    def report(_: object, context: dict[str, Any]) -> None:
        if "never retrieved" not in context["message"]:  # when that is said is the collector's
            reports.append(context["message"])

    loop.set_exception_handler(report)
    return await Run(Program(seed)).everything()
