"""Run a short coroutine on asyncio's own loop (`asyncio`) or on the default one (`default`)."""

import asyncio
import sys

for loop in sys.argv[1:]:
    if loop == "asyncio":
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(asyncio.sleep(0))
    else:
        asyncio.run(asyncio.sleep(0))
