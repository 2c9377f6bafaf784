"""Where few connections are ready, each is received from when its protocol is about to be called,
and what that has answered leaves with its callback: its peer works while the next one is served."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from typing import Any

import pytest
from failing_calls import fail_call
from protocols import Recorder, until

Loop = asyncio.AbstractEventLoop


class Echo(Recorder):
    """Writes back what it gets, in so many pieces, and notes what all peers have by then."""

    def __init__(self, peers: list[socket.socket], pieces: int = 1) -> None:
        super().__init__()
        self.peers = peers
        self.pieces = pieces
        self.seen = b""

    def data_received(self, data: bytes) -> None:
        self.seen = b"".join(map(waiting, self.peers))
        for n in range(self.pieces):
            self.transport.write(data[n :: self.pieces])
        super().data_received(data)


class BufferedEcho(asyncio.BufferedProtocol):
    """The same by a buffer."""

    def __init__(self, peers: list[socket.socket]) -> None:
        self.echo = Echo(peers)
        self.buffer = bytearray(100)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.echo, name)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.echo.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.echo.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.echo.data_received(bytes(self.buffer[:nbytes]))


async def accepted(
    loop: Loop, stack: contextlib.AsyncExitStack, protocols: list[Any]
) -> list[socket.socket]:
    """The peers of these protocols, whose transports are accepted: nobody has their sockets, so
    that what is written need not leave within write()."""
    waiting = iter(protocols)
    server = await loop.create_server(lambda: next(waiting), "127.0.0.1", 0)
    stack.callback(server.close)
    peers = []
    for protocol in protocols:
        peer = stack.enter_context(socket.create_connection(server.sockets[0].getsockname()))
        peer.setblocking(False)
        peers.append(peer)
        await until(lambda each=protocol: each.transport is not None)
    stack.push_async_callback(ends_all, protocols)
    return peers


async def ends_all(protocols: list[Any]) -> None:
    for protocol in protocols:
        protocol.transport.abort()
        await protocol.lost


async def comes(loop: Loop, peer: socket.socket, size: int) -> bytes:
    """The next bytes to a peer, so many unless it is closed before."""
    data = b""
    while len(data) < size and (more := await loop.sock_recv(peer, size - len(data))):
        data += more
    return data


def waiting(peer: socket.socket) -> bytes:
    """What has come to a peer, which stays there."""
    with contextlib.suppress(BlockingIOError):
        return peer.recv(1000, socket.MSG_PEEK)
    return b""


@pytest.mark.parametrize("kind", [Echo, BufferedEcho])
@pytest.mark.parametrize("number", [1, 2, 4])
async def test_an_answer_leaves_before_the_next_protocol_is_called(
    loop: Loop, number: int, kind: type[Any]
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        peers: list[socket.socket] = []
        protocols = [kind(peers) for _ in range(number)]
        peers += await accepted(loop, stack, protocols)
        for peer in peers:
            peer.send(b"x")
        await until(lambda: all(protocol.data for protocol in protocols))
        assert sorted(protocol.seen for protocol in protocols) == [b"x" * n for n in range(number)]


@pytest.mark.parametrize("pieces", [1, 2, 5])
async def test_an_answer_in_pieces_comes_whole_and_in_order(loop: Loop, pieces: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        [far] = await accepted(loop, stack, [Echo([], pieces)])
        data = bytes(range(100))
        far.send(data)
        expected = b"".join(data[n::pieces] for n in range(pieces))
        assert await comes(loop, far, len(expected)) == expected


@pytest.mark.goloop_only("asyncio's calls can't be made to fail")
@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EINTR])
async def test_what_the_kernel_refuses_leaves_later(loop: Loop, number: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        [far] = await accepted(loop, stack, [Echo([])])
        fail_call("send", number)
        far.send(b"data")
        assert await comes(loop, far, 4) == b"data"


@pytest.mark.goloop_only("asyncio's calls can't be made to fail")
async def test_who_can_t_be_answered_is_lost_at_once(loop: Loop) -> None:
    async with contextlib.AsyncExitStack() as stack:
        protocol = Echo([])
        [far] = await accepted(loop, stack, [protocol])
        far.send(b"data")
        fail_call("send", errno.EHOSTUNREACH)
        lost = await protocol.lost
        assert isinstance(lost, OSError)
        assert lost.errno == errno.EHOSTUNREACH
        assert protocol.names() == ["made", "data", "lost"]
        assert await comes(loop, far, 1) == b""


@pytest.mark.parametrize("ends", ["close", "abort", "write_eof", "pause_reading"])
async def test_a_callback_may_end_what_it_answers(loop: Loop, ends: str) -> None:
    class Ends(Echo):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            getattr(self.transport, ends)()

    async with contextlib.AsyncExitStack() as stack:
        protocol = Ends([])
        [far] = await accepted(loop, stack, [protocol])
        far.send(b"data")
        assert await comes(loop, far, 4) == b"data"
        if ends != "pause_reading":
            assert await comes(loop, far, 1) == b""
        protocol.transport.abort()
        assert await protocol.lost is None
