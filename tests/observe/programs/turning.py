"""A loop that turns all the time with `busy`, and else waits."""

import asyncio
import sys

import goloop


def again():
    if sys.argv[1] == "busy":
        asyncio.get_running_loop().call_soon(again)


async def main():
    again()
    await asyncio.sleep(0.05)
    print("ready", flush=True)
    await asyncio.get_running_loop().create_future()


goloop.run(main())
