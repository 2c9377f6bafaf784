"""aiohttp, httpx and websockets on the loop, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import http.server
import json
import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import httpx
import pytest
import websockets
from aiohttp import web
from protocols import until

Loop = asyncio.AbstractEventLoop
PAYLOAD = os.urandom(1 << 20)


async def hello(request: web.Request) -> web.Response:
    return web.json_response({"path": request.path, "query": dict(request.query)})


async def echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


async def stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for start in range(0, len(PAYLOAD), 10_000):
        await response.write(PAYLOAD[start : start + 10_000])
    await response.write_eof()
    return response


async def socket(request: web.Request) -> web.WebSocketResponse:
    answers = web.WebSocketResponse()
    await answers.prepare(request)
    async for message in answers:
        if message.type == aiohttp.WSMsgType.TEXT:
            await answers.send_str(message.data.upper())
        else:
            await answers.send_bytes(message.data)
    return answers


@contextlib.asynccontextmanager
async def aiohttp_server() -> AsyncIterator[tuple[str, int]]:
    app = web.Application(client_max_size=1 << 24)
    app.add_routes(
        [
            web.get("/hello", hello),
            web.post("/echo", echo),
            web.get("/stream", stream),
            web.get("/socket", socket),
        ]
    )
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = runner.addresses[0]
    try:
        yield address[0], address[1]
    finally:
        await runner.cleanup()


async def everything_closed() -> None:
    """Clients close their sockets a few turns after they say so."""
    await until(lambda: len(asyncio.all_tasks()) == 1)
    await asyncio.sleep(0.01)


async def test_aiohttp_server_with_a_client_without_asyncio(loop: Loop) -> None:
    def ask(host: str, port: int) -> None:
        connection = http.client.HTTPConnection(host, port, timeout=20)
        for number in range(20):
            connection.request("GET", f"/hello?n={number}")
            answer = connection.getresponse()
            assert answer.status == 200
            assert json.loads(answer.read()) == {"path": "/hello", "query": {"n": str(number)}}
        connection.request("POST", "/echo", body=PAYLOAD)
        assert connection.getresponse().read() == PAYLOAD
        connection.request("GET", "/stream")
        assert connection.getresponse().read() == PAYLOAD
        connection.request("GET", "/nothing")
        missing = connection.getresponse()
        missing.read()
        assert missing.status == 404
        connection.close()

    async with aiohttp_server() as (host, port):
        await asyncio.gather(*(asyncio.to_thread(ask, host, port) for _ in range(4)))
    await everything_closed()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


class ThreadedServer(http.server.ThreadingHTTPServer):
    request_queue_size = 100
    daemon_threads = False


@pytest.fixture
def threaded_server(no_leaks: None) -> Iterator[tuple[str, int]]:
    """The standard library's server, in threads."""
    with ThreadedServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield ("127.0.0.1", server.server_address[1])
        server.shutdown()
        thread.join()


async def test_aiohttp_client_with_a_server_without_asyncio(
    threaded_server: tuple[str, int], loop: Loop
) -> None:
    url = f"http://{threaded_server[0]}:{threaded_server[1]}/"
    async with aiohttp.ClientSession() as session:

        async def ask(body: bytes) -> None:
            async with session.post(url, data=body) as answer:
                assert answer.status == 200
                assert await answer.read() == body

        await asyncio.gather(*(ask(b"%d" % number) for number in range(50)))
        await ask(PAYLOAD)
    await everything_closed()


async def test_an_aiohttp_client_and_server_talk_on_one_loop(loop: Loop) -> None:
    async with aiohttp_server() as (host, port), aiohttp.ClientSession() as session:
        url = f"http://{host}:{port}"

        async def ask(number: int) -> None:
            async with session.get(f"{url}/hello", params={"n": number}) as answer:
                assert (await answer.json())["query"] == {"n": str(number)}

        await asyncio.gather(*(ask(number) for number in range(100)))
        async with session.get(f"{url}/stream") as answer:
            assert await answer.read() == PAYLOAD
        async with session.ws_connect(f"{url}/socket") as messages:
            await messages.send_str("hello")
            assert await messages.receive_str() == "HELLO"
            await messages.send_bytes(PAYLOAD)
            assert await messages.receive_bytes() == PAYLOAD
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio.timeout(0):
                await ask(0)
    await everything_closed()


async def test_an_httpx_client_is_answered_by_aiohttp(loop: Loop) -> None:
    async with (
        aiohttp_server() as (host, port),
        httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=20) as client,
    ):
        answers = await asyncio.gather(
            *(client.get("/hello", params={"n": number}) for number in range(50))
        )
        assert [answer.json()["query"]["n"] for answer in answers] == [str(n) for n in range(50)]
        assert (await client.post("/echo", content=PAYLOAD)).content == PAYLOAD
        received = bytearray()
        async with client.stream("GET", "/stream") as answer:
            async for chunk in answer.aiter_bytes(7777):
                received += chunk
        assert received == PAYLOAD
        with pytest.raises(httpx.ConnectError):
            await client.get("http://127.0.0.1:9/")
    await everything_closed()


async def test_websockets_echo_many_conversations_at_once(loop: Loop) -> None:
    async def serve(connection: Any) -> None:
        async for message in connection:
            await connection.send(message[::-1])

    async with websockets.serve(serve, "127.0.0.1", 0, max_size=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]

        async def talk(number: int) -> None:
            async with websockets.connect(
                f"ws://127.0.0.1:{port}/", max_size=None, proxy=None
            ) as connection:
                for step in range(20):
                    await connection.send(f"{number}:{step}")
                    assert await connection.recv() == f"{number}:{step}"[::-1]
                await connection.send(PAYLOAD)
                assert await connection.recv() == PAYLOAD[::-1]
                await (await connection.ping())

        await asyncio.gather(*(talk(number) for number in range(10)))
    await everything_closed()
