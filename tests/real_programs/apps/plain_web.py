"""The server of `python -m aiohttp.web plain_web:make`: GET returns its loop's name."""

import asyncio
import os

from aiohttp import web


async def index(request):
    kind = type(asyncio.get_running_loop())
    loop = f"{kind.__module__}.{kind.__qualname__}"
    return web.json_response({"loop": loop, "pid": os.getpid()})


def make(arguments):
    app = web.Application()
    app.router.add_get("/", index)
    return app
