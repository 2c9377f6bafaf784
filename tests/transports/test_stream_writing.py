"""Data that a stream accepts for writing, its limits, and waiting until all is written."""

from __future__ import annotations

import array
import asyncio
import errno
import gc
import logging
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

import asyncio_messages
import pytest
from conftest import Errors, tcp_pair
from failing_calls import fail_call
from protocols import Recorder, close_all, connect, hang_up, until
from stream_tools import attach, received

Loop = asyncio.AbstractEventLoop
Pair = tuple[socket.socket, socket.socket]


# ---- buffers to write ----------------------------------------------------------------


class Word(bytes):
    pass


def slices(data: bytes) -> memoryview:
    return memoryview(b"--" + data + b"--")[2:-2]


@pytest.mark.parametrize(
    "make",
    [
        bytes,
        Word,
        bytearray,
        memoryview,
        slices,
        lambda data: memoryview(bytearray(data)),
        lambda data: memoryview(memoryview(slices(data))),
        lambda data: memoryview(array.array("B", data)).cast("c"),
    ],
)
async def test_every_bytes_like_object_is_sent(
    loop: Loop, pair: Pair, make: Callable[[bytes], Any]
) -> None:
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    for data in (b"", b"one", b"", b"two" * 70_000):
        protocol.transport.write(make(data))
        gc.collect()
    protocol.transport.writelines([make(b"three"), make(b""), b"four"])
    protocol.transport.writelines([])
    protocol.transport.writelines(make(data) for data in (b"five", b"six"))
    protocol.transport.close()
    expected = b"one" + b"two" * 70_000 + b"threefourfivesix"
    assert await loop.run_in_executor(None, received, far) == expected
    await protocol.lost


async def test_a_mutable_buffer_may_change_after_write(loop_name: str, loop: Loop) -> None:
    near, far = tcp_pair()
    protocol = await attach(loop, near, Recorder())
    buffer = bytearray(b"before")
    protocol.transport.write(buffer)
    buffer[:] = b"behind"
    buffer += b"and no export keeps it from growing"
    protocol.transport.write(memoryview(buffer)[:6])
    protocol.transport.close()
    assert await loop.run_in_executor(None, received, far) == b"beforebehind"
    await protocol.lost
    far.close()


@pytest.mark.parametrize("data", ["text", None, 1, array.array("B", b"x"), [b"x"]])
async def test_write_refuses_other_than_bytes_like_objects(
    loop: Loop, pair: Pair, data: Any
) -> None:
    protocol = await attach(loop, pair[0], Recorder())
    with pytest.raises(TypeError) as caught:
        protocol.transport.write(data)
    assert (
        str(caught.value)
        == f"data argument must be {asyncio_messages.DATA}, not {type(data).__name__!r}"
    )
    assert not protocol.transport.is_closing()
    await hang_up(protocol)


async def test_writelines_with_one_bad_item_sends_nothing(
    loop: Loop, loop_name: str, pair: Pair
) -> None:
    if loop_name == "asyncio" and sys.version_info >= (3, 15):
        pytest.skip("asyncio keeps what is before it, and sends it with what is written next")
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    with pytest.raises(TypeError):
        protocol.transport.writelines([b"good", "bad"])
    with pytest.raises(TypeError):
        protocol.transport.writelines(1)
    assert protocol.transport.get_write_buffer_size() == 0
    protocol.transport.close()
    assert await loop.run_in_executor(None, received, far) == b""
    await protocol.lost


async def test_released_view_is_refused_and_noncontiguous_view_is_fatal(
    loop: Loop, pair: Pair, errors: Errors
) -> None:
    near, _ = pair
    protocol = await attach(loop, near, Recorder())
    view = memoryview(b"gone")
    view.release()
    with pytest.raises(ValueError, match="released memoryview"):
        protocol.transport.write(view)
    assert not protocol.transport.is_closing()
    protocol.transport.write(memoryview(b"0123456789")[::2])
    assert type(await protocol.lost) is BufferError
    errors.expect(BufferError, "Fatal write error on socket transport")


async def test_writes_after_write_eof_are_refused(loop: Loop, pair: Pair) -> None:
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    protocol.transport.write(b"all")
    protocol.transport.write_eof()
    protocol.transport.write_eof()
    with pytest.raises(RuntimeError, match=r"^Cannot call write\(\) after write_eof\(\)$"):
        protocol.transport.write(b"more")
    name = "writelines" if sys.version_info >= (3, 12) else "write"
    with pytest.raises(RuntimeError, match=rf"^Cannot call {name}\(\) after write_eof\(\)$"):
        protocol.transport.writelines([b"more"])
    assert await loop.run_in_executor(None, received, far) == b"all"
    await hang_up(protocol)


async def test_writes_after_connection_lost_are_counted_and_logged(
    loop: Loop, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    protocol = await attach(loop, pair[0], Recorder())
    protocol.transport.abort()
    with caplog.at_level(logging.WARNING, logger="asyncio"):
        for _ in range(4):
            protocol.transport.write(b"x")
        assert not caplog.records
        protocol.transport.write(b"x")
    assert [record.getMessage() for record in caplog.records] == ["socket.send() raised exception."]
    await protocol.lost


@pytest.mark.parametrize(
    ("arguments", "limits"),
    [
        ({}, (16384, 65536)),
        ({"high": 1000}, (250, 1000)),
        ({"low": 1000}, (1000, 4000)),
        ({"high": 0}, (0, 0)),
        ({"high": 7, "low": 7}, (7, 7)),
        ({"high": 10.5, "low": 1}, (1, 10.5)),
        ({"high": float("inf"), "low": 1}, (1, float("inf"))),
        ({"high": 1 << 100}, (1 << 98, 1 << 100)),
    ],
)
async def test_limits_are_computed_and_checked_as_asyncio_does(
    loop: Loop, pair: Pair, arguments: dict[str, Any], limits: Any
) -> None:
    protocol = await attach(loop, pair[0], Recorder())
    protocol.transport.set_write_buffer_limits(**arguments)
    assert protocol.transport.get_write_buffer_limits() == limits
    with pytest.raises(ValueError, match=r"^high \(1\) must be >= low \(2\) must be >= 0$"):
        protocol.transport.set_write_buffer_limits(1, 2)
    with pytest.raises(ValueError, match="must be >= 0"):
        protocol.transport.set_write_buffer_limits(-1)
    with pytest.raises(TypeError):
        protocol.transport.set_write_buffer_limits("much")
    await hang_up(protocol)


async def test_lower_limits_pause_at_once(loop: Loop, pair: Pair) -> None:
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    protocol.transport.set_write_buffer_limits(high=64 << 20)
    protocol.transport.write(b"x" * (16 << 20))
    assert protocol.names() == ["made"]
    protocol.transport.set_write_buffer_limits(high=1)
    assert protocol.names() == ["made", "pause"]
    protocol.transport.close()
    await loop.run_in_executor(None, received, far)
    await protocol.lost
    assert protocol.names() == ["made", "pause", "resume", "lost"]


async def test_the_empty_waiter_is_done_when_all_is_sent(loop: Loop, pair: Pair) -> None:
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    transport = protocol.transport
    transport.write(b"few")
    waiter = transport._make_empty_waiter()
    assert waiter.done()
    with pytest.raises(RuntimeError, match="sendfile is in progress"):
        transport.write(b"x")
    with pytest.raises(RuntimeError, match="already set"):
        transport._make_empty_waiter()
    transport._reset_empty_waiter()
    transport.write(b"x" * (16 << 20))
    waiter = transport._make_empty_waiter()
    assert not waiter.done()
    reading = loop.run_in_executor(None, received, far)
    await waiter
    assert transport.get_write_buffer_size() == 0
    transport._reset_empty_waiter()
    transport.close()
    assert len(await reading) == 3 + (16 << 20)
    await protocol.lost


async def test_the_empty_waiter_of_a_lost_connection_raises(loop: Loop, pair: Pair) -> None:
    protocol = await attach(loop, pair[0], Recorder())
    protocol.transport.write(b"x" * (16 << 20))
    waiter = protocol.transport._make_empty_waiter()
    protocol.transport.abort()
    with pytest.raises(ConnectionError, match=r"^Connection is closed by peer$"):
        await waiter
    await protocol.lost


# ---- the end -------------------------------------------------------------------------


async def test_writes_of_another_thread_do_not_corrupt_data(loop: Loop, pair: Pair) -> None:
    """Not allowed, and asyncio's usually works: it must not corrupt memory."""
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    count = 2000

    def write() -> None:
        for _ in range(count):
            protocol.transport.write(b"0123456789")
            protocol.transport.pause_reading()
            protocol.transport.resume_reading()

    protocol.transport.set_write_buffer_limits(high=1 << 30)
    reading = loop.run_in_executor(None, received, far)
    await loop.run_in_executor(None, write)
    protocol.transport.close()
    got = await reading
    assert got == b"0123456789" * count
    await protocol.lost


# ---- much at once, which is sent within write() ----------------------------------------

LARGE = 100_000


@pytest.mark.parametrize("size", [65_536, 65_537, LARGE])
async def test_much_is_in_the_kernel_when_write_returns(loop: Loop, pair: Pair, size: int) -> None:
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    data = bytes(size)
    protocol.transport.write(data)
    assert protocol.transport.get_write_buffer_size() == 0
    assert len(far.recv(2 * size, socket.MSG_WAITALL | socket.MSG_PEEK)) > 0
    assert protocol.names() == ["made"]
    await hang_up(protocol)


async def test_much_keeps_its_place_among_other_writes(loop: Loop) -> None:
    near, far, server = await connect(loop)  # no other code has their sockets, so little is pending
    sent: tuple[bytearray, bytearray] = bytearray(), bytearray()
    for count in range(60):
        for size in (1, LARGE, LARGE + 1, 10, 3 * LARGE)[count % 3 :]:
            data = bytes([(count + size) % 251]) * size
            for protocol, expected in zip((near, far), sent, strict=True):
                expected += data
                protocol.transport.write(data)
        await asyncio.sleep(0)
    await until(lambda: (len(far.data), len(near.data)) == (len(sent[0]), len(sent[1])))
    assert far.data == sent[0]
    assert near.data == sent[1]
    await hang_up(near, far)
    await close_all(server)


async def test_rest_of_a_large_write_is_sent_later(loop: Loop, pair: Pair) -> None:
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    data = bytes(range(256)) * 40_000
    protocol.transport.write(data)
    left = protocol.transport.get_write_buffer_size()
    assert 0 < left < len(data)
    assert protocol.names() == ["made", "pause"]
    reading = loop.run_in_executor(None, received, far)
    while "resume" not in protocol.names():
        await asyncio.sleep(0)
    protocol.transport.close()
    assert await reading == data
    assert await protocol.lost is None


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EINTR])
@pytest.mark.goloop_only("asyncio's calls are Python's")
async def test_much_that_is_refused_is_sent_later(loop: Loop, pair: Pair, number: int) -> None:
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    fail_call("send", number)
    protocol.transport.write(b"x" * LARGE)
    protocol.transport.close()
    assert await loop.run_in_executor(None, received, far) == b"x" * LARGE
    assert await protocol.lost is None


@pytest.mark.parametrize("number", [errno.ECONNRESET, errno.ENOBUFS])
@pytest.mark.goloop_only("asyncio's calls are Python's")
async def test_error_of_a_large_write_is_reported_at_once(
    loop: Loop, pair: Pair, number: int
) -> None:
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    fail_call("send", number)
    protocol.transport.write(b"x" * LARGE)
    assert protocol.transport.is_closing()
    assert protocol.transport.get_write_buffer_size() == 0
    protocol.transport.write(b"x" * LARGE)
    lost = await protocol.lost
    assert isinstance(lost, OSError)
    assert lost.errno == number
    far.setblocking(False)
    assert far.recv(10) == b""


@pytest.mark.parametrize(
    "send",
    [
        lambda transport: transport.write(b"x" * LARGE),
        lambda transport: transport.writelines([b"x", b"y"]),
    ],
    ids=["much", "pieces"],
)
async def test_write_to_a_lost_peer(loop: Loop, pair: Pair, send: Callable[[Any], None]) -> None:
    """Data is sent at once if it is large, or if the program also has the socket."""
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    protocol.transport.pause_reading()
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()
    send(protocol.transport)
    assert protocol.transport.is_closing()
    assert protocol.transport.get_write_buffer_size() == 0
    assert isinstance(await protocol.lost, ConnectionError)


# Since 3.15 asyncio queues each item before it asks for the next.
ONE_BY_ONE = sys.version_info >= (3, 15)
FROM_WITHIN = {
    "write": b"g1;inner;g2;" if ONE_BY_ONE else b"inner;g1;g2;",
    "close": b"g1;g2;" if ONE_BY_ONE else b"",
    "write_eof": b"g1;g2;" if ONE_BY_ONE else b"",
}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="joins the items and calls write()")
@pytest.mark.parametrize("act", FROM_WITHIN)
async def test_a_generator_of_lines_uses_its_transport(loop: Loop, act: str) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    _, protocol = await loop.create_connection(Recorder, sock=near)
    transport = protocol.transport

    def lines() -> Iterator[bytes]:
        yield b"g1;"
        if act == "write":
            transport.write(b"inner;")
        else:
            getattr(transport, act)()
        yield b"g2;"

    transport.writelines(lines())
    transport.close()
    await protocol.lost
    assert received(far) == FROM_WITHIN[act]
    far.close()
