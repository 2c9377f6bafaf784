"""The program `six_loops` of test_top.py."""

import asyncio

import goloop


async def waits():
    await asyncio.sleep(3600)


async def main(number):
    tasks = [asyncio.create_task(waits(), name=f"of-{number}-{n}") for n in range(4)]
    await asyncio.sleep(0.05)
    if number == 5:
        print("ready", flush=True)
    await asyncio.gather(*tasks)


goloop.run_threads(main, threads=6)
