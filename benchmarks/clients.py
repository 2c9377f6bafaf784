"""The clients of the client rows, run under the loop that is measured.

A client opens its connections to a real server once.  For each line on its standard input it then
talks for a while: a burst, of which the middle is measured.  The loop does not run between two
bursts, so a waiting client costs the others nothing.

Each client is code that a careful user would write, not tuned for one loop: one session or
pool, and as many tasks as there are connections, each with one request under way.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

HELLO = "Hello, world"  # the page of nginx
QUESTION = b"x" * 1023 + b"\n"
KEY, VALUE = "key", b"v" * 64
COMMANDS = 20  # of a pipeline
CLOSED = "the server closed a connection"


class Tally:
    """Counts the answers of a burst; connections stop asking once it is ending."""

    messages = 0
    ending = False


Burst = Callable[[Tally], Awaitable[object]]
Operation = Callable[[], Awaitable[object]]


class Asking(asyncio.Protocol):
    """Sends a question as soon as the previous one has come back."""

    transport: asyncio.Transport
    tally: Tally
    ended: asyncio.Future[None] | None = None
    received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)

    def ask(self, tally: Tally) -> asyncio.Future[None]:
        """Begin a burst; the future ends with its last answer."""
        self.tally = tally
        self.ended = asyncio.get_running_loop().create_future()
        self.transport.write(QUESTION)
        return self.ended

    def data_received(self, data: bytes) -> None:
        """Count a whole answer, and send the next question."""
        self.received += len(data)
        if self.received < len(QUESTION):
            return
        self.received = 0
        self.tally.messages += 1
        if not self.tally.ending:
            self.transport.write(QUESTION)
        elif self.ended is not None:
            self.ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the burst with an error."""
        if self.ended is not None and not self.ended.done():
            self.ended.set_exception(exc or ConnectionError(CLOSED))


async def open_protocols(address: str, connections: int) -> Burst:
    """Connect protocols to an echo server at a port or a path."""
    loop = asyncio.get_running_loop()
    protocols = []
    for _ in range(connections):
        if address.startswith("/"):
            _transport, protocol = await loop.create_unix_connection(Asking, address)
        else:
            _transport, protocol = await loop.create_connection(Asking, "127.0.0.1", int(address))
        protocols.append(protocol)
    return lambda tally: asyncio.gather(*(protocol.ask(tally) for protocol in protocols))


async def repeated(operations: Sequence[Operation]) -> Burst:
    """Return a burst of tasks that repeat an operation each, after all have been tried once."""

    async def repeat(operation: Operation, tally: Tally) -> None:
        while not tally.ending:
            await operation()
            tally.messages += 1

    await asyncio.gather(*(operation() for operation in operations))
    return lambda tally: asyncio.gather(*(repeat(operation, tally) for operation in operations))


def expect(found: object, wanted: object) -> None:
    """Raise ValueError for a wrong answer."""
    if found != wanted:
        raise ValueError(f"the answer is {found!r}, not {wanted!r}")


async def open_aiohttp(address: str, connections: int) -> Burst:
    """Get a page by aiohttp, in one session."""
    import aiohttp

    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections))
    url = f"http://127.0.0.1:{address}/"

    async def get() -> None:
        async with session.get(url) as answer:
            expect(await answer.read(), HELLO.encode())

    return await repeated([get] * connections)


async def open_httpx(address: str, connections: int) -> Burst:
    """Get a page by httpx, with one client."""
    import httpx

    client = httpx.AsyncClient(limits=httpx.Limits(max_connections=connections))
    url = f"http://127.0.0.1:{address}/"

    async def get() -> None:
        expect((await client.get(url)).content, HELLO.encode())

    return await repeated([get] * connections)


async def _redis(address: str) -> Any:
    """Return a redis-py client with its pool, and set the key that is read."""
    import redis.asyncio

    place: dict[str, Any] = {"host": "127.0.0.1", "port": address}
    if address.startswith("/"):
        place = {"unix_socket_path": address}
    client = redis.asyncio.Redis(**place)
    await client.set(KEY, VALUE)
    return client


async def open_redis(address: str, connections: int) -> Burst:
    """Get a key by redis-py, at a port or a path."""
    client = await _redis(address)

    async def get() -> None:
        expect(await client.get(KEY), VALUE)

    return await repeated([get] * connections)


async def open_redis_pipelines(address: str, connections: int) -> Burst:
    """Get a key COMMANDS times in one pipeline of redis-py."""
    client = await _redis(address)

    async def get() -> None:
        pipeline = client.pipeline(transaction=False)
        for _ in range(COMMANDS):
            pipeline.get(KEY)
        expect(await pipeline.execute(), [VALUE] * COMMANDS)

    return await repeated([get] * connections)


async def open_asyncpg(address: str, connections: int) -> Burst:
    """Run a prepared query by asyncpg, on a connection for each task."""
    import asyncpg

    def querying(connection: Any) -> Operation:
        async def query() -> None:
            expect(await connection.fetchval("SELECT $1::int + 1", 41), 42)

        return query

    opened = [
        await asyncpg.connect(
            host="127.0.0.1", port=int(address), user="postgres", database="postgres", ssl=False
        )
        for _ in range(connections)
    ]
    return await repeated(list(map(querying, opened)))


CLIENTS: dict[str, Callable[[str, int], Awaitable[Burst]]] = {
    "protocol": open_protocols,
    "aiohttp": open_aiohttp,
    "httpx": open_httpx,
    "redis": open_redis,
    "redis-pipeline": open_redis_pipelines,
    "asyncpg": open_asyncpg,
}


# ---- the measured window -----------------------------------------------------------------


def pause(word: str) -> None:
    """Say where the burst is, and wait until the runner has taken its accounts."""
    print(word, flush=True)
    sys.stdin.readline()


async def measure(burst: Burst, warmup: float, seconds: float) -> dict[str, float]:
    """Talk for a while; return the count of the window after the warm-up."""
    tally = Tally()
    task = asyncio.ensure_future(burst(tally))
    await asyncio.wait([task], timeout=warmup)
    pause("begin")
    for _ in range(3):  # the answers of the pause, which a busy machine makes long, are no part
        await asyncio.sleep(0)
    before, began = tally.messages, time.perf_counter()
    await asyncio.wait([task], timeout=seconds)
    while tally.messages == before and not task.done():  # without the core, on a busy machine
        await asyncio.wait([task], timeout=seconds)
    ended, after = time.perf_counter(), tally.messages
    pause("end")
    tally.ending = True
    await task
    return {"messages": after - before, "seconds": ended - began}


def main(
    factory: Callable[[], asyncio.AbstractEventLoop], client: str, address: str, connections: str
) -> None:
    """Open a client on a fresh loop, print its address, and answer each line with a sample.

    A line has the seconds of warm-up and of the window; windows.py has the other end.
    """
    with asyncio.Runner(loop_factory=factory) as runner:

        async def opened() -> Burst:
            return await CLIENTS[client](address, int(connections))

        burst = runner.run(opened())
        print(f"path {address}", flush=True)
        for line in iter(sys.stdin.readline, ""):
            warmup, seconds = map(float, line.split())
            print(json.dumps(runner.run(measure(burst, warmup, seconds))), flush=True)
