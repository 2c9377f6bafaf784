"""An hour of virtual time of real programs: keep-alive, timeouts, partitions and restarts.

docs/testing.md has the duration of 200 seeds of each, and their findings:

    pytest --goloop-seeds 200 tests/real_programs/test_simulated_hours.py
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from partial_run import FREE_THREADED

from goloop import testing

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's"),
]

HOUR = 3600
# The numbers of answers and of each failure, in one run.
Outcomes = collections.Counter[str]


async def an_hour(
    sim: testing.Simulation,
    serve: Callable[[], Awaitable[None]],
    ask: Callable[[int, Outcomes], Any],
) -> None:
    """Questions each ten seconds; meanwhile the server and the network fail again and again."""
    server, client = sim.host("server"), sim.host("client")
    sim.net.set_link(server, client, latency=(0.001, 0.05), loss=0.01, fragment=0.2)
    server.spawn(serve)
    await asyncio.sleep(1)
    outcomes = Outcomes()
    asking = client.spawn(ask, HOUR, outcomes)
    while not asking.done():
        await asyncio.wait([asking], timeout=sim.random.uniform(60, 300))
        pause = sim.random.uniform(1, 60)
        match sim.random.randrange(7):
            case 0:
                sim.net.partition({server}, {client})
                await asyncio.sleep(pause)
                sim.net.heal()
            case 1:
                ways = [{server}, {client}]
                sim.random.shuffle(ways)
                sim.net.partition_oneway(*ways)
                await asyncio.sleep(pause)
                sim.net.heal()
            case 2:
                sim.net.hold({server}, {client})
                await asyncio.sleep(pause)
                sim.net.heal()
            case 3:
                server.restart()
            case 4:
                server.kill()
                await asyncio.sleep(pause)
                server.restart()
            case 5:
                server.crash()
                await asyncio.sleep(pause)
                server.restart()
            case 6:
                server.pause()
                await asyncio.sleep(pause)
                server.resume()
    await asking
    assert sum(outcomes.values()) == HOUR // 10
    assert outcomes["answered"] > HOUR // 20, outcomes
    assert sim.time() > HOUR


async def questions(
    seconds: int,
    outcomes: Outcomes,
    ask: Callable[[int], Awaitable[None]],
    *errors: type[Exception],
) -> None:
    """Make a request each ten seconds; it is answered or fails by one of the library's errors."""
    for n in range(seconds // 10):
        try:
            await ask(n)
            outcomes["answered"] += 1
        except errors as exc:
            outcomes[type(exc).__name__] += 1
        await asyncio.sleep(10)


# ---- aiohttp -------------------------------------------------------------------------------------


async def aiohttp_server() -> None:
    from aiohttp import web

    async def hello(request: web.Request) -> web.Response:
        return web.json_response({"name": request.match_info["name"]})

    app = web.Application()
    app.router.add_get("/{name}", hello)
    runner = web.AppRunner(app, keepalive_timeout=30)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", 80).start()
    await asyncio.Event().wait()


async def aiohttp_client(seconds: int, outcomes: Outcomes) -> None:
    import aiohttp

    limit = aiohttp.ClientTimeout(total=5)
    async with aiohttp.ClientSession(timeout=limit) as session:

        async def one(n: int) -> None:
            async with session.get(f"http://server/{n}") as response:
                assert await response.json() == {"name": str(n)}

        await questions(seconds, outcomes, one, aiohttp.ClientError, TimeoutError)


@testing.simulate(seeds=3, max_time=3 * HOUR)
async def test_an_hour_of_aiohttp(sim: testing.Simulation) -> None:
    pytest.importorskip("aiohttp")
    await an_hour(sim, aiohttp_server, aiohttp_client)


# ---- uvicorn and httpx ---------------------------------------------------------------------------


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    body = scope["path"].encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def uvicorn_server() -> None:
    import uvicorn

    options: dict[str, Any] = {"lifespan": "off", "log_config": None, "timeout_keep_alive": 30}
    await uvicorn.Server(uvicorn.Config(asgi, "0.0.0.0", 80, **options)).serve()


async def httpx_client(seconds: int, outcomes: Outcomes) -> None:
    import httpx

    async with httpx.AsyncClient(base_url="http://server", timeout=5) as http:

        async def one(n: int) -> None:
            answer = await http.get(f"/{n}")
            assert (answer.status_code, answer.text) == (200, f"/{n}")

        await questions(seconds, outcomes, one, httpx.TransportError)


@testing.simulate(seeds=3, max_time=3 * HOUR)
async def test_an_hour_of_uvicorn_and_httpx(sim: testing.Simulation) -> None:
    pytest.importorskip("uvicorn")
    await an_hour(sim, uvicorn_server, httpx_client)


# ---- redis-py ------------------------------------------------------------------------------------


async def redis_command(reader: asyncio.StreamReader) -> list[bytes]:
    count = int(await reader.readexactly(1) and await reader.readline())
    words = []
    for _ in range(count):
        size = int((await reader.readline())[1:])
        words.append((await reader.readexactly(size + 2))[:-2])
    return words


async def redis_talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """RESP3, of the commands that the client sends."""
    values: dict[bytes, bytes] = {}
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while True:
            match await redis_command(reader):
                case [b"HELLO", *_]:
                    writer.write(b"%1\r\n$5\r\nproto\r\n:3\r\n")
                case [b"PING", *_]:
                    writer.write(b"+PONG\r\n")
                case [b"SET", key, value, *_]:
                    values[key] = value
                    writer.write(b"+OK\r\n")
                case [b"GET", key]:
                    value = values[key]
                    writer.write(b"$%d\r\n%b\r\n" % (len(value), value))
                case _:
                    writer.write(b"+OK\r\n")
            await writer.drain()
    writer.close()


async def redis_server() -> None:
    async with await asyncio.start_server(redis_talk, "0.0.0.0", 6379) as server:
        await server.serve_forever()


async def redis_client(seconds: int, outcomes: Outcomes) -> None:
    import redis.asyncio
    from redis.asyncio.retry import Retry
    from redis.backoff import ConstantBackoff

    client = redis.asyncio.Redis(
        host="server",
        socket_timeout=5,
        socket_connect_timeout=5,
        socket_keepalive=True,
        health_check_interval=30,
        retry=Retry(ConstantBackoff(1), 1),
    )
    async with client:

        async def one(n: int) -> None:
            async with client.pipeline(transaction=False) as pipe:  # on one connection
                pipe.set(f"key {n}", n)
                pipe.get(f"key {n}")
                assert await pipe.execute() == [True, str(n).encode()]

        await questions(seconds, outcomes, one, redis.RedisError)


# Without a GIL the collector may free the exception of a stream's reader before the protocol that
# would have retrieved it; redis-py drops both together.  It is so on asyncio's loop, too.
ALLOWED = ("exceptions",) if FREE_THREADED else ()


@testing.simulate(seeds=3, max_time=3 * HOUR, allow=ALLOWED)
async def test_an_hour_of_redis(sim: testing.Simulation) -> None:
    pytest.importorskip("redis")
    await an_hour(sim, redis_server, redis_client)
