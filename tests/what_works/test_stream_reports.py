"""Public bug reports about streams and pipes: each program of a report ends as on asyncio."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import socket
import tempfile
import warnings
from typing import Any

import pytest
from protocols import Recorder, close_all, turns, until

Pair = tuple[socket.socket, socket.socket]


@pytest.mark.report("MagicStack/uvloop#42")
async def test_protocol_of_a_transport_can_be_replaced(
    loop: asyncio.AbstractEventLoop, pair: Pair
) -> None:
    transport, first = await loop.create_connection(Recorder, sock=pair[0])
    assert transport.get_protocol() is first
    second = Recorder()
    transport.set_protocol(second)
    assert transport.get_protocol() is second
    pair[1].send(b"x")
    await until(lambda: second.data)
    transport.close()
    await second.lost
    assert (first.names(), bytes(second.data)) == (["made"], b"x")


@pytest.mark.report("MagicStack/uvloop#93")
async def test_pausing_and_resuming_twice_is_no_error(
    loop: asyncio.AbstractEventLoop, pair: Pair
) -> None:
    transport, protocol = await loop.create_connection(Recorder, sock=pair[0])
    for _ in range(2):
        transport.pause_reading()
        assert not transport.is_reading()
    for _ in range(2):
        transport.resume_reading()
        assert transport.is_reading()
    transport.close()
    assert not transport.is_reading()
    transport.pause_reading()
    transport.resume_reading()
    await protocol.lost


@pytest.mark.report("MagicStack/uvloop#228")
async def test_sendfile_of_a_stream(loop: asyncio.AbstractEventLoop, pair: Pair) -> None:
    transport, protocol = await loop.create_connection(Recorder, sock=pair[0])
    with tempfile.TemporaryFile() as file:
        file.write(b"x" * 5000)
        file.flush()
        assert await loop.sendfile(transport, file, fallback=False) == 5000
    assert pair[1].recv(10_000) == b"x" * 5000
    transport.close()
    await protocol.lost


@pytest.mark.report("MagicStack/uvloop#312")
async def test_writing_pipe_is_lost_when_its_reader_is_gone(
    loop: asyncio.AbstractEventLoop,
) -> None:
    reading, writing = os.pipe()
    transport, protocol = await loop.connect_write_pipe(Recorder, os.fdopen(writing, "wb", 0))
    os.close(reading)
    await asyncio.wait_for(protocol.lost, 30)
    assert transport.is_closing()


@pytest.mark.report("MagicStack/uvloop#496")
async def test_resume_writing_writes_to_another_transport(
    loop: asyncio.AbstractEventLoop, pair: Pair
) -> None:
    others = socket.socketpair()
    for each in others:
        each.setblocking(False)
    other, lost = await loop.create_connection(Recorder, sock=others[0])

    class Telling(Recorder):
        def resume_writing(self) -> None:
            super().resume_writing()
            other.write(b"resumed")

    transport, protocol = await loop.create_connection(Telling, sock=pair[0])
    transport.write(bytes(4_000_000))
    left = 4_000_000
    while left:
        left -= len(await loop.sock_recv(pair[1], 1 << 20))
    assert await asyncio.wait_for(loop.sock_recv(others[1], 100), 30) == b"resumed"
    transport.close()
    other.close()
    await asyncio.gather(protocol.lost, lost.lost)
    others[1].close()


@pytest.mark.report("MagicStack/uvloop#631")
async def test_written_byte_is_sent_even_if_the_task_blocks(
    loop: asyncio.AbstractEventLoop,
) -> None:
    near, far = socket.socketpair()
    far.settimeout(10)
    _, writer = await asyncio.open_connection(sock=near)
    writer.write(b"\0")
    assert far.recv(1) == b"\0"
    await close_all(writer)
    far.close()


@pytest.mark.report("MagicStack/uvloop#763")
async def test_reading_pipe_is_closed_once(loop: asyncio.AbstractEventLoop) -> None:
    was_open: list[bool] = []

    class Probing(io.FileIO):
        def close(self) -> None:
            if not self.closed:
                was_open.append(os.path.exists(f"/proc/self/fd/{self.fileno()}"))
            super().close()

    reading, writing = os.pipe()
    transport, protocol = await loop.connect_read_pipe(Recorder, Probing(reading))
    transport.close()
    await protocol.lost
    await turns()
    os.close(writing)
    assert was_open == [True]


@pytest.mark.report("python/asyncio#359")
async def test_data_behind_an_abort_is_not_read(
    loop: asyncio.AbstractEventLoop, pair: Pair
) -> None:
    transport, protocol = await loop.create_connection(Recorder, sock=pair[0])
    pair[1].send(b"x")
    transport.abort()
    await protocol.lost
    await turns()
    assert protocol.names() == ["made", "lost"]


@pytest.mark.report("python/asyncio#372")
async def test_socket_of_a_transport_cannot_be_watched(
    loop: asyncio.AbstractEventLoop, pair: Pair
) -> None:
    transport, protocol = await loop.create_connection(Recorder, sock=pair[0])
    own: Any = transport.get_extra_info("socket")
    with pytest.raises(RuntimeError, match="is used by transport"):
        loop.add_reader(own.fileno(), print)
    with pytest.raises(RuntimeError, match="is used by transport"):
        loop.add_writer(own.fileno(), print)
    pair[1].send(b"x")
    await until(lambda: protocol.data)
    transport.close()
    await protocol.lost


@pytest.mark.report("python/cpython#92841")
def test_transport_that_outlives_its_loop_is_only_warned_about(
    loop: asyncio.AbstractEventLoop, pair: Pair
) -> None:
    made = [loop.run_until_complete(loop.create_connection(Recorder, sock=pair[0]))[0]]
    loop.close()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made.clear()
        gc.collect()
    assert {each.category for each in caught} <= {ResourceWarning}


@pytest.mark.report("python/cpython#115514")
async def test_everything_written_before_close_arrives(
    loop: asyncio.AbstractEventLoop, pair: Pair
) -> None:
    transport, protocol = await loop.create_connection(Recorder, sock=pair[0])
    transport.writelines([bytes(1_000_000) for _ in range(4)])
    transport.write(b"end")
    transport.close()
    got = bytearray()
    while data := await loop.sock_recv(pair[1], 1 << 20):
        got += data
    assert (len(got), got[-3:]) == (4_000_003, b"end")
    await protocol.lost


@pytest.mark.report("python/cpython#136234")
async def test_writelines_to_a_lost_connection_does_not_raise(
    loop: asyncio.AbstractEventLoop, pair: Pair
) -> None:
    transport, protocol = await loop.create_connection(Recorder, sock=pair[0])
    transport.abort()
    await protocol.lost
    transport.writelines([b"x", b"y"])
