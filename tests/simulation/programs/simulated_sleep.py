import asyncio

from goloop import testing


@testing.simulate(seeds=5)
async def test_all(sim):
    await asyncio.sleep(1)
    assert sim.seed < 3


if __name__ == "__main__":
    test_all()
