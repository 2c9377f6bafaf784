"""A uvicorn server on a loop in each of three threads, which share a listener: PORT."""

import asyncio
import json
import sys
import threading

import uvicorn
from loop_name import loop_name

import goloop

listener = goloop.SharedListener("127.0.0.1", int(sys.argv[1]))


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        print(f"shut down {threading.current_thread().name}\n", end="")  # in one piece
        return
    name = threading.current_thread().name
    told = {"loop": loop_name(), "thread": name}
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(told).encode()})


async def main(index):
    server = uvicorn.Server(uvicorn.Config(app))
    serving = asyncio.create_task(server.serve(sockets=listener.share()))
    while not server.started:
        await asyncio.sleep(0.01)
    print("serves", index)
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await serving


with listener:
    goloop.run_threads(main, threads=3)
print("GIL:", getattr(sys, "_is_gil_enabled", lambda: True)())
