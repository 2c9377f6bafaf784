"""An ASGI application with the culprit."""

import json

import culprit

kept = []


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        kept.append(culprit.begin())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = json.dumps(culprit.told()).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
