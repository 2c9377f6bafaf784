"""A program whose loop stands still in a known place, for tools that look from outside."""

import asyncio
import threading

import goloop


def stand_still(said):
    print(said, flush=True)
    threading.Event().wait()


async def inner():
    await asyncio.sleep(0)
    kind = type(asyncio.get_running_loop())
    stand_still(f"loop: {kind.__module__}.{kind.__qualname__}")


async def outer():
    await inner()


goloop.run(outer())
