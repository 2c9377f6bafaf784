"""Bugs of programs on several hosts."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import random
import time
from typing import Any

import tls_tools
from case import case

from goloop import testing

# ---- requests that are sent again, and again -----------------------------------------------------


class Slow(asyncio.DatagramProtocol):
    """A server that answers 20 requests in a second, in their order."""

    def __init__(self) -> None:
        self._requests: asyncio.Queue[tuple[bytes, Any]] = asyncio.Queue()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        self._requests.put_nowait((data, address))

    async def serve(self) -> None:
        while True:
            data, address = await self._requests.get()
            await asyncio.sleep(0.05)
            self._transport.sendto(data, address)


class Asking(asyncio.DatagramProtocol):
    """A client: an answer counts for the try that it answers, if that still waits for it."""

    def __init__(self) -> None:
        self._tries: dict[bytes, asyncio.Future[None]] = {}

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        if data in self._tries:
            self._tries.pop(data).set_result(None)

    async def ask(self, request: int, patient: bool) -> None:
        for tries in itertools.count():
            name = f"{request} {tries}".encode()
            answer = self._tries[name] = asyncio.get_running_loop().create_future()
            self._transport.sendto(name)
            # Patience: each time twice as long, and not all at once.
            pause = 0.5 * 2 ** min(tries, 6) * random.uniform(1, 2) if patient else 0.5
            if (await asyncio.wait([answer], timeout=pause))[0]:
                return
            del self._tries[name]


@case("retries during a partition keep a server from its work", "io", testing.NeverHappened)
async def storm(sim: testing.Simulation, fixed: bool) -> None:
    """More wait than are served in the time of a try: each answer comes too late."""
    loop = asyncio.get_running_loop()
    left: set[int] = set()

    async def serve() -> None:
        transport, server = await loop.create_datagram_endpoint(Slow, ("0.0.0.0", 53))
        try:
            await server.serve()
        finally:
            transport.close()

    async def ask(client: Asking, request: int) -> None:
        await client.ask(request, fixed)
        left.discard(request)

    async def ask_often(first: int) -> None:
        transport, client = await loop.create_datagram_endpoint(
            Asking, remote_addr=(server.address, 53)
        )
        async with asyncio.TaskGroup() as tasks:
            for request in range(first, first + 20):
                left.add(request)
                tasks.create_task(ask(client, request))
                await asyncio.sleep(0.25)
        transport.close()

    server, clients = sim.host("server"), [sim.host("one"), sim.host("two")]
    server.spawn(serve)
    await asyncio.sleep(0.1)
    for number, client in enumerate(clients):
        client.spawn(ask_often, 100 * number)
    await asyncio.sleep(random.uniform(0.5, 1.5))
    sim.net.partition([server], clients)
    await asyncio.sleep(random.uniform(0, 2))
    sim.net.heal()
    sim.eventually("all were served", lambda: not left, within=20)


# ---- a lock that is a lease, across a pause ------------------------------------------------------


class Store:
    """A value, with a lock that its holder loses after ten seconds."""

    def __init__(self, fenced: bool) -> None:
        self._fenced = fenced
        self.value = self._token = self._newest = 0
        self._ends = -math.inf

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        what, *numbers = (await reader.readline()).decode().split()
        answer = getattr(self, what)(*map(int, numbers))
        writer.write(b"%d\n" % answer)
        writer.close()

    def lock(self) -> int:
        """The holder's token; 0 where another one has it."""
        if time.monotonic() < self._ends:
            return 0
        self._ends = time.monotonic() + 10
        self._token += 1
        return self._token

    def unlock(self, token: int) -> int:
        if token == self._token:
            self._ends = -math.inf
        return 1

    def read(self) -> int:
        return self.value

    def write(self, value: int, token: int) -> int:
        """Return true if it was written.  A fence lets no older holder write after a newer one."""
        if self._fenced and token < self._newest:
            return 0
        self._newest = token
        self.value = value
        return 1


async def tell(*words: object) -> int:
    """Asks the store."""
    reader, writer = await asyncio.open_connection("store", 80)
    try:
        writer.write(" ".join(map(str, words)).encode() + b"\n")
        return int(await reader.readline())
    finally:
        writer.close()


@case("a lock without a fence, and a pause", "io", AssertionError)
async def fence(sim: testing.Simulation, fixed: bool) -> None:
    """A paused program overwrites a value that another one has replaced meanwhile."""
    store, done = Store(fixed), [0]

    async def serve() -> None:
        async with await asyncio.start_server(store.serve, None, 80) as server:
            await server.serve_forever()

    async def add() -> None:
        for _ in range(3):
            while not (token := await tell("lock")):
                await asyncio.sleep(0.5)
            ends = time.monotonic() + 10
            value = await tell("read")
            await asyncio.sleep(random.uniform(0, 0.2))
            if time.monotonic() < ends:
                written = await tell("write", value + 1, token)
                done[0] += written
            await tell("unlock", token)
            await asyncio.sleep(random.uniform(0, 0.2))

    host, paused, other = sim.host("store"), sim.host("paused"), sim.host("other")
    host.spawn(serve)
    await asyncio.sleep(1)
    writers = [each.spawn(add) for each in (paused, other)]
    await asyncio.sleep(random.uniform(0, 1))
    paused.pause()
    await asyncio.sleep(random.uniform(5, 30))
    paused.resume()
    await asyncio.gather(*writers)
    assert store.value == done[0]


# ---- bytes before TLS (CVE-2021-23222 of libpq, for example) -----------------------------------

SERVER, CLIENT = tls_tools.server_context(), tls_tools.client_context()


@case("an answer from before STARTTLS counts as encrypted", "io", AssertionError)
async def starttls(sim: testing.Simulation, fixed: bool) -> None:
    """An attacker between client and server adds an answer, which waits in the client's buffer."""
    answers: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            assert await reader.readline() == b"STARTTLS\n"
            writer.write(b"ready\n")
            await writer.start_tls(SERVER)
            if await reader.readline():
                writer.write(b"the balance is 100\n")
        writer.close()

    async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_connection("server", 5432)

        async def forward(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while data := await source.read(10_000):
                    to.write(data)
                    if data == b"ready\n":
                        await asyncio.sleep(random.uniform(0, 0.1))
                        to.write(b"the balance is 0\n")
            to.close()

        await asyncio.gather(forward(reader, other_writer), forward(other_reader, writer))

    async def listen(serve: Any) -> None:
        async with await asyncio.start_server(serve, None, 5432) as server:
            await server.serve_forever()

    async def ask() -> None:
        reader, writer = await asyncio.open_connection("between", 5432)
        with contextlib.suppress(OSError):
            writer.write(b"STARTTLS\n")
            await reader.readline()
            await asyncio.to_thread(int)  # load the certificates
            if fixed and reader._buffer:  # type: ignore[attr-defined]
                raise OSError("something was sent in clear")
            await writer.start_tls(CLIENT, server_hostname="localhost")
            writer.write(b"what is the balance?\n")
            answers.append(await reader.readline())
        writer.close()

    sim.host("server").spawn(listen, serve)
    sim.host("between").spawn(listen, between)
    await asyncio.sleep(1)
    await sim.host("client").spawn(ask)
    await asyncio.sleep(1)
    assert b"the balance is 0\n" not in answers
