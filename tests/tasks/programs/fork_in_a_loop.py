"""The program `fork_in_a_loop` of test_introspect.py."""

import asyncio
import os
import warnings

warnings.simplefilter("ignore")
import goloop


async def child():
    os.write(1, b"%d\n" % os.getpid())
    await asyncio.get_running_loop().create_future()


async def parent():
    if os.fork() == 0:
        asyncio._set_running_loop(None)
        goloop.run(child())
    await asyncio.get_running_loop().create_future()


goloop.run(parent())
