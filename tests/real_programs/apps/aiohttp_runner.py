"""aiohttp.web on a loop that runs already: PORT."""

import asyncio
import signal
import sys

from aiohttp import web
from aiohttp_app import app

import goloop


async def main():
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(sys.argv[1])).start()
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    await stopping.wait()
    await runner.cleanup()


goloop.run(main())
