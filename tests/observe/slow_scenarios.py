"""The scenarios of test_slow.py: `python slow_scenarios.py NAME` runs one.

Each has an iteration that takes 0.2 s, says that it is ready, and goes on in a way of its own;
with `hangs` it has no slow iteration before.
"""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys
import time

import goloop

signal.signal(signal.SIGUSR2, lambda *args: goloop.dump())


def culprit():
    time.sleep(0.2)


async def work():
    culprit()


async def main(goes_on, slow=True):
    await asyncio.sleep(0.01)
    if slow:
        await asyncio.create_task(work())
    await asyncio.sleep(0.01)
    print("ready", flush=True)
    await goes_on()


async def waits():
    await asyncio.sleep(100)


async def turns():
    while True:
        await asyncio.sleep(0)


async def sleeps():
    time.sleep(100)


async def computes():
    while True:
        pass


async def holds_the_gil():
    ctypes.PyDLL(None).sleep(100)


if __name__ == "__main__":
    goloop.run(main(globals()[sys.argv[1]], slow="hangs" not in sys.argv))
