"""granian: two workers, by its own command line and as a library; HTTP, WebSockets, a lifespan."""

from __future__ import annotations

import json

import pytest

from real_programs.programs import (
    APPS,
    LOOP,
    Programs,
    free_port,
    get,
    needs,
    on_goloop,
    workers_of,
)

needs("granian", "starlette", "websockets")
import websockets  # noqa: E402

pytestmark = pytest.mark.real

COMMAND = [
    *(APPS / "granian_command.py", "asgi_app:app", "--interface", "asgi"),
    *("--workers", "2", "--port"),
]
LIBRARY = [APPS / "granian_server.py"]


@pytest.mark.parametrize("words", [COMMAND, LIBRARY], ids=["command", "library"])
def test_both_workers_of_granian_serve(programs: Programs, words: list[str]) -> None:
    port = free_port()
    server = programs.python(*words, str(port), port=port)
    server.until_says("lifespan: startup", 2)
    url = f"http://127.0.0.1:{port}"
    assert server.process.pid not in workers_of(url, 2)
    assert json.loads(get(url))["http"] == "1.1"
    assert get(f"{url}/echo", b"x" * 300_000) == "x" * 300_000
    assert get(f"{url}/slow?seconds=0.1").startswith("begun\n")

    async def main() -> None:
        async with websockets.connect(f"ws://127.0.0.1:{port}/ws") as socket:
            for text in ("hello", "x" * 100_000):
                await socket.send(text)
                assert await socket.recv() == f"{LOOP}: {text}"

    on_goloop(main())
    assert server.end().count("lifespan: shutdown") == 2
