"""Pausing under TLS, on both sides and in every layer."""

from __future__ import annotations

import asyncio
import hashlib
import random
import socket
import threading

import pytest
from protocols import Recorder, turns, until
from tls_connections import TIME_LIMIT, hexdigest, with_peer
from tls_tools import Peer

Loop = asyncio.AbstractEventLoop


async def test_writing_to_a_peer_that_does_not_read_pauses_and_loses_nothing(loop: Loop) -> None:
    release = threading.Event()
    digest: list[str] = []

    def peer_does(peer: Peer) -> None:
        assert release.wait(TIME_LIMIT)
        digest.append(hexdigest(peer.read_all()))

    protocol, working = await with_peer(loop, "client", peer_does)
    transport = protocol.transport
    transport.set_write_buffer_limits(high=100_000, low=10_000)
    assert transport.get_write_buffer_limits() == (10_000, 100_000)
    written = hashlib.sha256()
    chunks = random.Random(5)
    while "pause" not in protocol.names():
        chunk = chunks.randbytes(50_000)
        written.update(chunk)
        transport.write(chunk)
        await turns(1)
    await turns(10)
    assert transport.get_write_buffer_size() >= 100_000
    # Further data is taken and counted, though the protocol was told.
    before = transport.get_write_buffer_size()
    transport.write(b"x" * 40_000)
    written.update(b"x" * 40_000)
    assert transport.get_write_buffer_size() >= before + 40_000
    assert protocol.names().count("pause") == 1
    release.set()
    await until(lambda: "resume" in protocol.names())
    await until(lambda: transport.get_write_buffer_size() == 0)
    transport.close()
    await protocol.lost
    await working
    assert digest == [written.hexdigest()]


@pytest.mark.goloop_only("asyncio counts what TLS holds, and not what the transport below does")
async def test_buffer_size_includes_bytes_queued_below_tls(loop: Loop) -> None:
    release = threading.Event()

    def peer_does(peer: Peer) -> bytes:
        assert release.wait(TIME_LIMIT)
        return peer.read_all()

    protocol, working = await with_peer(loop, "client", peer_does)
    protocol.transport.write(bytes(16_000_000))
    assert protocol.transport.get_write_buffer_size() > 1_000_000
    release.set()
    await until(lambda: protocol.transport.get_write_buffer_size() == 0)
    protocol.transport.close()
    assert await working == bytes(16_000_000)
    await protocol.lost
    assert protocol.transport.get_write_buffer_size() == 0


@pytest.mark.parametrize("limits", [{"high": 256}, {"high": 300_000, "low": 100}, {}])
async def test_buffer_size_agrees_with_pause_and_resume_writing(
    loop: Loop, loop_name: str, limits: dict[str, int]
) -> None:
    """pause_writing() precedes a size at the limit, and resume_writing() a size below."""
    release = threading.Event()
    sizes: list[int] = []

    class Told(Recorder):
        def resume_writing(self) -> None:
            super().resume_writing()
            sizes.append(self.transport.get_write_buffer_size())

    def peer_does(peer: Peer) -> int:
        assert release.wait(TIME_LIMIT)
        return len(peer.read_all())

    protocol, working = await with_peer(loop, "client", peer_does, factory=Told)
    transport = protocol.transport
    transport.set_write_buffer_limits(**limits)
    low, high = transport.get_write_buffer_limits()
    written = 0
    while "pause" not in protocol.names():
        transport.write(bytes(1000))
        written += 1000
        if loop_name != "asyncio":  # the size excludes the bytes of the transport below
            paused = protocol.names()[-1] == "pause"
            assert paused == (transport.get_write_buffer_size() >= high)
        await asyncio.sleep(0)
    release.set()
    await until(lambda: "resume" in protocol.names())
    await until(lambda: transport.get_write_buffer_size() == 0)
    assert protocol.names().count("pause") == protocol.names().count("resume")
    assert all(size <= low for size in sizes)
    transport.close()
    assert await working == written
    await protocol.lost


@pytest.mark.goloop_only("asyncio leaves the limits of the transport below alone")
async def test_limits_are_restored_on_the_transport_below(loop: Loop) -> None:
    protocol, working = await with_peer(loop, "client", Peer.read_all)
    below = protocol.transport._ssl_protocol._transport
    found = below.get_write_buffer_limits()
    protocol.transport.set_write_buffer_limits(high=1000, low=200)
    assert below.get_write_buffer_limits() == (200, 999)
    protocol.transport.set_write_buffer_limits(high=0)
    assert below.get_write_buffer_limits() == (0, 0)
    protocol.transport.set_write_buffer_limits()
    assert below.get_write_buffer_limits() == found
    protocol.transport.close()
    await working
    await protocol.lost


async def test_a_paused_reader_holds_the_peer_up(loop: Loop) -> None:
    """The bytes that a peer can send are limited by the buffers on the way."""
    payload_size = 32_000_000
    sent = [0]
    stalled = asyncio.Event()
    digest = hashlib.sha256()

    class Counting(Recorder):
        count = 0
        hash = hashlib.sha256()

        def data_received(self, data: bytes) -> None:
            self.count += len(data)
            self.hash.update(data)

    def peer_does(peer: Peer) -> None:
        data = random.Random(6)
        peer.sock.settimeout(None)  # or Python waits before it asks the kernel
        while sent[0] < payload_size:
            chunk = data.randbytes(1_000_000)
            digest.update(chunk)
            sealed = memoryview(peer.seal(chunk))
            while sealed:
                try:
                    sealed = sealed[peer.sock.send(sealed, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    # Full: once the loop has had its chances, that is the bound.
                    asyncio.run_coroutine_threadsafe(turns(20), loop).result(TIME_LIMIT)
                    try:
                        sealed = sealed[peer.sock.send(sealed, socket.MSG_DONTWAIT) :]
                    except BlockingIOError:
                        loop.call_soon_threadsafe(stalled.set)
                        sealed = sealed[peer.sock.send(sealed) :]
            sent[0] += len(chunk)
        peer.unwrap()

    protocol, working = await with_peer(loop, "client", peer_does, factory=Counting)
    protocol.transport.pause_reading()
    assert not protocol.transport.is_reading()
    before = protocol.count
    await stalled.wait()
    assert sent[0] < payload_size // 2
    assert protocol.count == before
    protocol.transport.resume_reading()
    await protocol.lost
    await working
    assert protocol.count == payload_size
    assert protocol.hash.hexdigest() == digest.hexdigest()


async def test_pausing_within_each_batch_loses_nothing(loop: Loop) -> None:
    class Halting(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.pause_reading()
            loop.call_soon(self.transport.resume_reading)

    payload = random.Random(7).randbytes(3_000_000)

    def peer_does(peer: Peer) -> None:
        peer.write(payload)
        peer.unwrap()

    protocol, working = await with_peer(loop, "client", peer_does, factory=Halting)
    assert await protocol.lost is None
    await working
    assert hexdigest(protocol.data) == hexdigest(payload)
    assert protocol.names().count("eof") == 1


async def test_the_end_of_the_stream_waits_for_a_paused_reader(loop: Loop) -> None:
    protocol, working = await with_peer(loop, "client", lambda peer: peer.write(b"x" * 100_000))
    protocol.transport.pause_reading()
    before = len(protocol.data)
    await working  # the peer has closed its socket
    await turns(20)
    assert len(protocol.data) == before
    assert not protocol.lost.done()
    protocol.transport.resume_reading()
    await protocol.lost
    assert protocol.data == b"x" * 100_000
