"""hypercorn: HTTP/2 by ALPN, HTTP/1.1 and WebSockets, all over TLS; two processes."""

from __future__ import annotations

import pytest
from tls_tools import client_context, identity

from real_programs.programs import APPS, LOOP, Programs, free_port, needs, on_goloop, workers_of

needs("hypercorn", "starlette", "httpx", "h2", "websockets")
import httpx  # noqa: E402
import websockets  # noqa: E402

pytestmark = pytest.mark.real


def test_hypercorn_serves_http2_and_websockets_over_tls(programs: Programs) -> None:
    port, own = free_port(), identity()
    server = programs.python(
        APPS / "hypercorn_server.py", str(port), own.certificate, own.key, port=port
    )

    async def main() -> None:
        base = f"https://localhost:{port}"
        for http2 in (True, False):
            async with httpx.AsyncClient(verify=client_context(), http2=http2) as client:
                told = (await client.get(base)).json()
                assert told["loop"] == LOOP
                assert told["http"] == ("2" if http2 else "1.1")
                answer = await client.post(f"{base}/echo", content=b"z" * 300_000)
                assert answer.content == b"z" * 300_000
        url = f"wss://localhost:{port}/ws"
        async with websockets.connect(url, ssl=client_context()) as socket:
            await socket.send("hello")
            assert await socket.recv() == f"{LOOP}: hello"

    on_goloop(main())
    assert "lifespan: shutdown" in server.end()


def test_hypercorn_serves_in_two_processes(programs: Programs) -> None:
    port = free_port()
    server = programs.python(APPS / "hypercorn_workers.py", str(port), port=port)
    server.until_says("lifespan: startup", 2)
    assert server.process.pid not in workers_of(f"http://127.0.0.1:{port}", 2)
    assert server.end().count("lifespan: shutdown") == 2
