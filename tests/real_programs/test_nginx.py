"""gunicorn with nginx in front: graceful restarts under load, on asyncio's loop and goloop's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from real_programs.programs import ASYNCIO_LOOP, LOOP, Programs, free_port, needs, on_goloop
from real_programs.servers import reached, start_nginx

needs("gunicorn.workers.gasgi", "starlette", "uvicorn_worker", "aiohttp")
import aiohttp  # noqa: E402

pytestmark = pytest.mark.real

# For each server the application, and the options of its worker on asyncio's loop and on goloop's.
WORKERS = {
    "gunicorn": ("asgi_app:app", "asgi", "goloop.workers.GoloopWorker"),
    "uvicorn": (
        "asgi_app:app",
        "asyncio_uvicorn_worker.AsyncioUvicornWorker",
        "goloop.uvicorn_worker.GoloopUvicornWorker",
    ),
    "aiohttp": (
        "aiohttp_app:app",
        "aiohttp.GunicornWebWorker",
        "goloop.web_worker.GoloopWebWorker",
    ),
}


@pytest.mark.parametrize("loop", [ASYNCIO_LOOP, LOOP], ids=["asyncio", "goloop"])
@pytest.mark.parametrize(
    ("server", "attempts"),
    [
        ("gunicorn", 1),
        # Workers that close connections with unread requests, on each loop; nginx asks again.
        ("uvicorn", 5),
        ("aiohttp", 5),
    ],
)
def test_graceful_restarts_lose_no_request(
    programs: Programs, tmp_path: Path, server: str, attempts: int, loop: str
) -> None:
    port = free_port()
    application, *workers = WORKERS[server]
    # Now and then aiohttp's worker does not answer a request that comes with the signal, on each
    # loop, and waits for the end of the connection: then nginx asks again after this time.
    patience = ["--graceful-timeout", "3"] if server == "aiohttp" else []
    master = programs.python(
        *("-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "--no-control-socket"),
        *("--workers", "2", "--asgi-loop", "asyncio", "--worker-class", workers[loop == LOOP]),
        *patience,
        application,
        port=port,
    )
    nginx = start_nginx(programs, tmp_path, port, attempts)
    served: set[int] = set()
    lost: list[str] = []

    async def load(session: aiohttp.ClientSession, ended: asyncio.Event) -> None:
        while not ended.is_set():
            async with session.get(f"http://127.0.0.1:{nginx.port}/") as answer:
                if answer.status == 200:
                    told = await answer.json()
                    assert told["loop"] == loop
                    served.add(told["pid"])
                else:
                    lost.append(f"{answer.status} {await answer.text()}")
            await asyncio.sleep(0.005)  # the workers' start needs the processors, too

    async def main() -> None:
        ended = asyncio.Event()
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            for _ in range(16):
                group.create_task(load(session, ended))
            await reached(lambda: len(served) >= 2)
            for _ in range(3):
                old = set(served)
                os.kill(master.process.pid, signal.SIGHUP)
                await reached(lambda old=old: len(served - old) >= 2)
                await reached(lambda old=old: not any(map(is_running, old)))
            ended.set()

    on_goloop(main())
    assert len(served) >= 8
    assert lost == []
    master.end()


def is_running(process: int) -> bool:
    """Returns false once a process has ended and its parent knows it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, 0)
        return True
    return False
