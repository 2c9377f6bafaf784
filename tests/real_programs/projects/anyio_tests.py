"""Tests with anyio's mark."""

import asyncio

import anyio
import pytest
from asyncio_works import asyncio_works
from loop_name import loop_name

pytestmark = pytest.mark.anyio


@pytest.fixture
async def service():
    assert loop_name() == "goloop.Loop"
    yield asyncio.get_running_loop()
    assert loop_name() == "goloop.Loop"


async def test_loop(service):
    assert asyncio.get_running_loop() is service
    assert await asyncio_works() == "goloop.Loop"


async def test_anyio_itself():
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, 0)
    assert loop_name() == "goloop.Loop"
    assert await anyio.to_thread.run_sync(lambda: 1) == 1
