"""Random lives of connections, many at a time: seeded, on any loop.

    python tests/fuzz/connections.py [--seed 1] [--steps 200 | --seconds 5] [--loop NAME] [--gc 1]
                               [--kinds tcp tls ...] [--life N] [--trail FILE]

A step is one life: a TCP, Unix or TLS connection, one that starts TLS in the middle, a
pipe or a pair of datagram endpoints.  Every callback of its two protocols may write,
half-close, close, abort, pause, resume, change limits, switch the protocol, ask for
information, cancel tasks, stop the loop, raise, or interrupt the loop by KeyboardInterrupt.
A third of the lives are calm: they only end when every byte has arrived.

The invariants, for all actions:

* connection_made is called once, connection_lost once after it, and no callback after that;
* each byte that arrives is the next one that the other end wrote: every end has its own
  sequence of bytes, so bytes of another connection are noticed;
* a calm life loses nothing, and ends without an error; a wild one loses nothing if the
  writer ended in good order and the reader read until the end was reported;
* eof_received is called again only after resume_reading, as on asyncio;
* a transport that has reported its end is closing, and its buffer is empty;
* each life ends, and at the end no descriptor and no transport is left.

Some loops are closed in the middle of it all.  `--life N` runs the N-th life of a seed alone.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import faulthandler
import gc
import logging
import os
import random
import socket
import ssl
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(TESTS), str(TESTS / "support")]

import tls_tools
from conftest import difference, factory_of, open_fds
from fuzz.crash_log import Trail

HANG = float(os.environ.get("GOLOOP_FUZZ_HANG", "60"))
AT_A_TIME = 8
LIVES_OF_A_LOOP = 40

# Prime, so that no piece of a power of two bytes can stand for another.
PERIOD = 65_521
PATTERN = random.Random(0).randbytes(PERIOD)
PATTERN_MANY = PATTERN * 6
LARGEST = 200_000

KINDS = ["tcp", "unix", "tls", "upgrade", "pipe", "datagram"]


class Deliberate(Exception):
    """The exception that protocols raise on purpose."""


class Side:
    """An end of a life: its actions, and the bytes that may still arrive."""

    other: Side

    def __init__(self, life: Life, name: str) -> None:
        self.life = life
        self.run = life.run
        self.loop = life.run.loop
        self.name = name
        self.random = random.Random(f"{life.seed} {life.index} {name}")
        self.first = self.random.randrange(PERIOD)  # the offset of the first byte in the pattern
        self.transport: Any = None
        self.tls = life.kind == "tls"
        self.written = self.received = self.depth = 0
        self.made = self.lost = self.over = self.ended = False
        self.paused = self.finished = self.shut = False
        self.in_get_buffer = False
        self.graceful = False  # close() or write_eof() was called while all was well
        self.disturbed = False  # by an abort, an error, or a close before the end came
        self.dropped = False  # after an abort or an error: pending bytes were lost
        self.resumed = False  # since the last eof_received
        self.blind = False  # received bytes went to another protocol
        self.budget = self.random.randrange(2, 30)

    def note(self, text: str) -> None:
        self.life.events.append(f"{self.name} {text}")
        self.run.trail.note(f"life {self.life.index} {self.life.kind}: {self.name} {text}")

    def must(self, holds: bool, text: str) -> None:
        if not holds:
            self.life.fail(f"{self.name}: {text}")

    # ---- callbacks of the transport -----------------------------------------------

    def on_made(self, transport: Any) -> None:
        self.note("made")
        self.must(not self.made, "connection_made a second time")
        self.made = True
        self.run.open.add(self)
        self.transport = transport
        self.run.transports.append(weakref.ref(transport))
        self.loop.call_soon(self.tick)
        # asyncio begins to watch the writing end of a pipe after this, even if it is closed.
        if not (self.run.of_asyncio and self.life.kind == "pipe"):
            self.act()

    def on_data(self, data: Any) -> None:
        self.must(self.made and not self.lost, "data before connection_made or after its end")
        self.must(not self.ended, "data after the end of the stream")
        data = bytes(data)
        start = (self.other.first + self.received) % PERIOD
        if self.blind:
            self.act()
            return
        self.must(len(data) > 0, "no data")
        for at in range(0, len(data), LARGEST):
            piece = data[at : at + LARGEST]
            begin = (start + at) % PERIOD
            self.must(piece == PATTERN_MANY[begin : begin + len(piece)], "other bytes than sent")
        self.received += len(data)
        self.must(self.received <= self.other.written, "more than was written")
        self.act()

    def on_eof(self) -> bool:
        self.note("eof")
        self.must(self.made and not self.lost, "eof before connection_made or after its end")
        self.must(self.resumed or not self.ended, "eof a second time")
        self.ended, self.resumed = True, False
        try:
            self.act()
        except KeyboardInterrupt:
            self.ended = False  # the next poll finds the end again, as on asyncio
            raise
        return self.life.calm or self.random.random() < 0.5

    def on_pause(self) -> None:
        self.must(self.made and not self.lost, "pause_writing at a wrong time")
        self.must(not self.paused, "pause_writing twice")
        self.paused = True
        self.act(0.3)

    def on_resume(self) -> None:
        self.must(self.made and not self.lost, "resume_writing at a wrong time")
        self.must(self.paused, "resume_writing without pause_writing")
        self.paused = False
        # asyncio closes a pipe that is closed in here, but still watches its number.
        if not (self.run.of_asyncio and self.life.kind == "pipe"):
            self.act()

    def on_lost(self, exc: BaseException | None) -> None:
        self.note(f"lost {exc!r}")
        self.must(self.made, "connection_lost without connection_made")
        self.must(not self.lost, "connection_lost twice")
        self.lost = True
        self.run.open.discard(self)
        if exc is not None:
            self.disturbed = self.dropped = True
        if not (self.run.of_asyncio and self.life.secure):
            self.must(self.transport.is_closing(), "lost, and not closing")
        if self.life.calm:
            self.must(exc is None, f"a calm life ended with {exc!r}")
            self.must(self.received == self.other.written, "bytes are missing")
        self.life.side_over(self)
        self.depth += 1  # too late to have an effect, but harmless
        for action in self.random.sample(self.after_end, 3):
            self.perform(action)
        self.depth -= 1
        self.perhaps_raise()

    # ---- actions of this side -----------------------------------------------------

    def act(self, likelihood: float = 0.6) -> None:
        """Perhaps does some things, and perhaps raises."""
        if self.depth > 3 or self.lost:
            return
        self.depth += 1
        try:
            while self.budget > 0 and self.random.random() < likelihood:
                self.budget -= 1
                self.perform(self.random.choice(self.life.actions))
        finally:
            self.depth -= 1
        if self.depth == 0:
            self.perhaps_raise()

    def perhaps_raise(self) -> None:
        if self.life.calm or self.life.gentle or self.budget <= 0:
            return
        drawn = self.random.random()
        if drawn < 0.03:
            self.disturbed = self.dropped = True
        if drawn < 0.02:
            self.note("raises")
            raise Deliberate
        if drawn < 0.03 and self.life.interrupts:
            self.note("interrupts")
            raise KeyboardInterrupt

    def perform(self, action: str) -> None:
        if self.life.forbids(self, action):
            return
        self.note(action)
        getattr(self, action)()

    after_end = [
        *("close", "abort", "pause_reading", "resume_reading", "repr", "information", "sizes"),
        *("write_late", "write_eof", "switch", "stop", "collect"),
    ]

    def tick(self) -> None:
        """Goes on between callbacks, until there is nothing left to do but to end."""
        if self.lost or self.run.abandoned:
            return
        if self.budget > 0:
            self.budget -= 1
            try:
                self.act()
            finally:
                self.next_tick(self.tick)
        else:
            self.finish()

    def next_tick(self, what: Callable[[], None]) -> None:
        if self.random.random() < 0.5:
            self.loop.call_soon(what)
        else:
            self.loop.call_later(self.random.random() * 0.002, what)

    def finish(self) -> None:
        """Comes to an end: a calm side when all has arrived, another one soon."""
        if self.lost or self.run.abandoned:
            return
        if not self.finished:
            self.finished = True
            self.note("finishes")
            if not self.transport.is_closing():
                self.resume_reading()
        if self.life.calm:
            if self.other.finished and self.received == self.other.written:
                self.life.arrived.add(self)
            if len(self.life.arrived) == 2:
                self.close()
                return
            self.loop.call_later(0.001, self.finish)
            return
        if self.random.random() < 0.2:
            self.abort()
            return
        if not (self.shut or self.transport.is_closing()) and self.random.random() < 0.5:
            self.perform("write_eof")
        if self.shut and not self.ended:
            self.loop.call_later(0.003, self.end)  # the other side's end may come
        else:
            self.end()

    def end(self) -> None:
        if not self.lost and not self.run.abandoned:
            self.close()
            self.loop.call_later(0.1, self.give_up)

    def give_up(self) -> None:
        if not self.lost and not self.run.abandoned:
            self.note("gives up")
            self.abort()
            if self.run.of_asyncio and self.life.secure:
                # asyncio's SSLProtocol is lost at a second close(), so its transport cannot abort.
                self.loop.call_later(1, self.forget)

    def forget(self) -> None:
        self.run.open.discard(self)
        self.life.side_over(self)

    def piece(self) -> Any:
        size = self.random.choice([0, 1, 10, 1000, 65536, self.random.randrange(LARGEST)])
        start = (self.first + self.written) % PERIOD
        self.written += size
        data: Any = PATTERN_MANY[start : start + size]
        shape = self.random.random()
        if shape < 0.2:
            return bytearray(data)
        return memoryview(data) if shape < 0.4 else data

    def may_write(self) -> bool:
        over = self.shut or self.finished or self.transport.is_closing()
        return hasattr(self.transport, "write") and not over

    def write(self) -> None:
        if self.may_write():
            self.transport.write(self.piece())

    def writelines(self) -> None:
        if self.may_write():
            pieces = [self.piece() for _ in range(self.random.randrange(5))]
            if self.run.of_asyncio:  # from 3.12 on it fails where nothing is among them
                pieces = [piece for piece in pieces if len(piece)]
                if not pieces:
                    return
            self.transport.writelines(iter(pieces) if self.random.random() < 0.3 else pieces)

    def write_late(self) -> None:
        """Nothing comes of it: the transport has told of its end."""
        with contextlib.suppress(RuntimeError):  # after write_eof
            getattr(self.transport, "write", bytes)(b"too late")

    def write_eof(self) -> None:
        if hasattr(self.transport, "can_write_eof") and self.transport.can_write_eof():
            self.shut = True
            self.graceful = not self.disturbed
            with contextlib.suppress(OSError):  # the peer was first
                self.transport.write_eof()

    def close(self) -> None:
        if not self.ended:
            self.disturbed = True  # the other side's bytes may meet a closed socket
        if not self.transport.is_closing():
            self.graceful = not self.disturbed
        self.transport.close()

    def abort(self) -> None:
        self.disturbed = self.dropped = True
        if hasattr(self.transport, "abort"):
            self.transport.abort()
        else:
            self.transport.close()

    def pause_reading(self) -> None:
        if self.life.reads(self):
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self.life.reads(self):
            self.resumed = True
            self.transport.resume_reading()

    def limits(self) -> None:
        if hasattr(self.transport, "set_write_buffer_limits"):
            high = self.random.choice([0, 1, 1000, 65536, 1 << 20, None])
            self.transport.set_write_buffer_limits(high=high)

    def switch(self) -> None:
        if self.in_get_buffer:
            if self.life.calm:
                return
            self.blind = True
        self.transport.set_protocol(self.protocol())

    def sizes(self) -> None:
        if hasattr(self.transport, "get_write_buffer_size"):
            self.must(self.transport.get_write_buffer_size() >= 0, "a negative size")
        self.transport.is_closing()

    def repr(self) -> None:
        repr(self.transport)

    def information(self) -> None:
        keys = ["peername", "sockname", "socket", "cipher", "ssl_object", "pipe", "peercert", "no"]
        self.transport.get_extra_info(self.random.choice(keys))

    def stop(self) -> None:
        self.loop.stop()

    def cancel(self) -> None:
        self.life.cancel_some(self.random)

    def collect(self) -> None:
        gc.collect(self.random.randrange(3))

    def protocol(self) -> asyncio.BaseProtocol:
        buffered = self.random.random() < 0.4 and self.life.may_buffer(self)
        return (Buffered if buffered else Plain)(self)


class Common(asyncio.BaseProtocol):
    """The calls that all protocols of streams share."""

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
        self.side.must(type(data) is bytes, f"data is {type(data)}")
        self.side.on_data(data)


class Buffered(Common, asyncio.BufferedProtocol):
    buffer = bytearray()

    def get_buffer(self, sizehint: int) -> bytearray:
        side = self.side
        side.must(side.made and not side.lost, "get_buffer at a wrong time")
        self.buffer = bytearray(side.random.choice([1, 100, 4096, 65536, 262144]))
        side.in_get_buffer, before = True, self.buffer
        try:
            side.act(0.1)
        finally:
            side.in_get_buffer = False
        return before

    def buffer_updated(self, nbytes: int) -> None:
        data = self.buffer[:nbytes]
        self.buffer = bytearray(1)
        self.side.on_data(data)


# ---- other kinds ------------------------------------------------------------------


class Upgrading(Side):
    """An end of a connection that starts TLS after some plain words."""

    HELLO, GO = b"STARTTLS\n", b"GO\n"

    def __init__(self, life: Life, name: str) -> None:
        super().__init__(life, name)
        self.plain = b""
        self.server = name == "left"

    def on_made(self, transport: Any) -> None:
        self.note("made")
        self.must(not self.made, "connection_made a second time")
        self.made = True
        self.run.open.add(self)
        self.transport = transport
        self.run.transports.append(weakref.ref(transport))
        self.loop.call_later(1, self.finish)
        if not self.server:
            transport.write(self.HELLO)

    def on_data(self, data: Any) -> None:
        if self.tls:
            super().on_data(data)
            return
        self.must(self.made and not self.lost, "data before connection_made or after its end")
        self.plain += bytes(data)
        word = self.HELLO if self.server else self.GO
        if self.plain == word and not self.transport.is_closing():
            if self.server:
                self.transport.write(self.GO)
            self.plain = b""
            self.life.task(self.upgrade())
            if not self.life.calm and self.random.random() < 0.3:
                self.perform(self.random.choice(["close", "abort", "pause_reading", "cancel"]))

    async def upgrade(self) -> None:
        server, client = tls_tools.usual_contexts()
        words: dict[str, Any] = {"server_side": True} if self.server else {}
        words |= {} if self.server else {"server_hostname": "localhost"}
        words["ssl_shutdown_timeout"] = 0.5
        before = self.transport
        try:
            context = server if self.server else client
            made = await self.loop.start_tls(before, self.protocol(), context, **words)
        except (Exception, asyncio.CancelledError) as error:
            # connection_lost is not promised to a protocol whose upgrade has failed.
            self.note(f"upgrade fails: {error!r}")
            self.must(not self.life.calm, f"upgrade fails: {error!r}")
            before.abort()
            self.no_upgrade()
            return
        if made is None or self.lost:
            self.no_upgrade()
            return
        self.note("upgraded")
        self.tls = True
        self.transport = made
        self.next_tick(self.tick)

    def no_upgrade(self) -> None:
        self.run.open.discard(self)
        self.life.side_over(self)

    def finish(self) -> None:
        if self.tls:
            super().finish()
        elif not self.lost and not self.life.calm:
            self.note("never upgraded")
            self.transport.abort()
            self.no_upgrade()

    def act(self, likelihood: float = 0.6) -> None:
        if self.tls:
            super().act(likelihood)

    def perhaps_raise(self) -> None:
        if self.tls:
            super().perhaps_raise()


class Sending(asyncio.DatagramProtocol):
    """An endpoint of datagrams."""

    def __init__(self, side: Side) -> None:
        self.side = side

    def connection_made(self, transport: Any) -> None:
        self.side.on_made(transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.side.on_datagram(data, addr)  # type: ignore[attr-defined]

    def error_received(self, exc: Exception) -> None:
        side = self.side
        side.must(side.made and not side.lost, "error_received at a wrong time")
        side.act()

    def pause_writing(self) -> None:
        self.side.on_pause()

    def resume_writing(self) -> None:
        self.side.on_resume()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.side.on_lost(exc)


class Datagrams(Side):
    """A datagram: its number in eight bytes, then as many of the pattern as the rest has."""

    peer: Any = None

    def on_datagram(self, data: bytes, addr: Any) -> None:
        self.must(self.made and not self.lost, "datagram at a wrong time")
        number = int.from_bytes(data[:8], "big")
        self.must(self.received <= number < self.other.written, f"datagram {number} out of turn")
        start = (self.other.first + number) % PERIOD
        self.must(data[8:] == PATTERN_MANY[start : start + len(data) - 8], "other bytes than sent")
        self.received = number + 1
        self.peer = addr
        self.act()

    def write(self) -> None:
        size = self.random.choice([0, 1, 500, 1400, 20000])
        start = (self.first + self.written) % PERIOD
        data: Any = self.written.to_bytes(8, "big") + PATTERN_MANY[start : start + size]
        data = bytearray(data) if self.random.random() < 0.3 else data
        connected = self.name == "right"
        if self.transport.is_closing() or not (connected or self.peer):
            return
        self.written += 1
        self.transport.sendto(data, None if connected else self.peer)

    writelines = write

    def write_eof(self) -> None:
        pass

    # connection_lost may still send: from 3.13 on also nothing at all, which arrives.
    write_late = pause_reading = resume_reading = write_eof

    def protocol(self) -> asyncio.BaseProtocol:
        return Sending(self)


# ---- a life ----------------------------------------------------------------------------

STREAM_ACTIONS = [
    *(["write"] * 6 + ["writelines"] * 2 + ["pause_reading", "resume_reading", "resume_reading"]),
    *("limits", "switch", "switch", "sizes", "repr", "information", "collect"),
]
WILD_ACTIONS = [*STREAM_ACTIONS * 2, "write_eof", "close", "abort", "stop", "cancel"]


class Life:
    """A life: two sides, a way to connect, and the outcome."""

    def __init__(self, run: Run, index: int) -> None:
        self.run = run
        self.seed = run.options.seed
        self.index = index
        self.random = random.Random(f"{self.seed} {index}")
        self.kind = self.random.choice(run.options.kinds)
        self.secure = self.kind in ("tls", "upgrade")
        self.calm = self.random.random() < 0.33 and self.kind != "datagram"
        # Exceptions and interrupts leave asyncio's own TLS in a state without an end.
        self.gentle = self.secure and run.of_asyncio
        self.interrupts = not (self.secure or run.of_asyncio) and self.random.random() < 0.3
        self.actions = STREAM_ACTIONS if self.calm else WILD_ACTIONS
        self.events: collections.deque[str] = collections.deque(maxlen=200)
        self.arrived: set[Side] = set()
        self.tasks: list[asyncio.Task[Any]] = []
        self.remaining = 2
        self.failed = False
        self.over = run.loop.create_future()
        kinds: dict[str, type[Side]] = {"upgrade": Upgrading, "datagram": Datagrams}
        kind = kinds.get(self.kind, Side)
        self.left, self.right = kind(self, "left"), kind(self, "right")
        self.left.other, self.right.other = self.right, self.left

    def fail(self, text: str) -> None:
        if self.run.abandoned:
            return
        self.run.failures += 1
        if not self.failed:
            self.failed = True
            print(f"seed {self.seed} life {self.index} ({self.kind}, calm={self.calm}): {text}")
            print("   " + "\n   ".join(list(self.events)[-40:]), flush=True)

    # ---- where loops differ ---------------------------------------------------------

    def forbids(self, side: Side, action: str) -> bool:
        """Return true for actions that asyncio's own transports do not survive."""
        if action == "stop" and self.calm:
            return True
        if side.tls and action == "limits":  # SSLProtocol calls a protocol that is gone
            return bool(side.transport.is_closing())
        if not self.run.of_asyncio:
            return False
        # asyncio's TLS transport has no protocol and no transport after it closes.
        if side.tls or self.kind == "upgrade":
            return side.transport.is_closing() or action == "write_eof"
        # An asyncio transport that closes with a full buffer sends bytes written by
        # connection_lost, and a pipe's transport has no loop after its end.
        late = ("pause_reading", "resume_reading", "repr", "write_eof", "write_late")
        return side.lost and action in late

    def may_buffer(self, side: Side) -> bool:
        """asyncio's TLS loses bytes in the buffer of a protocol, and pipes have none."""
        return self.kind != "pipe" and not (self.run.of_asyncio and self.secure)

    def reads(self, side: Side) -> bool:
        return self.kind != "datagram" and not (self.kind == "pipe" and side is self.right)

    # ---- its course ---------------------------------------------------------------

    def task(self, what: Any) -> None:
        self.tasks.append(self.run.loop.create_task(what))

    def cancel_some(self, generator: random.Random) -> None:
        for task in self.tasks:
            if generator.random() < 0.5:
                task.cancel()

    def side_over(self, side: Side) -> None:
        if not side.over:
            side.over = True
            self.remaining -= 1
            if not self.remaining and not self.over.done():
                self.over.set_result(None)

    async def live(self) -> None:
        """From the first system call until both ends have been told of the end."""
        connecting = {"tcp": self.tcp, "tls": self.tcp, "upgrade": self.tcp, "unix": self.unix}
        connecting |= {"pipe": self.pipe, "datagram": self.datagram}
        task = self.run.loop.create_task(connecting[self.kind]())
        self.task(asyncio.sleep(0.001 * self.random.random()))
        if not self.calm and self.random.random() < 0.2:
            self.tasks.append(task)
        try:
            await asyncio.wait([task])
            if task.cancelled() or task.exception() is not None:
                self.never_connected(task)
        finally:
            task.cancel()
        for side in (self.left, self.right):
            if not side.made and not self.calm:
                # connection_made is never called: the peer left or was cancelled before.
                self.run.loop.call_later(0.3, self.unless_made, side)
        await self.over
        self.judge(self.left)
        self.judge(self.right)
        for each in self.tasks:
            each.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def judge(self, side: Side) -> None:
        """Check the invariants at the end of a life that ended in some order."""
        other = side.other
        if side.lost and not self.run.of_asyncio and hasattr(side.transport, "write"):
            side.must(side.transport.get_write_buffer_size() == 0, "its buffer is not empty")
        heard_the_end = side.ended and side.graceful and not (side.disturbed or side.blind)
        if heard_the_end and other.graceful and not other.dropped:
            side.must(side.received == other.written, "bytes are missing")

    def never_connected(self, task: asyncio.Task[None]) -> None:
        reason = None if task.cancelled() else task.exception()
        self.left.note(f"not connected: {reason!r}")
        allowed: tuple[type[BaseException], ...] = (OSError, TimeoutError)
        if self.secure:
            allowed += (Deliberate,)  # out of connection_made
        if self.kind == "pipe" and self.run.loop.get_debug():
            allowed += (ValueError,)  # asyncio logs the number of a pipe that may be closed
        if self.calm or (reason is not None and not isinstance(reason, allowed)):
            self.fail(f"not connected: {reason!r}")
            for side in (self.left, self.right):
                if not side.made:
                    self.side_over(side)

    def unless_made(self, side: Side) -> None:
        if not side.made:
            side.note("never made")
            self.side_over(side)

    async def tcp(self) -> None:
        loop = self.run.loop
        options: dict[str, Any] = {}
        mine: dict[str, Any] = {}
        if self.kind == "tls":
            server_context, client_context = tls_tools.usual_contexts()
            # A wild end of asyncio's TLS may be that nothing more happens.
            limits = {"ssl_shutdown_timeout": 0.5}
            limits["ssl_handshake_timeout"] = HANG if self.calm else 5
            options = {"ssl": server_context, **limits}
            mine = {"ssl": client_context, "server_hostname": "localhost", **limits}
        server = await loop.create_server(self.left.protocol, "127.0.0.1", 0, **options)
        try:
            address = server.sockets[0].getsockname()[:2]
            if self.random.random() < 0.5:
                await loop.create_connection(self.right.protocol, *address, **mine)
            else:
                sock = socket.socket()
                try:
                    sock.setblocking(False)
                    await loop.sock_connect(sock, address)
                except BaseException:
                    sock.close()
                    raise
                await loop.create_connection(self.right.protocol, sock=sock, **mine)
            if self.calm:
                while not self.left.made:
                    await asyncio.sleep(0.001)
        finally:
            # A connection that was not accepted is reset, which is one more way to end.
            if not self.left.made and self.random.random() < 0.5:
                await asyncio.sleep(0.01)
            server.close()

    async def unix(self) -> None:
        near, far = socket.socketpair()
        if self.random.random() < 0.5:
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        await self.both(
            self.run.loop.connect_accepted_socket(self.left.protocol, near), near,
            self.run.loop.connect_accepted_socket(self.right.protocol, far), far,
        )  # fmt: skip

    async def pipe(self) -> None:
        reading, writing = os.pipe()
        near, far = os.fdopen(reading, "rb", 0), os.fdopen(writing, "wb", 0)
        await self.both(
            self.run.loop.connect_read_pipe(self.left.protocol, near), near,
            self.run.loop.connect_write_pipe(self.right.protocol, far), far,
        )  # fmt: skip

    async def both(self, first: Any, near: Any, second: Any, far: Any) -> None:
        """Return the two ends, made in sequence; a failure closes both."""
        try:
            await first
        except BaseException:
            second.close()
            far.close()
            raise
        await second

    async def datagram(self) -> None:
        loop = self.run.loop
        first, _ = await loop.create_datagram_endpoint(
            self.left.protocol, local_addr=("127.0.0.1", 0)
        )
        address = first.get_extra_info("sockname")
        await loop.create_datagram_endpoint(self.right.protocol, remote_addr=address[:2])


def is_own(error: BaseException) -> bool:
    """Whether an exception was raised by a line of this file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename == __file__


# ---- a run -----------------------------------------------------------------------------


class Run:
    """All lives of a seed, on one loop after another."""

    loop: asyncio.AbstractEventLoop

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.of_asyncio = options.loop == "asyncio"
        self.trail = Trail(options.trail)
        self.random = random.Random(f"run {options.seed}")
        self.open: set[Side] = set()
        self.transports: list[weakref.ref[Any]] = []
        self.started: dict[Life, float] = {}
        self.failures = 0
        self.count = 0
        self.abandoned = False
        self.deadline = time.monotonic() + (options.seconds or 1e9)

    def wanted(self) -> bool:
        return self.count < self.options.steps and time.monotonic() < self.deadline

    def on_context(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        allowed: tuple[type[BaseException], ...] = (Deliberate, ConnectionError, ssl.SSLError)
        if self.of_asyncio and error is not None and not is_own(error):
            # asyncio's transports close their sockets twice if a fatal error meets an abort.
            allowed += (AttributeError, RuntimeError, BufferError)
        if self.abandoned:
            return
        if getattr(getattr(context.get("protocol"), "side", None), "blind", False):
            return
        if isinstance(error, allowed) and not isinstance(error, NotImplementedError):
            return
        self.failures += 1
        print(f"seed {self.options.seed}, exception handler: {context!r}", flush=True)
        if error is not None:
            sys.excepthook(type(error), error, error.__traceback__)

    async def one(self, index: int) -> None:
        life = Life(self, index)
        self.started[life] = time.monotonic()
        try:
            await life.live()
        finally:
            self.started.pop(life, None)

    async def some(self, indices: list[int]) -> None:
        async def worker() -> None:
            while indices:
                await self.one(indices.pop(0))

        # Only one life can stop the whole by raising: a mistake of this program.
        await asyncio.gather(*(worker() for _ in range(AT_A_TIME)))
        while self.open:  # ends that were made after their lives
            await asyncio.sleep(0.001)

    def generation(self, indices: list[int]) -> None:
        """Some lives on a loop of their own."""
        factory = factory_of(self.options.loop)
        before = open_fds()
        self.abandoned = False
        self.loop = loop = factory()
        loop.set_exception_handler(self.on_context)
        loop.set_debug(self.random.random() < 0.1)
        leaves = self.random.random() < 0.2 and self.options.life is None
        task = loop.create_task(self.some(indices))
        task.add_done_callback(lambda done: done.get_loop().stop())
        if leaves:
            loop.call_later(self.random.random() * 0.2, self.abandon)
        while not task.done() and not self.abandoned:
            with contextlib.suppress(KeyboardInterrupt):
                loop.run_forever()
        loop.close()
        if not self.abandoned:
            task.result()
        self.open.clear()
        self.started.clear()
        self.abandoned = True  # later reports are ignored
        del task, self.loop
        loop = None  # type: ignore[assignment]
        self.check_what_is_left(before)

    def abandon(self) -> None:
        self.abandoned = True
        self.loop.stop()

    def check_what_is_left(self, before: dict[int, str]) -> None:
        deadline = time.monotonic() + HANG
        while True:
            gc.collect()
            left, _ = difference(before)
            self.transports = [each for each in self.transports if each() is not None]
            if not left and not self.transports:
                return
            if time.monotonic() > deadline:
                self.failures += 1
                held = [gc.get_referrers(each()) for each in self.transports]
                print(f"seed {self.options.seed}: left open: {left}, held by: {held}", flush=True)
                return
            time.sleep(0.01)

    def guard(self) -> None:
        """A thread's work: ends the process when a life takes far too long."""
        while not self.over.wait(1):
            late = time.monotonic() - HANG
            stuck = [life for life, start in list(self.started.items()) if start < late]
            if stuck:
                for life in stuck:
                    print(f"seed {life.seed} life {life.index} ({life.kind}, {life.calm}) hangs")
                    print("   " + "\n   ".join(list(life.events)[-40:]), flush=True)
                    for side in (life.left, life.right):
                        told = {k: v for k, v in vars(side).items() if type(v) in (int, bool)}
                        print(f"   {side.name}: {told} {side.transport!r}", flush=True)
                faulthandler.dump_traceback(all_threads=True)
                os._exit(1)

    def run(self) -> int:
        self.over = threading.Event()
        guard = threading.Thread(target=self.guard, daemon=True)
        guard.start()
        if self.options.life is not None:
            self.count = 1
            self.generation([self.options.life])
        while self.options.life is None and self.wanted():
            size = min(LIVES_OF_A_LOOP, self.options.steps - self.count)
            self.generation(list(range(self.count, self.count + size)))
            self.count += size
        self.over.set()
        guard.join()
        return self.failures


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--loop", choices=["asyncio", "goloop"], default="goloop")
    parser.add_argument("--gc", type=int, default=0, help="collect at each allocation")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--life", type=int, default=None)
    parser.add_argument("--trail", default=None)
    options = parser.parse_args()
    if options.steps is None:
        options.steps = 1 << 60 if options.seconds else 200
    faulthandler.enable()
    logging.disable()
    warnings.simplefilter("ignore")
    tls_tools.usual_contexts()
    factory_of(options.loop)().close()
    gc.collect()
    gc.freeze()
    if options.gc:
        gc.set_threshold(1, 1, 1)
    run = Run(options)
    # Coroutines of a loop that was closed in the middle find it closed.
    sys.unraisablehook = lambda told: None if run.abandoned else sys.__unraisablehook__(told)
    failures = run.run()
    print(f"seed {options.seed}: {run.count} lives, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
