import asyncio
import os

from goloop import testing

seen = []


@testing.simulate(seeds=30)
async def test_seeds(sim):
    with open("seen", "a") as file:
        print(sim.seed, os.getpid(), file=file)


@testing.simulate(seeds=30)
async def test_fails(sim):
    await asyncio.sleep(1)
    assert sim.seed not in (7, 8, 11)
