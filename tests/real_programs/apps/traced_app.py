"""A program with all kinds of callbacks, for tools to look at; `asyncio` runs it on asyncio's."""

import asyncio
import os
import socket
import sys

from loop_name import loop_name

import goloop

SIZE = 1_000_000


class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)

    def connection_lost(self, exc):
        self.transport = None


async def handle(reader, writer):
    line = await reader.readline()
    kept = allocate(SIZE)
    writer.write(line.upper())
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    return kept


def allocate(size):
    return bytearray(size)


def from_the_loop(done):
    done.set_result("soon")


def from_a_timer(done):
    if not done.done():
        done.set_result("later")


def from_a_watch(sock, done):
    asyncio.get_running_loop().remove_reader(sock)
    done.set_result(sock.recv(10))


def from_another_thread(loop, done):
    loop.call_soon_threadsafe(from_the_loop, done)


def at_the_end(task):
    assert task.result() == b"task"


async def in_a_task():
    await asyncio.sleep(0)
    return b"task"


async def main():
    loop = asyncio.get_running_loop()
    async with await loop.create_server(Echo, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
        writer.close()
        await writer.wait_closed()
    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello\n")
        assert await reader.readline() == b"HELLO\n"
        writer.close()
        await writer.wait_closed()

    for make in (loop.call_soon, lambda *each: loop.call_later(0.001, *each)):
        done = loop.create_future()
        make(from_the_loop if make == loop.call_soon else from_a_timer, done)
        await done
    done = loop.create_future()
    await asyncio.to_thread(from_another_thread, loop, done)
    await done
    ours, theirs = socket.socketpair()
    with ours, theirs:
        done = loop.create_future()
        loop.add_reader(ours, from_a_watch, ours, done)
        theirs.send(b"ready")
        assert await done == b"ready"
    async with asyncio.TaskGroup() as group:
        group.create_task(in_a_task()).add_done_callback(at_the_end)
    print(f"loop: {loop_name()} in {os.getpid()}", flush=True)


if "asyncio" in sys.argv:
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(main())
else:
    goloop.run(main())
