"""taskiq: a worker on Redis, as a library on goloop, and its client."""

from __future__ import annotations

import pytest

from real_programs.programs import APPS, Programs, needs

needs("taskiq", "taskiq_redis")

pytestmark = pytest.mark.real


def test_taskiq_works_on_goloop(programs: Programs, redis_port: int) -> None:
    port = str(redis_port)
    worker = programs.python(APPS / "taskiq_app.py", REDIS_PORT=port)
    assert "done" in programs.ends_well(APPS / "taskiq_client.py", REDIS_PORT=port)
    worker.end()
