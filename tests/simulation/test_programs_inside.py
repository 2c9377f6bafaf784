"""Programs of others run in a simulation as they are; more of them are in tests/real_programs."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import pytest
from support import tls_tools

from goloop import testing

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")


simulated = testing.simulate(seeds=2, max_time=100_000)


@simulated
async def test_aiohttp_and_its_websockets() -> None:
    aiohttp = pytest.importorskip("aiohttp")
    web = pytest.importorskip("aiohttp.web")

    async def hello(request: Any) -> Any:
        return web.json_response({"name": request.match_info["name"]})

    async def echo(request: Any) -> Any:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data)
        return socket

    app = web.Application()
    app.router.add_get("/echo", echo)
    app.router.add_get("/{name}", hello)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "localhost", 80).start()
    async with aiohttp.ClientSession() as session:
        async with session.get("http://localhost/x") as response:
            assert await response.json() == {"name": "x"}
        async with session.ws_connect("http://localhost/echo") as socket:
            await socket.send_str("hello")
            assert await socket.receive_str() == "hello"
    await runner.cleanup()


@simulated
async def test_websockets_keep_a_connection_for_an_hour() -> None:
    websockets = pytest.importorskip("websockets")

    async def echo(socket: Any) -> None:
        async for message in socket:
            await socket.send(message)

    async with (
        websockets.serve(echo, "localhost", 80),
        websockets.connect("ws://localhost") as socket,
    ):
        for _ in range(2):
            await socket.send("hello")
            assert await socket.recv() == "hello"
            await asyncio.sleep(3600)


@simulated
async def test_httpx_asks_a_server_of_streams() -> None:
    httpx = pytest.importorskip("httpx")

    connections = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer.get_extra_info("peername"))
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except asyncio.IncompleteReadError:
            writer.close()

    async with await asyncio.start_server(answer, "localhost", 80), httpx.AsyncClient() as http:
        for _ in range(3):
            assert (await http.get("http://localhost/")).text == "hello"
    assert len(connections) == 1  # kept alive: it looks by poll() whether that is readable
    connections.clear()


@simulated
async def test_anyio_in_all_its_ways() -> None:
    anyio = pytest.importorskip("anyio")

    async def echo(stream: Any) -> None:
        async with stream:
            await stream.send(await stream.receive())

    tcp = await anyio.create_tcp_listener(local_host="localhost", local_port=80)
    unix = await anyio.create_unix_listener("/run/anyio.sock")
    async with anyio.create_task_group() as group:
        group.start_soon(tcp.serve, echo)
        group.start_soon(unix.serve, echo)
        for stream in (
            await anyio.connect_tcp("localhost", 80),
            await anyio.connect_unix("/run/anyio.sock"),
        ):
            async with stream:
                await stream.send(b"hello")
                assert await stream.receive() == b"hello"
        await anyio.to_thread.run_sync(time.sleep, 5)
        with anyio.move_on_after(5):
            await anyio.sleep_forever()
        group.cancel_scope.cancel()
    for listener in (tcp, unix):
        await listener.aclose()
    async with (
        await anyio.create_udp_socket(local_host="127.0.0.1", local_port=53) as udp,
        await anyio.create_connected_udp_socket("127.0.0.1", 53) as asking,
    ):
        await asking.send(b"hello")
        assert (await udp.receive())[0] == b"hello"


def test_tls_from_the_first_byte_and_later() -> None:
    server, client = tls_tools.server_context(), tls_tools.client_context()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    async def upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"STARTTLS\n"
        await writer.start_tls(server)
        await echo(reader, writer)

    async def main() -> None:
        async with (
            await asyncio.start_server(echo, "localhost", 443, ssl=server),
            await asyncio.start_server(upgrade, "localhost", 25),
        ):
            first = await asyncio.open_connection("localhost", 443, ssl=client)
            second = await asyncio.open_connection("localhost", 25)
            second[1].write(b"STARTTLS\n")
            await second[1].start_tls(client, server_hostname="localhost")
            for reader, writer in (first, second):
                writer.write(b"hello\n")
                assert await reader.read() == b"hello\n"
                writer.close()

    simulated(main)()
