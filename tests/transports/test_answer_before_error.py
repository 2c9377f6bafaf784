"""A peer answers and goes while it is still being written to: the answer comes before the error.

So do servers that refuse an upload early. The send fails, and the answer is in the kernel.
asyncio reads first if one poll reports both; if a send fails within write() it drops the bytes
that it has not read yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
from conftest import tcp_pair
from protocols import BufferedRecorder, Recorder, turns
from stream_tools import attach

Loop = asyncio.AbstractEventLoop

ANSWER = b"413\r\n"
MUCH = bytes(16 << 20)
# With few ready streams C receives at each one's callback, with many Go receives from all.
NUMBERS = [1, 12]
drops = pytest.mark.goloop_only("asyncio drops what was not read when write() fails")


def ends(sock: socket.socket) -> None:
    """Closes with FIN, or with RST where bytes of ours are unread."""
    sock.close()


def finishes(sock: socket.socket) -> None:
    """FIN comes before the rest."""
    sock.shutdown(socket.SHUT_WR)
    sock.close()


def resets(sock: socket.socket) -> None:
    """RST alone; of a Unix socket the same as `ends`."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Client:
    """A client with write(), and a task that waits for all received data."""

    def __init__(self, transport: Any, lost: asyncio.Future[Any], got: Callable[[], bytes]) -> None:
        self.transport = transport
        self.lost = lost
        self.got = got

    async def ended(self) -> tuple[bytes, bool]:
        """Return the received bytes, and true if an error ended the connection."""
        exc = await self.lost
        return self.got(), isinstance(exc, OSError)


def of_protocol(protocol: Any) -> Client:
    return Client(protocol.transport, protocol.lost, lambda: bytes(protocol.data))


async def plain(loop: Loop, near: socket.socket) -> Client:
    return of_protocol(await attach(loop, near, Recorder()))


async def buffered(loop: Loop, near: socket.socket) -> Client:
    return of_protocol(await attach(loop, near, BufferedRecorder()))


async def stream(loop: Loop, near: socket.socket) -> Client:
    reader, writer = await asyncio.open_connection(sock=near)
    line = asyncio.ensure_future(reader.readline())

    async def end() -> Exception | None:
        with contextlib.suppress(OSError):
            await line
        try:
            await writer.wait_closed()
        except OSError as exc:
            return exc
        return None

    return Client(writer.transport, asyncio.ensure_future(end()), lambda: line.result())


KINDS = {"protocol": plain, "buffered": buffered, "stream": stream}
FAMILIES = {"tcp": tcp_pair, "unix": socket.socketpair}
by_kind = pytest.mark.parametrize("kind", KINDS)
by_family = pytest.mark.parametrize("family", FAMILIES)
by_number = pytest.mark.parametrize("number", NUMBERS)
by_end = pytest.mark.parametrize("end", [ends, finishes, resets])


async def connected(
    loop: Loop, kind: str, family: str, number: int
) -> tuple[list[Client], list[socket.socket]]:
    pairs = [FAMILIES[family]() for _ in range(number)]
    for near, _ in pairs:
        near.setblocking(False)
    return [await KINDS[kind](loop, near) for near, _ in pairs], [far for _, far in pairs]


async def all_ended(clients: list[Client]) -> set[tuple[bytes, bool]]:
    return {await client.ended() for client in clients}


@by_end
@by_number
@by_family
@by_kind
async def test_an_answer_to_a_blocked_upload(
    loop: Loop, kind: str, family: str, number: int, end: Callable[[socket.socket], None]
) -> None:
    clients, peers = await connected(loop, kind, family, number)
    for client in clients:
        client.transport.write(MUCH)
    await turns()
    for far in peers:
        far.send(ANSWER)
        end(far)
    assert await all_ended(clients) == {(ANSWER, True)}


def at_once(client: Client) -> None:
    client.transport.write(b"x")


def put_off(client: Client) -> None:
    for _ in range(3):
        client.transport.write(b"x")


def large(client: Client) -> None:
    client.transport.write(MUCH)


def asked(client: Client) -> None:
    put_off(client)
    client.transport.get_write_buffer_size()


@drops
@pytest.mark.parametrize("way", [at_once, put_off, large, asked])
@by_number
@by_family
@by_kind
async def test_answer_received_before_a_write(
    loop: Loop, kind: str, family: str, number: int, way: Callable[[Client], None]
) -> None:
    clients, peers = await connected(loop, kind, family, number)
    await turns()
    for far in peers:
        far.send(ANSWER)
        resets(far)
    for client in clients:
        way(client)
    assert await all_ended(clients) == {(ANSWER, True)}


@drops
@by_number
@by_kind
async def test_an_answer_before_a_write_of_the_monitors(loop: Loop, kind: str, number: int) -> None:
    clients, peers = await connected(loop, kind, "unix", number)
    witness, far = socket.socketpair()
    recorder = await attach(loop, witness, Recorder())
    await turns()
    for peer in peers:
        peer.send(ANSWER)
        peer.close()
    for client in clients:
        put_off(client)
    # The monitor sends all pending writes: once this one arrives, the others have failed.
    for _ in range(3):
        recorder.transport.write(b"x")
    far.settimeout(60)
    far.recv(1)
    assert await all_ended(clients) == {(ANSWER, True)}
    recorder.transport.close()
    far.close()
    await recorder.lost


@drops
@by_family
async def test_an_answer_longer_than_a_buffer(loop: Loop, family: str) -> None:
    (client,), (far,) = await connected(loop, "buffered", family, 1)
    client.transport.write(MUCH)
    await turns()
    answer = bytes(range(256)) * 100
    far.send(answer)
    far.close()
    assert await client.ended() == (answer, True)


@drops
async def test_a_failed_write_closes_the_transport_at_once(loop: Loop) -> None:
    (client,), (far,) = await connected(loop, "protocol", "unix", 1)
    far.send(ANSWER)
    far.close()
    large(client)
    assert client.transport.is_closing()
    assert client.transport.get_write_buffer_size() == 0
    assert await client.ended() == (ANSWER, True)


async def test_close_after_a_failed_write_ends_reading(loop: Loop) -> None:
    (client,), (far,) = await connected(loop, "protocol", "unix", 1)
    far.send(ANSWER)
    far.close()
    large(client)
    client.transport.close()
    assert await client.ended() == (b"", True)


async def test_a_paused_reader_gets_the_error_alone(loop: Loop) -> None:
    (client,), (far,) = await connected(loop, "protocol", "tcp", 1)
    client.transport.write(MUCH)
    await turns()
    client.transport.pause_reading()
    far.send(ANSWER)
    far.close()
    assert await client.ended() == (b"", True)


class Pausing(Recorder):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.pause_reading()


async def test_paused_reader_gets_no_more_data(loop: Loop) -> None:
    near, far = tcp_pair()
    recorder = await attach(loop, near, Pausing())
    recorder.transport.write(MUCH)
    await turns()
    far.send(ANSWER)
    resets(far)
    assert isinstance(await recorder.lost, OSError)
    assert recorder.names() == ["made", "pause", "data", "lost"]


async def test_eof_before_the_error_is_delivered(loop: Loop) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    recorder = await attach(loop, near, Recorder())
    recorder.keep_open = True
    recorder.transport.write(MUCH)
    await turns()
    far.recv(1 << 20)
    while True:
        far.setblocking(False)
        try:
            far.recv(1 << 20)
        except BlockingIOError:
            break
    far.close()
    assert isinstance(await recorder.lost, OSError)
    assert recorder.names() == ["made", "pause", "eof", "lost"]


@pytest.fixture(params=["0", "4"])
def eager_limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 0 Go receives from the stream, with 4 C does, at the callback."""
    monkeypatch.setenv("GOLOOP_EAGER_SENDS", request.param)


@pytest.mark.usefixtures("eager_limit")
@pytest.mark.parametrize("exposed", [False, True])
@pytest.mark.parametrize("size", [5, 100_000])
async def test_a_reset_is_reported_while_a_write_waits(
    loop: Loop, size: int, exposed: bool
) -> None:
    """A receive meets the reset first, and the send that waited fails with another error."""
    near, far = tcp_pair()
    protocol = await attach(loop, near, Recorder())
    other_near, other_far = tcp_pair()
    other = await attach(loop, other_near, Recorder())
    if not exposed:
        del near
    del other_near
    resets(far)
    # Because of this write the next iteration polls before it calls the other write().
    other.transport.write(b"deferred")
    loop.call_soon(protocol.transport.write, bytes(size))
    assert isinstance(await protocol.lost, ConnectionResetError)
    other.transport.close()
    await other.lost
    other_far.close()
