"""The program `await_graph` of test_call_graph.py."""

import asyncio

import goloop


async def leaf():
    await asyncio.get_running_loop().create_future()


async def middle():
    async with asyncio.TaskGroup() as group:
        group.create_task(leaf(), name="the-leaf")


async def main():
    task = asyncio.create_task(middle(), name="the-middle")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert type(task) is goloop.Task, type(task)
    print("up", flush=True)
    await task


goloop.run(main())
