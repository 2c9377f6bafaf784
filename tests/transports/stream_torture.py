"""Random lives of connections: seeded, on any loop, checked against what must always hold.

    python tests/transports/stream_torture.py [--loop NAME] [--seeds FIRST LAST]

Each seed makes one connection (TCP, a Unix socket pair or TLS over TCP) between two
protocols of one loop and lets both do random things at random moments, from inside
callbacks and between them: write, pause, resume, change limits, switch the protocol,
half-close, close, abort, fail.  What arrives when depends on the kernel, so traces are not
compared; instead every protocol checks as it is called:

* connection_made comes first, connection_lost last and once, eof_received at most once,
  pause_writing and resume_writing take turns;
* what is received is what the other side wrote, byte by byte and from the beginning;
* after both ends are lost: no byte is missing that was promised (the writer closed
  in good order and the reader read until it was told of the end), the write buffers
  are empty, and nothing holds the transports any more.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import random
import socket
import ssl
import sys
import weakref
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(TESTS), str(TESTS / "support")]

import tls_tools
from conftest import LoopFactory, factory_of

# Byte i of each direction is PATTERN[i % PERIOD]: prime, so that no piece of a power of
# two bytes can stand for another.
PERIOD = 65_521
PATTERN = random.Random(0).randbytes(PERIOD)
PATTERN_MANY = PATTERN * 10
LARGEST = 300_000

KINDS = ["tcp", "unix", "tls"]


class Deliberate(Exception):
    """What a protocol raises on purpose."""


def slice_of(start: int, size: int) -> bytes:
    """The bytes of a direction from `start` on."""
    start %= PERIOD
    return PATTERN_MANY[start : start + size]


class Side:
    """One end of the connection: its protocols of the moment and what they must see."""

    def __init__(self, torture: Torture, seed: str) -> None:
        self.torture = torture
        self.random = random.Random(seed)
        self.transport: Any = None
        self.other: Side
        self.events: list[str] = []
        self.written = 0
        self.received = 0
        self.writing_paused = False
        self.made = self.ended = self.lost = False
        self.graceful = False  # close() or write_eof() was called while all was well
        self.finishing = False  # no further bytes may be written
        self.disturbed = False  # by an abort, an error, or a close before the end came
        self.dropped = False  # an abort or an error: the write queue was lost
        self.reading_paused = False
        self.resumed = False  # since the last eof_received
        self.depth = 0
        self.actions_left = self.random.randrange(2, 40)

    def alive(self) -> bool:
        """Made and not lost: the time of all other calls."""
        return self.made and not self.lost

    # ---- what the transport calls --------------------------------------------

    def on_made(self, transport: Any) -> None:
        assert not self.made, "connection_made a second time"
        self.made = True
        self.transport = transport
        self.torture.transports.append(weakref.ref(transport))
        raising, self.torture.raising = self.torture.raising, False
        self.act()  # an exception here would be create_connection's
        self.torture.raising = raising

    def on_data(self, data: bytes | bytearray | memoryview) -> None:
        assert self.alive(), self.events
        assert not self.ended, self.events
        assert len(data) > 0
        for at in range(0, len(data), LARGEST):
            piece = bytes(data[at : at + LARGEST])
            assert piece == slice_of(self.received, len(piece)), "other bytes than were sent"
            self.received += len(piece)
        assert self.received <= self.other.written, "more than was written"
        self.act()

    def on_eof(self) -> bool:
        # A reader that is resumed after the end is told of it again, as asyncio tells it.
        assert self.alive(), self.events
        assert self.resumed or not self.ended, self.events
        self.ended, self.resumed = True, False
        self.events.append("eof")
        self.act()
        return self.random.random() < 0.5

    def on_pause(self) -> None:
        assert self.alive(), self.events
        assert not self.writing_paused, self.events
        self.writing_paused = True
        self.events.append("pause")
        self.act(0.3)

    def on_resume(self) -> None:
        assert self.alive(), self.events
        assert self.writing_paused, self.events
        self.writing_paused = False
        self.events.append("resume")
        self.act()

    def on_lost(self, exc: BaseException | None) -> None:
        assert self.alive(), self.events
        self.lost = True
        self.events.append(f"lost {exc!r}")
        if exc is not None:
            self.disturbed = self.dropped = True
        assert self.transport.is_closing()
        # Too late, and harmless.
        if self.random.random() < 0.3:
            self.transport.close()
        if self.random.random() < 0.3:
            self.transport.abort()
        if self.random.random() < 0.3:
            repr(self.transport)
        self.torture.one_lost()

    # ---- what this side does ----------------------------------------------------

    def act(self, likelihood: float = 0.7) -> None:
        """Perhaps does something, now or a moment later."""
        if self.lost or self.depth > 3:
            return
        self.depth += 1
        try:
            while self.actions_left > 0 and self.random.random() < likelihood:
                self.actions_left -= 1
                self.step()
        finally:
            self.depth -= 1
            if not self.lost and self.actions_left > 0:
                self.later()
            elif not self.lost:
                self.torture.loop.call_later(self.random.random() * 0.002, self.finish)

    def later(self) -> None:
        loop = self.torture.loop
        if self.random.random() < 0.5:
            loop.call_soon(self.act)
        else:
            loop.call_later(self.random.random() * 0.002, self.act)

    def finish(self) -> None:
        """At the end of all actions: let the connection come to its end."""
        if self.lost:
            return
        if self.reading_paused and not self.transport.is_closing():
            self.resume_reading()
        if self.random.random() < 0.2:
            self.abort()
        elif not self.finishing or self.ended:
            self.close()
        else:
            # The write half is closed; wait for the other side's end, but not forever.
            self.torture.loop.call_later(0.003, self.close)

    def step(self) -> None:
        random = self.random
        choice = random.random()
        if self.torture.kind == "tls" and self.transport.is_closing():
            return  # asyncio's TLS transport has no protocol to call any more
        if choice < 0.45:
            self.write()
        elif choice < 0.52:
            self.pause_reading()
        elif choice < 0.64:
            self.resume_reading()
        elif choice < 0.70:
            high = random.choice([0, 1, 1000, 65536, 1 << 20])
            self.transport.set_write_buffer_limits(high=high)
        elif choice < 0.78:
            self.transport.set_protocol(self.new_protocol())
        elif choice < 0.84:
            if not self.transport.is_closing():
                assert self.transport.get_write_buffer_size() >= 0
            repr(self.transport)
            self.transport.get_extra_info(random.choice(["peername", "socket", "cipher", "none"]))
        elif choice < 0.90:
            if self.transport.can_write_eof() and not self.transport.is_closing():
                self.finishing = True
                self.graceful = not self.disturbed
                with contextlib.suppress(OSError):  # the peer was first
                    self.transport.write_eof()
        elif choice < 0.94:
            self.resume_reading()
        elif choice < 0.955:
            self.close()
        elif choice < 0.965:
            self.abort()
        elif choice < 0.97 and self.depth == 1 and self.torture.raising:
            self.disturbed = self.dropped = True
            raise Deliberate

    def write(self) -> None:
        random = self.random
        if self.finishing or self.transport.is_closing():
            return
        sizes = [0, 1, 10, 1000, 65536, random.randrange(LARGEST)]
        pieces = []
        for _ in range(random.choice([1, 1, 1, 2, 5])):
            size = random.choice(sizes)
            piece: Any = slice_of(self.written, size)
            self.written += size
            shape = random.random()
            if shape < 0.2:
                piece = bytearray(piece)
            elif shape < 0.4:
                piece = memoryview(piece)
            pieces.append(piece)
        if len(pieces) == 1:
            self.transport.write(pieces[0])
        else:
            self.transport.writelines(pieces)

    def pause_reading(self) -> None:
        if not self.transport.is_closing():
            self.reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        self.reading_paused = False
        self.resumed = True
        self.transport.resume_reading()

    def close(self) -> None:
        if not self.ended:
            self.disturbed = True  # the other side's bytes may hit a closed socket
        if not self.transport.is_closing():
            self.graceful = not self.disturbed
        self.finishing = True
        self.transport.close()
        # Where both sides close and have much to write, neither reads what the other writes.
        self.torture.loop.call_later(0.1, self.give_up)

    def give_up(self) -> None:
        if not self.lost:
            self.abort()

    def abort(self) -> None:
        self.disturbed = self.dropped = self.finishing = True
        self.transport.abort()

    def new_protocol(self) -> asyncio.BaseProtocol:
        buffered = self.random.random() < 0.4 and not self.torture.tls_of_asyncio
        return Buffered(self) if buffered else Plain(self)


class Common(asyncio.BaseProtocol):
    """The calls that plain and buffered protocols share."""

    def __init__(self, side: Side) -> None:
        self.side = side

    def connection_made(self, transport: Any) -> None:
        self.side.on_made(transport)

    def eof_received(self) -> bool:
        return self.side.on_eof()

    def pause_writing(self) -> None:
        self.side.on_pause()

    def resume_writing(self) -> None:
        self.side.on_resume()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.side.on_lost(exc)


class Plain(Common, asyncio.Protocol):
    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes
        self.side.on_data(data)


class Buffered(Common, asyncio.BufferedProtocol):
    def get_buffer(self, sizehint: int) -> bytearray:
        assert not self.side.lost
        self.buffer = bytearray(self.side.random.choice([1, 100, 4096, 65536, 262144]))
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        with memoryview(self.buffer) as view:
            self.side.on_data(view[:nbytes])


class Torture:
    """One seed: the connection, its two sides, and the verdict."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seed: int, kind: str) -> None:
        self.loop = loop
        self.kind = kind
        self.seed = seed
        # asyncio's TLS transport has lost its inner one by then, and loses bytes that it
        # reads into the buffer of a BufferedProtocol.
        self.of_asyncio = type(loop).__module__.startswith("asyncio")
        self.tls_of_asyncio = kind == "tls" and self.of_asyncio
        self.raising = random.Random(seed).random() < 0.2
        self.transports: list[weakref.ref[Any]] = []
        self.sides = [Side(self, f"{seed} left"), Side(self, f"{seed} right")]
        left, right = self.sides
        left.other, right.other = right, left
        self.remaining = 2
        self.over = loop.create_future()
        self.errors: list[dict[str, Any]] = []

    def one_lost(self) -> None:
        self.remaining -= 1
        if self.kind == "tls":
            # A handshake whose peer went at once has failed: no protocol hears of it.
            self.loop.call_later(0.3, self.forget_unmade)
        self.end_if_over()

    def forget_unmade(self) -> None:
        if not all(side.made for side in self.sides):
            self.remaining = 0
            self.end_if_over()

    def end_if_over(self) -> None:
        if not self.remaining and not self.over.done():
            self.over.set_result(None)

    async def connect(self) -> None:
        left, right = self.sides
        if self.kind == "unix":
            near, far = socket.socketpair()
            if random.Random(self.seed).random() < 0.5:
                near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            # Either side may be over and closed before the other begins.
            await self.loop.connect_accepted_socket(left.new_protocol, near)
            await self.loop.connect_accepted_socket(right.new_protocol, far)
            return
        server_tls = client_tls = name = None
        timeouts: dict[str, float] = {}
        if self.kind == "tls":
            # Where both sides close with unread bytes under way, neither reads on.
            timeouts = {"ssl_shutdown_timeout": 0.2}
            server_tls, client_tls = contexts()
            name = "localhost"
        server = await self.loop.create_server(
            left.new_protocol, "127.0.0.1", 0, ssl=server_tls, **timeouts
        )
        port = server.sockets[0].getsockname()[1]
        await self.loop.create_connection(
            right.new_protocol,
            "127.0.0.1",
            port,
            ssl=client_tls,
            server_hostname=name,
            **timeouts,
        )
        server.close()

    async def run(self) -> None:
        self.loop.set_exception_handler(lambda loop, context: self.errors.append(context))
        await asyncio.wait_for(self.connect(), 10)
        await asyncio.wait_for(asyncio.shield(self.over), 5)
        await asyncio.sleep(0)
        self.judge()

    def judge(self) -> None:
        allowed: tuple[type[BaseException], ...] = (Deliberate, ConnectionError)
        if self.of_asyncio:
            # Its transport closes its socket twice where a fatal error meets an abort.
            allowed += (AttributeError,)
        for context in self.errors:
            if not isinstance(context.get("exception"), allowed):
                raise AssertionError(f"{context}") from context.get("exception")
        for side in self.sides:
            if side.made and not self.tls_of_asyncio:
                assert side.transport.get_write_buffer_size() == 0
            heard_the_end = side.graceful and side.ended and not side.disturbed
            if heard_the_end and side.other.graceful and not side.other.dropped:
                assert side.received == side.other.written, "bytes are missing"
        for side in self.sides:
            side.transport = None
        self.errors.clear()


@functools.cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    made = tls_tools.identity()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made.certificate, made.key)
    client = ssl.create_default_context(cafile=made.certificate)
    return server, client


def torture(factory: LoopFactory, seed: int, kind: str = "") -> None:
    """Runs one seed on a loop of its own; AssertionError where something does not hold."""
    loop = factory()
    try:
        life = Torture(loop, seed, kind or KINDS[seed % len(KINDS)])
        loop.run_until_complete(life.run())
        left = life.transports
        del life
        loop.run_until_complete(asyncio.sleep(0))
        gc.collect()
        alive = [each() for each in left if each() is not None]
        assert not alive, f"held by {[gc.get_referrers(each) for each in alive]}"
    finally:
        loop.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--loop", choices=["asyncio", "goloop"], default="goloop")
    parser.add_argument("--kind", choices=KINDS, default="")
    parser.add_argument("--seeds", nargs=2, type=int, default=[0, 1000], metavar=("FIRST", "LAST"))
    options = parser.parse_args()
    failed = 0
    for seed in range(*options.seeds):
        try:
            torture(factory_of(options.loop), seed, options.kind)
        except Exception as error:
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
    print(f"{options.seeds[1] - options.seeds[0]} lives, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
