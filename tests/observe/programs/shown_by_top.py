import asyncio
import os

import goloop


async def echo(reader, writer):
    while data := await reader.read(100):
        writer.write(data)


async def waits():
    await asyncio.get_running_loop().create_future()


async def gathers():
    await asyncio.gather(
        asyncio.create_task(waits(), name="Task-10b"), asyncio.create_task(waits(), name="Task-9b")
    )


async def moves(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while True:
        writer.write(b"x" * 50)
        await reader.readexactly(50)
        await asyncio.sleep(0.001)


async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with asyncio.TaskGroup() as group:
        group.create_task(gathers(), name="gathers")
        group.create_task(moves(server.sockets[0].getsockname()[1]), name="moves")
        name = os.environ.get("NAME")
        if name:
            group.create_task(waits(), name=name.encode().decode("unicode_escape"))
        await asyncio.sleep(0.05)
        print("ready", flush=True)


if __name__ == "__main__":
    goloop.run(main())
