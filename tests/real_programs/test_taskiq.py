"""taskiq: a worker on Redis, as a library on goloop, and its client."""

from __future__ import annotations

import pytest

from real_programs.programs import APPS, LOOP, TIME_LIMIT, Programs, needs

needs("taskiq", "taskiq_redis")

pytestmark = pytest.mark.real

CLIENT = """
import asyncio, goloop
from taskiq_app import ask, broker

async def main():
    await broker.startup()
    tasks = [await ask.kiq(number) for number in range(50)]
    answers = [(await task.wait_result(timeout=30)).return_value for task in tasks]
    assert [tuple(each) for each in answers] == [("LOOP", number) for number in range(50)], answers
    await broker.shutdown()
    print("done", flush=True)

goloop.run(main())
"""


def test_taskiq_works_on_goloop(programs: Programs, redis_port: int) -> None:
    port = str(redis_port)
    worker = programs.python(APPS / "taskiq_app.py", REDIS_PORT=port)
    client = programs.python("-c", CLIENT.replace("LOOP", LOOP), REDIS_PORT=port)
    client.process.wait(TIME_LIMIT)
    assert client.process.returncode == 0, client.output + worker.output
    assert "done" in client.output
    worker.end()
