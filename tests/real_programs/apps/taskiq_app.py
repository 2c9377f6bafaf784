"""A taskiq broker on Redis, at REDIS_PORT; run as a program, it is a worker on goloop."""

import asyncio
import os
import signal

from loop_name import loop_name
from taskiq.api import run_receiver_task
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

import goloop

url = f"redis://127.0.0.1:{os.environ['REDIS_PORT']}"
broker = ListQueueBroker(url).with_result_backend(RedisAsyncResultBackend(url))


@broker.task(task_name="ask")
async def ask(number: int) -> tuple[str, int]:
    return loop_name(), number


async def main():
    task = asyncio.ensure_future(run_receiver_task(broker, run_startup=True))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await asyncio.wait([task])
    await broker.shutdown()


if __name__ == "__main__":
    goloop.run(main())
