"""Much data between ends that stop reading: the bytes that a loop keeps meanwhile are bounded.

A sender keeps to `pause_writing()`, so no more of its bytes wait than its limit and the piece that
it wrote last.  A receiver reads nothing for a while, again and again; the bytes that its loop
reads ahead are bounded, too.  All bytes arrive, then the end.
"""

from __future__ import annotations

import asyncio
import random
import socket
from typing import Any

from talks import PATTERN, PERIOD

from goloop import testing

# The limit of bytes read ahead for a paused transport: its buffer, and a protocol's.
AHEAD = 1 << 18


class Sender(asyncio.Protocol):
    """Writes all there is to write, as long as there is room."""

    def __init__(self, program: Program, rng: random.Random) -> None:
        self.program, self.rng = program, rng
        self.left = rng.randrange(3000 if program.together else 1_000_000)
        self.total, self.piece, self.full = self.left, 0, False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        sock = transport.get_extra_info("socket")
        if self.rng.random() < 0.8:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.rng.choice((4096, 100_000)))
        if self.rng.random() < 0.5:
            transport.set_write_buffer_limits(high=self.rng.choice((0, 1000, 300_000)))
        if not self.program.together:
            self.go_on()

    def go_on(self) -> None:
        while self.left and not self.full:
            self.piece = min(self.left, self.rng.randrange(1, 200_000))
            start = (self.total - self.left) % PERIOD
            self.left -= self.piece
            self.transport.write(PATTERN[start : start + self.piece])
            self.look()
        if not self.left:
            # asyncio's transport doesn't stand it within resume_writing().
            asyncio.get_running_loop().call_soon(self.transport.close)

    def look(self) -> None:
        size = self.transport.get_write_buffer_size()
        _, high = self.transport.get_write_buffer_limits()
        self.program.must(size <= high + self.piece, f"{size} bytes wait, the limit is {high}")
        self.program.must(self.full == (size > high) or not size, "not told of a full buffer")

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        self.go_on()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.program.must(exc is None, f"the sender has lost the connection: {exc!r}")


class Receiver(asyncio.Protocol):
    """Reads with pauses."""

    def __init__(self, program: Program, rng: random.Random) -> None:
        self.program, self.rng = program, rng
        self.received, self.paused, self.ended = 0, False, False
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.turn()

    def turn(self) -> None:
        self.turn_over()
        if not self.ended:
            seconds = self.rng.random() * (0.05 if self.paused else 0.01)
            asyncio.get_running_loop().call_later(seconds, self.turn)

    def turn_over(self) -> None:
        if self.ended or self.transport is None:
            return
        self.paused = not self.paused
        if self.paused:
            self.transport.pause_reading()
        else:
            self.program.look()
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self.program.must(not self.paused, "data in a pause")
        start = self.received % PERIOD
        self.program.must(data == PATTERN[start : start + len(data)], "other bytes than sent")
        self.received += len(data)
        if self.rng.random() < (
            0.5 if self.program.together else 0.1
        ):  # data received in this iteration waits until then
            self.rng.choice(self.program.pairs)[1].turn_over()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.ended = True
        self.program.must(exc is None, f"the receiver has lost the connection: {exc!r}")


class Program:
    """Some connections of a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.broken: list[str] = []
        self.rng = random.Random(f"bulk {seed}")
        # Or a little by all at once, with its end: a loop gets it in one iteration.
        self.together = self.rng.random() < 0.4
        self.pairs: list[tuple[Sender, Receiver]] = []

    def must(self, holds: bool, text: str) -> None:
        if not holds:
            self.broken.append(text)

    def look(self) -> None:
        """How much the loop has read that no protocol has got yet."""
        loop: Any = asyncio.get_running_loop()
        if hasattr(loop, "metrics"):
            given = sum(receiver.received for _, receiver in self.pairs)
            ahead = loop.metrics().bytes_received - given
            self.must(0 <= ahead <= AHEAD * len(self.pairs), f"{ahead} bytes are read ahead")

    async def main(self, sim: testing.Simulation) -> None:
        loop = asyncio.get_running_loop()
        rng = self.rng
        servers = []
        for number in range(rng.randint(3, 6) if self.together else rng.randint(1, 3)):
            pair = Sender(self, random.Random(rng.random())), Receiver(self, random.Random(number))
            self.pairs.append(pair)
            sender, receiver = rng.sample(pair, 2)
            if self.together or rng.random() < 0.5:
                path = f"\0{number}"
                servers.append(await loop.create_unix_server(lambda it=sender: it, path))
                await loop.create_unix_connection(lambda it=receiver: it, path)
            else:
                servers.append(await loop.create_server(lambda it=sender: it, None, 80 + number))
                await loop.create_connection(lambda it=receiver: it, "localhost", 80 + number)
        if self.together:
            await asyncio.sleep(1)
            for sender, receiver in self.pairs:
                sender.go_on()
                if receiver.paused:
                    receiver.turn_over()
        while not all(receiver.ended for _, receiver in self.pairs):
            await asyncio.sleep(1)
        for server in servers:
            server.close()
        for sender, receiver in self.pairs:
            self.must(receiver.received == sender.total, "bytes are missing")
