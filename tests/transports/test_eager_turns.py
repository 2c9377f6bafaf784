"""In an eager turn, with few ready connections, each is received from right before its protocol is
called, and its answer is sent within write(), so that its peer can work while Python continues.
But a protocol that wrote twice in one turn, or to many streams, will probably do so again: its
bytes are sent together, at the end of the turn."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import socket
from typing import Any

import pytest
from failing_calls import fail_call
from protocols import BufferedRecorder, Calls, Recorder, close_all, hang_up, until

Loop = asyncio.AbstractEventLoop
numbers = itertools.count()

# The largest numbers of ready connections of an eager turn.  The reactor measures which one it
# uses; these tests fix it.
LIMITS = [0, 4, 16]


@pytest.fixture(autouse=True, params=LIMITS)
def eager_limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The limit of goloop's loops in this test."""
    limit: int = request.param
    monkeypatch.setenv("GOLOOP_EAGER_SENDS", str(limit))
    return limit


is_eager = pytest.mark.parametrize("eager_limit", [4, 16], indirect=True)


class Echoing(Calls):
    """Writes received data back, in some pieces, and records the data that all peers have before
    and after."""

    def __init__(self, peers: list[socket.socket], pieces: int = 1) -> None:
        super().__init__()
        self.peers = peers
        self.pieces = pieces
        self.before_write = self.after_write = b""

    def note_data(self, data: bytes) -> None:
        self.before_write = b"".join(map(waiting, self.peers))
        for n in range(self.pieces):
            self.transport.write(data[n :: self.pieces])
        self.after_write = b"".join(map(waiting, self.peers))
        super().note_data(data)


class Echo(Echoing, Recorder):
    pass


class BufferedEcho(Echoing, BufferedRecorder):
    pass


async def accepted(
    loop: Loop, stack: contextlib.AsyncExitStack, protocols: list[Any]
) -> list[socket.socket]:
    """Return the peers of these protocols, whose transports are accepted: their sockets are not
    exposed, so written bytes need not be sent within write().  Over Unix sockets sent bytes arrive
    at once: as many are ready in one turn."""
    waiting = iter(protocols)
    path = f"\0goloop-few-{os.getpid()}-{next(numbers)}"
    server = await loop.create_unix_server(lambda: next(waiting), path)
    stack.callback(server.close)
    peers = []
    for protocol in protocols:
        peer = stack.enter_context(socket.socket(socket.AF_UNIX))
        peer.connect(path)
        peer.setblocking(False)
        peers.append(peer)
        await until(lambda each=protocol: each.transport is not None)
    stack.push_async_callback(hang_up, *protocols)
    return peers


async def comes(loop: Loop, peer: socket.socket, size: int) -> bytes:
    """The next bytes to a peer, so many unless it is closed before."""
    data = b""
    while len(data) < size and (more := await loop.sock_recv(peer, size - len(data))):
        data += more
    return data


def waiting(peer: socket.socket) -> bytes:
    """Return the bytes that have arrived at a peer, without removing them."""
    with contextlib.suppress(BlockingIOError):
        return peer.recv(1000, socket.MSG_PEEK)
    return b""


async def answered(loop: Loop, peers: list[socket.socket], data: bytes = b"x") -> list[bytes]:
    """Return each peer's answer to a message that all of them send."""
    for peer in peers:
        peer.send(data)
    return [await comes(loop, peer, len(data)) for peer in peers]


@is_eager
@pytest.mark.parametrize("kind", [Echo, BufferedEcho])
@pytest.mark.parametrize("number", [1, 2, 4])
async def test_answer_is_sent_before_the_next_protocol_is_called(
    loop: Loop, number: int, kind: type[Any]
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        peers: list[socket.socket] = []
        protocols = [kind(peers) for _ in range(number)]
        peers += await accepted(loop, stack, protocols)
        for message in (b"0", b"1", b"2"):
            assert await answered(loop, peers, message) == [message] * number
        assert sorted(protocol.before_write for protocol in protocols) == [
            b"2" * n for n in range(number)
        ]
        assert sorted(len(protocol.after_write) for protocol in protocols) == [
            *range(1, number + 1)
        ]


@is_eager
async def test_tasks_answer_is_sent_within_write(loop: Loop) -> None:
    seen: list[bytes] = []
    peers: list[socket.socket] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
            seen.append(waiting(peers[0]))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()) as peer:
        peer.setblocking(False)
        peers.append(peer)
        for message in (b"0", b"1", b"2"):
            assert await answered(loop, peers, message) == [message]
        assert seen[1:] == [b"1", b"2"]
    await close_all(server)


@is_eager
@pytest.mark.goloop_only("asyncio sends each write at once")
async def test_stream_that_writes_in_pieces_sends_them_together(loop: Loop) -> None:
    """True from the answer after the first one in pieces to the one after the first whole one."""
    async with contextlib.AsyncExitStack() as stack:
        peers: list[socket.socket] = []
        protocol = Echo(peers)
        peers += await accepted(loop, stack, [protocol])
        after_write = []
        for pieces in (1, 1, 2, 2, 2, 1, 1):
            protocol.pieces = pieces
            assert await answered(loop, peers, b"ab") == [b"ab"]
            after_write.append(protocol.after_write)
        assert after_write == [b"", b"ab", b"a", b"", b"", b"", b"ab"]


@pytest.mark.goloop_only("asyncio sends each write at once")
@pytest.mark.parametrize("number", [2, 4, 5, 20])
async def test_one_callbacks_writes_to_many_streams_are_sent_together(
    loop: Loop, number: int, eager_limit: int
) -> None:
    """But for the first ones, as many as the limit."""

    class Tells(Echo):
        def data_received(self, data: bytes) -> None:
            for protocol in protocols:
                protocol.transport.write(data)
            self.after_write = b"".join(map(waiting, peers))

    async with contextlib.AsyncExitStack() as stack:
        peers: list[socket.socket] = []
        protocols = [Tells(peers) for _ in range(number)]
        peers += await accepted(loop, stack, protocols)
        for message in (b"0", b"1", b"2"):
            peers[0].send(message)
            assert [await comes(loop, peer, 1) for peer in peers] == [message] * number
        assert protocols[0].after_write == b"2" * min(number, eager_limit)


@pytest.mark.goloop_only("asyncio sends each write at once")
async def test_with_many_ready_answers_are_sent_together(loop: Loop, eager_limit: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        number = eager_limit + 1
        peers: list[socket.socket] = []
        protocols = [Echo(peers) for _ in range(number)]
        peers += await accepted(loop, stack, protocols)
        assert await answered(loop, peers, b"first") == [b"first"] * number
        for _ in range(100):  # a slow machine serves some in one turn, others in the next
            assert await answered(loop, peers) == [b"x"] * number
            after_write = [protocol.after_write for protocol in protocols]
            if after_write == [b""] * number:
                break
        assert after_write == [b""] * number


async def test_large_body_is_sent_after_its_head(loop: Loop) -> None:
    async with contextlib.AsyncExitStack() as stack:
        protocol = Echo([])
        [far] = await accepted(loop, stack, [protocol])
        for head in (b"1", b"2", b"3"):
            protocol.transport.write(head)
            protocol.transport.write(body := b"." * 100_000)
            assert await comes(loop, far, 1 + len(body)) == head + body


async def test_rest_of_a_partial_send_follows(loop: Loop) -> None:
    """The first piece is larger than the kernel's buffers, and others follow it."""
    async with contextlib.AsyncExitStack() as stack:
        protocol = Echo([])
        [far] = await accepted(loop, stack, [protocol])
        await answered(loop, [far])
        near = protocol.transport.get_extra_info("socket")
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        data = bytes(range(256)) * 200  # 51,200 bytes: no more than a turn would put off
        for _ in range(20):
            protocol.transport.write(data)
            protocol.transport.write(b"and more")
            await asyncio.sleep(0)
        expected = (data + b"and more") * 20
        assert await comes(loop, far, len(expected)) == expected


@pytest.mark.parametrize("pieces", [1, 2, 5])
async def test_answer_in_pieces_arrives_completely_and_in_order(loop: Loop, pieces: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        [far] = await accepted(loop, stack, [Echo([], pieces)])
        data = bytes(range(100))
        for _ in range(3):
            far.send(data)
            expected = b"".join(data[n::pieces] for n in range(pieces))
            assert await comes(loop, far, len(expected)) == expected


@is_eager
@pytest.mark.goloop_only("asyncio's calls can't be made to fail")
@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EINTR])
async def test_refused_send_is_repeated_later(loop: Loop, number: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        [far] = await accepted(loop, stack, [Echo([])])
        await answered(loop, [far])
        fail_call("send", number)
        assert await answered(loop, [far], b"data") == [b"data"]


@is_eager
@pytest.mark.goloop_only("asyncio's calls can't be made to fail")
async def test_failed_answer_loses_the_connection_at_once(loop: Loop) -> None:
    async with contextlib.AsyncExitStack() as stack:
        protocol = Echo([])
        [far] = await accepted(loop, stack, [protocol])
        await answered(loop, [far])
        far.send(b"data")
        fail_call("send", errno.EHOSTUNREACH)
        lost = await protocol.lost
        assert isinstance(lost, OSError)
        assert lost.errno == errno.EHOSTUNREACH
        assert protocol.calls[:-1] == [("made",), ("data", b"xdata")]
        assert await comes(loop, far, 1) == b""


@pytest.mark.parametrize("ends", ["close", "abort", "write_eof", "pause_reading"])
async def test_callback_may_close_the_connection_after_its_answer(loop: Loop, ends: str) -> None:
    class Ends(Echo):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if data != b"x":
                getattr(self.transport, ends)()

    async with contextlib.AsyncExitStack() as stack:
        protocol = Ends([])
        [far] = await accepted(loop, stack, [protocol])
        await answered(loop, [far])
        far.send(b"data")
        assert await comes(loop, far, 4) == b"data"
        if ends != "pause_reading":
            assert await comes(loop, far, 1) == b""
        protocol.transport.abort()
        assert await protocol.lost is None


async def test_no_piece_overtakes_an_earlier_one(loop: Loop) -> None:
    """Data for another connection neither: the receiver of a signal expects the data before it."""

    class Signals(Echo):
        def data_received(self, data: bytes) -> None:
            payload, signal = protocols[1].transport, protocols[2].transport
            payload.write(b"head")
            payload.write(b"body")
            signal.write(b"go")
            self.after_write = waiting(peers[2])
            self.payload = waiting(peers[1])

    async with contextlib.AsyncExitStack() as stack:
        peers: list[socket.socket] = []
        protocols = [Signals(peers) for _ in range(3)]
        peers += await accepted(loop, stack, protocols)
        for _ in range(3):
            peers[0].send(b"x")
            assert await comes(loop, peers[2], 2) == b"go"
            assert await comes(loop, peers[1], 8) == b"headbody"
            assert protocols[0].after_write == b"" or protocols[0].payload == b"headbody"


def in_lines(transport: Any) -> None:
    transport.writelines([b"head", b"body"])


def in_pieces(transport: Any) -> None:
    transport.write(b"head")
    transport.write(b"body")


def writes(transport: Any) -> None:
    transport.write(b"go")


def writes_much(transport: Any) -> None:
    transport.write(b"go" + bytes(100_000))


def writes_and_closes(transport: Any) -> None:
    transport.write(b"go")
    transport.close()


def writes_and_asks(transport: Any) -> None:
    transport.write(b"go")
    transport.get_write_buffer_size()


def exposes(transport: Any) -> None:
    transport.get_extra_info("socket").fileno()
    transport.write(b"go")


def sends_by_the_number(transport: Any) -> None:
    os.write(transport.get_extra_info("socket").fileno(), b"go")


def ends(transport: Any) -> None:
    transport.write_eof()


SIGNALS = [
    writes, writes_much, writes_and_closes, writes_and_asks, exposes, sends_by_the_number, ends,
]  # fmt: skip


def has_come(peer: socket.socket) -> bool:
    """Whether a peer has got something, be it the end."""
    try:
        peer.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    return True


@pytest.mark.parametrize("signals", SIGNALS)
@pytest.mark.parametrize("puts_off", [in_lines, in_pieces])
async def test_nothing_overtakes_deferred_writes(loop: Loop, puts_off: Any, signals: Any) -> None:
    class Signals(Echo):
        def data_received(self, data: bytes) -> None:
            if data == b"warm":
                super().data_received(data)
            else:
                puts_off(protocols[1].transport)
                signals(protocols[2].transport)
                self.signalled = has_come(peers[2])
                self.payload = waiting(peers[1])

    async with contextlib.AsyncExitStack() as stack:
        peers: list[socket.socket] = []
        protocols = [Signals(peers) for _ in range(3)]
        peers += await accepted(loop, stack, protocols)
        await answered(loop, peers, b"warm")
        peers[0].send(b"x")
        await until(lambda: has_come(peers[2]))
        assert await comes(loop, peers[1], 8) == b"headbody"
        assert not protocols[0].signalled or protocols[0].payload == b"headbody"


@pytest.mark.parametrize("puts_off", [in_lines, in_pieces])
@pytest.mark.parametrize("way", ["sendto", "sock_sendall", "sock_sendto", "sock_connect"])
async def test_no_other_socket_overtakes_deferred_writes(
    loop: Loop, puts_off: Any, way: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        protocol = Echo([])
        [far] = await accepted(loop, stack, [protocol])
        receiver = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        receiver.bind(("127.0.0.1", 0))
        sender = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        sender.setblocking(False)
        seen: list[bytes] = []
        if way == "sendto":
            transport, _ = await loop.create_datagram_endpoint(
                asyncio.DatagramProtocol, remote_addr=receiver.getsockname()
            )
            stack.callback(transport.close)
        elif way == "sock_sendall":
            sender.connect(receiver.getsockname())
        await answered(loop, [far])
        puts_off(protocol.transport)
        if way == "sendto":
            transport.sendto(b"go")
        elif way == "sock_sendall":
            await loop.sock_sendall(sender, b"go")
        elif way == "sock_sendto":
            await loop.sock_sendto(sender, b"go", receiver.getsockname())
        else:
            await loop.sock_connect(sender, receiver.getsockname())
        seen.append(waiting(far))
        assert seen == [b"headbody"]


@is_eager
async def test_full_connection_does_not_delay_others(loop: Loop) -> None:
    """Bytes that its peer does not read do not count among those that may be sent at once."""

    class Tells(Echo):
        def data_received(self, data: bytes) -> None:
            for protocol in protocols[1:]:
                protocol.transport.write(b"more")
            super().data_received(data)

    async with contextlib.AsyncExitStack() as stack:
        peers: list[socket.socket] = []
        protocols = [Tells(peers) for _ in range(6)]
        peers += await accepted(loop, stack, protocols)
        for protocol in protocols[1:]:
            protocol.transport.write(bytes(10_000_000))
        for _ in range(3):
            peers[0].send(b"x")
            assert await comes(loop, peers[0], 1) == b"x"
        assert protocols[0].after_write.startswith(b"x")


@pytest.mark.parametrize("ends", ["close", "abort"])
async def test_bytes_are_delivered_though_get_buffer_closed_the_transport(
    loop: Loop, ends: str
) -> None:
    """And its peer sees an end, not the reset of one that did not read."""

    class Ends(BufferedEcho):
        ended = False

        def get_buffer(self, sizehint: int) -> bytearray:
            if self.ended:
                getattr(self.transport, ends)()
            return super().get_buffer(sizehint)

        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            self.ended = True

    async with contextlib.AsyncExitStack() as stack:
        protocol: Any = Ends([])
        [far] = await accepted(loop, stack, [protocol])
        await answered(loop, [far])
        far.send(b"last")
        assert await protocol.lost is None
        assert protocol.calls == [("made",), ("data", b"xlast"), ("lost", None)]
        assert await comes(loop, far, 1) == b""
