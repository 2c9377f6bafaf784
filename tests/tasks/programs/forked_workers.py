"""The program `forked_workers` of test_introspect.py."""

import asyncio
import os
import sys
import warnings

warnings.simplefilter("ignore")
import goloop


async def worker():
    os.write(1, b"%d\n" % os.getpid())  # in one piece
    await asyncio.get_running_loop().create_future()


async def main():
    await asyncio.sleep(0)


goloop.run(main())
for _ in range(2):
    if os.fork() == 0:
        asyncio.run(worker(), loop_factory=goloop.new_event_loop) if sys.version_info >= (
            3,
            12,
        ) else goloop.run(worker())
goloop.run(worker())
