"""gunicorn with goloop's workers: preload on and off, and a graceful restart."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from typing import Any

import ended
import pytest

import goloop
from real_programs.programs import APPS, LOOP, Program, Programs, free_port, get, needs, workers_of

needs("gunicorn.workers.gasgi", "starlette", "uvicorn_worker", "aiohttp")

pytestmark = pytest.mark.real


def gunicorn(programs: Programs, port: int, *options: str, **environ: str) -> Program:
    return programs.python(
        *("-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "--no-control-socket", *options),
        port=port,
        **environ,
    )


def ask(url: str, *, may_fail: bool) -> dict[str, Any]:
    """A request of a server that is being restarted.

    uvicorn and aiohttp close, on every loop, the connections whose request they have not read yet.
    """
    while True:
        try:
            told: dict[str, Any] = json.loads(get(url))
            return told
        except (ConnectionError, urllib.error.URLError) as failure:
            if not may_fail or isinstance(failure, urllib.error.HTTPError):
                raise


WORKER = "goloop.workers.GoloopWorker"
UVICORN_WORKER = "goloop.uvicorn_worker.GoloopUvicornWorker"


@pytest.mark.parametrize(
    ("worker", "preload"),
    [
        (WORKER, "no preload"),
        (WORKER, "preload"),
        (WORKER, "goloop used before the fork"),
        (UVICORN_WORKER, "no preload"),
        (UVICORN_WORKER, "goloop used before the fork"),
    ],
)
def test_gunicorn_restarts_gracefully(programs: Programs, worker: str, preload: str) -> None:
    """HUP: new workers serve at once, and the old ones finish their requests."""
    port = free_port()
    options = ["--worker-class", worker, "--workers", "2"]
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

    with urllib.request.urlopen(f"{url}/slow?seconds=2", timeout=60) as slow:
        assert slow.readline() == b"begun\n"
        old = set()
        while len(old) < 2:
            old.add(json.loads(get(url))["pid"])
        os.kill(server.process.pid, signal.SIGHUP)
        new: set[int] = set()
        deadline = time.monotonic() + 60
        while len(new - old) < 2:
            # Of gunicorn's own worker no request fails meanwhile.
            new.add(ask(url, may_fail=worker != WORKER)["pid"])
            assert time.monotonic() < deadline, server.output
        assert int(slow.read()) in old
    server.until_says("lifespan: startup", 4)
    server.until_says("lifespan: shutdown", 2)
    assert server.end().count("lifespan: shutdown") == 4


@pytest.mark.parametrize("turns", range(5))
def test_connections_accepted_before_a_shutdown_begin_before_the_wait(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """gunicorn waits for begun connections only, and then closes the loop with the others."""
    workers = importlib.import_module("goloop.workers")
    begun: list[asyncio.BaseTransport] = []
    at_the_wait: list[int] = []

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            begun.append(transport)

    async def waits(self: object) -> None:
        at_the_wait.append(len(begun))

    async def shut_down() -> None:
        server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()):
            for _ in range(turns):
                await asyncio.sleep(0)
            worker = object.__new__(workers.GoloopWorker)
            worker.servers = [server]
            await worker._shutdown()
            for _ in range(10):
                await asyncio.sleep(0)
        for transport in begun:
            transport.close()

    monkeypatch.setattr(workers._ASGIWorker, "_shutdown", waits)
    goloop.run(shut_down())
    assert at_the_wait == [len(begun)]


@pytest.mark.parametrize("preload", ["no preload", "preload"])
def test_gunicorn_serves_an_aiohttp_application(programs: Programs, preload: str) -> None:
    port = free_port()
    server = gunicorn(
        programs,
        port,
        *("--worker-class", "goloop.web_worker.GoloopWebWorker", "--workers", "2"),
        *(["--preload"] if preload == "preload" else []),
        "aiohttp_app:app",
    )
    url = f"http://127.0.0.1:{port}"
    old = workers_of(url, 2)
    assert server.process.pid not in old
    assert get(f"{url}/echo", b"y" * 200_000) == "y" * 200_000
    os.kill(server.process.pid, signal.SIGHUP)
    deadline = time.monotonic() + 60
    new: set[int] = set()
    while len(new - old) < 2:
        told = ask(url, may_fail=True)
        assert told["loop"] == LOOP
        new.add(told["pid"])
        assert time.monotonic() < deadline, server.output
    server.end()


@pytest.mark.parametrize("package", ["uvicorn_worker", "uvicorn.workers"])
def test_uvicorn_worker_comes_from_the_installed_package(package: str) -> None:
    done = ended.python(APPS / "imports_uvicorn_worker.py", package, apart=True)
    wanted = {"loop": "goloop:new_event_loop", "http": "auto"}
    assert done.stdout == f"{package} {wanted}\n", done.stderr


def test_a_uvicorn_that_takes_no_factory_is_refused() -> None:
    """Without the error it would silently serve on asyncio's loop."""
    old = "import uvicorn.config; del uvicorn.config.Config.get_loop_factory"
    done = ended.python("-c", f"{old}; import goloop.uvicorn_worker")
    assert "ImportError: goloop.uvicorn_worker needs uvicorn 0.36 or later" in done.stdout
