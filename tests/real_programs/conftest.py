"""Real programs on goloop, each in a process of its own and over real sockets.

They need the packages of the groups `real` and `tools`; a program whose package is not
installed is skipped and says so.  Nothing here runs on asyncio: the tests check that programs
written for it don't notice.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from real_programs.programs import Programs, free_port


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Starts programs, and ends them with the test."""
    made = Programs(tmp_path)
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture
def redis_port(programs: Programs, tmp_path: Path) -> int:
    """Start a redis-server for this test, and return its port."""
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server: apt-get install redis-server")
    port = free_port()
    programs.start(
        *("redis-server", "--port", str(port), "--bind", "127.0.0.1"),
        *("--dir", tmp_path, "--save", "", "--appendonly", "no"),
        port=port,
    )
    return port
