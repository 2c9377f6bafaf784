"""Many connections at once: each gets its own bytes and its own end."""

from __future__ import annotations

import asyncio
import hashlib
import random
from typing import Any

from conftest import tcp_pair
from protocols import Recorder, close_all, in_thread, until

import goloop

Loop = asyncio.AbstractEventLoop
STREAMS = 40


async def test_all_bytes_of_many_streams_arrive_in_order(loop: Loop) -> None:
    """Pieces of all sizes, each stream's own, both ways at once."""
    rng = random.Random(7)
    pairs: list[tuple[Recorder, Recorder]] = []
    for _ in range(STREAMS):
        near, far = tcp_pair()
        _, left = await loop.create_connection(Recorder, sock=near)
        _, right = await loop.create_connection(Recorder, sock=far)
        pairs.append((left, right))
    sent: dict[Recorder, Any] = {each: hashlib.sha256() for pair in pairs for each in pair}
    sizes = dict.fromkeys(sent, 0)
    for turn in range(60):
        for side in sent:
            if rng.random() < 0.8:
                size = rng.choice((1, 100, 1000, 1024, 5000)) if turn % 10 else 70_000
                piece = rng.randbytes(size)
                side.transport.write(piece)
                sent[side].update(piece)
                sizes[side] += size
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
    for left, right in pairs:
        for side, other in ((left, right), (right, left)):
            await until(lambda side=side, other=other: len(other.data) == sizes[side])
            assert hashlib.sha256(other.data).digest() == sent[side].digest()
    for left, right in pairs:
        left.transport.close()
        assert await left.lost is None
        assert await right.lost is None


async def test_streams_end_or_break_each_on_its_own(loop: Loop) -> None:
    """Some of the streams end or break in between; each gets its own end."""
    pairs = []
    for _ in range(STREAMS):
        near, far = tcp_pair()
        _, protocol = await loop.create_connection(Recorder, sock=near)
        far.send(b"first ")
        pairs.append((protocol, far))
    for protocol, _ in pairs:
        await until(lambda protocol=protocol: protocol.data)
    for number, (protocol, far) in enumerate(pairs):
        protocol.transport.write(b"answer")
        far.send(b"last")
        if number % 3 == 0:
            far.close()
    for number, (protocol, far) in enumerate(pairs):
        if number % 3 == 0:
            # "answer" met a closed socket, which sends a reset, or was there before.
            assert isinstance(await protocol.lost, (ConnectionError, type(None)))
        else:
            await until(lambda protocol=protocol: protocol.data == b"first last")
            assert await loop.sock_recv(far, 100) == b"answer"
            far.close()
            assert await protocol.lost is None
        assert bytes(protocol.data) in (b"first last", b"first ")


def test_parallel_and_successive_loops_all_serve() -> None:
    """A loop keeps its descriptors if another thread runs it."""

    async def talk() -> int:
        served = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal served
            while data := await reader.read(1000):
                writer.write(data)
                served += 1
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def client() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(10):
                writer.write(b"x" * 100)
                assert await reader.readexactly(100) == b"x" * 100
            await close_all(writer)

        await asyncio.gather(*(client() for _ in range(20)))
        await close_all(server)
        return served

    loop = goloop.new_event_loop()

    async def elsewhere() -> list[int]:
        # The outer loop goes on while others run in threads.
        return await asyncio.gather(
            *(asyncio.to_thread(lambda: goloop.run(talk())) for _ in range(3)), talk()
        )

    try:
        assert all(served >= 200 for served in loop.run_until_complete(elsewhere()))
        # Repeat it in a loop in another thread.
        outcome: list[int] = []

        in_thread(lambda: outcome.append(loop.run_until_complete(talk())))
        assert outcome[0] >= 200
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
