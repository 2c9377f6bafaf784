"""Programs of others in a simulation, as they are: servers, clients and drivers."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
from typing import Any

import pytest

from goloop import testing

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's"),
]


simulated = testing.simulate(seeds=2, max_time=100_000)


@simulated
async def test_uvicorn_serves_fastapi_to_httpx() -> None:
    uvicorn, fastapi = pytest.importorskip("uvicorn"), pytest.importorskip("fastapi")
    httpx = pytest.importorskip("httpx")
    app = fastapi.FastAPI()

    @app.get("/async/{n}")
    async def at_once(n: int) -> Any:
        return {"n": n}

    @app.get("/thread/{n}")
    def in_a_thread(n: int) -> Any:
        time.sleep(n)
        return {"n": n}

    server = uvicorn.Server(uvicorn.Config(app, port=8000, log_level="error"))
    serving = asyncio.create_task(server.serve())
    await asyncio.sleep(1)
    async with httpx.AsyncClient(base_url="http://localhost:8000", timeout=10) as http:
        assert (await http.get("/async/5")).json() == {"n": 5}
        began = time.monotonic()
        answers = await asyncio.gather(*(http.get(f"/thread/{n}") for n in (3, 1, 2)))
        assert [each.json()["n"] for each in answers] == [3, 1, 2]
        assert 3 < time.monotonic() - began < 4  # of virtual time: side by side
    server.should_exit = True
    await serving


@simulated
async def test_asyncssh_runs_a_command() -> None:
    asyncssh = pytest.importorskip("asyncssh")
    key = asyncssh.generate_private_key("ssh-ed25519")

    class Server(asyncssh.SSHServer):  # type: ignore[misc, name-defined]
        def begin_auth(self, username: str) -> bool:
            return False

    async def handle(process: Any) -> None:
        process.stdout.write("hello " + await process.stdin.readline())
        process.exit(3)

    server = await asyncssh.listen(
        "localhost", 22, server_host_keys=[key], server_factory=Server, process_factory=handle
    )
    async with asyncssh.connect(
        "localhost", 22, known_hosts=None, config=None, username="u", client_keys=None
    ) as connection:
        done = await connection.run("x", input="you\n")
        assert (done.stdout, done.exit_status) == ("hello you\n", 3)
    server.close()
    await server.wait_closed()


async def postgresql(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As much of a server as a connection and commands without parameters need."""

    def send(kind: bytes, body: bytes = b"") -> None:
        writer.write(kind + (len(body) + 4).to_bytes(4, "big") + body)

    async def body() -> bytes:
        return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big") - 4)

    await body()  # a wish for TLS
    writer.write(b"N")
    await body()
    send(b"R", bytes(4))
    send(b"S", b"server_version\x0016.0\0")
    send(b"Z", b"I")
    while (kind := await reader.readexactly(1)) != b"X":
        assert kind == b"Q"
        command = await body()
        send(b"C", command)
        send(b"Z", b"I")
    writer.close()


@simulated
async def test_asyncpg_talks_to_a_server() -> None:
    asyncpg = pytest.importorskip("asyncpg")

    async with (
        await asyncio.start_server(postgresql, "localhost", 5432),
        asyncpg.create_pool(
            "postgresql://u:p@localhost/d",
            min_size=3,
            ssl="prefer",
            reset=lambda _: asyncio.sleep(0),
        ) as pool,
    ):
        for _ in range(5):
            async with pool.acquire() as connection:
                assert await connection.execute("begin") == "begin"


# ---- leftovers -----------------------------------------------------------------------------------


async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server of HTTP and RESP, which answers any client here."""
    while data := await reader.read(1000):
        if data.startswith(b"GET"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")
        else:
            writer.write(b"%1\r\n$5\r\nproto\r\n:3\r\n" if b"HELLO" in data else b"+OK\r\n" * 2)
    writer.close()


async def aiohttp_session() -> None:
    aiohttp = pytest.importorskip("aiohttp")
    session = aiohttp.ClientSession()
    async with session.get("http://localhost/") as response:
        assert await response.text() == "hi"


async def httpx_client() -> None:
    httpx = pytest.importorskip("httpx")
    assert (await httpx.AsyncClient().get("http://localhost/")).text == "hi"


async def redis_client() -> None:
    redis = pytest.importorskip("redis.asyncio")
    assert await redis.Redis(host="localhost", port=80).set("a", "b")


async def uvicorn_server() -> None:
    uvicorn = pytest.importorskip("uvicorn")
    config = uvicorn.Config(lambda *_: None, port=8000, lifespan="off", log_config=None)
    running.add(asyncio.create_task(uvicorn.Server(config).serve()))
    await asyncio.sleep(1)


running: set[Any] = set()


@pytest.mark.filterwarnings("ignore:unclosed", "ignore:Unclosed")  # so they say themselves
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("leaves", "found"),
    [
        (aiohttp_session, "open|without close|Unclosed"),
        (httpx_client, "open|without close"),
        (redis_client, "open|without close"),
        (uvicorn_server, "tasks run:(.|\n)*Server.serve(.|\n)*a server listens"),
    ],
    ids=["aiohttp", "httpx", "redis", "uvicorn"],
)
def test_unclosed_resources_are_reported_as_left_over(
    leaves: Any, found: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = await asyncio.start_server(hello, "localhost", 80)
        await leaves()
        server.close()

    # A log record keeps the frames of a traceback until the test has ended, and with them objects
    # that warn when they are freed.
    caplog.set_level(logging.CRITICAL + 1, "asyncio")
    with pytest.raises(testing.LeftBehind, match=found):
        testing.simulate(seeds=1)(main)()
    running.clear()
    gc.collect()
