"""An arq worker on Redis, at REDIS_PORT, on goloop."""

import asyncio
import os

from arq.connections import RedisSettings
from arq.worker import Worker
from loop_name import loop_name

import goloop


async def ask(context, number):
    return loop_name(), number


async def main():
    worker = Worker([ask], redis_settings=RedisSettings(port=int(os.environ["REDIS_PORT"])))
    print("worker is up", flush=True)
    try:
        await worker.async_run()
    except asyncio.CancelledError:
        print("worker is stopped", flush=True)
    finally:
        await worker.close()


goloop.run(main())
