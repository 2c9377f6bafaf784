"""The common part of aiohttp_threads.py and culprit_threads.py: aiohttp.web on several loops."""

import contextlib

from aiohttp import web


@contextlib.asynccontextmanager
async def served(listener, index):
    """Serves `index` at / on this loop's share of the listener, until the block ends."""
    app = web.Application()
    app.add_routes([web.get("/", index)])
    runner = web.AppRunner(app, handle_signals=False)
    await runner.setup()
    try:
        for sock in listener.share():
            await web.SockSite(runner, sock).start()
        yield
    finally:
        await runner.cleanup()
