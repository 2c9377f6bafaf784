"""close() with data in flight: uvloop's behaviour, which asyncio lacks (bpo-39951)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import Any

import pytest
from protocols import Recorder, close_each, turns, until
from tls_connections import TIME_LIMIT, by_role, with_peer
from tls_tools import Peer, client_context, server_context

Loop = asyncio.AbstractEventLoop


goloops = pytest.mark.goloop_only(
    "asyncio ends with APPLICATION_DATA_AFTER_CLOSE_NOTIFY, or loses data"
)


@goloops
@by_role
async def test_data_received_after_our_close_is_discarded(loop: Loop, role: str) -> None:
    def peer_does(peer: Peer) -> bytes:
        data = peer.read_all()
        for _ in range(50):
            peer.write(b"late" * 10_000)
        peer.notify()
        return data

    protocol, working = await with_peer(loop, role, peer_does)
    protocol.transport.write(b"last")
    protocol.transport.close()
    assert await protocol.lost is None
    assert await working == b"last"
    assert not protocol.data


@goloops
@by_role
async def test_a_peer_that_never_stops_sending_is_cut_off(loop: Loop, role: str) -> None:
    """Long before the time for the end of TLS is over: each record costs its decryption."""
    sent = 0

    def peer_does(peer: Peer) -> None:
        nonlocal sent
        with contextlib.suppress(OSError):
            while True:
                peer.write(b"flood" * 10_000)
                sent += 50_000

    protocol, working = await with_peer(loop, role, peer_does, ssl_shutdown_timeout=3600)
    protocol.transport.close()
    assert await protocol.lost is None
    await working
    assert sent < 100 << 20


@goloops
@by_role
@pytest.mark.parametrize("unread", [100, 1_000_000])
async def test_close_ends_though_reading_is_paused_and_data_waits(
    loop: Loop, role: str, unread: int
) -> None:
    sent = threading.Event()

    def peer_does(peer: Peer) -> bytes:
        sending = threading.Thread(target=peer.write, args=(bytes(unread),))
        sending.start()
        sent.set()
        sending.join()
        data = peer.read_all()
        peer.notify()
        return data

    protocol, working = await with_peer(loop, role, peer_does)
    protocol.transport.pause_reading()
    await asyncio.to_thread(sent.wait, TIME_LIMIT)
    await turns(50)
    protocol.transport.write(b"last")
    protocol.transport.close()
    assert await protocol.lost is None
    assert await working == b"last"


@goloops
@by_role
async def test_all_is_sent_though_the_peer_has_ended_its_side(loop: Loop, role: str) -> None:
    """More than the high-water mark of the connection below: it has to be waited for."""
    begin, ended, written = threading.Event(), threading.Event(), threading.Event()

    def peer_does(peer: Peer) -> int:
        assert begin.wait(TIME_LIMIT)
        peer.notify()
        ended.set()
        assert written.wait(TIME_LIMIT)
        return len(peer.read_all())

    protocol, working = await with_peer(loop, role, peer_does)
    # The loop stands still, and doesn't see the end before it has much to send.
    begin.set()
    assert ended.wait(TIME_LIMIT)
    for _ in range(16):
        protocol.transport.write(bytes(1_000_000))
    written.set()
    assert await working == 16_000_000
    assert await protocol.lost is None


@pytest.mark.parametrize("ending", ["close", "peer", "cut", "abort after close"])
async def test_no_timer_is_left(loop: Any, loop_name: str, ending: str) -> None:
    release = threading.Event()

    def peer_does(peer: Peer) -> None:
        if ending == "peer":
            peer.notify()
        elif ending == "cut":
            peer.sock.close()
        elif ending == "abort after close":
            assert release.wait(TIME_LIMIT)
        else:
            peer.unwrap()

    protocol, working = await with_peer(loop, "server", peer_does, ssl_shutdown_timeout=3600)
    if ending in ("close", "abort after close"):
        protocol.transport.close()
    if ending == "abort after close":
        await turns(5)
        protocol.transport.abort()
        release.set()
    await protocol.lost
    await working
    protocol.transport.close()
    protocol.transport.abort()
    await turns(3)
    if loop_name == "goloop":
        assert loop._diagnostics()["timers"] == 0
    else:
        assert not [handle for handle in loop._scheduled if not handle.cancelled()]


async def test_writes_after_close_are_dropped_and_not_counted(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    def peer_does(peer: Peer) -> bytes:
        data = peer.read_all()
        peer.notify()
        return data

    protocol, working = await with_peer(loop, "server", peer_does)
    protocol.transport.write(b"first")
    protocol.transport.close()
    for _ in range(10):
        protocol.transport.write(b"dropped")
        protocol.transport.writelines([b"dropped", b"too"])
    assert "SSL connection is closed" in caplog.text
    await protocol.lost
    assert protocol.transport.get_write_buffer_size() == 0
    protocol.transport.write(b"dropped")
    assert protocol.transport.get_write_buffer_size() == 0
    assert await working == b"first"


async def test_plaintext_right_after_the_handshake_arrives(loop: Loop) -> None:
    """The bytes arrive in the segment that ends the handshake, before start_tls() has returned."""
    near, far = socket.socketpair()
    near.setblocking(False)

    def client() -> bytes:
        peer = Peer(far, client_context())
        held = bytearray()
        peer.sock, real = _Holding(peer.sock, held), peer.sock  # type: ignore[assignment]
        peer.handshake()
        peer.tls.write(b"plaintext")
        real.sendall(bytes(held) + peer.outgoing.read())
        peer.sock = real
        return peer.read_exactly(6)

    working = loop.run_in_executor(None, client)
    first, second = Recorder(), Recorder()
    transport, _ = await loop.create_connection(lambda: first, sock=near)
    tls = await loop.start_tls(transport, second, server_context(), server_side=True)
    await until(lambda: second.data == b"plaintext")
    assert tls is not None
    tls.write(b"answer")
    assert await working == b"answer"
    close_each(tls, far)
    await second.lost


class _Holding:
    """A socket whose second message is delayed, to be sent with the following one."""

    def __init__(self, sock: Any, held: bytearray) -> None:
        self._sock, self._held = sock, held
        self._messages = 0

    def sendall(self, data: bytes) -> None:
        self._messages += 1
        if self._messages == 1:
            self._sock.sendall(data)
        else:
            self._held += data

    def recv(self, size: int) -> bytes:
        received: bytes = self._sock.recv(size)
        return received
