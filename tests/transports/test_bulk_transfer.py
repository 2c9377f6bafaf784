"""64 MiB through the smallest send buffers to a slow reader, compared by hash."""

from __future__ import annotations

import asyncio
import hashlib
import random
import socket
from typing import Any

import pytest
from protocols import BufferedRecorder, Recorder, close_all, hang_up

Loop = asyncio.AbstractEventLoop
SIZE = 64 << 20


def narrow_pair() -> tuple[socket.socket, socket.socket]:
    """A connection of small segments; the first end has the smallest send buffer."""
    with socket.socket() as listening:
        # Without this the loopback sends 64 KiB at a time, for any size of the buffer.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1400)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        first = socket.create_connection(listening.getsockname())
        second, _ = listening.accept()
    # The kernel makes it its minimum, a few KiB.
    first.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    first.setblocking(False)
    second.setblocking(False)
    return first, second


def pieces(generator: random.Random) -> Any:
    """SIZE bytes in pieces of very different sizes."""
    source = generator.randbytes(1 << 20)
    left = SIZE
    while left:
        size = min(left, generator.choice([1, 7, 1000, 65536, 65537, 1 << 20]))
        start = generator.randrange(len(source) - size + 1)
        yield source[start : start + size]
        left -= size


class Sender(Recorder):
    """Writes until told to pause, and goes on when told to resume."""

    def __init__(self, generator: random.Random) -> None:
        super().__init__()
        self.pieces = pieces(generator)
        self.digest = hashlib.blake2b()
        self.paused = False
        self.pauses = 0

    def go_on(self) -> None:
        while not self.paused:
            piece = next(self.pieces, None)
            if piece is None:
                self.transport.write_eof()
                return
            self.digest.update(piece)
            if len(piece) == 1000:
                self.transport.writelines([piece[:300], bytearray(piece[300:])])
            else:
                self.transport.write(piece)

    def pause_writing(self) -> None:
        self.paused = True
        self.pauses += 1

    def resume_writing(self) -> None:
        self.paused = False
        self.go_on()


async def test_every_byte_reaches_a_slow_raw_reader(loop: Loop) -> None:
    generator = random.Random(1)
    near, far = narrow_pair()
    _, sender = await loop.create_connection(lambda: Sender(generator), sock=near)
    sender.go_on()
    digest = hashlib.blake2b()
    received = 0
    while chunk := await loop.sock_recv(far, generator.randint(1, 1 << 18)):
        digest.update(chunk)
        received += len(chunk)
        # Acknowledge at once, else the sender waits for TCP's own timer.
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        if generator.random() < 0.2:
            await asyncio.sleep(0)
    assert received == SIZE
    assert digest.digest() == sender.digest.digest()
    assert sender.pauses > 10
    far.close()
    assert await sender.lost is None


class Sink(Recorder):
    """Hashes, and pauses reading every now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.digest = hashlib.blake2b()
        self.received = 0
        self.pieces = 0

    def data_received(self, data: bytes) -> None:
        self.note(data)

    def note(self, data: Any) -> None:
        self.digest.update(data)
        self.received += len(data)
        self.pieces += 1
        if self.pieces % 50 == 0:
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(0.0005, self.resume)

    def resume(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()


class BufferedSink(BufferedRecorder):
    def __init__(self) -> None:
        super().__init__(100_000)
        self.digest = hashlib.blake2b()
        self.received = 0

    def buffer_updated(self, nbytes: int) -> None:
        self.digest.update(memoryview(self.buffer)[:nbytes])
        self.received += nbytes


@pytest.mark.parametrize("sink", [Sink, BufferedSink])
async def test_every_byte_arrives_between_two_transports(loop: Loop, sink: Any) -> None:
    generator = random.Random(2)
    near, far = narrow_pair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 128 * 1024)
    _, receiver = await loop.create_connection(sink, sock=far)
    _, sender = await loop.create_connection(lambda: Sender(generator), sock=near)
    sender.go_on()
    await receiver.eof
    assert receiver.received == SIZE
    assert receiver.digest.digest() == sender.digest.digest()
    assert await sender.lost is None


async def test_every_byte_arrives_both_ways_at_once(loop: Loop) -> None:
    """An echo of 16 MiB whose both ends write faster than they read."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(50_000):
            writer.write(data)
            await writer.drain()
        await close_all(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    source = random.Random(3).randbytes(1 << 20)

    async def send() -> None:
        for _ in range(16):
            writer.write(source)
            await writer.drain()
        writer.write_eof()

    sending = asyncio.ensure_future(send())
    for _ in range(16):
        assert await reader.readexactly(len(source)) == source
    assert await reader.read() == b""
    await sending
    await close_all(writer, server)


async def test_huge_write_arrives_completely(loop: Loop) -> None:
    near, far = narrow_pair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    _, receiver = await loop.create_connection(Sink, sock=far)
    _, sender = await loop.create_connection(Recorder, sock=near)
    payload = random.Random(4).randbytes(32 << 20)
    sender.transport.write(payload)
    sender.transport.write_eof()
    await receiver.eof
    assert receiver.digest.digest() == hashlib.blake2b(payload).digest()
    await hang_up(sender)
