import asyncio
import sys


async def main():
    await asyncio.sleep(0)


goloop = __import__("goloop")
goloop.run(main())
print(*(name for name in sys.modules if name.partition(".")[0] == "goloop"))
