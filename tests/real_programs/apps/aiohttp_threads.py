"""aiohttp.web on a loop in each of three threads, which share a listener: PORT."""

import asyncio
import sys
import threading

from aiohttp import web
from aiohttp_on_threads import served
from loop_name import loop_name

import goloop

listener = goloop.SharedListener("127.0.0.1", int(sys.argv[1]))


async def index(request):
    name = threading.current_thread().name
    return web.json_response({"loop": loop_name(), "thread": name})


async def main(index_of_thread):
    try:
        async with served(listener, index):
            print("serves", index_of_thread)
            await asyncio.Event().wait()
    except asyncio.CancelledError:  # and not an error of the end
        print(f"cleaned up {index_of_thread}\n", end="")  # in one piece
        print("GIL:", getattr(sys, "_is_gil_enabled", lambda: True)())
        raise


with listener:
    goloop.run_threads(main, threads=3)
