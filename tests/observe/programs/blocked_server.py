import asyncio
import sys

import goloop


async def sits():
    await asyncio.sleep(0.05)
    print("ready", flush=True)
    sys.stdin.readline()  # here


async def main():
    await asyncio.create_task(sits(), name="sits")
    await asyncio.get_running_loop().create_future()


goloop.run(main())
