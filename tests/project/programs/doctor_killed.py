import asyncio
import os
import sys


async def main():
    print("serving", os.getpid(), file=sys.stderr, flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
