"""Protocols and small awaitables that the tests share.

The recorders note each call with its arguments, so that a test can compare whole orders of calls;
`until` runs the loop until a condition holds, which takes the place of sleeping for "long enough".
"""

from __future__ import annotations

import asyncio
import socket
import struct
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


class Calls(asyncio.BaseProtocol):
    """Notes every call of a protocol's methods, and joins adjacent data; the base of recorders."""

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

    def note_data(self, data: bytes) -> None:
        self.data += data
        if self.calls and self.calls[-1][0] == "data":
            self.calls[-1] = ("data", self.calls[-1][1] + data)
        else:
            self.calls.append(("data", data))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.calls.append(("made",))
        if not self.made.done():
            self.made.set_result(None)

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


class Recorder(Calls, asyncio.Protocol):
    """Notes every call of a protocol's methods."""

    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes
        self.note_data(data)


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


def failing(method: str) -> type[Recorder]:
    """A Recorder that raises in one of its methods, after noting the call."""
    original = getattr(Recorder, method)

    def fail(self: Recorder, *args: Any) -> Any:
        original(self, *args)
        raise ZeroDivisionError(method)

    return type("Failing", (Recorder,), {method: fail})


class RecordingEcho(Recorder):
    """Records received data, and sends it back."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


class BufferedRecorder(Calls, asyncio.BufferedProtocol):
    """A Recorder with a buffer of its own."""

    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.buffer = bytearray(size)
        self.hints: list[int] = []

    def get_buffer(self, sizehint: int) -> bytearray:
        self.hints.append(sizehint)
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.note_data(bytes(self.buffer[:nbytes]))


class BufferedEcho(BufferedRecorder):
    """Sends all received data back, and records none of it."""

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(bytes(self.buffer[:nbytes]))


class DatagramRecorder(asyncio.DatagramProtocol):
    """Notes every call; calls the function `on_datagram`, if set, with each datagram."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.got: list[tuple[bytes, Any]] = []
        self.errors: list[Exception] = []
        self.transport: Any = None
        self.on_datagram: Callable[[bytes, Any], object] = lambda data, addr: None
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.calls.append("made")

    def datagram_received(self, data: bytes, addr: Any) -> None:
        assert type(data) is bytes
        self.calls.append("datagram")
        self.got.append((data, addr))
        self.on_datagram(data, addr)

    def error_received(self, exc: Exception) -> None:
        self.calls.append("error")
        self.errors.append(exc)

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")
        self.lost.set_result(exc)

    def data(self) -> list[bytes]:
        return [data for data, _ in self.got]


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


def reset(sock: socket.socket) -> None:
    """Closes the socket with RST instead of FIN."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


async def receive_all(sock: socket.socket) -> bytes:
    """Receives to the end of the stream, by the running loop."""
    data = bytearray()
    while chunk := await asyncio.get_running_loop().sock_recv(sock, 1 << 20):
        data += chunk
    return bytes(data)


async def receive_exactly(sock: socket.socket, count: int) -> bytes:
    """Receives that many bytes, by the running loop."""
    data = bytearray()
    while len(data) < count:
        chunk = await asyncio.get_running_loop().sock_recv(sock, min(count - len(data), 1 << 16))
        assert chunk, "the peer closed early"
        data += chunk
    return bytes(data)


def can_connect(address: Any) -> bool:
    """Return whether the kernel takes a TCP connection to the address."""
    try:
        socket.create_connection(address[:2], timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def close_each(*things: Any) -> None:
    """Closes sockets, files, transports or loops, in this order."""
    for each in things:
        each.close()
