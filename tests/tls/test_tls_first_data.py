"""Data right after a handshake: the task that awaited it runs first, as under uvloop.

start_tls() returns the transport only to its awaiting task; asyncio calls data_received() with
bytes of the handshake's own segment before that task has run.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

import pytest
from protocols import BufferedRecorder, Recorder, close_each, turns, until
from tls_tools import Peer, client_context, server_context

Loop = asyncio.AbstractEventLoop

FIRST = b"what came first" * 100
ENDS = ["open", "eof", "notify", "notify and eof"]


def talk(peer: Peer, end: str) -> None:
    """A handshake whose last message, FIRST, and the end are one segment."""
    while True:
        try:
            peer.tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            peer.flush()
            assert peer.fill()
    peer.tls.write(FIRST)
    if "notify" in end:
        with pytest.raises(ssl.SSLWantReadError):
            peer.tls.unwrap()
    peer.flush()
    if "eof" in end:
        peer.sock.shutdown(socket.SHUT_WR)


async def came(protocol: Any, loop_name: str, woken: str, end: str) -> None:
    """Check that everything arrives, in order, before or after the awaiting task."""
    events = ["data"] if end == "open" else ["data", "eof", "lost"]
    await until(lambda: events[-1] in protocol.names() and woken in protocol.names())
    order = [each for each in protocol.names() if each in ("data", woken)]
    assert order == ([woken, "data"] if loop_name == "goloop" else ["data", woken])
    assert [each for each in protocol.names() if each not in ("made", woken)] == events
    assert end == "open" or protocol.lost.result() is None
    assert protocol.data == FIRST


@pytest.fixture
def ends() -> Any:
    near, far = socket.socketpair()
    near.setblocking(False)
    yield near, far
    close_each(near, far)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", [Recorder, BufferedRecorder])
async def test_start_tls_returns_before_the_first_data(
    loop: Loop, loop_name: str, ends: Any, kind: Any, end: str
) -> None:
    near, far = ends
    protocol = kind()
    protocol.buffer = bytearray(65536)  # of a BufferedRecorder
    plain, _ = await loop.create_connection(asyncio.Protocol, sock=near)
    talking = asyncio.ensure_future(asyncio.to_thread(talk, Peer(far, client_context()), end))
    transport = await loop.start_tls(plain, protocol, server_context(), server_side=True)
    assert transport is not None
    protocol.calls.append(("upgraded",))
    await talking
    await came(protocol, loop_name, "upgraded", end)
    transport.abort()


@pytest.mark.parametrize("end", ENDS)
async def test_create_connection_returns_before_the_first_data(
    loop: Loop, loop_name: str, ends: Any, end: str
) -> None:
    near, far = ends
    protocol = Recorder()
    peer = Peer(far, server_context(version=ssl.TLSVersion.TLSv1_2), server_side=True)
    talking = asyncio.ensure_future(asyncio.to_thread(talk, peer, end))
    transport, _ = await loop.create_connection(
        lambda: protocol, sock=near, ssl=client_context(), server_hostname="localhost"
    )
    protocol.calls.append(("connected",))
    await talking
    await came(protocol, loop_name, "connected", end)
    transport.abort()


@pytest.mark.parametrize("how", ["close", "pause_reading", "abort"])
async def test_first_action_of_the_awaiting_task(
    loop: Loop, loop_name: str, ends: Any, how: str
) -> None:
    near, far = ends
    protocol = Recorder()
    plain, _ = await loop.create_connection(asyncio.Protocol, sock=near)
    talking = asyncio.ensure_future(asyncio.to_thread(talk, Peer(far, client_context()), "open"))
    transport: Any = await loop.start_tls(plain, protocol, server_context(), server_side=True)
    getattr(transport, how)()
    await talking
    await turns(5)
    if how == "abort":
        assert protocol.data == (b"" if loop_name == "goloop" else FIRST)
    elif how == "close":
        assert protocol.data == FIRST
    elif loop_name == "goloop":
        assert protocol.data == b""
    if how == "pause_reading":
        transport.resume_reading()
        await until(lambda: protocol.data == FIRST)
        transport.abort()
    far.close()
    await protocol.lost


@pytest.mark.parametrize("end", ["eof_received", "connection_lost"])
@pytest.mark.goloop_only("reads at once")
async def test_eof_is_delivered_after_the_data(loop: Any, ends: Any, end: str) -> None:
    """The connection below ends before the awaiting task has run."""
    near, far = ends
    protocol = Recorder()
    plain, _ = await loop.create_connection(asyncio.Protocol, sock=near)

    async def upgrade() -> None:
        await loop.start_tls(plain, protocol, server_context(), server_side=True)
        protocol.calls.append(("upgraded",))

    upgrading = asyncio.ensure_future(upgrade())
    await turns(2)
    tls = plain.get_protocol()
    original = type(tls)._on_handshake_complete
    answers: list[Any] = []

    def complete(exc: BaseException | None) -> None:
        original(tls, exc)
        answers.append(tls.eof_received() if end == "eof_received" else tls.connection_lost(None))

    tls._on_handshake_complete = complete
    talking = asyncio.ensure_future(asyncio.to_thread(talk, Peer(far, client_context()), "open"))
    await upgrading
    await talking
    await protocol.lost
    first = ["data", "upgraded"] if end == "connection_lost" else ["upgraded", "data"]
    assert [each for each in protocol.names() if each in first] == first
    assert protocol.data == FIRST
    assert answers == [True if end == "eof_received" else None]
    plain.abort()
