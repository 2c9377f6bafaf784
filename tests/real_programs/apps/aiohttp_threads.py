"""aiohttp.web on a loop in each of three threads, which share a listener: PORT."""

import asyncio
import sys
import threading

from aiohttp import web

import goloop

listener = goloop.SharedListener("127.0.0.1", int(sys.argv[1]))


async def index(request):
    kind = type(asyncio.get_running_loop())
    name = threading.current_thread().name
    return web.json_response({"loop": f"{kind.__module__}.{kind.__qualname__}", "thread": name})


async def main(index_of_thread):
    app = web.Application()
    app.add_routes([web.get("/", index)])
    runner = web.AppRunner(app, handle_signals=False)
    await runner.setup()
    try:
        for sock in listener.share():
            await web.SockSite(runner, sock).start()
        print("serves", index_of_thread)
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
        print("cleaned up", index_of_thread)
        print("GIL:", getattr(sys, "_is_gil_enabled", lambda: True)())


with listener:
    goloop.run_threads(main, threads=3)
