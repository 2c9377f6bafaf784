"""The program `forks` of test_top.py."""

import asyncio
import os
import warnings

warnings.simplefilter("ignore")
import goloop


async def worker():
    os.write(1, b"%d\n" % os.getpid())  # in one piece
    await asyncio.get_running_loop().create_future()


if os.fork() == 0:
    goloop.run(worker())
goloop.run(worker())
