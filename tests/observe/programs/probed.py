"""The program `probed` of test_probes.py."""

import asyncio
import time

import goloop


def tell(name, first, second):
    # gdb may be within a line.
    print(f"<{name} {first} {second}>", flush=True)


class Server(asyncio.Protocol):
    def connection_made(self, transport):
        tell("accept", loop._loop_number, transport.get_extra_info("socket").fileno())


class Client(asyncio.Protocol):
    def connection_made(self, transport):
        client.append(transport)


client = []


async def step():
    tell("task_step", id(loop), id(asyncio.current_task()))


async def main():
    global loop
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Server, "127.0.0.1", 0)
    await loop.create_connection(Client, *server.sockets[0].getsockname()[:2])
    await loop.create_task(step())
    await asyncio.sleep(0.01)
    while not loop.metrics().late_writes:  # the monitor has got no processor
        client[0].write(b"late")
        tell("late_write", loop._loop_number, time.monotonic_ns())
        time.sleep(0.4)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    client[0].close()
    server.close()


goloop.new_event_loop().close()
goloop.run(main())
