import asyncio

import goloop

goloop.introspect()
assert callable(goloop.introspect)


async def leaf():
    await asyncio.get_running_loop().create_future()


async def branch():
    await asyncio.gather(asyncio.create_task(leaf(), name="gathered"))


async def main():
    async with asyncio.TaskGroup() as group:
        group.create_task(leaf(), name="grouped")
        group.create_task(branch(), name="gatherer")
        for _ in range(5):
            await asyncio.sleep(0)
        print("ready", flush=True)


goloop.run(main())
