"""aiohttp.web on a loop in each of three threads, and the culprit in one of them: PORT."""

import asyncio
import sys

import culprit
from aiohttp import web
from aiohttp_on_threads import served

import goloop

listener = goloop.SharedListener("127.0.0.1", int(sys.argv[1]))


async def index(request):
    return web.json_response(culprit.told())


async def main(index_of_thread):
    async with served(listener, index):
        kept = culprit.begin() if index_of_thread == 1 else None
        await asyncio.Event().wait()
        print(kept)


with listener:
    goloop.run_threads(main, threads=3)
