"""An aiohttp.web application with the culprit: PORT, or gunicorn's `app`."""

import sys

import culprit
from aiohttp import web

import goloop


async def index(request):
    return web.json_response(culprit.told())


async def begin(app):
    app["culprit"] = culprit.begin()


app = web.Application()
app.add_routes([web.get("/", index)])
app.on_startup.append(begin)

if __name__ == "__main__":
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), loop=goloop.new_event_loop())
