"""Measures the start-up cost of a loop: time and resident memory.

Nothing but builtins and ``time`` is loaded when the clock starts, so that the
figure holds asyncio's own import too; asyncio's row is what the others are
compared with.  The time is the process's CPU time, all threads included: on the
one core that it is pinned to, that is the elapsed time less other programs' share.
"""

import time


def resident_kib() -> int:
    """Return the resident set of this process in KiB."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4


def main(factory: str) -> dict[str, float]:
    """Import the loop's package, make a loop and run an empty coroutine on it."""
    began = time.process_time_ns()
    import asyncio  # noqa: F401  every program that makes a loop has it

    from benchmarks.factories import resolve

    loop = resolve(factory)()

    async def nothing() -> None:
        pass

    loop.run_until_complete(nothing())
    elapsed = time.process_time_ns() - began
    kib = resident_kib()
    loop.close()
    return {"ms": elapsed / 1e6, "kib": kib}
