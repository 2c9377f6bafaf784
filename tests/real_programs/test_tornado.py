"""tornado: its server, its client within it, its timers and WebSockets."""

from __future__ import annotations

import json

import pytest

from real_programs.programs import APPS, LOOP, Programs, free_port, get, needs, on_goloop

needs("tornado", "websockets")
import websockets  # noqa: E402

pytestmark = pytest.mark.real


def test_tornado_serves_requests_and_websockets(programs: Programs) -> None:
    port = free_port()
    server = programs.python(APPS / "tornado_server.py", str(port), port=port)
    url = f"http://127.0.0.1:{port}"
    assert json.loads(get(url)) == {"loop": LOOP}
    assert json.loads(get(f"{url}/proxy")) == {"loop": LOOP}
    assert get(url, b"w" * 500_000) == "w" * 500_000

    async def main() -> None:
        async with websockets.connect(f"ws://127.0.0.1:{port}/ws") as socket:
            await socket.send("hello")
            assert await socket.recv() == f"{LOOP}: hello"

    on_goloop(main())
    server.end()
