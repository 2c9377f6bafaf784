"""Simulated tests beside those of pytest-asyncio."""

import asyncio

import pytest

from goloop import testing


@testing.simulate(seeds=3)
async def test_simulated(sim):
    await asyncio.sleep(3600)
    assert sim.time() == 3600


@pytest.mark.asyncio
@testing.simulate(seeds=3)
async def test_marked(sim):
    await asyncio.sleep(3600)


async def test_of_pytest_asyncio():
    await asyncio.sleep(0)
