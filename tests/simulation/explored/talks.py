"""Random conversations over a simulated network, and the events that each end sees.

A program is a pure function of its seed: hosts, connections between them, and for each end a script
of its actions: writes, half-closes, pauses, limits, waits with a timeout, an abort, an exception
out of a callback.  Each connection has a latency of its own, a fixed one, so the network decides
nothing by chance, and no two things happen at the same time unless one causes the other.  An end
sees the same events at the same times, to the nanosecond, on each loop that behaves as asyncio.

Allowed differences of loops are not compared: how the bytes that come at one moment are cut, that a
transport is full for no time (`seen`).  A violation is reported at once (`Program.must`).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import difflib
import gc
import random
import socket
import ssl
import weakref
from collections.abc import Callable
from typing import Any

import tls_tools

from goloop import testing

# A prime number, so that pieces of a power of two bytes differ from one another.
PERIOD = 65_521
PATTERN = random.Random(0).randbytes(PERIOD) * 50
LARGE = 300_000
PORT = 80

KINDS = ("tcp", "tcp", "tls", "unix", "streams", "socks", "datagrams")

whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="nobody")

Event = tuple[int, str, Any]


class Failure(Exception):
    """The exception that ends raise on purpose."""


class Plan:
    """A connection: its kind, and the script of each end."""

    def __init__(self, rng: random.Random, number: int) -> None:
        self.number = number
        self.kind = rng.choice(KINDS)
        self.latency = rng.randrange(10_000, 9_000_000) / 1e9
        self.start = rng.randrange(1, 50_000_000) / 1e9
        self.large = rng.random() < 0.4
        self.room = rng.choice((100, 5000, 65536))
        self.scripts = [self._script(rng) for _ in range(2)]
        self.raises = [rng.choice(RAISING) if rng.random() < 0.15 else "" for _ in range(2)]
        if self.large:  # how much comes at once is not promised
            self.raises = [each.replace("data", "") for each in self.raises]
        if self.kind == "tls":
            # Bytes that arrive with the end of the handshake come before or after the first step.
            self.scripts = [[("sleep", self._seconds(rng)), *each] for each in self.scripts]
            self.raises = [each.replace("eof", "") for each in self.raises]
        # Bytes right after a pause are not promised either.
        for side, script in enumerate(self.scripts):
            if any(action == "pause_reading" for action, _ in script):
                self.raises[side] = self.raises[side].replace("data", "")
        self.keeps = [self.kind != "tls" and rng.random() < 0.5 for _ in range(2)]
        # asyncio's TLS loses data after the first buffer.
        self.buffered = [self.kind != "tls" and rng.random() < 0.3 for _ in range(2)]
        if self.large:  # how much a small buffer has taken before a reset is not promised
            self.room = LARGE
        self.narrow = [self.large and rng.random() < 0.6 for _ in range(2)]

    def _script(self, rng: random.Random) -> list[tuple[str, Any]]:
        script: list[tuple[str, Any]] = []
        for _ in range(rng.randrange(9)):
            action = rng.choice(ACTIONS[self.kind])
            if self.large and action in ("pause_reading", "resume_reading"):
                # How far the sender comes against a reader that pauses is the reader's buffer.
                action = "expect" if self.kind == "tls" else "drain"
            script.append((action, self._argument(rng, action)))
            if rng.random() < 0.7:
                script.append(("sleep", self._seconds(rng)))
        return script

    def _argument(self, rng: random.Random, action: str) -> Any:
        if action in ("write", "writelines"):
            most = LARGE if self.large else 3000
            sizes = [0, 1, 10, 1000, rng.randrange(most)]
            count = 1 if action == "write" else rng.randrange(4)
            return [rng.choice(sizes) for _ in range(count)]
        if action == "limits":
            return rng.choice([0, 1, 1000, 65536, None])
        if action in ("expect", "exactly"):
            return rng.randrange(3000), self._seconds(rng)
        return self._seconds(rng)

    def _seconds(self, rng: random.Random) -> float:
        return rng.randrange(1, 40_000_000) / 1e9


_STREAM = (
    *("write", "write", "write", "writelines", "drain", "limits", "pause_reading"),
    *("resume_reading", "expect", "expect", "write_eof", "close", "abort", "switch", "later"),
    *("cancelled", "job", "information", "spawn"),
)
ACTIONS = {
    "tcp": _STREAM,
    "unix": _STREAM,
    "tls": tuple(each for each in _STREAM if each not in ("write_eof", "limits", "drain")),
    "streams": ("write", "write", "writelines", "drain", "exactly", "line", "write_eof", "close"),
    "socks": ("write", "write", "exactly", "exactly", "job"),
    "datagrams": ("write", "write", "write", "later", "expect", "close", "abort", "job"),
}
RAISING = ("made", "data", "eof", "resume", "lost")


def name_of(exc: BaseException | None) -> str:
    """Return the promised part of an error: sender and reader may get different ones."""
    return "broken" if isinstance(exc, ConnectionError) else type(exc).__name__


class End:
    """An end of a connection: its actions and its events."""

    other: End

    def __init__(self, program: Program, plan: Plan, side: int) -> None:
        self.program, self.plan, self.side = program, plan, side
        self.name = f"{plan.kind} {plan.number} {'client' if side == 0 else 'server'}"
        self.first = random.Random(f"{program.seed} {self.name}").randrange(PERIOD)
        self.events: list[Event] = []
        self.transport: Any = None
        self.written = self.received = 0
        self.made = self.lost = self.ended = self.paused = self.silent = self.shut = False
        self.closes = self.resumed = False
        self.changed: asyncio.Future[None] | None = None
        self.graceful = True  # written bytes should arrive
        self.largest = 0  # of the bytes written since it was full
        self.high: int | None = None

    def see(self, what: str, detail: Any = None) -> None:
        loop = asyncio.get_running_loop()
        self.events.append((round(loop.time() * 1e9), what, detail))
        self.program.must(whose.get() == self.context, f"{self.name}: {what} of {whose.get()}")
        self.closes = self.closes or what == "closes"
        if self.changed is not None and not self.changed.done():
            self.changed.set_result(None)

    @property
    def context(self) -> str:
        return f"client {self.plan.number}" if self.side == 0 else "server"

    def must(self, holds: bool, text: str) -> None:
        self.program.must(holds, f"{self.name}: {text}")

    def raises(self, where: str) -> None:
        if self.plan.raises[self.side] == where:
            self.graceful = False
            raise Failure(where)

    # ---- bytes

    def bytes_of(self, size: int) -> bytes:
        start = (self.first + self.written) % PERIOD
        self.written += size
        return PATTERN[start : start + size]

    def take(self, data: Any) -> None:
        start = (self.other.first + self.received) % PERIOD
        self.must(bytes(data) == PATTERN[start : start + len(data)], "other bytes than sent")
        self.received += len(data)
        self.must(self.received <= self.other.written, "more than was written")

    # ---- a script

    async def follow(self) -> None:
        for action, argument in self.plan.scripts[self.side]:
            if self.over():
                break
            await getattr(self, action)(argument)
        await self.finish()

    async def follow_to_the_end(self, close: Callable[[], object]) -> None:
        """The whole life of an end that hears of errors by exceptions."""
        self.see("made")
        try:
            await self.follow()
        except OSError as exc:
            self.graceful = False
            self.see("error", name_of(exc))
        finally:
            close()

    def over(self) -> bool:
        return self.lost

    async def finish(self) -> None:
        """Close, at the latest five seconds after the script."""
        try:
            async with asyncio.timeout(5 + self.plan.latency):
                while not (self.ended or self.lost):
                    await self.change()
        except TimeoutError:
            self.see("waited for the end")
        if not self.lost:
            self.see("closes")
            self.transport.close()

    async def change(self) -> None:
        """Wait for the next event."""
        self.changed = asyncio.get_running_loop().create_future()
        self.program.hold(self.changed)
        await self.changed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def job(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.see("job", await loop.run_in_executor(None, lambda: 7))

    async def later(self, seconds: float) -> None:
        def act() -> None:
            self.see("timer")
            if not self.lost and not self.transport.is_closing():
                self.send([5])

        self.program.hold(asyncio.get_running_loop().call_later(seconds, act))

    async def cancelled(self, seconds: float) -> None:
        handle = asyncio.get_running_loop().call_later(seconds, self.see, "never")
        self.program.hold(handle)
        await asyncio.sleep(seconds / 2)
        handle.cancel()

    async def spawn(self, seconds: float) -> None:
        async def child() -> None:
            try:
                await asyncio.sleep(1)
            finally:
                self.see("child ends")

        task = asyncio.get_running_loop().create_task(child())
        self.program.hold(task)
        await asyncio.sleep(seconds)
        task.cancel()

    async def information(self, _: float) -> None:
        if self.transport.is_closing():  # a closing transport has none of these
            return
        for key in ("peername", "sockname", "socket", "cipher", "nothing"):
            self.see(key, type(self.transport.get_extra_info(key)).__name__.strip("_"))

    def send(self, sizes: list[int]) -> None:
        raise NotImplementedError


class Protocol(End, asyncio.Protocol):
    """An end that is a protocol of a stream."""

    def connection_made(self, transport: Any) -> None:
        if self.side == 0:
            whose.set(self.context)
        self.must(not self.made, "connection_made a second time")
        self.made, self.transport = True, transport
        self.see("made")
        self.program.hold(self, transport)
        if self.plan.narrow[self.side]:
            transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000
            )
        self.program.task(self.follow())
        self.raises("made")

    def data_received(self, data: bytes) -> None:
        self.must(self.made and not self.lost, "data before connection_made or after its end")
        self.must(not self.ended, "data after the end of the stream")
        self.must(not self.silent, "data while it reads nothing")
        self.must(len(data) > 0, "no data")
        self.take(data)
        self.see("data", len(data))
        if self.received > 500:
            self.raises("data")

    def eof_received(self) -> bool:
        self.must(self.made and not self.lost, "eof at a wrong time")
        self.must(self.resumed or not self.ended, "eof a second time")
        self.ended, self.resumed = True, False
        self.see("eof")
        self.raises("eof")
        return self.plan.keeps[self.side]

    def pause_writing(self) -> None:
        self.must(not self.paused and not self.lost, "pause_writing at a wrong time")
        self.paused = True
        self.events.append((round(asyncio.get_running_loop().time() * 1e9), "full", None))

    def resume_writing(self) -> None:
        self.must(self.paused and not self.lost, "resume_writing at a wrong time")
        # With the next limit it may be full at once.
        self.paused, self.largest = False, self.transport.get_write_buffer_size()
        self.see("room")
        self.raises("resume")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.must(self.made, "connection_lost without connection_made")
        self.must(not self.lost, "connection_lost twice")
        self.lost = True
        self.graceful = self.graceful and exc is None
        self.see("lost", name_of(exc))
        self.must(self.transport.is_closing(), "lost, and not closing")
        self.raises("lost")

    def send(self, sizes: list[int]) -> None:
        if self.shut or self.transport.is_closing():
            return
        for size in sizes:
            self.transport.write(self.bytes_of(size))
        self.largest += sum(sizes)
        _, high = self.transport.get_write_buffer_limits()
        held = self.transport.get_write_buffer_size()
        self.must(held <= high + self.largest, f"{held} bytes are held, the limit is {high}")

    async def write(self, sizes: list[int]) -> None:
        self.send(sizes)

    async def writelines(self, sizes: list[int]) -> None:
        if not (self.shut or self.transport.is_closing()):
            pieces = [self.bytes_of(size) for size in sizes if size]
            if pieces:  # asyncio's spins for ever where nothing is among them, from 3.12 on
                self.transport.writelines(pieces)
            self.largest += sum(sizes)

    async def drain(self, _: float) -> None:
        while self.paused and not self.lost:
            await self.change()

    async def limits(self, high: int | None) -> None:
        self.transport.set_write_buffer_limits(high=high)

    async def pause_reading(self, _: float) -> None:
        if not self.transport.is_closing():  # asyncio's TLS has nothing to pause then
            self.silent = True
            self.transport.pause_reading()

    async def resume_reading(self, _: float) -> None:
        self.silent, self.resumed = False, True
        if not self.transport.is_closing():
            self.transport.resume_reading()

    async def expect(self, argument: tuple[int, float]) -> None:
        size, seconds = argument
        try:
            async with asyncio.timeout(seconds):
                while self.received < size and not (self.ended or self.lost):
                    await self.change()
            await asyncio.sleep(1e-9)  # until all bytes of this moment have come
        except TimeoutError:
            self.see("waited", size)

    async def write_eof(self, _: float) -> None:
        if not self.transport.is_closing():
            self.shut = True
            with contextlib.suppress(OSError):  # the peer has reset it
                self.transport.write_eof()

    async def close(self, _: float) -> None:
        self.see("closes")
        if self.plan.kind == "tls":
            if self.transport.is_closing():
                return  # after two of them asyncio's TLS has no abort()
            if self.silent:
                await self.resume_reading(0)  # or it waits for that, where the peer has ended
        self.transport.close()

    async def abort(self, _: float) -> None:
        self.graceful = False
        self.see("closes")
        self.transport.abort()

    async def switch(self, _: float) -> None:
        if not self.transport.is_closing():  # nor a protocol
            self.transport.set_protocol(self)

    async def finish(self) -> None:
        if self.silent and not self.lost:
            await self.resume_reading(0)
        await super().finish()


class Buffered(Protocol, asyncio.BufferedProtocol):
    """A protocol with buffers of its own."""

    data_received: Any = None

    def get_buffer(self, sizehint: int) -> memoryview:
        self.must(self.made and not self.lost, "get_buffer at a wrong time")
        self.buffer = bytearray(self.plan.room)
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        Protocol.data_received(self, self.buffer[:nbytes])


class Datagrams(Protocol, asyncio.DatagramProtocol):
    """An end of datagrams: the server learns its peer's address from the first datagram."""

    peer: Any = None

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.peer = address
        self.must(self.made and not self.lost, "a datagram before connection_made or its end")
        number = int.from_bytes(data[:4], "big")
        self.must(self.received <= number, "a datagram out of turn")
        start = (self.other.first + number) % PERIOD
        self.must(data[4:] == PATTERN[start : start + len(data) - 4], "other bytes than sent")
        self.received = number + 1
        self.see("datagram", (number, len(data)))

    def error_received(self, exc: Exception) -> None:
        self.see("error", name_of(exc))

    def send(self, sizes: list[int]) -> None:
        if self.transport.is_closing() or (self.side == 1 and self.peer is None):
            return
        size = min(sizes[0], 9000)
        start = (self.first + self.written) % PERIOD
        data = self.written.to_bytes(4, "big") + PATTERN[start : start + size]
        self.written += 1
        self.transport.sendto(data, self.peer if self.side == 1 else None)

    async def finish(self) -> None:
        await asyncio.sleep(0.1)
        self.transport.close()


class Streams(End):
    """An end that uses streams; it reads complete messages."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def over(self) -> bool:
        return False

    async def live(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.side == 0:
            whose.set(self.context)
        self.reader, self.writer, self.transport = reader, writer, writer.transport
        self.program.hold(reader, writer, writer.transport)
        await self.follow_to_the_end(writer.close)

    def send(self, sizes: list[int]) -> None:
        if not self.shut and not self.writer.is_closing():
            for size in sizes:
                self.writer.write(self.bytes_of(size))

    async def write(self, sizes: list[int]) -> None:
        self.send(sizes)

    async def writelines(self, sizes: list[int]) -> None:
        if sizes and not self.shut and not self.writer.is_closing():
            self.writer.writelines([self.bytes_of(size or 1) for size in sizes])

    async def drain(self, _: float) -> None:
        await self.writer.drain()
        self.see("drained")

    async def exactly(self, argument: tuple[int, float]) -> None:
        size, seconds = argument
        try:
            async with asyncio.timeout(seconds):
                data = await self.reader.readexactly(size)
        except TimeoutError:
            self.see("waited", size)
        except asyncio.IncompleteReadError as exc:
            self.take(exc.partial)
            self.see("incomplete", len(exc.partial))
        else:
            self.take(data)
            self.see("exactly", size)

    async def line(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                data = await self.reader.readuntil(b"\x01\x02")
        except TimeoutError:
            self.see("waited for a line")
        except asyncio.IncompleteReadError as exc:
            self.take(exc.partial)
            self.see("incomplete", len(exc.partial))
        except asyncio.LimitOverrunError:
            self.see("no line")
        else:
            self.take(data)
            self.see("line", len(data))

    async def write_eof(self, _: float) -> None:
        if not self.writer.is_closing():
            self.shut = True
            self.writer.write_eof()

    async def close(self, _: float) -> None:
        self.writer.close()

    async def finish(self) -> None:
        await self.write_eof(0)
        try:
            async with asyncio.timeout(5 + self.plan.latency):
                closes = self.writer.is_closing()
                data = await self.reader.read()
                self.ended = not closes
                self.take(data)
                self.see("rest", len(data))
        except TimeoutError:
            self.see("waited for the end")
        self.writer.close()
        await self.writer.wait_closed()
        self.see("closed")


class Socks(End):
    """An end that uses the loop's calls on sockets."""

    sock: socket.socket

    def over(self) -> bool:
        return False

    async def live(self, sock: socket.socket) -> None:
        if self.side == 0:
            whose.set(self.context)
        self.sock = sock
        await self.follow_to_the_end(sock.close)

    async def write(self, sizes: list[int]) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, self.bytes_of(sizes[0]))
        self.see("sent", sizes[0])

    async def exactly(self, argument: tuple[int, float]) -> None:
        size, seconds = argument
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                while size > 0 and not self.ended:
                    data = await loop.sock_recv(self.sock, min(size, 65536))
                    self.ended = not data
                    self.take(data)
                    self.see("data", len(data))
                    size -= len(data)
        except TimeoutError:
            self.see("waited", size)

    async def finish(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)
        await self.exactly((1 << 30, 5 + self.plan.latency))


class Program:
    """All connections of a seed, and one run of them."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"talks {seed}")
        self.seed = seed
        self.plans = [Plan(rng, number) for number in range(rng.randint(1, 4))]
        # Troubles of hosts and the network: time, kind, client, duration.
        self.troubles = sorted(
            (rng.randrange(1, 200_000_000) / 1e9, rng.choice(TROUBLES), rng.randrange(4), 0.1)
            for _ in range(rng.choice((0, 0, 0, 1, 2)))
        )
        self.broken: list[str] = []
        self.ends: list[tuple[End, End]] = []
        self.reports: list[Event] = []
        self.held: list[weakref.ref[Any]] = []
        self.tasks: list[asyncio.Task[Any]] = []

    def must(self, holds: bool, text: str) -> None:
        if not holds:
            self.broken.append(text)

    def hold(self, *things: Any) -> None:
        """Note objects that must not be left in memory."""
        self.held += map(weakref.ref, things)

    def task(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self.hold(task)
        self.tasks.append(task)

    # ---- a run

    async def main(self, sim: testing.Simulation) -> None:
        loop: Any = asyncio.get_running_loop()
        loop.set_exception_handler(self.report)
        life: Any = sim._session
        kernel = life.kernel
        life.executor_delay = lambda: 0.001  # or a difference of one end would move the others
        server = sim.host("server")
        before = kernel.open_descriptors()
        for plan in self.plans:
            kind = {"streams": Streams, "socks": Socks, "datagrams": Datagrams}
            made: list[Any] = []
            for side in range(2):
                usual = Buffered if plan.buffered[side] else Protocol
                made.append(kind.get(plan.kind, usual)(self, plan, side))
            made[0].other, made[1].other = made[1], made[0]
            self.ends.append((made[0], made[1]))
            client = sim.host(f"client{plan.number}")
            sim.net.set_link(client, server, latency=plan.latency)
            server.spawn(self.serve, made[1])
            if plan.kind == "unix":
                server.spawn(self.connect, made[0], sim)
            else:
                client.spawn(self.connect, made[0], sim)
        for when, what, number, seconds in self.troubles:
            await asyncio.sleep(max(0, when - sim.time()))
            name = f"client{number % len(self.plans)}"
            getattr(self, what)(sim, name, seconds)
        # A sender to a crashed host gives up after 15 minutes.
        await asyncio.sleep(2000 if self.troubles else 20)
        self.nothing_is_left(sim, loop, kernel, before)
        for end in [end for pair in self.ends for end in pair]:
            if isinstance(end, Protocol) and end.made and self.lives(sim, end):
                end.must(end.lost, "no connection_lost")
            # Unsent bytes of a killed program's transport are lost.
            graceful = end.other.graceful and self.lives(sim, end.other)
            if end.ended and not end.closes and graceful:
                end.must(end.received == end.other.written, "bytes are missing, and no error")

    def lives(self, sim: testing.Simulation, end: End) -> bool:
        name = f"client{end.plan.number}" if end.side == 0 else "server"
        return sim._session.hosts.by_name()[name].is_up

    def nothing_is_left(self, sim: Any, loop: Any, kernel: Any, before: int) -> None:
        loop_tasks = asyncio.all_tasks(loop) - {asyncio.current_task()}
        self.must(not loop_tasks, f"tasks are left: {loop_tasks}")
        self.must(not loop._all_transports(), f"transports are left: {loop._all_transports()}")
        for task in self.tasks:
            if task.done() and not task.cancelled():
                self.must(task.exception() is None, f"{task}")
        self.tasks.clear()
        now = kernel.open_descriptors()
        if not {"kill", "crash"} & {what for _, what, _, _ in self.troubles}:
            self.must(now == before, f"{now} descriptors are open, {before} at the begin")
        if hasattr(loop, "metrics"):
            figures = loop.metrics()
            for name in ("connections_open", "write_buffer_bytes"):
                self.must(getattr(figures, name) == 0, f"{name} is {getattr(figures, name)}")

    def left(self) -> list[Any]:
        """Return objects of an ended run that are still in memory."""
        for end in [end for pair in self.ends for end in pair]:
            end.transport = end.changed = None
            for name in ("reader", "writer", "sock"):
                vars(end).pop(name, None)
        gc.collect()
        left = [each() for each in self.held]
        return [each for each in left if each is not None and not isinstance(each, End)]

    def report(self, loop: Any, context: dict[str, Any]) -> None:
        exc, message = context.get("exception"), context["message"]
        if "never retrieved" in message:
            return  # the collector decides when that is reported
        self.must(isinstance(exc, (Failure, OSError, ssl.SSLError)), f"{message}: {exc!r}")
        words = message.partition("callback")[0]
        self.reports.append((round(loop.time() * 1e9), words, type(exc).__name__))

    # ---- events of hosts

    def kill(self, sim: testing.Simulation, name: str, seconds: float) -> None:
        sim._session.hosts.by_name()[name].kill()

    def crash(self, sim: testing.Simulation, name: str, seconds: float) -> None:
        sim._session.hosts.by_name()[name].crash()

    def part(self, sim: testing.Simulation, name: str, seconds: float) -> None:
        sim.net.partition({name}, {"server"})
        asyncio.get_running_loop().call_later(seconds, sim.net.heal)

    def hold_back(self, sim: testing.Simulation, name: str, seconds: float) -> None:
        sim.net.hold({name}, {"server"})
        asyncio.get_running_loop().call_later(seconds, sim.net.heal)

    # ---- connections

    async def serve(self, end: Any) -> None:
        whose.set("server")
        loop = asyncio.get_running_loop()
        plan = end.plan
        port = PORT + plan.number
        server: Any
        if plan.kind == "unix":
            server = await loop.create_unix_server(lambda: end, f"\0{port}")
        elif plan.kind == "streams":
            server = await asyncio.start_server(end.live, None, port)
        elif plan.kind == "datagrams":
            await loop.create_datagram_endpoint(lambda: end, ("0.0.0.0", port))
            return
        elif plan.kind == "socks":
            with socket.socket() as listener:
                listener.bind(("0.0.0.0", port))
                listener.listen()
                listener.setblocking(False)
                try:
                    async with asyncio.timeout(5):
                        sock, _ = await loop.sock_accept(listener)
                except TimeoutError:
                    return
            sock.setblocking(False)
            await end.live(sock)
            return
        else:
            context = tls_tools.usual_contexts()[0] if plan.kind == "tls" else None
            limits = {"ssl_handshake_timeout": 4, "ssl_shutdown_timeout": 4} if context else {}
            server = await loop.create_server(lambda: end, None, port, ssl=context, **limits)
        await asyncio.sleep(5)
        server.close()

    async def connect(self, end: Any, sim: testing.Simulation) -> None:
        plan = end.plan
        await asyncio.sleep(plan.start)
        whose.set(end.context)
        loop = asyncio.get_running_loop()
        port = PORT + plan.number
        secure: dict[str, Any] = {}
        if plan.kind == "tls":
            secure = {"ssl": tls_tools.usual_contexts()[1], "server_hostname": "localhost"}
            secure["ssl_shutdown_timeout"] = 4
        try:
            async with asyncio.timeout(4):
                if plan.kind == "unix":
                    await loop.create_unix_connection(lambda: end, f"\0{port}")
                elif plan.kind == "streams":
                    streams = await asyncio.open_connection("server", port)
                elif plan.kind == "datagrams":
                    address = sim._session.hosts.by_name()["server"].address
                    await loop.create_datagram_endpoint(lambda: end, remote_addr=(address, port))
                elif plan.kind == "socks":
                    sock = socket.socket()
                    sock.setblocking(False)
                    try:
                        await loop.sock_connect(sock, ("server", port))
                    except BaseException:
                        sock.close()
                        raise
                else:
                    await loop.create_connection(lambda: end, "server", port, **secure)
        except (OSError, TimeoutError) as exc:
            end.see("not connected", type(exc).__name__)
            return
        if plan.kind == "streams":
            await end.live(*streams)
        elif plan.kind == "socks":
            await end.live(sock)


# ---- comparison ----------------------------------------------------------------------------------

# If some bytes of an end were not read, it may see other events from the first of these on.
_ENDS = {"eof", "lost", "error", "incomplete", "rest", "waited for the end"}


def seen(end: End, unread: bool) -> list[Event]:
    """Return an end's events, without the differences that loops may have.

    Events of TLS count until it closes: asyncio takes later ones for an error, and bytes that
    arrive with the end of the handshake are delivered before or after the task that waits for it
    continues.  `unread`: the other end has closed, and has not read all bytes of this one.  The
    result is an end or a reset, depending on whether the loop has already taken such
    bytes from the kernel (docs/compatibility.md, "Receiving").
    """
    found: list[Event] = []
    for at, what, detail in end.events:
        before = found[-1] if found else (0, "", None)
        if what == "data" and before[:2] == (at, "data"):
            found[-1] = (at, "data", before[2] + detail)
        elif end.plan.kind in ("tls", "unix") and what in ("full", "room"):
            continue  # goloop's TLS counts pending bytes below it, too; a Unix socket takes no time
        elif what == "room" and before[:2] == (at, "full"):
            found.pop()
        elif unread and what in _ENDS:
            break
        else:
            if what == "lost" and before[:2] == (at, "closes"):
                found.pop()  # by a task that has heard of the end
            found.append((at, what, detail))
            if what == "data" and before[:2] == (at, "room"):
                found[-2:] = found[:-3:-1]  # a loop may write first, or read
        if end.plan.kind in ("tls", "unix") and what == "closes":
            return [each for each in found if each[:2] != (at, "data")]
    return found


def differences(one: Program, other: Program) -> list[str]:
    """Return the differences of two runs of a program."""
    different = []
    any_unread = False
    for pairs in zip(one.ends, other.ends, strict=True):
        for side in range(2):
            unread = any(pair[side].written > pair[1 - side].received for pair in pairs)
            any_unread = any_unread or unread
            a, b = (seen(pair[side], unread) for pair in pairs)
            if unread:
                a, b = a[: len(b)], b[: len(a)]
            if a != b:
                lines = difflib.unified_diff([*map(str, a)], [*map(str, b)], lineterm="", n=2)
                different.append("\n".join([pairs[0][side].name, *list(lines)[2:]]))
    if not any_unread and one.reports != other.reports:
        different.append(f"{one.reports} != {other.reports}")
    return different


TROUBLES: tuple[str, ...] = ("kill", "crash", "part", "hold_back")
