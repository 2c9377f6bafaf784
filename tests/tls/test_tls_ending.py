"""How TLS connections end: close_notify, truncation, resets, aborts, broken records."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import socket
import ssl
import threading
import warnings
import weakref

import pytest
from conftest import LoopFactory
from protocols import BufferedRecorder, PausedRecorder, Recorder, close_each, turns, until
from tls_connections import (
    RECORD_LAYER,
    TIME_LIMIT,
    by_role,
    by_version,
    contexts,
    hexdigest,
    with_peer,
)
from tls_tools import Peer, server_context

Loop = asyncio.AbstractEventLoop


@by_role
@by_version
async def test_close_sends_close_notify(loop: Loop, role: str, version: ssl.TLSVersion) -> None:
    def peer_does(peer: Peer) -> bytes:
        data = peer.read_all()  # raises where the stream just ends
        peer.unwrap()
        assert not peer.fill()
        return data

    protocol, working = await with_peer(loop, role, peer_does, version=version)
    payload = bytes(1_000_000)
    protocol.transport.write(payload)
    protocol.transport.close()
    protocol.transport.close()
    assert await working == payload
    assert await protocol.lost is None
    assert [name for name in protocol.names() if name not in ("pause", "resume")] == [
        "made",
        "eof",
        "lost",
    ]


@pytest.mark.parametrize("iterations", range(6))
def test_connections_of_a_runners_last_moments_are_dropped_without_a_word(
    loop_factory: LoopFactory, iterations: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Their handshakes have hardly begun; the loop waits for them, not the program."""
    clients: list[socket.socket] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        context = server_context()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=context)
        address = server.sockets[0].getsockname()
        clients.extend(socket.create_connection(address) for _ in range(20))
        await turns(iterations)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(main())
        del runner
        gc.collect()
    assert not caplog.records
    assert not seen
    close_each(*clients)


@by_role
@by_version
async def test_a_truncated_stream_ends_like_an_end(
    loop: Loop, role: str, version: ssl.TLSVersion
) -> None:
    """The end without close_notify is reported as asyncio does: like an end."""

    def peer_does(peer: Peer) -> None:
        peer.write(b"whole")
        peer.send_raw(peer.seal(b"part of a record")[:-1])
        peer.sock.shutdown(socket.SHUT_WR)
        while peer.sock.recv(65536):  # unread bytes would turn the end into a reset
            pass

    protocol, working = await with_peer(loop, role, peer_does, version=version)
    await working
    assert await protocol.lost is None
    assert protocol.names() == ["made", "data", "eof", "lost"]
    assert protocol.data == b"whole"


@by_role
async def test_reset_is_reported_to_the_protocol(loop: Loop, role: str) -> None:
    def peer_does(peer: Peer) -> None:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    protocol, working = await with_peer(loop, role, peer_does)
    await working
    assert isinstance(await protocol.lost, ConnectionResetError)
    assert protocol.names() == ["made", "lost"]


@by_role
async def test_abort_is_at_once(loop: Loop, role: str) -> None:
    def peer_does(peer: Peer) -> None:
        with pytest.raises((ConnectionResetError, ssl.SSLError)):
            peer.read_all()

    protocol, working = await with_peer(loop, role, peer_does)
    protocol.transport.write(b"x" * 10)
    protocol.transport.abort()
    assert await protocol.lost is None
    assert protocol.names() == ["made", "lost"]
    await working


@by_role
async def test_a_peer_that_does_not_answer_close_is_left_after_the_timeout(
    loop: Loop, role: str
) -> None:
    """The peer does not answer; it is told and then left."""

    def peer_does(peer: Peer) -> tuple[bytes, bool]:
        data = peer.read_all()
        return data, peer.fill()

    protocol, working = await with_peer(loop, role, peer_does, ssl_shutdown_timeout=0.05)
    protocol.transport.write(b"bye")
    protocol.transport.close()
    lost = await protocol.lost
    assert isinstance(lost, TimeoutError)
    assert str(lost) == "SSL shutdown timed out"
    assert await working == (b"bye", False)


@by_role
async def test_close_ends_while_the_peer_floods(loop: Loop, role: str) -> None:
    """Data received after close() is not delivered, and does not keep the connection open."""

    def peer_does(peer: Peer) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer.write(bytes(65536))

    protocol, working = await with_peer(loop, role, peer_does, ssl_shutdown_timeout=0.2)
    await until(lambda: protocol.data)
    protocol.transport.close()
    received = len(protocol.data)
    lost = await protocol.lost
    await working
    # close() itself reads the received bytes: one batch, as asyncio does.
    assert len(protocol.data) - received <= 2 * 256 * 1024
    assert lost is None or isinstance(lost, OSError)
    assert protocol.names()[-1] == "lost"


async def test_close_waits_for_written_bytes(loop: Loop) -> None:
    """A peer that reads late gets everything, though the transport was closed long ago."""
    payload = random.Random(4).randbytes(8_000_000)
    release = threading.Event()

    def peer_does(peer: Peer) -> bytes:
        assert release.wait(TIME_LIMIT)
        return peer.read_all()

    protocol, working = await with_peer(loop, "server", peer_does)
    protocol.transport.write(payload)
    protocol.transport.close()
    await turns(20)
    assert not protocol.lost.done()
    release.set()
    assert hexdigest(await working) == hexdigest(payload)
    await protocol.lost


async def test_garbage_after_good_records_is_an_ssl_error(loop: Loop) -> None:
    """The error keeps its name, independent of the protocol's reaction to earlier records."""

    def peer_does(peer: Peer) -> None:
        peer.send_raw(peer.seal(b"good") + b"\x17\x03\x03\xff\xff" + bytes(100))
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            peer.read_all()

    class Answering(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.write(b"answer")

    protocol, working = await with_peer(loop, "client", peer_does, factory=Answering)
    lost = await protocol.lost
    assert isinstance(lost, ssl.SSLError)
    assert lost.reason in ("PACKET_LENGTH_TOO_LONG", "ENCRYPTED_LENGTH_TOO_LONG", RECORD_LAYER)
    await working


async def test_buffered_protocol_takes_over_between_two_records(loop: Loop) -> None:
    """The new protocol's methods are called from the very next bytes on."""
    payload = random.Random(0).randbytes(2_000_000)

    def peer_does(peer: Peer) -> None:
        assert peer.read_exactly(2) == b"go"
        peer.write(payload)
        peer.unwrap()

    class Successor(asyncio.BufferedProtocol):
        def __init__(self, before: Recorder) -> None:
            self.before = before
            self.buffer = memoryview(bytearray(100_000))

        def get_buffer(self, sizehint: int) -> memoryview:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.before.data += self.buffer[:nbytes]

        def connection_lost(self, exc: Exception | None) -> None:
            self.before.connection_lost(exc)

    class Predecessor(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.set_protocol(Successor(self))

    protocol, working = await with_peer(loop, "client", peer_does, factory=Predecessor)
    # The amount that TLS accepts without a reader: more than one read decrypts.
    protocol.transport.pause_reading()
    protocol.transport.write(b"go")
    tls = protocol.transport._ssl_protocol
    await until(lambda: tls._ssl_reading_paused)
    protocol.transport.resume_reading()
    assert await protocol.lost is None
    assert [name for name in protocol.names() if name == "data"] == ["data"]
    assert protocol.data == payload
    await working


@pytest.mark.goloop_only(
    "asyncio keeps the client's last message until something is written or read"
)
async def test_the_handshake_ends_though_reading_is_paused(loop: Loop) -> None:
    def peer_does(peer: Peer) -> None:
        peer.write(b"first word")
        peer.unwrap()

    protocol, working = await with_peer(loop, "client", peer_does, factory=PausedRecorder)
    tls = protocol.transport._ssl_protocol
    await until(lambda: tls._get_read_buffer_size() > 0)
    assert protocol.data == b""
    protocol.transport.resume_reading()
    await protocol.lost
    assert protocol.data == b"first word"
    await working


@pytest.mark.goloop_only("asyncio waits for a resume_reading() that cannot come")
async def test_close_ends_where_the_peer_ended_during_a_pause(loop: Loop) -> None:
    def peer_does(peer: Peer) -> None:
        assert peer.read_exactly(2) == b"go"
        peer.write(b"nobody reads this")

    protocol, working = await with_peer(loop, "client", peer_does)
    protocol.transport.pause_reading()
    protocol.transport.write(b"go")
    await working
    tls = protocol.transport._ssl_protocol
    await until(lambda: tls._eof_received)
    protocol.transport.close()
    assert await protocol.lost is None
    assert protocol.data == b""


@pytest.mark.goloop_only("asyncio's transport forgets its protocol at the second close()")
async def test_abort_ends_a_connection_that_waits_after_two_closes(loop: Loop) -> None:
    peer_may_end = threading.Event()

    def peer_does(peer: Peer) -> None:
        peer_may_end.wait(30)

    protocol, working = await with_peer(loop, "client", peer_does, ssl_shutdown_timeout=3600)
    try:
        protocol.transport.close()
        protocol.transport.close()
        assert not protocol.lost.done()
        protocol.transport.abort()
        assert await protocol.lost is None
    finally:
        peer_may_end.set()
    await working


@pytest.mark.goloop_only("asyncio goes on with the shutdown and reports that it cannot")
async def test_the_reader_of_the_last_data_may_abort(loop: Loop) -> None:
    """Data held back by a pause comes after the end, and its reader may abort."""

    def peer_does(peer: Peer) -> None:
        assert peer.read_exactly(2) == b"go"
        peer.write(b"last words")

    class Aborting(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.abort()

    protocol, working = await with_peer(loop, "client", peer_does, factory=Aborting)
    protocol.transport.pause_reading()
    protocol.transport.write(b"go")
    await working
    tls = protocol.transport._ssl_protocol
    await until(lambda: tls._eof_received)
    protocol.transport.resume_reading()
    assert await protocol.lost is None
    assert protocol.data == b"last words"


@pytest.mark.goloop_only("asyncio loses what it reads into the slice of a bytearray")
async def test_a_bytearray_serves_as_buffer(loop: Loop) -> None:
    def peer_does(peer: Peer) -> None:
        for _ in range(100):
            peer.tls.write(b"0123456789")
        peer.flush()
        peer.unwrap()

    protocol, working = await with_peer(
        loop, "client", peer_does, factory=lambda: BufferedRecorder(1000)
    )
    await protocol.lost
    await working
    assert protocol.data == b"0123456789" * 100


@by_role
async def test_a_transport_that_was_closed_twice_keeps_no_context(loop: Loop, role: str) -> None:
    own = contexts(role)[0]
    context = weakref.ref(own)
    protocol, working = await with_peer(loop, role, lambda peer: peer.unwrap(), own=own)
    await working
    protocol.transport.close()
    protocol.transport.close()
    await protocol.lost
    del own
    await turns(3)
    assert context() is None
    assert protocol.transport.is_closing()
