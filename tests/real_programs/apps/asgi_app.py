"""A Starlette application: the loop's name, an echo, a slow answer, a WebSocket, a lifespan."""

import asyncio
import contextlib
import os

from loop_name import loop_name
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute

import goloop

if os.environ.get("RUN_BEFORE_FORK"):
    # A master that has used goloop before it forks its workers.
    goloop.run(asyncio.sleep(0))


async def index(request):
    return JSONResponse({"loop": loop_name(), "pid": os.getpid(), "http": request["http_version"]})


async def echo(request):
    return Response(await request.body())


async def slow(request):
    async def parts():
        yield b"begun\n"
        await asyncio.sleep(float(request.query_params["seconds"]))
        yield f"{os.getpid()}\n".encode()

    return StreamingResponse(parts())


async def websocket(socket):
    await socket.accept()
    async for message in socket.iter_text():
        await socket.send_text(f"{loop_name()}: {message}")


@contextlib.asynccontextmanager
async def lifespan(app):
    print("lifespan: startup", flush=True)
    yield
    print("lifespan: shutdown", flush=True)


app = Starlette(
    routes=[
        Route("/", index),
        Route("/echo", echo, methods=["POST"]),
        Route("/slow", slow),
        WebSocketRoute("/ws", websocket),
    ],
    lifespan=lifespan,
)
