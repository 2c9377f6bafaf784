"""uvicorn with a Starlette application: HTTP/1.1, WebSockets, several workers."""

from __future__ import annotations

import json
import random
import urllib.request

import pytest

from real_programs.programs import LOOP, Program, Programs, free_port, get, needs, on_goloop

needs("uvicorn", "starlette", "websockets")
import websockets  # noqa: E402

pytestmark = pytest.mark.real


def uvicorn(programs: Programs, port: int, *options: str) -> Program:
    return programs.python(
        *("-m", "uvicorn", "asgi_app:app", "--loop", "goloop:new_event_loop"),
        *("--port", str(port), *options),
        port=port,
    )


@pytest.mark.parametrize("http", ["h11", "auto"])
def test_uvicorn_serves_http_and_websockets(programs: Programs, http: str) -> None:
    port = free_port()
    server = uvicorn(programs, port, "--http", http)
    assert json.loads(get(f"http://127.0.0.1:{port}")) == {
        "loop": LOOP,
        "pid": server.process.pid,
        "http": "1.1",
    }
    payload = random.Random(1).randbytes(3_000_000)
    url = f"http://127.0.0.1:{port}/echo"
    with urllib.request.urlopen(url, payload, timeout=60) as answer:
        assert answer.read() == payload

    async def main() -> None:
        async with websockets.connect(f"ws://127.0.0.1:{port}/ws", max_size=None) as socket:
            for text in ("hello", "x" * 1_000_000):
                await socket.send(text)
                assert await socket.recv() == f"{LOOP}: {text}"

    on_goloop(main())
    output = server.end(status=None)
    assert "lifespan: startup" in output
    assert "lifespan: shutdown" in output


def test_both_workers_of_uvicorn_serve(programs: Programs) -> None:
    port = free_port()
    server = uvicorn(programs, port, "--workers", "2")
    server.until_says("lifespan: startup", 2)
    found = set()
    for _ in range(1000):
        told = json.loads(get(f"http://127.0.0.1:{port}"))
        assert told["loop"] == LOOP
        found.add(told["pid"])
        if len(found) == 2:
            break
    assert len(found) == 2
    assert server.process.pid not in found
    assert server.end(status=None).count("lifespan: shutdown") == 2
