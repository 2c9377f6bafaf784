"""blockbuster finds blocking calls, and none in the loop itself: SOCKET FILE."""

import asyncio
import socket
import sys
import time

from asyncio_works import asyncio_works
from blockbuster import BlockingError, blockbuster_ctx

import goloop


async def echo(reader, writer):
    writer.write(await reader.readline())
    writer.close()


async def main():
    # The calls of the loop itself do not count as blocking.
    print("works on", await asyncio_works())
    server = await asyncio.start_unix_server(echo, sys.argv[1])
    reader, writer = await asyncio.open_unix_connection(sys.argv[1])
    writer.write(b"hello\n")
    assert await reader.readline() == b"hello\n"
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)

    ours, theirs = socket.socketpair()
    with ours, theirs, open(sys.argv[2]) as file:
        for call in (lambda: time.sleep(0.001), file.read, lambda: ours.recv(1)):
            try:
                call()
            except BlockingError as error:
                print("found:", error)
        ours.setblocking(False)
        theirs.setblocking(False)
        theirs.send(b"x")
        assert await asyncio.get_running_loop().sock_recv(ours, 1) == b"x"
    # In a thread anything may block.
    await asyncio.to_thread(time.sleep, 0.001)


with blockbuster_ctx():
    goloop.run(main())
