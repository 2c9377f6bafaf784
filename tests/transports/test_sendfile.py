"""loop.sendfile and loop.sock_sendfile: the received bytes, the file's position, and
a transport's behaviour meanwhile."""

from __future__ import annotations

import asyncio
import io
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from protocols import Recorder, close_all, connect, hang_up, receive_exactly, until

Loop = asyncio.AbstractEventLoop

# More than the kernel buffers for a connection whose peer does not read.
CONTENT = random.Random(5).randbytes(16_000_000)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[IO[bytes]]:
    """A file on disk, open, at its beginning."""
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    with path.open("rb") as opened:
        yield opened


PARTS: list[tuple[dict[str, Any], bytes]] = [
    ({}, CONTENT),
    ({"offset": 100}, CONTENT[100:]),
    ({"offset": 5, "count": 70_000}, CONTENT[5:70_005]),
    ({"count": len(CONTENT) + 10}, CONTENT),
    ({"offset": len(CONTENT)}, b""),
]


@pytest.mark.parametrize(("arguments", "wanted"), PARTS)
async def test_sock_sendfile_sends_the_asked_part_of_the_file(
    loop: Loop,
    pair: tuple[socket.socket, socket.socket],
    file: IO[bytes],
    arguments: dict[str, Any],
    wanted: bytes,
) -> None:
    near, far = pair
    receiving = asyncio.ensure_future(receive_exactly(far, len(wanted)))
    assert await loop.sock_sendfile(near, file, **arguments) == len(wanted)
    assert await receiving == wanted
    if wanted:
        assert file.tell() == arguments.get("offset", 0) + len(wanted)


# Newer patch releases leave the file's position after the sent bytes, even if there are none.
_update: Any = asyncio.SelectorEventLoop._sock_sendfile_update_filepos  # type: ignore[attr-defined]
ALWAYS_SEEKS = _update.__code__.co_argcount == 3


async def test_file_position_after_an_empty_sendfile(
    loop: Loop, pair: tuple[socket.socket, socket.socket], file: IO[bytes]
) -> None:
    file.seek(5)
    assert await loop.sock_sendfile(pair[0], file, offset=len(CONTENT)) == 0
    assert file.tell() == (len(CONTENT) if ALWAYS_SEEKS else 5)


@pytest.mark.parametrize(("arguments", "wanted"), PARTS)
async def test_sendfile_keeps_order_with_earlier_and_later_writes(
    loop: Loop, file: IO[bytes], arguments: dict[str, Any], wanted: bytes
) -> None:
    near, far, server = await connect(loop)
    near.transport.write(b"before ")
    assert await loop.sendfile(near.transport, file, **arguments) == len(wanted)
    assert near.transport.get_protocol() is near
    near.transport.write(b" after")
    near.transport.write_eof()
    await far.eof
    assert far.data == b"before " + wanted + b" after"
    await near.lost
    server.close()


async def test_sendfile_is_in_the_kernel(loop: Loop, file: IO[bytes]) -> None:
    near, far, server = await connect(loop)
    assert await loop.sendfile(near.transport, file, fallback=False) == len(CONTENT)
    await until(lambda: len(far.data) == len(CONTENT))
    near.transport.close()
    await far.lost
    server.close()


async def test_file_without_descriptor_uses_the_sendfile_fallback(loop: Loop) -> None:
    near, far, server = await connect(loop)
    with pytest.raises(asyncio.SendfileNotAvailableError):
        await loop.sendfile(near.transport, io.BytesIO(b"abc"), fallback=False)
    assert await loop.sendfile(near.transport, io.BytesIO(b"abc")) == 3
    await until(lambda: far.data == b"abc")
    near.transport.close()
    await far.lost
    server.close()


async def test_the_transport_is_taken_meanwhile(loop: Loop, file: IO[bytes]) -> None:
    near, far, server = await connect(loop)
    far.transport.pause_reading()
    sending = asyncio.ensure_future(loop.sendfile(near.transport, file))
    await until(lambda: file.fileno() and not near.transport.is_reading())
    with pytest.raises(RuntimeError, match="sendfile is in progress"):
        near.transport.write(b"x")
    far.transport.write(b"an answer")
    await asyncio.sleep(0.001)
    assert near.data == b""
    far.transport.resume_reading()
    await sending
    await until(lambda: near.data == b"an answer")
    near.transport.close()
    await far.lost
    assert far.data == CONTENT
    server.close()


async def sending_to_a_paused_reader(
    loop: Loop, file: IO[bytes]
) -> tuple[Any, Any, Any, asyncio.Future[int]]:
    """Two protocols, their server, and a sendfile() that waits for the second to read."""
    near, far, server = await connect(loop)
    far.transport.pause_reading()
    sending = asyncio.ensure_future(loop.sendfile(near.transport, file))
    await until(lambda: not near.transport.is_reading())
    await asyncio.sleep(0.001)
    return near, far, server, sending


async def test_cancelled_sendfile_gives_the_transport_back(loop: Loop, file: IO[bytes]) -> None:
    near, far, server, sending = await sending_to_a_paused_reader(loop, file)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert near.transport.get_protocol() is near
    assert near.transport.is_reading()
    far.transport.resume_reading()
    near.transport.write(b"the end")
    near.transport.close()
    await far.lost
    assert far.data.endswith(b"the end")
    assert far.data[: -len(b"the end")] == CONTENT[: len(far.data) - len(b"the end")]
    server.close()


@pytest.mark.parametrize("how", ["abort", "close"])
@pytest.mark.goloop_only("asyncio goes on with a closed fd, or hangs")
async def test_sendfile_ends_when_its_transport_does(loop: Loop, file: IO[bytes], how: str) -> None:
    near, far, server, sending = await sending_to_a_paused_reader(loop, file)
    getattr(near.transport, how)()
    with pytest.raises(ConnectionError, match="closed by peer"):
        await sending
    assert await near.lost is None
    far.transport.resume_reading()
    await far.lost
    server.close()


async def test_bytes_received_during_sendfile_reach_the_reader(loop: Loop, file: IO[bytes]) -> None:
    """A StreamReader resumes its transport by itself; and the peer's end is no end of ours."""
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=near)
    message = CONTENT[:3_000_000]
    sending = asyncio.ensure_future(loop.sock_sendall(far, message))
    await until(lambda: not writer.transport.is_reading())  # the reader has more than its limit
    answering = asyncio.ensure_future(loop.sendfile(writer.transport, file))
    await asyncio.sleep(0.001)
    assert await reader.readexactly(len(message)) == message
    await sending
    far.shutdown(socket.SHUT_WR)
    assert await reader.read() == b""
    assert not writer.transport.is_closing()
    assert await receive_exactly(far, len(CONTENT)) == CONTENT
    assert await answering == len(CONTENT)
    await close_all(writer)
    far.close()


async def test_protocol_set_during_sendfile_stays(loop: Loop, file: IO[bytes]) -> None:
    near, far, server, sending = await sending_to_a_paused_reader(loop, file)
    assert near.transport.get_protocol() is near
    other = Recorder()
    near.transport.set_protocol(other)
    far.transport.resume_reading()
    await sending
    assert near.transport.get_protocol() is other
    far.transport.write(b"data")
    await until(lambda: other.data == b"data")
    near.transport.abort()
    await other.lost
    await far.lost
    server.close()


async def test_sendfile_to_a_disconnecting_peer_raises(loop: Loop, file: IO[bytes]) -> None:
    near, far, server, sending = await sending_to_a_paused_reader(loop, file)
    far.transport.abort()
    with pytest.raises(ConnectionError):
        await sending
    await hang_up(near)
    server.close()


async def test_cancelled_sock_sendfile_leaves_no_watch(
    loop: Loop, pair: tuple[socket.socket, socket.socket], file: IO[bytes]
) -> None:
    near, far = pair
    sending = asyncio.ensure_future(loop.sock_sendfile(near, file))
    # The peer reads nothing, so the send buffer is full before long.
    await asyncio.sleep(0.001)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert loop.remove_writer(near) is False
    got = await loop.sock_recv(far, 10)
    assert got == CONTENT[:10]


@pytest.mark.goloop_only("asyncio asks for the whole file, however long that takes")
async def test_a_long_file_is_sent_in_parts(
    loop: Loop, file: IO[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    sendfile, asked = os.sendfile, []

    def noted(out: int, source: int, offset: int, count: int) -> int:
        asked.append(count)
        return sendfile(out, source, offset, count)

    monkeypatch.setattr(os, "sendfile", noted)
    near, far, server = await connect(loop, Recorder)
    await loop.sendfile(near.transport, file)
    near.transport.close()
    await far.lost
    assert far.data == CONTENT
    assert max(asked) <= 4 << 20
    server.close()
