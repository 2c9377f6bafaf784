import os
import signal


async def app(scope, receive, send):
    await receive()
    os.kill(os.getpid(), signal.SIGINT)
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})
