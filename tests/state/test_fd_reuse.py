"""The number of a closed descriptor is used again: no byte and no close of the old object may reach
the new one.

The kernel gives the lowest free number, so right after a descriptor is closed
the next socket that anybody makes, here the "stranger", gets the same.
"""

from __future__ import annotations

import asyncio
import os
import random
import select
import socket
from typing import Any

import pytest
from conftest import tcp_pair
from protocols import Recorder, close_all, close_each, hang_up, turns, until

Loop = asyncio.AbstractEventLoop
ROUNDS = 400


class Poisonous(Recorder):
    """Writes at once, so that a misdirected write would be seen."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(b"poison" * 100)


class Strangers:
    """Connections that have nothing to do with the loop."""

    def __init__(self, count: int = 2) -> None:
        self.pairs = [tcp_pair() for _ in range(count)]
        self.identities = [os.fstat(sock.fileno()).st_ino for pair in self.pairs for sock in pair]

    def check(self) -> None:
        """Check that the pair is unchanged, and has exactly the bytes sent to each other."""
        now = [os.fstat(sock.fileno()).st_ino for pair in self.pairs for sock in pair]
        assert now == self.identities
        for first, second in self.pairs:
            for sender, receiver in ((first, second), (second, first)):
                sender.send(b"our own")
                # A busy kernel may deliver a moment later, even on the loopback.
                select.select([receiver], [], [], 10)
                assert receiver.recv(1000) == b"our own"
                with pytest.raises(BlockingIOError):
                    receiver.recv(1)

    def close(self) -> None:
        for pair in self.pairs:
            close_each(*pair)


async def test_cancelled_create_connection_does_not_touch_a_reused_number(loop: Loop) -> None:
    generator = random.Random(2)
    outcomes: set[str] = set()
    for _ in range(ROUNDS):
        near, far = tcp_pair()
        if generator.random() < 0.3:
            far.send(b"something to read")
        task = loop.create_task(loop.create_connection(Poisonous, sock=near))
        await turns(generator.randrange(5))
        task.cancel()
        try:
            transport, protocol = await task
        except asyncio.CancelledError:
            outcomes.add("cancelled")
            protocol = None
            near.close()
        else:
            outcomes.add("made")
            transport.abort()
        strangers = Strangers()
        await turns(generator.randrange(6))
        strangers.check()
        far.close()
        await turns(generator.randrange(3))
        strangers.check()
        if protocol is not None:
            await protocol.lost
        await turns(2)
        strangers.check()
        strangers.close()
    assert outcomes == {"cancelled", "made"}


async def test_closed_transports_with_pending_writes_touch_no_reused_number(loop: Loop) -> None:
    """Of each kind of end, with bytes queued that never leave."""
    generator = random.Random(3)
    for number in range(100):
        near, far = tcp_pair()
        transport, protocol = await loop.create_connection(Recorder, sock=near)
        transport.write(b"poison" * generator.choice([1, 100, 1_000_000]))
        end = number % 3
        if end == 0:
            transport.abort()
        elif end == 1:
            far.close()
            transport.abort()
        else:
            transport.close()
            await turns(generator.randrange(3))
            transport.abort()
        await protocol.lost
        strangers = Strangers()
        await turns(generator.randrange(4))
        strangers.check()
        close_each(strangers, far)


async def test_events_of_the_former_owner_do_not_reach_the_new_one(loop: Loop) -> None:
    """Many are readable in one turn; the first callback closes all and strangers move in."""
    made: list[Any] = []
    strangers: list[Strangers] = []

    class Closing(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if not strangers:
                for protocol in made:
                    if protocol is not self:
                        protocol.transport.abort()
                strangers.append(Strangers(5))

    peers: list[socket.socket] = []
    for _ in range(20):
        near, far = tcp_pair()
        _, protocol = await loop.create_connection(Closing, sock=near)
        made.append(protocol)
        peers.append(far)
    for peer in peers:
        peer.send(b"x")
    await until(lambda: strangers and sum(protocol.lost.done() for protocol in made) == 19)
    strangers.append(Strangers(5))
    await turns(5)
    for group in strangers:
        group.check()
        group.close()
    assert sum(bool(protocol.data) for protocol in made) == 1
    for protocol in made:
        await hang_up(protocol)
    close_each(*peers)


async def test_watches_follow_the_descriptor_that_was_meant(loop: Loop) -> None:
    """remove, close, and a stranger is added under the same number, over and over."""
    generator = random.Random(4)
    for number in range(ROUNDS):
        first, second = tcp_pair()
        seen: list[int] = []
        loop.add_reader(first, seen.append, number)
        if generator.random() < 0.5:
            loop.add_writer(first, lambda: None)
        await turns(generator.randrange(3))
        second.send(b"x")
        await turns(generator.randrange(2))
        loop.remove_reader(first)
        loop.remove_writer(first)
        first.close()
        seen.clear()
        stranger, peer = tcp_pair()
        fresh: list[int] = []
        loop.add_reader(stranger, fresh.append, number)
        await turns(3)
        assert (seen, fresh) == ([], [])
        peer.send(b"y")
        await until(lambda fresh=fresh: fresh)  # type: ignore[misc]
        loop.remove_reader(stranger)
        close_each(second, stranger, peer)


async def test_connection_churn_through_a_server_mixes_no_bytes_up(loop: Loop) -> None:
    """Numbers change hands between accepted and outgoing connections all the time."""
    generator = random.Random(5)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(await reader.readexactly(8))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def ask(number: int) -> int:
        reader, writer = await asyncio.open_connection(*address)
        try:
            message = b"%08d" % number
            writer.write(message)
            if generator.random() < 0.3:
                writer.transport.abort()
                return 0
            assert await reader.read() == message
            return 1
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    answered = 0
    for start in range(0, 600, 30):
        answered += sum(await asyncio.gather(*(ask(start + i) for i in range(30))))
    assert answered > 300
    await close_all(server)
    await until(lambda: len(asyncio.all_tasks()) == 1)
