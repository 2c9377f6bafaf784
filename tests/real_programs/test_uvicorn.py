"""uvicorn with Starlette and FastAPI applications: HTTP/1.1, WebSockets, several workers,
reloading, and as a library."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from real_programs.programs import (
    APPS,
    LOOP,
    TIME_LIMIT,
    Program,
    Programs,
    free_port,
    get,
    needs,
    on_goloop,
    one_at_a_time,
    workers_of,
)

needs("uvicorn", "starlette", "fastapi", "websockets")
import websockets  # noqa: E402
from uvicorn import Config, Server  # noqa: E402

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
    found = workers_of(f"http://127.0.0.1:{port}", 2)
    assert server.process.pid not in found
    assert server.end(status=None).count("lifespan: shutdown") == 2


@pytest.mark.parametrize("way", ["run", "serve"])
def test_uvicorn_as_a_library_serves_fastapi(programs: Programs, way: str) -> None:
    port = free_port()
    server = programs.python(APPS / "uvicorn_server.py", way, str(port), port=port)
    url = f"http://127.0.0.1:{port}"
    assert json.loads(get(url)) == {"loop": LOOP, "pid": server.process.pid}
    assert json.loads(get(f"{url}/thread")) == {"loop": LOOP, "before": LOOP}
    assert json.loads(get(f"{url}/background", b"")) == {}
    deadline = time.monotonic() + TIME_LIMIT
    while json.loads(get(f"{url}/done")) != [LOOP]:
        assert time.monotonic() < deadline, server.output

    async def main() -> None:
        async with websockets.connect(f"ws://127.0.0.1:{port}/ws") as socket:
            await socket.send("hello")
            assert await socket.recv() == f"{LOOP}: hello"

    on_goloop(main())
    assert "Application shutdown complete" in server.end(status=None)


def test_uvicorn_reloads(programs: Programs, tmp_path: Path) -> None:
    """The process that serves is a new one after each change, and on goloop again."""
    folder = tmp_path / "reloaded"
    folder.mkdir()
    app = folder / "reloaded_app.py"
    source = (APPS / "reloaded_app.py").read_text()
    app.write_text(source)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server = programs.python(
        *("-m", "uvicorn", "reloaded_app:app", "--loop", "goloop:new_event_loop"),
        *("--port", str(port), "--reload", "--reload-dir", folder, "--app-dir", folder),
        port=port,
    )
    first = json.loads(get(url))
    assert first["loop"] == LOOP
    assert json.loads(get(f"{url}/version")) == "first"
    app.write_text(source.replace("first", "second one"))
    os.utime(app, (time.time() + 10,) * 2)
    server.until_says("Application startup complete", 2)
    assert json.loads(get(f"{url}/version")) == "second one"
    second = json.loads(get(url))
    assert second["loop"] == LOOP
    assert second["pid"] not in (first["pid"], server.process.pid)
    server.end(status=None)


def test_connections_beyond_the_limit_wait_for_their_turn() -> None:
    async def hello(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"5")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"hello"})

    async def main() -> None:
        server = Server(Config(hello, port=0, lifespan="off", log_level="warning"))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        (listening,) = server.servers
        listening.max_connections = 1
        await one_at_a_time(listening.sockets[0].getsockname())
        server.should_exit = True
        await serving

    on_goloop(main())
