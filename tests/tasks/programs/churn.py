"""The program `churn` of test_introspect.py."""

import asyncio
import threading

import goloop


async def echo(reader, writer):
    writer.write(await reader.read(10))
    writer.close()


async def child(number):
    await asyncio.sleep(0.001 * (number % 3))


async def client(port):
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x")
        await reader.read()
        writer.close()


async def spawner():
    while True:
        await asyncio.gather(*(child(number) for number in range(50)))
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(child(number))


async def main():
    stop = asyncio.get_running_loop().create_future()
    stops.append((asyncio.get_running_loop(), stop))
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    tasks = [asyncio.create_task(client(port)) for _ in range(5)]
    tasks += [asyncio.create_task(spawner()) for _ in range(3)]
    await stop
    assert not any(task.done() for task in tasks)
    server.close()


def lives():
    goloop.run(main())


stops = []
threads = [threading.Thread(target=lives) for _ in range(2)]
for thread in threads:
    thread.start()
print("ready", flush=True)
input()
for loop, stop in stops:
    loop.call_soon_threadsafe(stop.set_result, None)
for thread in threads:
    thread.join()
print("ended well", flush=True)
