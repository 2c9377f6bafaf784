"""Protocols and small awaitables that the tests share.

`Recorder` notes each call with its arguments, so that a test can compare whole
orders of calls; `until` runs the loop until a condition holds, which takes the
place of sleeping for "long enough".
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any


async def until(condition: Callable[[], Any], turns: int = 100_000) -> None:
    """Lets the loop go on until `condition()` holds; gives up after that many turns."""
    for _ in range(turns):
        if condition():
            return
        # A real wait of the loop, but a short one: others' packets come by the kernel.
        await asyncio.sleep(0.0005)
    raise AssertionError(f"{condition} never held")


async def turns(count: int = 3) -> None:
    """Lets the loop make that many turns."""
    for _ in range(count):
        await asyncio.sleep(0)


def in_thread(function: Callable[..., Any], *args: Any) -> None:
    """Runs it in a thread of its own, to its end."""
    thread = threading.Thread(target=function, args=args)
    thread.start()
    thread.join()


def one_turn(loop: asyncio.AbstractEventLoop) -> None:
    """Runs the loop for one turn."""
    loop.call_soon(loop.stop)
    loop.run_forever()


async def close_all(*servers_and_writers: Any) -> None:
    """Closes one after the other, and waits until it is closed."""
    for each in servers_and_writers:
        each.close()
        await each.wait_closed()


class Iterations:
    """Counts iterations, by a callback that is always ready."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = 0
        self._loop = loop
        self._handle = loop.call_soon(self._tick)

    def _tick(self) -> None:
        self.now += 1
        self._handle = self._loop.call_soon(self._tick)

    def stop(self) -> None:
        self._handle.cancel()


class Echo(asyncio.Protocol):
    """Sends all received data back."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Recorder(asyncio.Protocol):
    """Notes every call of a protocol's methods, and joins adjacent data."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.data = bytearray()
        self.transport: Any = None
        loop = asyncio.get_running_loop()
        self.made: asyncio.Future[None] = loop.create_future()
        self.eof: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[Exception | None] = loop.create_future()
        # The result of eof_received: true keeps the transport open for writing.
        self.keep_open = False

    def names(self) -> list[str]:
        return [call[0] for call in self.calls]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.calls.append(("made",))
        if not self.made.done():
            self.made.set_result(None)

    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes
        self.data += data
        if self.calls and self.calls[-1][0] == "data":
            self.calls[-1] = ("data", self.calls[-1][1] + data)
        else:
            self.calls.append(("data", data))

    def eof_received(self) -> bool:
        self.calls.append(("eof",))
        self.eof.set_result(None)
        return self.keep_open

    def pause_writing(self) -> None:
        self.calls.append(("pause",))

    def resume_writing(self) -> None:
        self.calls.append(("resume",))

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append(("lost", exc))
        self.lost.set_result(exc)


class PausedRecorder(Recorder):
    """Pauses reading from the beginning."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.pause_reading()


class HaltingRecorder(Recorder):
    """Pauses reading after each piece of data, until the next iteration."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.pause_reading()
        asyncio.get_running_loop().call_soon(self.transport.resume_reading)


class FailingRecorder(Recorder):
    """Raises an exception at the end of its connection."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        raise ZeroDivisionError


class RecordingEcho(Recorder):
    """Records received data, and sends it back."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


class BufferedRecorder(asyncio.BufferedProtocol):
    """A Recorder with a buffer of its own."""

    def __init__(self, size: int = 64) -> None:
        self.buffer = bytearray(size)
        self.hints: list[int] = []
        self.data = bytearray()
        self.transport: Any = None
        loop = asyncio.get_running_loop()
        self.eof: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[Exception | None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        self.hints.append(sizehint)
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.buffer[:nbytes]

    def eof_received(self) -> None:
        self.eof.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


class Made(list[Any]):
    """The protocols that were made; it is their factory."""

    def __init__(self, protocol: Callable[[], Any] = Recorder) -> None:
        super().__init__()
        self._protocol = protocol

    def __call__(self) -> Any:
        self.append(self._protocol())
        return self[-1]


async def connect(
    loop: asyncio.AbstractEventLoop,
    client: Callable[[], Any] = Recorder,
    server: Callable[[], Any] = Recorder,
) -> tuple[Any, Any, asyncio.AbstractServer]:
    """A connection through a real server: the client's and server's protocol, and the server."""
    accepted = Made(server)
    listening = await loop.create_server(accepted, "127.0.0.1", 0)
    _, near = await loop.create_connection(client, *listening.sockets[0].getsockname())
    await until(lambda: accepted and accepted[0].transport is not None)
    return near, accepted[0], listening


async def hang_up(*protocols: Any, far: socket.socket | None = None) -> None:
    """Closes the protocols' transports, after the raw peer, and waits until each is lost."""
    if far is not None:
        far.close()
    for protocol in protocols:
        protocol.transport.abort()
    for protocol in protocols:
        await protocol.lost
