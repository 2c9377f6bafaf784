"""uvicorn, run as a library: `run PORT`, or `serve PORT` under goloop.run."""

import sys

import uvicorn
from fastapi_app import app

import goloop

way, port = sys.argv[1:]
if way == "run":
    uvicorn.run(app, port=int(port), loop="goloop:new_event_loop")
else:
    goloop.run(uvicorn.Server(uvicorn.Config(app, port=int(port))).serve())
