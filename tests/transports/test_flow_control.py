"""Backpressure: when a protocol is told to pause and to resume, and exact buffer sizes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from typing import Any

import pytest
from conftest import tcp_pair
from protocols import (
    Made,
    Recorder,
    close_all,
    close_each,
    hang_up,
    receive_all,
    receive_exactly,
    turns,
    until,
)

Loop = asyncio.AbstractEventLoop
MIB = 1 << 20
# More than the kernel's buffers of against_a_mute_peer take.
MUCH = 4 * MIB


async def against_a_mute_peer(loop: Loop) -> tuple[Recorder, socket.socket]:
    """A transport, and the raw peer, which does not read by itself.

    The kernel's buffers are bounded, but hold several segments of the loopback
    (64 KiB each): with smaller ones TCP waits for timers of its own.
    """
    near, far = tcp_pair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 256 * 1024)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * 1024)
    _, protocol = await loop.create_connection(Recorder, sock=near)
    return protocol, far


async def with_full_buffers(loop: Loop) -> tuple[Recorder, socket.socket]:
    """Connect, and fill the kernel's buffers, so that each written byte stays in the transport."""
    protocol, far = await against_a_mute_peer(loop)
    protocol.transport.set_write_buffer_limits(high=100 * MIB)
    protocol.transport.write(b"x" * MUCH)
    sizes = [0, 0]

    def settled() -> bool:
        """Whether the buffer is as large as it was at the last look, and not empty."""
        sizes[:] = sizes[1], protocol.transport.get_write_buffer_size()
        return sizes[0] == sizes[1] > 0

    await until(settled)
    return protocol, far


async def test_pause_and_resume_alternate_without_loss(loop: Loop) -> None:
    protocol, far = await against_a_mute_peer(loop)
    payload = bytes(range(256)) * (MUCH // 256)
    protocol.transport.write(payload)
    assert protocol.names() == ["made", "pause"]
    size = protocol.transport.get_write_buffer_size()
    assert 0 < size <= MUCH
    assert await receive_exactly(far, MUCH) == payload
    await until(lambda: "resume" in protocol.names())
    assert protocol.names() == ["made", "pause", "resume"]
    assert protocol.transport.get_write_buffer_size() == 0
    await hang_up(protocol, far=far)


async def test_buffer_size_is_exact_after_each_write(loop: Loop) -> None:
    protocol, far = await with_full_buffers(loop)
    transport = protocol.transport
    size = transport.get_write_buffer_size()
    for chunk in (b"a", b"", bytearray(100), memoryview(b"abcd"), b"z" * 70_000):
        transport.write(chunk)
        size += len(chunk)
        assert transport.get_write_buffer_size() == size
    await hang_up(protocol, far=far)


async def test_buffer_size_is_exact_after_writelines(loop: Loop) -> None:
    protocol, far = await with_full_buffers(loop)
    transport, written = protocol.transport, MUCH
    # writelines tries to send, and the kernel takes more than it offers.
    for _ in range(100):
        size = transport.get_write_buffer_size()
        transport.writelines([b"12", b"", bytearray(b"345")])
        written += 5
        assert transport.get_write_buffer_size() <= size + 5
        if transport.get_write_buffer_size() == size + 5:
            break
    else:
        raise AssertionError("the kernel's buffer was never full")
    assert len(await receive_exactly(far, written)) == written
    await until(lambda: transport.get_write_buffer_size() == 0)
    await hang_up(protocol, far=far)


async def test_pause_writing_is_called_only_above_the_high_mark(loop: Loop) -> None:
    protocol, far = await with_full_buffers(loop)
    transport = protocol.transport
    size = transport.get_write_buffer_size()
    transport.set_write_buffer_limits(high=size + 10, low=size)
    transport.write(b"y" * 10)
    assert "pause" not in protocol.names()
    transport.write(b"y")
    assert protocol.names()[-1] == "pause"
    transport.write(b"y" * 1000)
    assert protocol.names().count("pause") == 1
    await hang_up(protocol, far=far)


async def test_resume_writing_is_called_at_the_low_mark(loop: Loop) -> None:
    protocol, far = await against_a_mute_peer(loop)
    transport = protocol.transport
    low = 64 * 1024
    transport.set_write_buffer_limits(high=256 * 1024, low=low)
    sizes: list[int] = []
    resume = protocol.resume_writing

    def noted() -> None:
        sizes.append(transport.get_write_buffer_size())
        resume()

    protocol.resume_writing = noted  # type: ignore[method-assign]
    transport.write(b"x" * MUCH)
    assert protocol.names() == ["made", "pause"]
    received = 0
    while not sizes:
        received += len(await loop.sock_recv(far, 16384))
    assert sizes[0] <= low
    # All that has left is with the peer or in the kernel.
    assert received >= MUCH - low - 2 * MIB
    await hang_up(protocol, far=far)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (16384, 65536)),
        ({"high": 1000}, (250, 1000)),
        ({"low": 1000}, (1000, 4000)),
        ({"high": 1000, "low": 0}, (0, 1000)),
        ({"high": 0}, (0, 0)),
        ({"high": 7, "low": 7}, (7, 7)),
        ({"high": 10.5, "low": 1}, (1, 10.5)),
        ({"high": float("inf"), "low": 1}, (1, float("inf"))),
        ({"high": 1 << 100}, (1 << 98, 1 << 100)),
    ],
)
async def test_limits_follow_from_those_given_and_impossible_ones_change_nothing(
    loop: Loop, given: dict[str, Any], expected: tuple[float, float]
) -> None:
    protocol, far = await against_a_mute_peer(loop)
    transport = protocol.transport
    transport.set_write_buffer_limits(high=5, low=1)
    transport.set_write_buffer_limits(**given)
    assert transport.get_write_buffer_limits() == expected
    for high, low in ((5, 6), (-1, None), (5, -1)):
        with pytest.raises(
            ValueError, match=rf"^high \({high}\) must be >= low \(.*\) must be >= 0$"
        ):
            transport.set_write_buffer_limits(high, low)
        assert transport.get_write_buffer_limits() == expected
    await hang_up(protocol, far=far)


async def test_zero_limits_pause_at_any_byte_left_over(loop: Loop) -> None:
    protocol, far = await against_a_mute_peer(loop)
    transport = protocol.transport
    transport.set_write_buffer_limits(high=0)
    transport.write(b"x" * MUCH)
    assert protocol.names() == ["made", "pause"]
    await receive_exactly(far, MUCH)
    await until(lambda: "resume" in protocol.names())
    await hang_up(protocol, far=far)


@pytest.mark.parametrize("mark", [float("nan"), float("-inf"), -1e300, -1])
async def test_a_mark_below_every_size_pauses_when_empty_and_never_resumes(
    loop: Loop, mark: float
) -> None:
    protocol, far = await against_a_mute_peer(loop)
    transport: Any = protocol.transport
    transport._high_water = mark
    transport._maybe_pause_protocol()
    assert protocol.names() == ["made", "pause"]
    transport._low_water = mark
    transport._maybe_resume_protocol()
    assert protocol.names() == ["made", "pause"]
    transport.set_write_buffer_limits()
    transport._maybe_resume_protocol()
    assert protocol.names() == ["made", "pause", "resume"]
    await hang_up(protocol, far=far)


async def test_a_mutable_buffer_may_change_after_write(loop: Loop, loop_name: str) -> None:
    if loop_name == "asyncio" and sys.version_info >= (3, 12):
        pytest.skip("asyncio sends what a mutable buffer holds when its turn comes, since 3.12")
    protocol, far = await against_a_mute_peer(loop)
    word = bytearray(b"first")
    protocol.transport.write(word)
    word[:] = b"other"
    word += b", and no export keeps it from growing"
    data = bytearray(b"a" * MUCH)
    protocol.transport.write(data)
    data[:] = b"b" * MUCH
    view = bytearray(b"c" * 1000)
    protocol.transport.write(memoryview(view))
    view[:] = b"d" * 1000
    expected = b"first" + b"a" * MUCH + b"c" * 1000
    assert await receive_exactly(far, len(expected)) == expected
    await hang_up(protocol, far=far)


async def test_pause_reading_stops_data_and_resume_brings_it(loop: Loop) -> None:
    protocol, far = await against_a_mute_peer(loop)
    transport = protocol.transport
    assert transport.is_reading()
    transport.pause_reading()
    assert not transport.is_reading()
    transport.pause_reading()  # again: no effect
    await loop.sock_sendall(far, b"hello")
    # Another connection's bytes come after, so these would have come by now.
    other, other_far = await against_a_mute_peer(loop)
    await loop.sock_sendall(other_far, b"later")
    await until(lambda: other.data == b"later")
    assert protocol.data == b""
    transport.resume_reading()
    assert transport.is_reading()
    transport.resume_reading()
    await until(lambda: protocol.data == b"hello")
    close_each(far, other_far)
    await hang_up(protocol, other)


async def test_pausing_in_data_received_stops_after_that_call(loop: Loop) -> None:
    protocol, far = await against_a_mute_peer(loop)
    received: list[bytes] = []

    def data_received(data: bytes) -> None:
        received.append(data)
        protocol.transport.pause_reading()

    protocol.data_received = data_received  # type: ignore[method-assign]
    await loop.sock_sendall(far, b"one")
    await until(lambda: received)
    await loop.sock_sendall(far, b"two")
    await turns(20)
    assert received == [b"one"]
    protocol.transport.resume_reading()
    await until(lambda: len(received) == 2)
    await hang_up(protocol, far=far)


async def test_a_writer_that_never_yields_is_paused_within_the_limits(loop: Loop) -> None:
    protocol, far = await against_a_mute_peer(loop)
    written = 0
    while "pause" not in protocol.names():
        protocol.transport.write(b"x" * 10_000)
        written += 10_000
        assert written < 64 * MIB
    assert protocol.transport.get_write_buffer_size() <= 65536 + 10_000
    await hang_up(protocol, far=far)


async def test_streams_drain_waits_for_the_reader(loop: Loop) -> None:
    near, far = tcp_pair()
    _, writer = await asyncio.open_connection(sock=near)
    writer.write(b"x" * (16 * MIB))
    drain = asyncio.ensure_future(writer.drain())
    await turns(20)
    assert not drain.done()
    await receive_exactly(far, 16 * MIB)
    await drain
    await close_all(writer)
    far.close()


class LastWord(Recorder):
    """Writes in resume_writing(), as TLS does: its close_notify waits until there is room."""

    def resume_writing(self) -> None:
        super().resume_writing()
        self.transport.write(b"the last word")


@pytest.mark.parametrize("size", [MUCH, 300_000])
async def test_bytes_written_by_resume_writing_on_a_closing_transport_are_sent(
    loop: Loop, size: int
) -> None:
    for _ in range(20):
        near, far = tcp_pair()
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        _, protocol = await loop.create_connection(LastWord, sock=near)
        protocol.transport.set_write_buffer_limits(high=1000)
        payload = bytes(size)
        protocol.transport.write(payload)
        assert protocol.names() == ["made", "pause"]
        protocol.transport.close()
        received = await receive_all(far)
        assert len(received) == size + len(b"the last word")
        assert received.endswith(b"the last word")
        assert await protocol.lost is None
        assert protocol.names() == ["made", "pause", "resume", "lost"]
        far.close()


async def test_bytes_written_by_resume_writing_right_after_close_are_sent(
    loop: Loop, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    transport, protocol = await loop.connect_accepted_socket(LastWord, near)  # type: ignore[attr-defined]
    sent = 0
    while "pause" not in protocol.names():
        transport.write(bytes(200_000))
        sent += 200_000
        await asyncio.sleep(0)
    # Nothing of the loop runs from here to close(): the kernel has room for all that
    # is queued by then.
    received = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            received += len(far.recv(1 << 20))
    transport.close()
    rest = await receive_all(far)
    assert rest.endswith(b"the last word")
    assert received + len(rest) == sent + len(b"the last word")
    assert await protocol.lost is None
    assert protocol.names()[-2:] == ["resume", "lost"]


async def test_sent_last_bytes_end_the_poll(loop: Loop) -> None:
    """The last bytes leave in a turn that could wait for ever: that they have left ends it.

    The connection is an accepted one: a write on a socket of the caller's is sent at once.
    """
    made = Made(LastWord)
    server = await loop.create_server(made, "127.0.0.1", 0)
    far = socket.create_connection(server.sockets[0].getsockname())
    far.setblocking(False)
    await until(lambda: made and "made" in made[0].names())
    server.close()
    protocol, transport = made[0], made[0].transport
    transport.pause_reading()
    while "pause" not in protocol.names():
        transport.write(bytes(200_000))
        await asyncio.sleep(0)
    with contextlib.suppress(BlockingIOError):
        while far.recv(1 << 20):
            pass
    transport.close()
    # The peer does nothing more.
    assert await protocol.lost is None
    assert protocol.names()[-2:] == ["resume", "lost"]
    far.close()


@pytest.mark.goloop_only("asyncio resumes when bytes leave, which they don't if the peer waits")
async def test_raised_limits_resume_the_protocol(loop: Loop) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    _, protocol = await loop.create_connection(Recorder, sock=near)
    protocol.transport.write(bytes(8 << 20))
    assert protocol.names() == ["made", "pause"]
    protocol.transport.set_write_buffer_limits(high=16 << 20)
    await turns()
    assert protocol.names() == ["made", "pause"]  # the low mark is 4 MiB
    protocol.transport.set_write_buffer_limits(high=64 << 20)
    assert protocol.names() == ["made", "pause"]
    await turns()
    assert protocol.names() == ["made", "pause", "resume"]
    protocol.transport.set_write_buffer_limits(high=1 << 20)
    assert protocol.names() == ["made", "pause", "resume", "pause"]
    await hang_up(protocol)
    far.close()
