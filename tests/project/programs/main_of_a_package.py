import asyncio
import sys


async def main():
    print(type(asyncio.get_running_loop()).__module__, __name__, sys.argv[1:], sys.path[0])


asyncio.run(main())
sys.exit(3)
