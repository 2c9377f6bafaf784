"""A taskiq broker without Redis, whose workers print their loop."""

import asyncio

from taskiq import InMemoryBroker, TaskiqEvents

broker = InMemoryBroker()


@broker.on_event(TaskiqEvents.WORKER_STARTUP)
async def begin(state):
    print("worker on", repr(asyncio.get_running_loop()), flush=True)
