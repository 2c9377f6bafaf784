"""arq: a worker on Redis, and its client."""

from __future__ import annotations

import asyncio

import pytest

from real_programs.programs import APPS, LOOP, Programs, needs, on_goloop

needs("arq")
from arq.connections import RedisSettings, create_pool  # noqa: E402

pytestmark = pytest.mark.real


def test_arq_works_on_goloop(programs: Programs, redis_port: int) -> None:
    worker = programs.python(APPS / "arq_worker.py", REDIS_PORT=str(redis_port))
    worker.until_says("worker is up")

    async def main() -> None:
        pool = await create_pool(RedisSettings(port=redis_port))
        jobs = [await pool.enqueue_job("ask", number) for number in range(20)]
        answers = await asyncio.gather(*(job.result(timeout=30) for job in jobs if job))
        assert answers == [(LOOP, number) for number in range(20)]
        await pool.aclose()

    on_goloop(main())
    assert "worker is stopped" in worker.end()
