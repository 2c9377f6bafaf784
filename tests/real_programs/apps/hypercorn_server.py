"""hypercorn, run as a library: PORT CERTIFICATE KEY."""

import asyncio
import signal
import sys

from asgi_app import app
from hypercorn.asyncio import serve
from hypercorn.config import Config

import goloop


async def main():
    port, certificate, key = sys.argv[1:]
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.certfile, config.keyfile = certificate, key
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    await serve(app, config, shutdown_trigger=stopping.wait)


goloop.run(main())
