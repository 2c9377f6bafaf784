"""The servers of the network cases, run under the loop that is measured.

Each server is code that a careful user would write, not tuned for one loop.  It
prints ``port N`` once it listens on 127.0.0.1, or ``path P`` for a Unix socket or
a FIFO in the given directory, and runs until it is killed.  If there are several loops
in one process, each of them serves and prints a line.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from benchmarks import allocator
from benchmarks.threads import burn

# The size of one read, and the limit of a stream's buffer: larger than any message, so
# that a message that has arrived completely is read in one piece.
CHUNK = 256 * 1024
BACKLOG = 1024
# The file in a server's directory that names the address of the real server it uses.
SERVICE = "service"
# The size of one write to a pipe: a pipe's usual capacity.
BLOCK = 64 * 1024
# uvicorn's parsers of HTTP.
HTTP = Literal["auto", "h11", "httptools"]


class Connected(asyncio.BaseProtocol):
    """Keeps its transport, with as little Python memory as possible: the loop's remains."""

    __slots__ = ("transport",)
    transport: Any

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport


class Echo(Connected, asyncio.Protocol):
    """Echoes received data."""

    __slots__ = ()

    def data_received(self, data: bytes) -> None:
        """Echo."""
        self.transport.write(data)


class BurningEcho(Echo):
    """Echoes after some work in Python, as a program's handler would."""

    def data_received(self, data: bytes) -> None:
        """Work, and echo."""
        burn()
        self.transport.write(data)


class Broadcast(Connected, asyncio.Protocol):
    """Writes a member's data to every member.

    The first data of a connection make it a member and are echoed, so that the client knows it.
    """

    def __init__(self, members: dict[Broadcast, asyncio.Transport]) -> None:
        """Keep the members, whom all connections of a server share."""
        self.members = members

    def data_received(self, data: bytes) -> None:
        """Join, or write to all."""
        if self in self.members:
            for transport in self.members.values():
                transport.write(data)
        else:
            self.members[self] = self.transport
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave."""
        self.members.pop(self, None)


class BufferedEcho(Connected, asyncio.BufferedProtocol):
    """Echoes from a buffer of its own.

    The bytes are copied before they are written, because the transport may receive into the
    buffer again before it has sent them.
    """

    def __init__(self) -> None:
        """Make the buffer."""
        self.view = memoryview(bytearray(CHUNK))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Offer the whole buffer."""
        return self.view

    def buffer_updated(self, nbytes: int) -> None:
        """Echo."""
        self.transport.write(bytes(self.view[:nbytes]))


class DatagramEcho(Connected, asyncio.DatagramProtocol):
    """Sends each datagram back to its sender."""

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Echo."""
        self.transport.sendto(data, addr)


class Sink(asyncio.Protocol):
    """Counts the bytes from a pipe, and discards them."""

    received = 0

    def data_received(self, data: bytes) -> None:
        """Count."""
        self.received += len(data)


class Source(asyncio.BaseProtocol):
    """Writes to a pipe until its transport pauses it."""

    transport: asyncio.WriteTransport
    paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.block = bytes(BLOCK)
        self.transport = cast(asyncio.WriteTransport, transport)
        self.fill()

    def fill(self) -> None:
        """Write until the transport pauses the protocol, and again in the loop's next turn.

        The number of writes in one turn is limited, so that other callbacks run even if the
        pipe accepts all bytes and the transport never pauses.
        """
        for _ in range(16):
            if self.paused:
                return
            self.transport.write(self.block)
        asyncio.get_running_loop().call_soon(self.fill)

    def pause_writing(self) -> None:
        """Stop."""
        self.paused = True

    def resume_writing(self) -> None:
        """Go on."""
        self.paused = False
        self.fill()


def announce(port: int) -> None:
    """Print the port for the runner."""
    # A single write, so that the lines of several loops do not mix.
    print(f"port {port}\n", end="", flush=True)


def announce_path(path: Path) -> None:
    """Print the path of the socket or FIFO for the runner."""
    print(f"path {path}", flush=True)


def listening() -> socket.socket:
    """Make the listening socket.

    It is bound here and not by the loop, so that the port is known for every loop, even one whose
    Server has no usable `sockets`.  It names its protocol, as the sockets that a loop makes for a
    host and a port: asyncio sets TCP_NODELAY on the connections of such a socket only.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


# Starts a server on a listening socket: returns it, or serves until the process is killed.
Start = Callable[[socket.socket], Awaitable[object]]


async def serve(start: Start) -> None:
    """Listen on a port, start a server, and keep it until the process is killed."""
    with listening() as listener:
        announce(listener.getsockname()[1])
        _kept = await start(listener)
        await forever()


async def forever() -> None:
    """Wait for the end of the process.

    Server.serve_forever() is not used, because one peer's implementation breaks its server.
    """
    await asyncio.Event().wait()


def serving(
    factory: Callable[[], asyncio.BaseProtocol], context: ssl.SSLContext | None = None
) -> Start:
    """Return a start of create_server."""

    def start(listener: socket.socket) -> Awaitable[object]:
        loop = asyncio.get_running_loop()
        return loop.create_server(factory, sock=listener, backlog=BACKLOG, ssl=context)

    return start


def serving_tls(directory: Path) -> Start:
    """Return a start of the echo over TLS, with the certificate and key in the directory."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "identity.pem")
    return serving(Echo, context)


async def serve_unix(directory: Path) -> None:
    """Serve the echo on a Unix socket."""
    path = directory / "socket"
    loop = asyncio.get_running_loop()
    async with await loop.create_unix_server(Echo, str(path), backlog=BACKLOG):
        announce_path(path)
        await forever()


async def serve_datagrams() -> None:
    """Echo datagrams."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.bind(("127.0.0.1", 0))
        bound.setblocking(False)
        port = bound.getsockname()[1]
        await loop.create_datagram_endpoint(DatagramEcho, sock=bound)
        announce(port)
        await forever()


async def open_fifo(directory: Path, flags: int) -> int:
    """Make a FIFO, and open it in a thread, because open() waits for the other end."""
    path = directory / "fifo"
    os.mkfifo(path)
    announce_path(path)
    fd = await asyncio.get_running_loop().run_in_executor(None, os.open, path, flags)
    os.set_blocking(fd, False)
    return fd


async def read_pipe(directory: Path) -> None:
    """Read the load generator's output."""
    fd = await open_fifo(directory, os.O_RDONLY)
    await asyncio.get_running_loop().connect_read_pipe(Sink, os.fdopen(fd, "rb", buffering=0))
    await forever()


async def write_pipe(directory: Path) -> None:
    """Write the load generator's input."""
    fd = await open_fifo(directory, os.O_WRONLY)
    await asyncio.get_running_loop().connect_write_pipe(Source, os.fdopen(fd, "wb", buffering=0))
    await forever()


async def echo_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Echo the data of each read."""
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


def serving_streams(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> Start:
    """Return a start of start_server."""
    return lambda listener: asyncio.start_server(
        handler, sock=listener, limit=CHUNK, backlog=BACKLOG
    )


async def echo_socket(client: socket.socket) -> None:
    """Echo by the loop's socket operations."""
    loop = asyncio.get_running_loop()
    with client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := await loop.sock_recv(client, CHUNK):
            await loop.sock_sendall(client, data)


async def accept_sockets(listener: socket.socket) -> None:
    """Accept by sock_accept, one task a connection."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()
    while True:
        client, _ = await loop.sock_accept(listener)
        task = loop.create_task(echo_socket(client))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


async def start_aiohttp(listener: socket.socket) -> object:
    """Serve a hello by aiohttp, without an access log."""
    from aiohttp import web

    async def hello(request: web.Request) -> web.Response:
        return web.Response(text="Hello, world")

    application = web.Application()
    application.router.add_get("/", hello)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.SockSite(runner, listener, backlog=BACKLOG)
    await site.start()
    return site


async def hello_asgi(scope: dict[str, Any], _receive: Any, send: Any) -> None:
    """Say hello as an ASGI application does."""
    body = b"Hello, world"
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def serving_asgi(application: Any, http: HTTP = "auto") -> Start:
    """Return a start of uvicorn with an ASGI application, without an access log.

    The server runs on the running loop; `uvicorn --loop` would make the same loop by a factory.
    With the parser `auto`, uvicorn uses httptools if it is installed, for every loop.
    """
    import uvicorn

    config = uvicorn.Config(
        application, lifespan="off", access_log=False, log_level="error", backlog=BACKLOG,
        http=http,
    )  # fmt: skip
    return lambda listener: uvicorn.Server(config).serve(sockets=[listener])


async def hello() -> dict[str, str]:
    """Say hello as a handler of FastAPI does."""
    return {"message": "Hello, world"}


def hello_in_thread() -> dict[str, str]:
    """Say hello as a handler that FastAPI runs in a thread."""
    return {"message": "Hello, world"}


def serving_fastapi(http: HTTP, handler: Callable[[], Any] = hello) -> Start:
    """Return a start of FastAPI with a handler's answer in JSON."""
    import fastapi

    application = fastapi.FastAPI()
    application.add_api_route("/", handler)
    return serving_asgi(application, http)


async def serve_fastapi_asyncpg(directory: Path) -> None:
    """Serve the result of a query by FastAPI; the directory names PostgreSQL's port."""
    import asyncpg

    port = int((directory / SERVICE).read_text())
    async with asyncpg.create_pool(
        host="127.0.0.1", port=port, user="postgres", database="postgres", ssl=False
    ) as pool:

        async def query() -> dict[str, int]:
            return {"answer": await pool.fetchval("SELECT $1::int + 1", 41)}

        await serve(serving_fastapi("httptools", query))


async def start_websockets(listener: socket.socket) -> object:
    """Echo the messages of WebSockets, without compression."""
    from websockets.asyncio.server import ServerConnection, serve

    async def echo(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    return await serve(echo, sock=listener, compression=None)


SERVERS: dict[str, Callable[[Path], Awaitable[None]]] = {
    "protocol": lambda _: serve(serving(Echo)),
    "broadcast": lambda _: serve(serving(partial(Broadcast, {}))),  # the members
    "burning": lambda _: serve(serving(BurningEcho)),
    "buffered": lambda _: serve(serving(BufferedEcho)),
    "streams": lambda _: serve(serving_streams(echo_stream)),
    "readline": lambda _: serve(serving_streams(echo_lines)),
    "sock": lambda _: serve(accept_sockets),
    "aiohttp": lambda _: serve(start_aiohttp),
    "uvicorn": lambda _: serve(serving_asgi(hello_asgi)),
    "fastapi": lambda _: serve(serving_fastapi("httptools")),
    "fastapi-h11": lambda _: serve(serving_fastapi("h11")),
    "fastapi-sync": lambda _: serve(serving_fastapi("httptools", hello_in_thread)),
    "fastapi-asyncpg": serve_fastapi_asyncpg,
    "websockets": lambda _: serve(start_websockets),
    "tls": lambda directory: serve(serving_tls(directory)),
    "unix": serve_unix,
    "udp": lambda _: serve_datagrams(),
    "pipe-read": read_pipe,
    "pipe-write": write_pipe,
}


def main(
    factory: Callable[[], asyncio.AbstractEventLoop],
    server: str,
    directory: str,
    layout: str,
    loops: str,
) -> None:
    """Run a server under a fresh loop, in a layout of the heap; the directory is its own.

    Each of several loops has a thread, and a whole server with a port of its own.
    """
    allocator.lay_out(int(layout))  # now, so that the memory of the imports lies below

    async def run() -> None:
        await SERVERS[server](Path(directory))

    def run_or_end() -> None:
        try:
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(run())
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    for _ in range(int(loops) - 1):
        threading.Thread(target=run_or_end, daemon=True).start()
    run_or_end()
