"""Random programs on goloop and on asyncio, each seed on both, with the invariants of each.

    python tests/simulation/explored/exploring.py [--first 0] [--count 1000] [--jobs 1]
                                                  [--only talks]

`make explore SEEDS=1000` runs it on all cores.  A finding is printed as it comes, with the command
that finds it again; the exit status is 1 if there was one.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import gc
import logging
import multiprocessing
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

if __name__ in ("__main__", "__mp_main__"):
    TESTS = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(TESTS), str(TESTS / "support")]

import bulk
import living
import talks
import timed
import tls_tools

from goloop import testing
from goloop.testing.simulation import leaks
from goloop.testing.simulation.simulate import Plan

# Seconds of virtual time; none needs nearly as many.
MOST = 1e6


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress reports of dropped objects, and let the collector see only the programs' objects."""
    tls_tools.usual_contexts()
    gc.collect()
    logging.disable()
    try:
        with warnings.catch_warnings(), leaks.only_new_objects():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def of_talks(seed: int) -> list[str]:
    """Conversations over a network without chance."""
    runs, found = [], []
    for loop in ("asyncio", "goloop"):
        program = talks.Program(seed)
        plan = Plan(MOST, "io", frozenset({"exceptions"}), loop)
        # Even, so that no callback takes time: over a network the loops need other iterations.
        exc = plan.run(program.main, 2 * seed).exc
        broken = [*program.broken, *([] if exc is None else [repr(exc)])]
        del exc
        broken += [f"{each!r} is left" for each in program.left()]
        found += [f"{loop}: {each}" for each in broken]
        runs.append(program)
    return found or talks.differences(*runs)


def of_timed(seed: int) -> list[str]:
    """Tasks, futures, timers and jobs."""
    traces = []
    for loop in ("asyncio", "goloop"):
        reports: list[str] = []

        async def main(reports: list[str] = reports) -> list[str]:
            return await timed.main(seed, reports)

        trace = testing.run(main, seed=seed, loop=loop, max_time=MOST).value
        traces.append([*trace, *reports])
    return list(difflib.unified_diff(*traces, "asyncio", "goloop", lineterm=""))


def of_bulk(seed: int) -> list[str]:
    """Much data, and pauses."""
    found = []
    for loop in ("asyncio", "goloop"):
        program = bulk.Program(seed)
        exc = Plan(MOST, "io", frozenset(), loop).run(program.main, seed).exc
        found += [f"{loop}: {each}" for each in program.broken[:5]]
        found += [] if exc is None else [f"{loop}: {exc!r}"]
    return found


def of_lives(seed: int) -> list[str]:
    """Connections that do random things to themselves and each other, on goloop alone."""
    run = living.Run(seed)
    exc = Plan(MOST, "io", frozenset({"exceptions"})).run(run.main, seed).exc
    found = [*run.broken, *([] if exc is None else [repr(exc)])]
    del exc
    return [*found, *(f"{each!r} is left" for each in run.left())]


KINDS = {"talks": of_talks, "timed": of_timed, "bulk": of_bulk, "lives": of_lives}


def found(job: tuple[str, int]) -> tuple[str, int, list[str]]:
    """Return the findings of a seed of a kind; an exception is a finding."""
    kind, seed = job
    try:
        return kind, seed, KINDS[kind](seed)
    except Exception as exc:
        return kind, seed, [repr(exc)]


def explore(first: int, count: int, jobs: int, kinds: list[str]) -> bool:
    """Run these seeds, and print the progress; return true if one of them has found something."""
    work = ((kind, seed) for seed in range(first, first + count) for kind in kinds)
    start, failed = time.monotonic(), 0
    with quiet(), contextlib.ExitStack() as stack:
        results = map(found, work)
        if jobs > 1:
            pool = multiprocessing.get_context("fork").Pool(jobs)
            stack.callback(pool.join)
            stack.callback(pool.close)
            results = pool.imap_unordered(found, work, chunksize=20)
        for number, (kind, seed, lines) in enumerate(results, 1):
            if lines:
                failed += 1
                print(f"\nexploring.py --only {kind} --first {seed} --count 1")
                print("\n".join(lines[:40]), flush=True)
            if number % 200 == 0 or number == count * len(kinds):
                rate = number / (time.monotonic() - start)
                print(
                    f"\r{number} of {count * len(kinds)} programs on both loops, {rate:.0f}/s, "
                    f"{failed} failed", end="", flush=True,
                )  # fmt: skip
    print()
    return failed > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    options = parser.parse_args()
    return explore(options.first, options.count, options.jobs, options.only)


if __name__ == "__main__":
    sys.exit(main())
