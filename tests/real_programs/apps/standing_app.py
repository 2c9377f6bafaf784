"""A program whose loop stands still in a known place, for tools that look from outside."""

import asyncio
import threading

from loop_name import loop_name

import goloop


def stand_still(said):
    print(said, flush=True)
    threading.Event().wait()


async def inner():
    await asyncio.sleep(0)
    stand_still(f"loop: {loop_name()}")


async def outer():
    await inner()


goloop.run(outer())
