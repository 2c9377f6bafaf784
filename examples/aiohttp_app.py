"""An aiohttp application on goloop: `python examples/aiohttp_app.py [PORT]`, on 127.0.0.1.

The application does not depend on goloop; only the last lines choose the loop.
Port 0 lets the system choose; the first line of output has the port.
"""

import asyncio
import contextlib
import sys

from aiohttp import web

import goloop

routes = web.RouteTableDef()


@routes.get("/")
async def index(request: web.Request) -> web.Response:
    """Respond with the name of the loop."""
    loop = asyncio.get_running_loop()
    return web.Response(text=f"hello from {type(loop).__module__}.{type(loop).__qualname__}\n")


@routes.get("/count/{n:[0-9]+}")
async def count(request: web.Request) -> web.StreamResponse:
    """Stream a body that is generated while it is sent."""
    response = web.StreamResponse()
    response.enable_chunked_encoding()
    await response.prepare(request)
    for number in range(int(request.match_info["n"])):
        await response.write(f"{number}\n".encode())
        await asyncio.sleep(0)
    await response.write_eof()
    return response


@routes.post("/echo")
async def echo(request: web.Request) -> web.Response:
    """The request's body."""
    return web.Response(body=await request.read())


async def main(port: int) -> None:
    """Serve until interrupted."""
    app = web.Application(client_max_size=64 << 20)
    app.add_routes(routes)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    print(f"listening on port {runner.addresses[0][1]}", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        goloop.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8080))
