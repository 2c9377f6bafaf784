"""aiohttp: a server with TLS and WebSockets, and a client."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import random
import signal
from typing import Any

import pytest
from tls_tools import client_context, identity

from real_programs.programs import (
    APPS,
    LOOP,
    Programs,
    free_port,
    get,
    needs,
    on_goloop,
    one_at_a_time,
)

needs("aiohttp")
import aiohttp  # noqa: E402
from aiohttp import web  # noqa: E402

pytestmark = pytest.mark.real


def test_aiohttp_serves_over_tls_and_websockets(programs: Programs) -> None:
    port, own = free_port(), identity()
    server = programs.python(
        APPS / "aiohttp_app.py", str(port), own.certificate, own.key, port=port
    )

    async def main() -> None:
        base = f"https://localhost:{port}"
        payload = random.Random(1).randbytes(5_000_000)
        connector = aiohttp.TCPConnector(ssl=client_context())
        async with aiohttp.ClientSession(connector=connector) as session:
            async with session.get(base) as answer:
                told = await answer.json()
                assert told["loop"] == LOOP
                assert told["pid"] == server.process.pid != os.getpid()
            async with session.post(f"{base}/echo", data=io.BytesIO(payload)) as answer:
                body = await answer.read()
                assert hashlib.sha256(body).digest() == hashlib.sha256(payload).digest()
            async with session.get(f"{base}/file") as answer:
                assert await answer.read() == (APPS / "aiohttp_app.py").read_bytes()
            async with session.ws_connect(f"{base}/ws", max_msg_size=0) as socket:
                await socket.send_str("hello")
                assert await socket.receive_str() == f"{LOOP}: hello"
                for size in (0, 1, 125, 126, 65536, 1_000_000):
                    await socket.send_bytes(payload[:size])
                    assert await socket.receive_bytes() == payload[:size]

    on_goloop(main())
    server.end(signal.SIGINT, status=None)


def test_aiohttp_serves_on_a_loop_that_runs(programs: Programs) -> None:
    port = free_port()
    server = programs.python(APPS / "aiohttp_runner.py", str(port), port=port)
    told = json.loads(get(f"http://127.0.0.1:{port}"))
    assert told == {"loop": LOOP, "pid": server.process.pid}
    server.end()


def test_connections_beyond_the_limit_wait_for_their_turn() -> None:
    """The way that docs/frameworks/aiohttp.md shows."""

    async def hello(request: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/", hello)
        runner = web.AppRunner(app)
        await runner.setup()
        loop: Any = asyncio.get_running_loop()
        server = await loop.create_server(runner.server, "127.0.0.1", 0, max_connections=1)
        await one_at_a_time(server.sockets[0].getsockname())
        server.close()
        await runner.cleanup()

    on_goloop(main())
