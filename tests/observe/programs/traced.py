import asyncio
import gc
import json
import re
import sys
import time

import goloop


def spin(seconds):
    began = time.monotonic_ns()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
    return [began, time.monotonic_ns()]


async def echo(reader, writer):
    writer.write(await reader.read(10))
    await writer.drain()
    writer.close()


async def short():
    times.append(spin(0.02))
    await asyncio.sleep(0)
    times.append(spin(0.03))


async def waits():
    while True:
        await old.wait()
        old.clear()
        times.append(spin(0.01))


class Long:
    def callback(self):
        times.append(spin(0.04))


async def tasks():
    await asyncio.create_task(short(), name="a näme of more than fourteen bytes")
    unnamed.append(asyncio.create_task(short()))
    await unnamed[-1]


async def name():
    times.append(unnamed[-1].get_name())


async def connection():
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"x")
    await reader.read(10)
    writer.close()
    await writer.wait_closed()


async def collection():
    began = time.monotonic_ns()
    gc.collect()
    times.append([began, time.monotonic_ns()])


async def long():
    asyncio.get_running_loop().call_soon(Long().callback)
    await asyncio.sleep(0)


async def before():
    old.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def many():
    done = asyncio.Event()
    left = 600_000

    def chained():
        nonlocal left
        left -= 1
        loop.call_soon(chained) if left else done.set()

    loop.call_soon(chained)
    await done.wait()


async def few():
    done = asyncio.Event()

    def link(left):
        loop.call_soon(link, left - 1) if left else done.set()

    loop.call_soon(link, 9)
    await done.wait()


async def second():
    def run():
        async def main():
            await asyncio.create_task(short(), name="in another loop")

        goloop.run(main())

    await loop.run_in_executor(None, run)


async def hang():
    print('"hangs"', flush=True)
    re.match("(a+)+$", "a" * 60 + "b")  # holds the GIL for years


async def main():
    global loop, old, port, times
    loop, old = asyncio.get_running_loop(), asyncio.Event()
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    task = asyncio.create_task(waits(), name="from before")  # noqa: F841, RUF006
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print("ready", flush=True)
    while line := await reader.readline():
        times = []
        await globals()[line.decode().strip()]()
        print(json.dumps(times), flush=True)


unnamed = []
goloop.run(main())
