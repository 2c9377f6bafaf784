"""aiohttp.web on a loop in each of three threads, and the culprit in one of them: PORT."""

import asyncio
import sys

import culprit
from aiohttp import web

import goloop

listener = goloop.SharedListener("127.0.0.1", int(sys.argv[1]))


async def index(request):
    return web.json_response(culprit.told())


async def main(index_of_thread):
    app = web.Application()
    app.add_routes([web.get("/", index)])
    runner = web.AppRunner(app, handle_signals=False)
    await runner.setup()
    try:
        for sock in listener.share():
            await web.SockSite(runner, sock).start()
        kept = culprit.begin() if index_of_thread == 1 else None
        await asyncio.Event().wait()
        print(kept)
    finally:
        await runner.cleanup()


with listener:
    goloop.run_threads(main, threads=3)
