"""gunicorn with goloop's workers: preload on and off, and a graceful restart."""

from __future__ import annotations

import json
import os
import signal
import threading
import time

import pytest

from real_programs.programs import LOOP, Program, Programs, free_port, get, needs

needs("gunicorn.workers.gasgi", "starlette")

pytestmark = pytest.mark.real


def gunicorn(programs: Programs, port: int, *options: str, **environ: str) -> Program:
    return programs.python(
        *("-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "--no-control-socket", *options),
        port=port,
        **environ,
    )


@pytest.mark.parametrize("preload", ["no preload", "preload", "goloop used before the fork"])
def test_gunicorn_restarts_gracefully(programs: Programs, preload: str) -> None:
    """HUP: new workers serve at once, and the old ones finish what they had begun."""
    port = free_port()
    options = ["--worker-class", "goloop.workers.GoloopWorker", "--workers", "2"]
    environ = {}
    if preload != "no preload":
        options.append("--preload")
    if preload.startswith("goloop used"):
        environ["RUN_BEFORE_FORK"] = "1"
    server = gunicorn(programs, port, *options, "asgi_app:app", **environ)
    server.until_says("lifespan: startup", 2)
    url = f"http://127.0.0.1:{port}"
    first = json.loads(get(url))
    assert first["loop"] == LOOP
    assert first["pid"] != server.process.pid
    assert get(f"{url}/echo", b"x" * 200_000) == "x" * 200_000

    slow: list[str] = []
    thread = threading.Thread(target=lambda: slow.append(get(f"{url}/slow?seconds=2")))
    thread.start()
    old = set()
    while len(old) < 2:
        old.add(json.loads(get(url))["pid"])
    os.kill(server.process.pid, signal.SIGHUP)
    new: set[int] = set()
    deadline = time.monotonic() + 60
    while len(new - old) < 2:
        new.add(json.loads(get(url))["pid"])  # no request fails meanwhile
        assert time.monotonic() < deadline, server.output
    thread.join(60)
    assert slow
    assert slow[0].startswith("begun\n")
    assert int(slow[0].splitlines()[1]) in old
    server.until_says("lifespan: startup", 4)
    server.until_says("lifespan: shutdown", 2)
    assert server.end().count("lifespan: shutdown") == 4


def test_gunicorn_serves_an_aiohttp_application(programs: Programs) -> None:
    needs("aiohttp")
    port = free_port()
    server = gunicorn(
        programs, port, "--worker-class", "goloop.web_worker.GoloopWebWorker", "aiohttp_app:app"
    )
    told = json.loads(get(f"http://127.0.0.1:{port}"))
    assert told["loop"] == LOOP
    assert told["pid"] != server.process.pid
    assert get(f"http://127.0.0.1:{port}/echo", b"y" * 200_000) == "y" * 200_000
    server.end()
