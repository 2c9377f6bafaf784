"""An aiohttp.web application, run as a program with TLS, or by gunicorn as `app`."""

import os
import ssl
import sys

from aiohttp import WSMsgType, web
from loop_name import loop_name


async def index(request):
    return web.json_response({"loop": loop_name(), "pid": os.getpid()})


async def echo(request):
    response = web.StreamResponse()
    await response.prepare(request)
    async for chunk in request.content.iter_any():
        await response.write(chunk)
    await response.write_eof()
    return response


async def file(request):
    return web.FileResponse(__file__)


async def websocket(request):
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        if message.type == WSMsgType.TEXT:
            await socket.send_str(f"{loop_name()}: {message.data}")
        elif message.type == WSMsgType.BINARY:
            await socket.send_bytes(message.data)
    return socket


app = web.Application(client_max_size=1 << 30)
app.add_routes(
    [
        web.get("/", index),
        web.post("/echo", echo),
        web.get("/file", file),
        web.get("/ws", websocket),
    ]
)


if __name__ == "__main__":
    import goloop

    port, certificate, key = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    web.run_app(
        app, host="127.0.0.1", port=int(port), ssl_context=context, loop=goloop.new_event_loop()
    )
