"""The servers of the network cases, run under the loop that is measured.

Each is what a careful user would write, not what suits one loop.  A server
prints ``port N`` once it listens on 127.0.0.1 and runs until it is killed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import cast

# What is asked for in one read, and what a stream buffers at most: above the
# largest message, so that a message can come in one piece where the loop and the
# kernel have it whole.
CHUNK = 256 * 1024
BACKLOG = 1024


class Echo(asyncio.Protocol):
    """Writes back what it receives."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Echo."""
        self.transport.write(data)


class BufferedEcho(asyncio.BufferedProtocol):
    """The same by a buffer of its own.

    The bytes are copied out before they are written: the buffer is received into
    again, perhaps before the transport has sent them.
    """

    transport: asyncio.Transport

    def __init__(self) -> None:
        """Make the buffer."""
        self.view = memoryview(bytearray(CHUNK))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Offer the whole buffer."""
        return self.view

    def buffer_updated(self, nbytes: int) -> None:
        """Echo."""
        self.transport.write(bytes(self.view[:nbytes]))


def announce(port: int) -> None:
    """Tell the runner where to connect."""
    print(f"port {port}", flush=True)


def listening() -> socket.socket:
    """Make the listening socket.

    Here and not by the loop, so that the port is known whatever a loop's Server
    tells about its sockets.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    listener.setblocking(False)
    return listener


async def forever() -> None:
    """Wait for the end of the process.

    Server.serve_forever() would do, but one peer's breaks the server that listens.
    """
    await asyncio.Event().wait()


async def serve_protocol(factory: Callable[[], asyncio.BaseProtocol]) -> None:
    """Serve a protocol by create_server."""
    loop = asyncio.get_running_loop()
    with listening() as listener:
        port = listener.getsockname()[1]
        server = await loop.create_server(factory, sock=listener, backlog=BACKLOG)
        async with server:
            announce(port)
            await forever()


async def echo_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Echo whatever a read brings."""
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    writer.close()


async def echo_lines(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Echo line by line."""
    while line := await reader.readline():
        writer.write(line)
        await writer.drain()
    writer.close()


async def serve_streams(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> None:
    """Serve a handler by start_server."""
    with listening() as listener:
        port = listener.getsockname()[1]
        server = await asyncio.start_server(handler, sock=listener, limit=CHUNK, backlog=BACKLOG)
        async with server:
            announce(port)
            await forever()


async def echo_socket(client: socket.socket) -> None:
    """Echo by the loop's socket operations."""
    loop = asyncio.get_running_loop()
    with client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := await loop.sock_recv(client, CHUNK):
            await loop.sock_sendall(client, data)


async def serve_sockets() -> None:
    """Accept by sock_accept, one task a connection."""
    loop = asyncio.get_running_loop()
    with listening() as listener:
        announce(listener.getsockname()[1])
        tasks: set[asyncio.Task[None]] = set()
        while True:
            client, _ = await loop.sock_accept(listener)
            task = loop.create_task(echo_socket(client))
            tasks.add(task)
            task.add_done_callback(tasks.discard)


async def serve_aiohttp() -> None:
    """Serve a hello by aiohttp, its access log off."""
    from aiohttp import web

    async def hello(request: web.Request) -> web.Response:
        return web.Response(text="Hello, world")

    application = web.Application()
    application.router.add_get("/", hello)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    with listening() as listener:
        port = listener.getsockname()[1]
        site = web.SockSite(runner, listener, backlog=BACKLOG)
        await site.start()
        announce(port)
        await forever()


SERVERS: dict[str, Callable[[], Awaitable[None]]] = {
    "protocol": lambda: serve_protocol(Echo),
    "buffered": lambda: serve_protocol(BufferedEcho),
    "streams": lambda: serve_streams(echo_stream),
    "readline": lambda: serve_streams(echo_lines),
    "sock": serve_sockets,
    "aiohttp": serve_aiohttp,
}


def main(factory: Callable[[], asyncio.AbstractEventLoop], server: str) -> None:
    """Run a server under a fresh loop."""

    async def run() -> None:
        await SERVERS[server]()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(run())
