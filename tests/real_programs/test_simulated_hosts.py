"""A client and a server of aiohttp on two hosts of a simulation."""

from __future__ import annotations

import asyncio
import collections
import sys

import pytest

from goloop import testing
from real_programs.programs import needs

needs("aiohttp")
import aiohttp  # noqa: E402
from aiohttp import web  # noqa: E402

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's"),
]


async def serve() -> None:
    async def hello(request: web.Request) -> web.Response:
        return web.json_response({"name": request.match_info["name"]})

    app = web.Application()
    app.router.add_get("/{name}", hello)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", 80).start()
    await asyncio.Event().wait()


async def ask(outcomes: collections.Counter[str]) -> None:
    """A request each ten seconds, for an hour."""
    limit = aiohttp.ClientTimeout(total=5)
    async with aiohttp.ClientSession(timeout=limit) as session:
        for n in range(360):
            try:
                async with session.get(f"http://server/{n}") as response:
                    assert await response.json() == {"name": str(n)}
                outcomes["answered"] += 1
            except (aiohttp.ClientError, TimeoutError) as exc:
                outcomes[type(exc).__name__] += 1
            await asyncio.sleep(10)


async def an_hour(sim: testing.Simulation) -> collections.Counter[str]:
    server, client = sim.host("server"), sim.host("client")
    sim.net.set_link(server, client, latency=(0.001, 0.05), loss=0.01, fragment=0.2)
    server.spawn(serve)
    outcomes: collections.Counter[str] = collections.Counter()
    asking = client.spawn(ask, outcomes)
    while not asking.done():
        await asyncio.wait([asking], timeout=sim.random.uniform(60, 300))
        match sim.random.randrange(4):
            case 0:
                sim.net.partition({server}, {client})
                await asyncio.sleep(60)
                sim.net.heal()
            case 1:
                server.restart()
            case 2:
                server.crash()
                await asyncio.sleep(60)
                server.restart()
            case 3:
                server.pause()
                await asyncio.sleep(30)
                server.resume()
    await asking
    return outcomes


def test_an_hour_of_aiohttp_with_partitions_and_restarts() -> None:
    result = testing.run(an_hour, seed=1)
    outcomes = result.value
    assert sum(outcomes.values()) == 360
    assert outcomes["answered"] > 200
    assert len(outcomes) > 1
    assert result.time > 3600
    assert testing.run(an_hour, seed=1) == result
