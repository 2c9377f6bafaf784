import asyncio
import os

from goloop import testing


@testing.simulate(seeds=2)
async def test():
    async def echo(reader, writer):
        writer.write(await reader.readline())
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 7):
        reader, writer = await asyncio.open_connection("127.0.0.1", 7)
        writer.write(b"said\n")
        print((await reader.read()).decode(), os.path.exists("/"), end=" ")
        writer.close()


test()
