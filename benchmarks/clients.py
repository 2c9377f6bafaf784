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
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from benchmarks.real_servers import HELLO

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


@dataclass(frozen=True)
class Reading:
    """The clocks and accounts at one end of a window, in seconds."""

    messages: int
    at: float
    own: float  # CPU time of this process
    user: float
    system: float


@dataclass(frozen=True)
class Account:
    """CPU time of the server's processes, and the two cores' idle, interrupts' and stolen time."""

    server: float
    cores: tuple[float, float, float]


def read_own(tally: Tally) -> Reading:
    """Read this process's clocks."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    at, own = time.perf_counter(), time.process_time()
    return Reading(tally.messages, at, own, used.ru_utime, used.ru_stime)


def read_account(processes: Sequence[int], cores: set[int]) -> Account:
    """Read the clocks of other processes, and the kernel's account of some cores."""
    return Account(sum(map(_cpu_of, processes)), _account_of(cores))


def _cpu_of(process: int) -> float:
    """Read a process's CPU clock; 0 if it has ended."""
    try:
        return time.clock_gettime((~process << 3) | 2)  # clock_getcpuclockid(3)
    except OSError:
        return 0.0


def _account_of(cores: set[int]) -> tuple[float, float, float]:
    idle = interrupts = steal = 0
    with open("/proc/stat") as lines:
        for line in lines:
            name, *words = line.split()
            if name[:3] == "cpu" and name[3:] and int(name[3:]) in cores:
                ticks = [*map(int, words)]
                idle += ticks[3] + ticks[4]
                interrupts += ticks[5] + ticks[6]
                steal += ticks[7]
    tick = os.sysconf("SC_CLK_TCK")
    return idle / tick, interrupts / tick, steal / tick


def pinned_cores(server: int) -> set[int]:
    """Return the cores of this process and of the server; none if one is not pinned to one."""
    both = [os.sched_getaffinity(0), os.sched_getaffinity(server)]
    return set().union(*both) if all(len(each) == 1 for each in both) else set()


async def measure(
    burst: Burst, warmup: float, seconds: float, processes: Sequence[int]
) -> dict[str, float]:
    """Talk for a while; return the sample of the window after the warm-up.

    As in every sample, `server` is the process under the loop, which is this one, and `client` is
    the other end.
    """
    tally = Tally()
    task = asyncio.ensure_future(burst(tally))
    cores = pinned_cores(processes[0])
    await asyncio.wait([task], timeout=warmup)
    before, first = read_account(processes, cores), read_own(tally)
    await asyncio.wait([task], timeout=seconds)
    last, after = read_own(tally), read_account(processes, cores)
    tally.ending = True
    await task
    idle, interrupts, steal = (
        end - begin for begin, end in zip(before.cores, after.cores, strict=True)
    )
    own, user, system = last.own - first.own, last.user - first.user, last.system - first.system
    share = user / (user + system) if user + system else 0.0
    return {
        "messages": last.messages - first.messages,
        "seconds": last.at - first.at,
        "server_cpu": own,
        "client_cpu": after.server - before.server,
        "cores": len(cores),
        "idle": idle,
        "steal": steal,
        "interrupts": interrupts,
        "server_user": own * share,
        "server_system": own * (1 - share),
    }


def main(
    factory: Callable[[], asyncio.AbstractEventLoop], client: str, address: str, connections: int
) -> None:
    """Open a client on a fresh loop, print its address, and answer each line with a sample.

    A line has the seconds of warm-up and of the window, and the server's processes.
    """
    with asyncio.Runner(loop_factory=factory) as runner:

        async def opened() -> Burst:
            return await CLIENTS[client](address, connections)

        burst = runner.run(opened())
        print(f"path {address}", flush=True)
        for line in sys.stdin:
            warmup, seconds, processes = line.split()
            numbers = [*map(int, processes.split(","))]
            sample = runner.run(measure(burst, float(warmup), float(seconds), numbers))
            print(json.dumps(sample), flush=True)
