"""Tests with pytest-asyncio's marks, and a fixture that has the loop of its module."""

import asyncio

import pytest
import pytest_asyncio
from asyncio_works import asyncio_works


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def service():
    yield asyncio.get_running_loop()
    assert await asyncio_works() == "goloop.Loop"


@pytest.mark.asyncio
async def test_loop():
    assert await asyncio_works() == "goloop.Loop"


@pytest.mark.asyncio(loop_scope="module")
async def test_loop_of_a_module(service):
    assert asyncio.get_running_loop() is service
    assert await asyncio_works() == "goloop.Loop"


@pytest.mark.asyncio(loop_scope="module")
async def test_the_same_loop(service):
    assert asyncio.get_running_loop() is service
