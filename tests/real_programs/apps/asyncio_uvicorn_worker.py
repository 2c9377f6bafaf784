"""uvicorn's gunicorn worker on asyncio's loop, also if uvloop is installed."""

import uvicorn_worker


class AsyncioUvicornWorker(uvicorn_worker.UvicornWorker):
    CONFIG_KWARGS = {"loop": "asyncio", "http": "auto"}
