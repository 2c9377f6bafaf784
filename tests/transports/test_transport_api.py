"""The whole surface of a stream transport: types, extra info, write and its errors."""

from __future__ import annotations

import array
import asyncio
import gc
import os
import socket
import warnings
from asyncio import trsock
from typing import Any

import pytest
from conftest import LoopFactory, tcp_pair
from protocols import BufferedRecorder, Recorder, close_all, connect, hang_up, until

Loop = asyncio.AbstractEventLoop


async def open_pair(loop: Loop) -> tuple[Any, Any, socket.socket]:
    """Transport, protocol and the raw peer."""
    near, far = tcp_pair()
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    return transport, protocol, far


async def test_a_transport_has_asyncios_types(loop: Loop) -> None:
    transport, protocol, far = await open_pair(loop)
    assert isinstance(transport, asyncio.Transport)
    assert isinstance(transport, asyncio.ReadTransport)
    assert isinstance(transport, asyncio.WriteTransport)
    assert transport is protocol.transport
    assert transport.get_protocol() is protocol
    await hang_up(protocol, far=far)


async def test_extra_info_has_addresses_and_socket(loop: Loop) -> None:
    near, far = tcp_pair()
    local, remote, fd = near.getsockname(), near.getpeername(), near.fileno()
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    assert transport.get_extra_info("sockname") == local
    assert transport.get_extra_info("peername") == remote
    view = transport.get_extra_info("socket")
    assert isinstance(view, trsock.TransportSocket)
    assert view.fileno() == fd
    assert (view.family, view.type, view.proto) == (near.family, near.type, near.proto)
    assert view.getsockname() == local
    assert view.getpeername() == remote
    assert view.gettimeout() == 0
    view.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
    assert view.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0
    with pytest.raises(ValueError, match="transport sockets cannot be blocking"):
        view.setblocking(True)
    for name in ("peercert", "cipher", "ssl_object", "nonsense"):
        assert transport.get_extra_info(name) is None
        assert transport.get_extra_info(name, "default") == "default"
    await hang_up(protocol, far=far)
    # Addresses outlive the connection.
    assert transport.get_extra_info("peername") == remote
    assert view.fileno() == -1


async def test_accepted_connections_have_mirrored_addresses(loop: Loop) -> None:
    near, far, server = await connect(loop)
    assert near.transport.get_extra_info("peername") == far.transport.get_extra_info("sockname")
    assert near.transport.get_extra_info("sockname") == far.transport.get_extra_info("peername")
    assert isinstance(far.transport.get_extra_info("socket"), trsock.TransportSocket)
    await hang_up(near, far)
    await close_all(server)


async def test_addresses_over_ipv6_have_four_parts(loop: Loop) -> None:
    server = await loop.create_server(Recorder, "::1", 0)
    address = server.sockets[0].getsockname()
    transport, protocol = await loop.create_connection(Recorder, "::1", address[1])
    assert transport.get_extra_info("peername") == address
    assert len(transport.get_extra_info("sockname")) == 4
    await hang_up(protocol)
    await close_all(server)
    await until(lambda: not asyncio.all_tasks() - {asyncio.current_task()})


async def test_no_delay_is_set(loop: Loop) -> None:
    near, far, server = await connect(loop)
    for protocol in (near, far):
        view = protocol.transport.get_extra_info("socket")
        assert view.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        assert not os.get_inheritable(view.fileno())
    await hang_up(near, far)
    await close_all(server)


async def test_write_takes_bytes_like_objects(loop: Loop) -> None:
    transport, protocol, far = await open_pair(loop)
    transport.write(b"bytes,")
    transport.write(bytearray(b"bytearray,"))
    transport.write(memoryview(b"xmemoryviewx")[1:-1])
    transport.write(b"")
    transport.writelines([b",list", bytearray(b",of"), memoryview(b",things")])
    transport.writelines(iter([b",iter", b"ator"]))
    transport.writelines(piece for piece in (b",gen", b"erator"))
    transport.writelines([])
    expected = b"bytes,bytearray,memoryview,list,of,things,iterator,generator"
    received = b""
    while len(received) < len(expected):
        received += await loop.sock_recv(far, 1000)
    assert received == expected
    await hang_up(protocol, far=far)


async def test_write_of_wide_memoryviews_counts_bytes(loop: Loop) -> None:
    transport, protocol, far = await open_pair(loop)
    data = array.array("I", range(1000))
    transport.write(memoryview(data).cast("B"))
    received = b""
    while len(received) < 4000:
        received += await loop.sock_recv(far, 8000)
    assert received == data.tobytes()
    await hang_up(protocol, far=far)


async def test_write_on_a_closed_transport_is_ignored(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    transport, protocol, far = await open_pair(loop)
    transport.close()
    await protocol.lost
    for _ in range(4):
        transport.write(b"x")
    assert [r.message for r in caplog.records] == []
    transport.write(b"x")
    transport.write(b"x")
    assert "socket.send() raised exception." in {r.message for r in caplog.records}
    assert transport.get_write_buffer_size() == 0
    far.close()


async def test_arguments_may_be_given_by_name(loop: Loop) -> None:
    transport, protocol, far = await open_pair(loop)
    transport.write(data=b"ab")
    transport.writelines(list_of_data=[b"c", b"d"])
    received = b""
    while len(received) < 4:
        received += await loop.sock_recv(far, 4)
    assert received == b"abcd"
    transport.set_protocol(protocol=protocol)
    await hang_up(protocol, far=far)


async def test_set_protocol_hands_the_data_to_the_new_protocol(loop: Loop) -> None:
    transport, first, far = await open_pair(loop)
    await loop.sock_sendall(far, b"one")
    await until(lambda: first.data == b"one")
    second = Recorder()
    transport.set_protocol(second)
    assert transport.get_protocol() is second
    await loop.sock_sendall(far, b"two")
    await until(lambda: second.data == b"two")
    assert first.data == b"one"
    assert second.names() == ["data"]
    third = BufferedRecorder()
    transport.set_protocol(third)
    await loop.sock_sendall(far, b"three")
    await until(lambda: third.data == b"three")
    transport.set_protocol(first)
    await loop.sock_sendall(far, b"four")
    await until(lambda: first.data == b"onefour")
    far.close()
    assert await first.lost is None
    assert not second.lost.done()
    assert not third.lost.done()


async def test_set_protocol_within_data_received_takes_effect_at_once(loop: Loop) -> None:
    transport, first, far = await open_pair(loop)
    second = Recorder()
    received = first.data_received

    def data_received(data: bytes) -> None:
        received(data)
        transport.set_protocol(second)
        far.send(b"for the second")

    first.data_received = data_received
    far.send(b"for the first")
    await until(lambda: second.data)
    assert (first.data, second.data) == (b"for the first", b"for the second")
    far.close()
    await second.lost


async def test_is_closing_is_true_after_close_and_abort(loop: Loop) -> None:
    transport, protocol, far = await open_pair(loop)
    assert not transport.is_closing()
    transport.close()
    assert transport.is_closing()
    await protocol.lost
    assert transport.is_closing()
    assert not transport.is_reading()
    transport.close()
    transport.abort()
    far.close()


async def test_repr_has_fd_and_state(loop: Loop) -> None:
    transport, protocol, far = await open_pair(loop)
    fd = transport.get_extra_info("socket").fileno()
    text = repr(transport)
    assert f"fd={fd}" in text
    assert "Transport" in text
    transport.abort()
    assert "clos" in repr(transport)
    await protocol.lost
    assert "closed" in repr(transport)
    far.close()


async def test_transports_take_attributes_and_weak_references(loop: Loop) -> None:
    import weakref

    transport, protocol, far = await open_pair(loop)
    ref = weakref.ref(transport)
    assert hash(transport) == hash(ref())
    assert {transport: 1}[transport] == 1
    await hang_up(protocol, far=far)
    protocol.transport = None
    del transport
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()
    assert ref() is None


def test_an_unclosed_transport_warns(loop_factory: LoopFactory) -> None:
    near, far = tcp_pair()

    def forget(sock: socket.socket) -> None:
        loop = loop_factory()

        async def main() -> None:
            await loop.create_connection(Recorder, sock=sock)

        loop.run_until_complete(main())
        loop.close()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        forget(near)
        del near
        gc.collect()
    messages = [str(entry.message) for entry in caught if entry.category is ResourceWarning]
    assert any(message.startswith("unclosed transport <") for message in messages), messages
    far.close()


async def test_a_transport_keeps_its_connection_alive_without_references(loop: Loop) -> None:
    near, far = tcp_pair()
    received: list[bytes] = []

    class Quiet(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            received.append(data)

        def connection_lost(self, exc: Exception | None) -> None:
            received.append(b"lost")

    await loop.create_connection(Quiet, sock=near)
    del near
    gc.collect()
    far.send(b"x")
    await until(lambda: received == [b"x"])
    far.close()
    await until(lambda: received == [b"x", b"lost"])


async def test_the_socket_is_closed_when_connection_lost_has_been_called(loop: Loop) -> None:
    near, far = tcp_pair()
    fd_at_lost: list[int] = []

    class Looking(Recorder):
        def connection_lost(self, exc: Exception | None) -> None:
            fd_at_lost.append(self.transport.get_extra_info("socket").fileno())
            super().connection_lost(exc)

    transport, protocol = await loop.create_connection(Looking, sock=near)
    transport.close()
    await protocol.lost
    await asyncio.sleep(0)
    assert fd_at_lost[0] >= 0
    assert near.fileno() == -1
    far.close()


async def test_streams_work_over_the_transport(loop: Loop) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert writer.get_extra_info("peername") == server.sockets[0].getsockname()
    for word in (b"one\n", b"two\n", b"x" * 30_000 + b"\n"):
        writer.write(word)
        await writer.drain()
        assert await reader.readline() == word.upper()
    writer.writelines([b"a", b"b\n"])
    assert await reader.readexactly(3) == b"AB\n"
    writer.write_eof()
    assert await reader.read() == b""
    await close_all(writer, server)
