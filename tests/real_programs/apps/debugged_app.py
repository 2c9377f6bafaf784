"""A program to stop in: in a coroutine, in a callback, and where an exception is raised."""

import asyncio
import sys

from loop_name import loop_name

import goloop


def called(number):
    doubled = number * 2
    print(doubled)  # in a callback


async def inner(word):
    await asyncio.sleep(0)
    longer = word + "!"
    shown = longer.upper()  # in a coroutine
    await asyncio.sleep(0)
    return shown  # after an await


async def main():
    asyncio.get_running_loop().call_soon(called, 21)
    task = asyncio.create_task(inner("hello"))
    result = await task
    print(f"{result} from {loop_name()}")


sys.exit(goloop.run(main()))
