import asyncio

import pytest

from goloop import testing


@testing.simulate(seeds=3)
async def test_simulated(sim):
    await asyncio.sleep(3600)
    assert sim.time() == 3600


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.mark.anyio
async def test_anyio():
    await asyncio.sleep(0)


@pytest.mark.anyio
@testing.simulate(seeds=3)
async def test_both(sim):
    await asyncio.sleep(3600)
