"""An ASGI application that needs no framework and doesn't name goloop: GET tells its loop."""

import asyncio
import json
import os


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    kind = type(asyncio.get_running_loop())
    told = {"loop": f"{kind.__module__}.{kind.__qualname__}", "pid": os.getpid()}
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(told).encode()})
