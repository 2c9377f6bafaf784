"""The server of `python -m aiohttp.web plain_web:make`: GET returns its loop's name."""

import os

from aiohttp import web
from loop_name import loop_name


async def index(request):
    return web.json_response({"loop": loop_name(), "pid": os.getpid()})


def make(arguments):
    app = web.Application()
    app.router.add_get("/", index)
    return app
