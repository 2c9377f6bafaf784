import asyncio
import sys


async def main():
    print("serving", file=sys.stderr, flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
