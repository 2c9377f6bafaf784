import asyncio
import sys


async def main():
    print("printed by", *sys.argv[1:])


def ours():
    asyncio.run(main())


def theirs():
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(main())


def by_hand():
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()


ours()
theirs()
by_hand()
sys.exit(3)
