"""Simulated steps per second of goloop and other simulators: `python -m benchmarks.simulations`.

goloop.testing is compared with simloom, simloop, detangle and seedloop (pip install simloom simloop
detangle seedloop; they need Python 3.12), which are written in Python and simulate an asyncio loop
of their own.  Each runs the same programs with the same seeds and its default settings: goloop and
seedloop order tasks as asyncio does, the others by the seed (so does "goloop, shuffle").  The
simulators take turns in rounds, each in a process of its own.  Rates are per second of processor
time.  A ratio is taken inside a round; the table has its median and 95 % interval.
docs/benchmarks.md has the results.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import importlib
import multiprocessing
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from benchmarks.markdown import table
from goloop.operations.compare.measuring import intervals
from goloop.operations.compare.measuring.turns import Failure, take_turns

Main = Callable[[], Coroutine[Any, Any, None]]

# ---- programs, with their numbers of counted operations ------------------------------------------

TASKS, STEPS = 50, 400
CLIENTS, MESSAGES = 10, 200


async def nothing() -> None:
    """Start and end an empty simulation: counts runs."""


async def steps() -> None:
    """Run tasks that take turns: counts steps."""

    async def one() -> None:
        for _ in range(STEPS):
            await asyncio.sleep(0)

    await asyncio.gather(*(one() for _ in range(TASKS)))


async def timers() -> None:
    """Run tasks that sleep: counts timers."""

    async def one() -> None:
        for _ in range(STEPS):
            await asyncio.sleep(random.random())

    await asyncio.gather(*(one() for _ in range(TASKS)))


async def queue() -> None:
    """Run producers and consumers of a short queue, under a timeout: counts items."""
    between: asyncio.Queue[int] = asyncio.Queue(2)

    async def produce() -> None:
        for number in range(STEPS):
            await between.put(number)

    async def consume() -> None:
        for _ in range(STEPS):
            async with asyncio.timeout(60):
                await between.get()

    await asyncio.gather(*(make() for _ in range(TASKS // 2) for make in (produce, consume)))


async def streams() -> None:
    """Run clients of an echo server over the simulated network: counts messages."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
        writer.close()

    async def ask() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", 8080)
        for number in range(MESSAGES):
            writer.write(b"%d\n" % number)
            await reader.readline()
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 8080):
        await asyncio.gather(*(ask() for _ in range(CLIENTS)))


PROGRAMS: dict[str, tuple[Main, int, str]] = {
    "nothing": (nothing, 1, "runs"),
    "steps": (steps, TASKS * STEPS, "steps"),
    "timers": (timers, TASKS * STEPS, "timers"),
    "queue": (queue, TASKS // 2 * STEPS, "items"),
    "streams": (streams, CLIENTS * MESSAGES, "messages"),
}

# ---- simulators, which run a program with a seed -------------------------------------------------


def _goloop(main: Main, seed: int, policy: str = "io") -> None:
    from goloop import testing

    testing.run(main, seed=seed, policy=policy)


def _simloom(main: Main, seed: int) -> None:
    importlib.import_module("simloom").run(main, seed=seed)


def _simloop(main: Main, seed: int) -> None:
    report = importlib.import_module("simloop").explore(main, [seed])
    if report is not None:
        raise RuntimeError(report)


def _detangle(main: Main, seed: int) -> None:
    importlib.import_module("detangle").run(main, seed=seed)


def _seedloop(main: Main, seed: int) -> None:
    if main is streams:
        raise NotImplementedError("it has no streams")

    def scenario(world: object) -> Awaitable[None]:
        return main()

    importlib.import_module("seedloop").replay(scenario, seed=seed)


SIMULATORS: dict[str, Callable[[Main, int], None]] = {
    "goloop": _goloop,
    "goloop, shuffle": functools.partial(_goloop, policy="shuffle"),
    "simloom": _simloom,
    "simloop": _simloop,
    "detangle": _detangle,
    "seedloop": _seedloop,
}
OTHERS = [name for name in SIMULATORS if not name.startswith("goloop")]


def sample(simulator: str, program: str, seconds: float) -> float | str:
    """Return the operations per second of processor time, or the reason for having none."""
    main, count, _ = PROGRAMS[program]
    run = SIMULATORS[simulator]
    try:
        run(main, 0)  # imports
        began, seed = time.process_time(), 0
        while (passed := time.process_time() - began) < seconds:
            seed += 1
            run(main, seed)
    except Exception as exc:
        return f"{type(exc).__name__}: {exc}".splitlines()[0][:100]
    return seed * count / passed


# ---- rounds --------------------------------------------------------------------------------------


def _in_a_process(simulator: str, program: str, seconds: float) -> float:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            found = pool.submit(sample, simulator, program, seconds).result()
        except BrokenProcessPool:
            raise Failure("it crashed") from None
    if isinstance(found, str):
        raise Failure(found)
    return found


def measure(rounds: int, seconds: float) -> str:
    """The table."""
    return table(
        [
            "",
            *SIMULATORS,
            "goloop ÷ the best other",
            "goloop, shuffle ÷ the best other that orders by the seed",
        ],
        [_row(program, rounds, seconds) for program in PROGRAMS],
    )


def _row(program: str, rounds: int, seconds: float) -> list[str]:
    found: dict[str, dict[int, float]] = {name: {} for name in SIMULATORS}

    def measure(number: int, name: str) -> None:
        found[name][number] = _in_a_process(name, program, seconds)

    def failed(name: str, failure: Failure) -> None:
        print(f"{program}: {name}: {failure}", file=sys.stderr)

    for number in range(rounds):
        take_turns(list(SIMULATORS), functools.partial(measure, number), failed)
    medians = [
        f"{statistics.median(each.values()):,.0f}" if each else "–" for each in found.values()
    ]
    return [f"{program}, {PROGRAMS[program][2]}/s", *medians, *_ratios(found)]


def _ratios(found: dict[str, dict[int, float]]) -> list[str]:
    best = _fastest(found, OTHERS)
    drawn = _fastest(found, [name for name in OTHERS if name != "seedloop"])
    pairs = (found["goloop"], best), (found["goloop, shuffle"], drawn)
    ratios = [intervals.ratio(*pair) for pair in pairs]
    return ["–" if ratio is None else ratio.shown(digits=1) for ratio in ratios]


def _fastest(found: dict[str, dict[int, float]], names: list[str]) -> dict[int, float]:
    measured = [found[name] for name in names if found[name]]
    return max(measured, key=lambda each: statistics.median(each.values()), default={})


def main() -> None:
    """Read the command line, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulations")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="processor time for a sample")
    options = parser.parse_args()
    print(measure(options.rounds, options.seconds))


if __name__ == "__main__":
    main()
