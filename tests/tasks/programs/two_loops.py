import asyncio
import threading

import goloop

entered, left = threading.Event(), threading.Event()


class Greedy(asyncio.Protocol):
    def connection_made(self, transport):
        transport.set_write_buffer_limits(high=1 << 30)
        transport.write(bytes(20_000_000))


async def numbers():
    while True:
        await asyncio.get_running_loop().create_future()
        yield 1


async def reads():
    async for _ in numbers():
        pass


async def short():
    await asyncio.get_running_loop().create_future()


async def waits():
    await asyncio.wait_for(asyncio.shield(asyncio.create_task(short(), name="shielded")), 1000)


def sinks():
    entered.set()
    left.wait()  # the line where it sinks


async def blocks():
    sinks()


async def first():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Greedy, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.transport.pause_reading()
    tasks = [asyncio.create_task(reads(), name="reads"), asyncio.create_task(waits(), name="waits")]
    loop.call_later(1000, print)
    for _ in range(10):
        await asyncio.sleep(0.01)
    asyncio.create_task(blocks(), name="blocks")  # noqa: RUF006
    await asyncio.gather(*tasks)


async def second():
    await asyncio.get_running_loop().create_future()


def other():
    goloop.run(second())


threading.Thread(target=other, name="the other", daemon=True).start()


def announce():
    entered.wait()
    print("ready", flush=True)


threading.Thread(target=announce).start()
goloop.run(first())
