"""Pausing under TLS, on both sides and in every layer."""

from __future__ import annotations

import asyncio
import hashlib
import random
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from conftest import tcp_pair
from protocols import HaltingRecorder, Recorder, close_all, turns, until
from tls_connections import TIME_LIMIT, hexdigest, with_peer
from tls_tools import Peer, client_context, server_context, usual_contexts

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


# ---- limits of 0: no caller waits for an empty buffer -------------------------------------------

Limits = dict[str, int]
ASYNCIO_HANGS = pytest.mark.goloop_only("asyncio pauses for an empty buffer, and drain() hangs")


def limits_first(transport: Any, limits: Limits, size: int) -> None:
    transport.set_write_buffer_limits(**limits)
    transport.write(bytes(size))


def limits_after_write(transport: Any, limits: Limits, size: int) -> None:
    transport.write(bytes(size))
    transport.set_write_buffer_limits(**limits)


def limits_while_paused(transport: Any, limits: Limits, size: int) -> None:
    transport.set_write_buffer_limits(high=10)
    transport.write(bytes(50_000))
    transport.set_write_buffer_limits(high=1 << 30)
    transport.set_write_buffer_limits(**limits)
    transport.write(bytes(size))


def lines(transport: Any, limits: Limits, size: int) -> None:
    transport.set_write_buffer_limits(**limits)
    transport.writelines([bytes(size)] * 3)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected_streams(way: str) -> tuple[asyncio.Server, Streams, Streams]:
    """A TLS connection: the server, its end of the connection, and the client's."""
    server_tls, client_tls = usual_contexts()
    accepted: asyncio.Future[Streams] = asyncio.get_running_loop().create_future()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if way != "made with TLS":
            await writer.start_tls(server_tls)
        accepted.set_result((reader, writer))

    first: dict[str, Any] = {"ssl": client_tls, "server_hostname": "localhost"}
    if way == "start_tls":
        first = {}
    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=server_tls if first else None)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), **first)
    if way != "made with TLS":
        await writer.start_tls(client_tls, server_hostname="localhost")
    return server, await accepted, (reader, writer)


async def discard(reader: asyncio.StreamReader) -> None:
    """Read until the other side ends."""
    while await reader.read(1 << 20):
        pass


@ASYNCIO_HANGS
@pytest.mark.parametrize("way", ["made with TLS", "start_tls", "TLS in TLS"])
@pytest.mark.parametrize("side", ["server", "client"])
@pytest.mark.parametrize("limits", [{"high": 0}, {"low": 0}, {"high": 9, "low": 9}], ids=str)
async def test_drain_never_waits_for_an_empty_buffer(
    loop: Loop, way: str, side: str, limits: Limits
) -> None:
    server, *ends = await connected_streams(way)
    (_, writer), (peer_reader, peer_writer) = ends if side == "server" else reversed(ends)
    protocol: Any = writer.transport.get_protocol()
    calls: list[str] = []
    sizes_at_pause: list[int] = []

    def recording(name: str, call: Callable[[], None]) -> Callable[[], None]:
        def method() -> None:
            calls.append(name)
            if name == "pause":
                sizes_at_pause.append(writer.transport.get_write_buffer_size())
            call()

        return method

    protocol.pause_writing = recording("pause", protocol.pause_writing)
    protocol.resume_writing = recording("resume", protocol.resume_writing)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    reading = asyncio.ensure_future(discard(peer_reader))
    for write in (limits_first, limits_after_write, lines, limits_while_paused):
        for size in (1, 10, 10, 50_000):
            write(writer.transport, limits, size)
            await asyncio.wait_for(writer.drain(), TIME_LIMIT)
    await until(lambda: writer.transport.get_write_buffer_size() == 0)
    await asyncio.wait_for(writer.drain(), TIME_LIMIT)
    assert sizes_at_pause
    assert min(sizes_at_pause) > 0
    assert calls == ["pause", "resume"] * (len(calls) // 2)
    writer.close()
    await asyncio.wait_for(reading, TIME_LIMIT)
    await close_all(peer_writer, writer, server)


@pytest.mark.goloop_only("asyncio's protocol stays paused, and resume_writing() below TLS fails")
async def test_start_tls_resumes_a_protocol_that_was_paused(loop: Loop) -> None:
    unsent = 1_000_000
    near, far = tcp_pair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    paused = threading.Event()

    def peer_does() -> bytes:
        peer = Peer(far, client_context())
        with far:
            assert paused.wait(TIME_LIMIT)
            left = unsent
            while left:  # before the handshake, whose records would be in between
                left -= len(far.recv(min(left, 65536)))
            peer.handshake()
            return peer.read_exactly(4)

    transport, protocol = await loop.create_connection(Recorder, sock=near)
    transport.write(bytes(unsent))
    assert protocol.names() == ["made", "pause"]
    paused.set()
    working = asyncio.ensure_future(asyncio.to_thread(peer_does))
    over_tls: Any = await loop.start_tls(transport, protocol, server_context(), server_side=True)
    await until(lambda: "resume" in protocol.names())
    over_tls.write(b"said")
    assert await working == b"said"
    assert protocol.names()[:3] == ["made", "pause", "resume"]
    over_tls.abort()
    await protocol.lost


@pytest.mark.goloop_only("asyncio pauses for an empty buffer")
async def test_a_transport_below_tls_without_flow_control_does_not_count(loop: Loop) -> None:
    class Below(asyncio.Transport):
        """Passes all calls on, and has no flow control of its own."""

        _start_tls_compatible = True

        def __init__(self, real: Any) -> None:
            super().__init__()
            for name in ("write", "close", "abort", "is_closing", "pause_reading",
                         "resume_reading", "set_protocol", "get_protocol", "_force_close",
                         "get_write_buffer_size"):  # fmt: skip
                setattr(self, name, getattr(real, name))

    near, far = tcp_pair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    written, read, checked = threading.Event(), threading.Event(), threading.Event()

    def peer_does() -> None:
        peer = Peer(far, client_context())
        with far:
            peer.handshake()
            assert written.wait(TIME_LIMIT)
            peer.read_exactly(1_000_000)
            read.set()
            assert checked.wait(TIME_LIMIT)

    transport, protocol = await loop.create_connection(Recorder, sock=near)
    working = asyncio.ensure_future(asyncio.to_thread(peer_does))
    over_tls: Any = await loop.start_tls(
        Below(transport), protocol, server_context(), server_side=True
    )
    over_tls.set_write_buffer_limits(high=0)
    over_tls.write(bytes(1_000_000))
    assert transport.get_write_buffer_size() > 0
    assert over_tls.get_write_buffer_size() == 0
    written.set()
    await until(read.is_set)
    assert protocol.names().count("pause") == protocol.names().count("resume")
    checked.set()
    await working
    over_tls.abort()
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
    payload = random.Random(7).randbytes(3_000_000)

    def peer_does(peer: Peer) -> None:
        peer.write(payload)
        peer.unwrap()

    protocol, working = await with_peer(loop, "client", peer_does, factory=HaltingRecorder)
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
    assert not protocol.eof.done()
    assert not protocol.lost.done()
    protocol.transport.resume_reading()
    await protocol.lost
    assert protocol.data == b"x" * 100_000
