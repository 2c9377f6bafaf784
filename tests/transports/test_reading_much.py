"""After much at once goloop receives when it calls the protocol, and not before."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
from typing import Any

import pytest
from conftest import Errors
from protocols import BufferedRecorder, Recorder, hang_up, reset, turns, until
from stream_tools import open_pair
from tls_tools import client_context, server_context

Loop = asyncio.AbstractEventLoop
MUCH = 1 << 20
both_kinds = pytest.mark.parametrize("kind", [Recorder, BufferedRecorder])


async def much(loop: Loop, protocol: Any, far: socket.socket, size: int = MUCH) -> None:
    """Let the protocol receive much, so that later bytes are received when it is called."""
    protocol.buffer = bytearray(size)  # of a BufferedRecorder
    for _ in range(3):
        before = len(protocol.data)
        payload = os.urandom(size)
        await loop.sock_sendall(far, payload)
        await until(lambda before=before: len(protocol.data) == before + size)
        assert protocol.data[before:] == payload
    protocol.data.clear()
    protocol.calls.clear()


@both_kinds
@pytest.mark.parametrize("last", [b"", b"last", bytes(100_000)], ids=["nothing", "little", "much"])
async def test_eof_is_delivered_once_after_all_data(loop: Loop, kind: Any, last: bytes) -> None:
    protocol, far = await open_pair(loop, kind)
    protocol.keep_open = True
    await much(loop, protocol, far)
    await loop.sock_sendall(far, last)
    far.shutdown(socket.SHUT_WR)
    await protocol.eof
    assert protocol.data == last
    await turns(10)  # eof_received a second time would fail
    protocol.transport.write(b"answer")
    assert await loop.sock_recv(far, 100) == b"answer"
    protocol.transport.close()
    assert await protocol.lost is None
    far.close()


@both_kinds
async def test_reset_is_reported(loop: Loop, kind: Any) -> None:
    protocol, far = await open_pair(loop, kind)
    await much(loop, protocol, far)
    reset(far)
    assert isinstance(await protocol.lost, ConnectionResetError)
    assert not protocol.eof.done()


async def test_messages_of_any_size_arrive_completely(loop: Loop) -> None:
    protocol, far = await open_pair(loop, Recorder)
    await much(loop, protocol, far)
    for size in (1, 40_000, 3, 128 * 1024, 256 * 1024, 256 * 1024 + 1, 2 * MUCH, 32 * 1024, 10):
        payload = os.urandom(size)
        await loop.sock_sendall(far, payload)
        await until(lambda size=size: len(protocol.data) == size)
        assert protocol.data == payload
        protocol.data.clear()
    far.close()
    assert await protocol.lost is None


async def test_data_that_is_kept_takes_its_own_size(loop: Loop) -> None:
    class Keeping(Recorder):
        def __init__(self) -> None:
            super().__init__()
            self.kept: list[bytes] = []

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.kept.append(data)

    protocol, far = await open_pair(loop, Keeping)
    await much(loop, protocol, far, 100_000)
    protocol.kept.clear()
    sent = bytearray()
    for count in range(1, 51):
        payload = os.urandom(40_000)
        sent += payload
        await loop.sock_sendall(far, payload)
        await until(lambda count=count: len(protocol.data) == 40_000 * count)
    assert b"".join(protocol.kept) == sent
    empty = sys.getsizeof(b"")
    assert [sys.getsizeof(each) for each in protocol.kept] == [
        empty + len(each) for each in protocol.kept
    ]
    far.close()
    await protocol.lost


class Acting(Recorder):
    """Does something in its first data_received after `act` was set."""

    act: Any = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.act is not None:
            act, self.act = self.act, None
            act(self)


async def test_a_pause_holds_the_rest_back(loop: Loop) -> None:
    protocol, far = await open_pair(loop, Acting)
    await much(loop, protocol, far)
    protocol.act = lambda protocol: protocol.transport.pause_reading()
    payload = os.urandom(2 * MUCH)
    sending = asyncio.ensure_future(loop.sock_sendall(far, payload))
    await until(lambda: protocol.data)
    received = len(protocol.data)
    await turns(20)
    assert len(protocol.data) == received < len(payload)
    protocol.transport.resume_reading()
    await until(lambda: len(protocol.data) == len(payload))
    assert protocol.data == payload
    await sending
    far.close()
    assert await protocol.lost is None


@pytest.mark.parametrize("method", ["close", "abort"])
async def test_no_data_after_close_in_data_received(loop: Loop, method: str) -> None:
    protocol, far = await open_pair(loop, Acting)
    await much(loop, protocol, far)
    protocol.act = lambda protocol: getattr(protocol.transport, method)()
    far.send(bytes(100_000))
    assert await protocol.lost is None
    assert protocol.names() == ["data", "lost"]
    far.close()


async def test_other_callback_may_close_the_socket_between_readiness_and_call(loop: Loop) -> None:
    """Both are ready in one iteration; the first to be called aborts the other."""
    pairs = [await open_pair(loop, Acting) for _ in range(2)]
    for protocol, far in pairs:
        await much(loop, protocol, far)
    for (protocol, _), (other, _) in zip(pairs, pairs[::-1], strict=True):
        protocol.act = lambda _, other=other: other.transport.abort()
    for _, far in pairs:
        far.send(bytes(50_000))
    await until(lambda: any(protocol.lost.done() for protocol, _ in pairs))
    await turns(5)
    assert sorted(len(protocol.data) > 0 for protocol, _ in pairs) == [False, True]
    for protocol, far in pairs:
        protocol.act = None
        far.close()
    await hang_up(*(protocol for protocol, _ in pairs))


async def test_exception_in_data_received_is_fatal(loop: Loop, errors: Errors) -> None:
    def fail(protocol: Any) -> None:
        raise ZeroDivisionError

    protocol, far = await open_pair(loop, Acting)
    await much(loop, protocol, far)
    protocol.act = fail
    far.send(b"x")
    assert isinstance(await protocol.lost, ZeroDivisionError)
    errors.expect(ZeroDivisionError, "Fatal error: protocol.data_received() call failed.")
    far.close()


async def test_tls_begins_after_much(loop: Loop) -> None:
    """start_tls has Go receive again."""
    server, far = await open_pair(loop, Recorder)
    await much(loop, server, far)
    _, client = await loop.create_connection(Recorder, sock=far)
    upgrades = [
        loop.start_tls(server.transport, server, server_context(), server_side=True),
        loop.start_tls(client.transport, client, client_context(), server_hostname="localhost"),
    ]
    server.transport, client.transport = await asyncio.gather(*upgrades)
    assert isinstance(client.transport.get_extra_info("ssl_object"), ssl.SSLObject)
    payload = os.urandom(300_000)
    client.transport.write(payload)
    await until(lambda: len(server.data) == len(payload))
    assert server.data == payload
    await hang_up(client)
    await server.lost
