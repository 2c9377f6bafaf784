"""The program `many_tasks` of test_introspect.py."""

import asyncio

import goloop


async def waits():
    await asyncio.get_running_loop().create_future()


async def main():
    _tasks = [asyncio.create_task(waits()) for _ in range(300)]
    await asyncio.sleep(0.01)
    print("ready", flush=True)
    await waits()


goloop.run(main())
