"""The program `shares_of_tasks` of test_top.py."""

import asyncio
import time

import goloop


async def spins():
    while True:
        until = time.perf_counter() + 0.03
        while time.perf_counter() < until:
            pass
        await asyncio.sleep(0.01)


async def waits():
    while True:
        await asyncio.sleep(0.01)


async def main():
    print("ready", flush=True)
    await asyncio.gather(
        asyncio.create_task(spins(), name="spins"), asyncio.create_task(waits(), name="waits")
    )


goloop.run(main())
