import asyncio
import os
import sys


async def main():
    """Send requests to a server of its own, and write how many."""
    begin = asyncio.get_running_loop().time()
    ended = asyncio.Event()

    async def echo(reader, writer):
        while data := await reader.read(1024):
            writer.write(data)
        writer.close()
        ended.set()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    for _ in range(200):
        writer.write(b"hello")
        await reader.readexactly(5)
    writer.close()
    await ended.wait()
    server.close()
    seconds = asyncio.get_running_loop().time() - begin
    print(os.environ.get("COUNT", "{number} requests in {seconds:.6f} s").format(
        number=200, seconds=seconds, loop=type(asyncio.get_running_loop()).__name__
    ))  # fmt: skip


print("200 warnings", file=sys.stderr)
asyncio.run(main())
