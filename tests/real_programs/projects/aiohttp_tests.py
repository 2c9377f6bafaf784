"""Tests with the fixtures of pytest-aiohttp."""

from aiohttp import web
from loop_name import loop_name


async def hello(request):
    return web.json_response({"loop": loop_name()})


async def test_client_and_server(aiohttp_client):
    app = web.Application()
    app.router.add_get("/", hello)
    client = await aiohttp_client(app)
    answer = await client.get("/")
    assert await answer.json() == {"loop": "goloop.Loop"}
    assert loop_name() == "goloop.Loop"


async def test_raw_server(aiohttp_raw_server, aiohttp_client):
    client = await aiohttp_client(await aiohttp_raw_server(hello))
    assert await (await client.get("/")).json() == {"loop": "goloop.Loop"}
