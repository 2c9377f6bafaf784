"""Runs random programs on asyncio and on goloop, and compares the traces.

    python tests/random_programs/run.py [--count 100000] [--first 0] [--eager]

Prints the first difference and exits with 1, or prints how many programs agreed.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import gc
import sys
import warnings

from program import Program, run

import goloop


def compare(seed: int, eager: bool) -> list[str]:
    """The differences between the two traces; empty where they agree."""
    program = Program(seed)
    expected = run(program, asyncio.SelectorEventLoop, eager=eager)
    seen = run(program, goloop.new_event_loop, eager=eager, task_class=goloop.Task)
    if expected == seen:
        return []
    return list(difflib.unified_diff(expected, seen, "asyncio", "goloop", lineterm=""))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--eager", action="store_true")
    args = parser.parse_args()
    gc.collect()
    # Coroutines that an aborted group refuses are never awaited.
    warnings.simplefilter("ignore", RuntimeWarning)
    for seed in range(args.first, args.first + args.count):
        difference = compare(seed, args.eager)
        if difference:
            print(f"seed {seed} differs:")
            print("\n".join(difference))
            return 1
    print(f"{args.count} programs, no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
