"""Measures the start-up cost of a loop: time and resident memory.

Only builtins and ``time`` are loaded when the clock starts, so that the result
includes asyncio's own import; the other loops are compared with asyncio's row.  The time
is the process's CPU time of all threads: on the one core that it is pinned to, that is the
elapsed time without the share of other programs.
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
