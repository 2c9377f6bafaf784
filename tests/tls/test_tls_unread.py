"""The peer has ended the connection, and plaintext waits for the protocol to read it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest
from conftest import Errors
from protocols import BufferedRecorder, Recorder, turns, until
from tls_connections import by_version, with_peer
from tls_tools import Peer, client_context, server_context

Loop = asyncio.AbstractEventLoop
PAYLOAD = bytes(range(250)) * 400
ENDS = ["close_notify", "end-alone"]

one_buffer = pytest.mark.goloop_only("asyncio delivers one buffer, and drops the rest")


def sends(how: str, payload: bytes = PAYLOAD) -> Any:
    """A peer that sends all of it at once, and ends its direction."""

    def peer_does(peer: Peer) -> None:
        peer.tls.write(payload)
        if how == "close_notify":
            peer.notify()
        peer.flush()
        peer.sock.shutdown(socket.SHUT_WR)
        while peer.sock.recv(65536):  # unread bytes would turn the end into a reset
            pass

    return peer_does


class Pausing(BufferedRecorder):
    """Pauses at each buffer, and resumes two iterations later."""

    def buffer_updated(self, nbytes: int) -> None:
        super().buffer_updated(nbytes)
        self.transport.pause_reading()
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self.transport.resume_reading)


@one_buffer
@by_version
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("size", [1000, 16384, 70_000])
@pytest.mark.parametrize("kind", [BufferedRecorder, Pausing])
async def test_a_buffered_protocol_gets_everything_before_the_end(
    loop: Loop, version: Any, how: str, size: int, kind: Any
) -> None:
    protocol, working = await with_peer(
        loop, "client", sends(how), factory=lambda: kind(size), version=version
    )
    assert await protocol.lost is None
    assert protocol.data == PAYLOAD
    assert protocol.eof.done()
    await working


@one_buffer
@pytest.mark.parametrize("how", ENDS)
async def test_the_end_during_a_pause_waits_for_every_buffer(loop: Loop, how: str) -> None:
    protocol, working = await with_peer(
        loop, "client", sends(how), factory=lambda: BufferedRecorder(1000)
    )
    protocol.transport.pause_reading()
    tls = protocol.transport._ssl_protocol
    await until(lambda: tls._state.name == "FLUSHING")
    assert not protocol.eof.done()
    protocol.transport.resume_reading()
    assert await protocol.lost is None
    assert protocol.data == PAYLOAD
    await working


@one_buffer
async def test_close_ends_the_wait_for_the_rest(loop: Loop) -> None:
    class Closing(BufferedRecorder):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            if self.data[-1] and len(self.data) > 3000:
                self.transport.close()

    protocol, working = await with_peer(
        loop, "client", sends("end-alone"), factory=lambda: Closing(999)
    )
    assert await protocol.lost is None
    assert len(protocol.data) < 5000
    await working


@one_buffer
async def test_data_received_before_the_loss_is_delivered(loop: Loop) -> None:
    """By an error, which comes while the buffers are filled one after another."""

    class Losing(BufferedRecorder):
        def buffer_updated(self, nbytes: int) -> None:
            if not self.data:
                below = self.transport._ssl_protocol._transport
                below._force_close(ConnectionResetError("the peer is gone"))
            super().buffer_updated(nbytes)

    payload = PAYLOAD[:50_000]
    protocol, working = await with_peer(
        loop, "client", lambda peer: (peer.write(payload), peer.fill()),
        factory=lambda: Losing(1000),
    )  # fmt: skip
    protocol.transport.pause_reading()
    tls = protocol.transport._ssl_protocol
    await until(lambda: len(protocol.data) + tls._incoming.pending > len(payload))
    protocol.transport.resume_reading()
    assert isinstance(await protocol.lost, ConnectionResetError)
    assert protocol.data == payload
    await asyncio.gather(working, return_exceptions=True)


@pytest.mark.goloop_only("asyncio delivers as many buffers as iterations are left")
async def test_protocol_that_raised_gets_no_more_calls(loop: Loop, errors: Errors) -> None:
    class Raising(BufferedRecorder):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            raise ZeroDivisionError

    protocol, working = await with_peer(
        loop, "client", sends("end-alone"), factory=lambda: Raising(1000)
    )
    assert isinstance(await protocol.lost, ZeroDivisionError)
    assert len(protocol.data) <= 2000
    for _ in range(len(protocol.data) // 1000):
        errors.expect(ZeroDivisionError)
    await asyncio.gather(working, return_exceptions=True)


# ---- TLS within TLS ------------------------------------------------------------------------------

MUCH = bytes(range(250)) * 8000


async def send_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        await writer.start_tls(server_context())
        writer.write(MUCH)
        await writer.drain()
        writer.close()
        await writer.wait_closed()


async def within(loop: Loop, address: Any, factory: Any) -> Any:
    """The protocol of a connection of TLS within TLS."""
    context = client_context()
    outer, _ = await loop.create_connection(
        asyncio.Protocol, *address, ssl=context, server_hostname="localhost"
    )
    protocol = factory()
    inner = await loop.start_tls(outer, protocol, context, server_hostname="localhost")
    assert inner is not None
    protocol.connection_made(inner)
    return protocol


@pytest.mark.goloop_only("asyncio closes both, and what was not read is lost")
async def test_a_slow_reader_of_tls_within_tls_gets_everything(loop: Loop) -> None:
    async with await asyncio.start_server(
        send_and_close, "127.0.0.1", 0, ssl=server_context()
    ) as serving:
        reader = asyncio.StreamReader(limit=20_000)
        await within(
            loop,
            serving.sockets[0].getsockname(),
            lambda: asyncio.StreamReaderProtocol(reader),
        )
        found = bytearray()
        while data := await reader.read(30_000):
            found += data
            await turns(3)
        assert found == MUCH


@pytest.mark.goloop_only("asyncio closes both, and what was not read is lost")
@pytest.mark.parametrize("kind", [BufferedRecorder, Pausing])
async def test_a_buffered_protocol_of_tls_within_tls_gets_everything(loop: Loop, kind: Any) -> None:
    async with await asyncio.start_server(
        send_and_close, "127.0.0.1", 0, ssl=server_context()
    ) as serving:
        protocol = await within(loop, serving.sockets[0].getsockname(), lambda: kind(16_000))
        assert await protocol.lost is None
        assert protocol.data == MUCH
        assert protocol.eof.done()


@pytest.mark.goloop_only("asyncio closes both, and what was not read is lost")
@pytest.mark.parametrize("ends", ["close", "abort"])
async def test_both_layers_end_where_the_inner_reader_gives_up(loop: Loop, ends: str) -> None:
    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await writer.start_tls(server_context())
        writer.write(PAYLOAD)
        await writer.drain()
        inner: Any = writer.transport
        inner._ssl_protocol._transport.close()  # the inner end would wait for an answer
        with contextlib.suppress(OSError):
            await reader.read()  # until the connection is lost
        writer.close()

    async with await asyncio.start_server(send, "127.0.0.1", 0, ssl=server_context()) as serving:
        protocol = await within(loop, serving.sockets[0].getsockname(), Recorder)
        inner = protocol.transport
        inner.pause_reading()
        outer = inner._ssl_protocol._transport._ssl_protocol
        await until(lambda: outer._inner_reads is not None)
        assert not protocol.lost.done()
        getattr(inner, ends)()
        await protocol.lost
        await until(lambda: outer._transport is None)
