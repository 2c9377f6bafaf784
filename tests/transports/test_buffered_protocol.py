"""BufferedProtocol: buffers of any size, hints, errors, and pausing."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
from typing import Any

import pytest
from conftest import Errors
from protocols import BufferedEcho, BufferedRecorder, Recorder, close_all, hang_up, turns, until
from stream_tools import open_pair
from test_reading_much import much

Loop = asyncio.AbstractEventLoop


@pytest.mark.parametrize("size", [1, 2, 7, 64, 4096, 1 << 20])
async def test_buffers_of_any_size_get_every_byte(loop: Loop, size: int) -> None:
    payload = os.urandom(20_000 if size < 64 else 2_000_000)
    protocol, far = await open_pair(loop, lambda: BufferedRecorder(size))
    await loop.sock_sendall(far, payload)
    far.shutdown(socket.SHUT_WR)
    await protocol.lost
    assert protocol.data == payload
    assert protocol.eof.done()
    assert all(hint == -1 or hint > 0 for hint in protocol.hints)
    far.close()


async def test_a_new_buffer_each_time_gets_every_byte(loop: Loop) -> None:
    class Changing(BufferedRecorder):
        count = 0

        def get_buffer(self, sizehint: int) -> bytearray:
            self.count += 1
            self.buffer = bytearray(self.count % 50 + 1)
            return self.buffer

    payload = os.urandom(50_000)
    protocol, far = await open_pair(loop, Changing)
    await loop.sock_sendall(far, payload)
    await until(lambda: len(protocol.data) == len(payload))
    assert protocol.data == payload
    await hang_up(protocol, far=far)


async def test_a_memoryview_serves_as_buffer(loop: Loop) -> None:
    class Viewed(BufferedRecorder):
        def get_buffer(self, sizehint: int) -> Any:
            return memoryview(self.buffer)[10:20]

        def buffer_updated(self, nbytes: int) -> None:
            self.data += self.buffer[10 : 10 + nbytes]

    protocol, far = await open_pair(loop, Viewed)
    far.send(b"0123456789abcdef")
    await until(lambda: protocol.data == b"0123456789abcdef")
    await hang_up(protocol, far=far)


# After much at once goloop receives straight into the buffer.
by_much = pytest.mark.parametrize("after_much", [False, True])


@pytest.mark.parametrize("method", ["get_buffer", "buffer_updated", "eof_received"])
@by_much
async def test_failing_callbacks_are_fatal(
    loop: Loop, errors: Errors, method: str, after_much: bool
) -> None:
    def fail(*args: Any) -> Any:
        raise ZeroDivisionError(method)

    protocol, far = await open_pair(loop, BufferedRecorder)
    if after_much:
        await much(loop, protocol, far)
    setattr(protocol, method, fail)
    # A buffered protocol's methods may be looked up only once, so set the protocol again.
    protocol.transport.set_protocol(protocol)
    far.send(b"x")
    far.shutdown(socket.SHUT_WR)
    assert isinstance(await protocol.lost, ZeroDivisionError)
    errors.expect(ZeroDivisionError, f"Fatal error: protocol.{method}() call failed.")
    far.close()


async def test_pausing_in_buffer_updated_after_much_holds_the_rest_back(loop: Loop) -> None:
    class Pausing(BufferedRecorder):
        pausing = False

        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            if self.pausing:
                self.transport.pause_reading()

    protocol, far = await open_pair(loop, Pausing)
    await much(loop, protocol, far)
    protocol.pausing = True
    protocol.buffer = bytearray(4)
    far.send(b"abcdefgh")
    await until(lambda: protocol.data)
    await turns(10)
    assert protocol.data == b"abcd"
    protocol.transport.resume_reading()
    await until(lambda: protocol.data == b"abcdefgh")
    far.close()
    protocol.transport.resume_reading()
    assert await protocol.lost is None


@by_much
@pytest.mark.parametrize("method", ["close", "abort"])
async def test_ending_in_get_buffer_ends_the_connection(
    loop: Loop, method: str, after_much: bool
) -> None:
    class Ending(BufferedRecorder):
        ending = False

        def get_buffer(self, sizehint: int) -> bytearray:
            if self.ending:
                getattr(self.transport, method)()
            return super().get_buffer(sizehint)

    protocol, far = await open_pair(loop, Ending)
    if after_much:
        await much(loop, protocol, far)
    protocol.ending = True
    far.send(b"abc")
    assert await protocol.lost is None
    far.close()


async def test_a_buffer_that_is_shrunk_while_we_read_is_refused_by_python(loop: Loop) -> None:
    """Memory safety: the buffer stays exported only while it is filled."""
    protocol, far = await open_pair(loop, lambda: BufferedRecorder(16))
    far.send(b"abc")
    await until(lambda: protocol.data == b"abc")
    protocol.buffer.clear()  # raises BufferError if it is still exported
    protocol.buffer.extend(bytes(32))
    far.send(b"def")
    await until(lambda: protocol.data == b"abcdef")
    await hang_up(protocol, far=far)


async def test_a_server_of_buffered_protocols_echoes(loop: Loop) -> None:
    server = await loop.create_server(lambda: BufferedEcho(100), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    payload = os.urandom(300_000)
    writer.write(payload)
    assert await reader.readexactly(len(payload)) == payload
    await close_all(writer, server)


def holds(got: bytearray, payload: bytes) -> bool:
    return got == payload


async def test_protocols_take_turns_after_much(loop: Loop) -> None:
    protocol, far = await open_pair(loop, BufferedRecorder)
    await much(loop, protocol, far)
    plain = Recorder()
    for turn in range(6):
        protocol.transport.set_protocol(plain if turn % 2 == 0 else protocol)
        payload = os.urandom(300_000 if turn < 4 else 100)
        got = plain.data if turn % 2 == 0 else protocol.data
        got.clear()
        await loop.sock_sendall(far, payload)
        await until(functools.partial(holds, got, payload))
    await hang_up(protocol, far=far)
