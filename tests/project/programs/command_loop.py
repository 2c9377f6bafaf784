import asyncio


async def main():
    return repr(asyncio.get_running_loop())


print(asyncio.run(main()))
