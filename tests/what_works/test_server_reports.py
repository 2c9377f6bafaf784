"""Public bug reports about servers and connecting: each program of a report ends as on asyncio."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import socket
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
from protocols import Echo, Recorder, close_all, until

HOST = "127.0.0.1"


async def answer(host: str, port: int) -> bytes:
    """Returns a byte that an echoing server sent back."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"x")
    said = await reader.readexactly(1)
    await close_all(writer)
    return said


@pytest.mark.report("MagicStack/uvloop#25")
async def test_server_without_a_host_serves_ipv4_and_ipv6(loop: asyncio.AbstractEventLoop) -> None:
    server = await loop.create_server(Echo, None, 0)
    families = {each.family: each.getsockname()[1] for each in server.sockets}
    assert families.keys() == {socket.AF_INET, socket.AF_INET6}
    assert await answer(HOST, families[socket.AF_INET]) == b"x"
    assert await answer("::1", families[socket.AF_INET6]) == b"x"
    await close_all(server)


@pytest.mark.report("MagicStack/uvloop#28")
async def test_path_of_a_closed_unix_server_is_the_programs_to_remove(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    options: Any = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
    server = await loop.create_unix_server(Echo, tmp_path / "socket", **options)
    await close_all(server)
    os.unlink(tmp_path / "socket")


@pytest.mark.report("MagicStack/uvloop#36")
async def test_cancelled_connect_leaves_nothing(
    loop: asyncio.AbstractEventLoop, listener: socket.socket
) -> None:
    for wait in (0, 1, 2):
        connecting = loop.create_task(loop.create_connection(Echo, *listener.getsockname()))
        for _ in range(wait):
            await asyncio.sleep(0)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting


@pytest.mark.report("MagicStack/uvloop#81")
async def test_server_without_a_reference_goes_on(loop: asyncio.AbstractEventLoop) -> None:
    async def serve() -> tuple[weakref.ref[asyncio.Server], int]:
        server = await loop.create_server(Echo, HOST, 0)
        return weakref.ref(server), server.sockets[0].getsockname()[1]

    server, port = await serve()
    gc.collect()
    assert await answer(HOST, port) == b"x"
    still = server()
    assert still
    await close_all(still)


@pytest.mark.report("MagicStack/uvloop#99")
async def test_sock_connect_takes_an_ipv6_address_of_four(loop: asyncio.AbstractEventLoop) -> None:
    with (
        socket.create_server(("::1", 0), family=socket.AF_INET6) as listening,
        socket.socket(socket.AF_INET6) as client,
    ):
        client.setblocking(False)
        address = listening.getsockname()
        assert len(address) == 4
        await loop.sock_connect(client, address)
        assert client.getpeername() == address


@pytest.mark.report("MagicStack/uvloop#139")
async def test_sock_connect_to_a_name_is_refused_as_by_the_kernel(
    loop: asyncio.AbstractEventLoop,
) -> None:
    with socket.socket() as bound, socket.socket() as client:
        bound.bind((HOST, 0))
        client.setblocking(False)
        with pytest.raises(ConnectionRefusedError):
            await loop.sock_connect(client, ("localhost", bound.getsockname()[1]))


@pytest.mark.report("MagicStack/uvloop#180")
async def test_closed_server_leaves_its_connections_to_themselves(
    loop: asyncio.AbstractEventLoop,
) -> None:
    server = await loop.create_server(Echo, HOST, 0)
    reader, writer = await asyncio.open_connection(HOST, server.sockets[0].getsockname()[1])
    writer.write(b"x")
    assert await reader.readexactly(1) == b"x"
    server.close()
    writer.write(b"y")
    assert await reader.readexactly(1) == b"y"
    await close_all(writer)
    await asyncio.wait_for(server.wait_closed(), 30)


@pytest.mark.report("MagicStack/uvloop#221")
async def test_server_is_a_context_manager(loop: asyncio.AbstractEventLoop) -> None:
    async with await loop.create_server(Echo, HOST, 0) as server:
        assert await answer(HOST, server.sockets[0].getsockname()[1]) == b"x"
    assert not server.is_serving()


@pytest.mark.report("MagicStack/uvloop#224")
async def test_server_serves_from_start_serving_on(loop: asyncio.AbstractEventLoop) -> None:
    server = await loop.create_server(Echo, HOST, 0, start_serving=False)
    port = server.sockets[0].getsockname()[1]
    assert not server.is_serving()
    with pytest.raises(ConnectionRefusedError):
        await answer(HOST, port)
    await server.start_serving()
    assert await answer(HOST, port) == b"x"
    await close_all(server)


@pytest.mark.report("MagicStack/uvloop#261")
async def test_unix_server_without_a_reference_keeps_its_socket(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    path = tmp_path / "socket"

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x")
        await close_all(writer)

    async def start() -> weakref.ref[asyncio.Server]:
        return weakref.ref(await asyncio.start_unix_server(serve, path))

    server = await start()
    gc.collect()
    with Path("/dev/null").open():  # would have the descriptor of a closed listener
        reader, writer = await asyncio.open_unix_connection(path)
        assert await reader.read() == b"x"
    still = server()
    assert still
    await close_all(writer, still)


@pytest.mark.report("MagicStack/uvloop#305")
def test_callbacks_of_a_connection_run_in_the_servers_context(
    loop: asyncio.AbstractEventLoop,
) -> None:
    variable = contextvars.ContextVar("variable", default="none")
    seen: list[str] = []

    class Seeing(Echo):
        def connection_made(self, transport: Any) -> None:
            seen.append(variable.get())
            super().connection_made(transport)

        def data_received(self, data: bytes) -> None:
            seen.append(variable.get())
            super().data_received(data)

    async def serve() -> asyncio.Server:
        variable.set("the server's")
        return await loop.create_server(Seeing, HOST, 0)

    server = loop.run_until_complete(serve())
    port = server.sockets[0].getsockname()[1]
    assert loop.run_until_complete(answer(HOST, port)) == b"x"
    assert seen == ["the server's"] * 2
    loop.run_until_complete(close_all(server))


@pytest.mark.report("MagicStack/uvloop#550")
async def test_two_servers_share_a_port_by_reuse_port(loop: asyncio.AbstractEventLoop) -> None:
    first = await loop.create_server(Echo, HOST, 0, reuse_port=True)
    port = first.sockets[0].getsockname()[1]
    second = await loop.create_server(Echo, HOST, port, reuse_port=True)
    await close_all(first)
    assert await answer(HOST, port) == b"x"
    await close_all(second)


@pytest.mark.report("MagicStack/uvloop#645")
async def test_cancelled_connection_of_a_socket_closes_no_descriptor_of_others(
    loop: asyncio.AbstractEventLoop, pair: tuple[socket.socket, socket.socket]
) -> None:
    number = pair[0].fileno()
    connecting = loop.create_task(loop.create_connection(Recorder, sock=pair[0]))
    await asyncio.sleep(0)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await asyncio.sleep(0.001)
    others = [os.open("/dev/null", os.O_RDONLY) for _ in range(4)]
    assert number in others or pair[0].fileno() == number
    pair[0].close()
    await asyncio.sleep(0.001)
    assert [os.readlink(f"/proc/self/fd/{each}") for each in others] == ["/dev/null"] * 4
    for each in others:
        os.close(each)


@pytest.mark.report("python/cpython#156512")
@pytest.mark.goloop_only("asyncio of 3.11 to 3.13 calls connection_lost twice")
async def test_protocol_is_lost_once_if_resume_writing_closes(
    loop: asyncio.AbstractEventLoop, pair: tuple[socket.socket, socket.socket]
) -> None:
    class Closing(Recorder):
        def resume_writing(self) -> None:
            super().resume_writing()
            self.transport.close()

    transport, protocol = await loop.create_connection(Closing, sock=pair[0])
    transport.set_write_buffer_limits(0)
    transport.write(bytes(4_000_000))
    got = 0

    def read() -> None:
        nonlocal got
        got += len(pair[1].recv(1 << 20))

    loop.add_reader(pair[1], read)
    await asyncio.wait_for(protocol.lost, 30)
    await until(lambda: got == 4_000_000)
    loop.remove_reader(pair[1])
    assert protocol.names() == ["made", "pause", "resume", "lost"]
