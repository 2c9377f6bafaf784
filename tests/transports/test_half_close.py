"""Half-closed connections, both ways, and the ways in which a connection ends."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest
from conftest import tcp_pair
from protocols import Recorder, close_all, connect, hang_up, receive_all, reset, turns, until
from stream_tools import Meddler, attach, open_pair

Loop = asyncio.AbstractEventLoop


async def test_write_eof_sends_all_and_then_fin(loop: Loop) -> None:
    protocol, far = await open_pair(loop)
    payload = b"x" * (16 << 20)
    assert protocol.transport.can_write_eof()
    protocol.transport.write(payload)
    protocol.transport.write_eof()
    assert await receive_all(far) == payload
    # The other way is still open.
    await loop.sock_sendall(far, b"answer")
    await until(lambda: protocol.data == b"answer")
    far.close()
    assert await protocol.lost is None
    assert protocol.names() == ["made", "pause", "resume", "data", "eof", "lost"]


async def test_eof_closes_the_transport_unless_eof_received_returns_true(loop: Loop) -> None:
    protocol, far = await open_pair(loop)
    far.shutdown(socket.SHUT_WR)
    assert await protocol.lost is None
    assert protocol.names() == ["made", "eof", "lost"]
    assert await loop.sock_recv(far, 1) == b""
    far.close()


async def test_eof_is_delivered_once_though_eof_received_pauses_and_resumes(
    loop: Loop,
) -> None:
    class Resuming(Recorder):
        def eof_received(self) -> bool:
            self.transport.pause_reading()
            self.transport.resume_reading()
            self.calls.append(("eof",))
            return True

    near, far = socket.socketpair()
    near.setblocking(False)
    _, protocol = await loop.create_connection(Resuming, sock=near)
    far.shutdown(socket.SHUT_WR)
    await until(lambda: ("eof",) in protocol.calls)
    await turns(10)
    assert protocol.names() == ["made", "eof"]
    # A later resume reports the end again, because the socket stays readable at its end.
    protocol.transport.pause_reading()
    protocol.transport.resume_reading()
    await turns(10)
    assert protocol.names() == ["made", "eof", "eof"]
    await hang_up(protocol)
    far.close()


async def test_a_reset_after_the_end_of_the_stream_is_met_by_the_next_write(loop: Loop) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    _, protocol = await loop.create_connection(Recorder, sock=near)
    protocol.keep_open = True
    far.shutdown(socket.SHUT_WR)
    await protocol.eof
    far.close()
    await turns()
    assert not protocol.lost.done()
    protocol.transport.write(b"x")
    assert isinstance(await protocol.lost, BrokenPipeError)


async def test_eof_received_true_keeps_the_writing_half(loop: Loop) -> None:
    protocol, far = await open_pair(loop)
    protocol.keep_open = True
    far.shutdown(socket.SHUT_WR)
    await protocol.eof
    await turns(20)
    assert protocol.names() == ["made", "eof"]
    assert not protocol.transport.is_closing()
    protocol.transport.write(b"still here")
    assert await loop.sock_recv(far, 100) == b"still here"
    protocol.transport.close()
    assert await protocol.lost is None
    assert await loop.sock_recv(far, 1) == b""
    far.close()


async def test_both_halves_can_be_closed_by_eof(loop: Loop) -> None:
    near, far, server = await connect(loop)
    near.keep_open = far.keep_open = True
    near.transport.write(b"ping")
    near.transport.write_eof()
    await far.eof
    far.transport.write(b"pong")
    far.transport.write_eof()
    await near.eof
    assert (near.data, far.data) == (b"pong", b"ping")
    near.transport.close()
    far.transport.close()
    assert await near.lost is None
    assert await far.lost is None
    await close_all(server)


async def test_close_flushes_written_bytes(loop: Loop) -> None:
    protocol, far = await open_pair(loop)
    payload = bytes(range(256)) * 8192
    protocol.transport.write(payload)
    protocol.transport.close()
    assert protocol.transport.is_closing()
    assert await receive_all(far) == payload
    assert await protocol.lost is None
    far.close()


async def test_close_delivers_no_more_data(loop: Loop) -> None:
    protocol, far = await open_pair(loop)
    await loop.sock_sendall(far, b"unread")
    protocol.transport.close()
    assert await protocol.lost is None
    assert protocol.names() == ["made", "lost"]
    far.close()


async def test_connection_lost_comes_later_than_close_returns(loop: Loop) -> None:
    protocol, far = await open_pair(loop)
    transport = protocol.transport
    assert not transport.is_closing()
    for end in (transport.close, transport.close, transport.abort):
        end()
        assert transport.is_closing()
        assert protocol.names() == ["made"]
    await protocol.lost
    await turns()
    transport.close()
    transport.abort()
    assert transport.is_closing()
    assert not transport.is_reading()
    await turns()
    assert protocol.names() == ["made", "lost"]
    far.close()


async def test_abort_drops_written_bytes(loop: Loop) -> None:
    protocol, far = await open_pair(loop)
    protocol.transport.write(b"x" * (32 << 20))
    assert protocol.transport.get_write_buffer_size() > 0
    protocol.transport.abort()
    assert protocol.transport.get_write_buffer_size() == 0
    assert await protocol.lost is None
    received = 0
    try:
        while chunk := await loop.sock_recv(far, 1 << 20):
            received += len(chunk)
    except ConnectionResetError:
        pass
    assert received < 32 << 20
    far.close()


async def test_reset_while_reading_is_reported(loop: Loop) -> None:
    protocol, far = await open_pair(loop)
    reset(far)
    error = await protocol.lost
    assert isinstance(error, ConnectionResetError)
    assert error.errno == errno.ECONNRESET
    assert protocol.names() == ["made", "lost"]


async def test_reset_while_writing_is_reported(loop: Loop) -> None:
    protocol, far = await open_pair(loop)
    protocol.transport.pause_reading()
    reset(far)
    while not protocol.transport.is_closing():
        protocol.transport.write(b"x" * 1000)
        await asyncio.sleep(0)
    error = await protocol.lost
    assert isinstance(error, (ConnectionResetError, BrokenPipeError))
    assert protocol.names() == ["made", "lost"]


async def test_bytes_before_a_reset_are_delivered_first(loop: Loop) -> None:
    protocol, far = await open_pair(loop)
    protocol.transport.pause_reading()
    await loop.sock_sendall(far, b"last words")
    far.shutdown(socket.SHUT_WR)
    protocol.transport.resume_reading()
    await protocol.lost
    assert protocol.names() == ["made", "data", "eof", "lost"]
    far.close()


async def test_streams_end_with_the_half_close(loop: Loop) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.read()
        writer.write(data[::-1])
        await close_all(writer)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"abc")
    writer.write_eof()
    assert await reader.read() == b"cba"
    await close_all(writer, server)


@pytest.mark.parametrize("method", ["close", "abort"])
@pytest.mark.parametrize("calls", ["made lost", "made data lost", "made data eof lost"])
async def test_each_callback_may_end_the_connection(loop: Loop, method: str, calls: str) -> None:
    near, far = tcp_pair()
    far.send(b"x")
    far.shutdown(socket.SHUT_WR)
    where = calls.split()[-2]
    meddler = Meddler(where, lambda protocol: getattr(protocol.transport, method)())
    protocol = await attach(loop, near, meddler)
    assert await protocol.lost is None
    assert protocol.names() == calls.split()
    far.close()
