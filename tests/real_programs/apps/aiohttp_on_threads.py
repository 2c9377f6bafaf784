"""What aiohttp_threads.py and culprit_threads.py have alike: aiohttp.web on a loop of several."""

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
