"""A FastAPI application: the loop's name, also from a thread, a dependency, a background task."""

import os

import anyio.from_thread
from fastapi import BackgroundTasks, Depends, FastAPI, WebSocket
from loop_name import loop_name

app = FastAPI()
done = []


@app.get("/")
async def index():
    return {"loop": loop_name(), "pid": os.getpid()}


async def dependency():
    yield loop_name()


@app.get("/thread")
def thread(before: str = Depends(dependency)):
    """FastAPI calls functions that are not coroutines in a thread."""

    async def ask():
        return loop_name()

    return {"loop": anyio.from_thread.run(ask), "before": before}


@app.post("/background")
async def background(tasks: BackgroundTasks):
    async def work():
        done.append(loop_name())

    tasks.add_task(work)
    return {}


@app.get("/done")
async def what_is_done():
    return done


@app.websocket("/ws")
async def websocket(socket: WebSocket):
    await socket.accept()
    async for message in socket.iter_text():
        await socket.send_text(f"{loop_name()}: {message}")
