import asyncio

import goloop


async def child(n):
    await asyncio.sleep(0)
    return n


async def main():
    assert type(asyncio.current_task()) is asyncio.Task is goloop.Task
    assert type(asyncio.get_running_loop().create_future()) is asyncio.Future
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await reader.read() == b""
    writer.close()
    server.close()
    return await asyncio.gather(*(child(n) for n in range(3)))


assert goloop.run(main()) == [0, 1, 2]
print(goloop.diagnostics()["tasks"])
