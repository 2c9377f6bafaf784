"""Real programs on goloop, each in a process of its own and over real sockets.

They need the packages of the groups `real` and `tools`; a program whose package is not
installed is skipped and says so.  The tests check that programs written for asyncio's loop don't
notice the difference.  Faults of servers run on both loops (`run_on_each_loop`), since a client's
behaviour after a fault is its own.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import factory_of

from real_programs.programs import TIME_LIMIT, Programs
from real_programs.servers import PostgreSQL, Server, start_redis


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Starts programs, and ends them with the test."""
    made = Programs(tmp_path)
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture
def redis_server(programs: Programs, tmp_path: Path) -> Server:
    """Start a redis-server for this test."""
    return start_redis(programs, tmp_path)


@pytest.fixture
def redis_port(redis_server: Server) -> int:
    """Start a redis-server for this test, and return its port."""
    return redis_server.port


@pytest.fixture
def postgresql(postgresql_of_module: PostgreSQL) -> PostgreSQL:
    """Return the PostgreSQL of the module's tests, running again if a test has ended it."""
    if not postgresql_of_module.is_running():
        postgresql_of_module.start()
    return postgresql_of_module


@pytest.fixture(scope="module")
def postgresql_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgreSQL]:
    """Start a PostgreSQL for the tests of a module."""
    programs = Programs(tmp_path_factory.mktemp("postgresql"))
    try:
        made = PostgreSQL(programs)
        yield made
        made.remove()
    finally:
        programs.kill()


Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "goloop"])
def run_on_each_loop(request: pytest.FixtureRequest, no_leaks: None) -> Run:
    """Runs a coroutine on asyncio's loop, and in another test on goloop's, with a limit.

    Both loops have to call no exception handler.
    """
    factory = factory_of(request.param)

    def run(coroutine: Coroutine[Any, Any, None]) -> None:
        reported: list[dict[str, Any]] = []

        async def limited() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda loop, context: reported.append(context))
            await asyncio.wait_for(coroutine, TIME_LIMIT)

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(limited())
            gc.collect()  # an exception that was never retrieved is reported by a destructor
        assert not reported, reported

    return run
