"""An ASGI application that needs no framework and doesn't name goloop: GET tells its loop."""

import json
import os

from loop_name import loop_name


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    told = {"loop": loop_name(), "pid": os.getpid()}
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(told).encode()})
