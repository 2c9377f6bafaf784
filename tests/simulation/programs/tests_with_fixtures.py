import asyncio

import pytest

from goloop import testing


def test_clock(goloop_clock):
    async def main():
        await asyncio.sleep(3600)

    with asyncio.Runner(loop_factory=lambda: testing.new_event_loop(clock=goloop_clock)) as runner:
        runner.run(main())
    assert goloop_clock.current_time() == 3600


@pytest.mark.parametrize("last", [3, 4])
def test_sim(goloop_sim, last):
    seen = []

    async def main(sim):
        await asyncio.sleep(1)
        seen.append(sim.seed)

    goloop_sim(main, seeds=last + 1, policy="shuffle")
    assert seen[-1] == last


@pytest.fixture
def clock():
    return "the project's own"


@testing.simulate(seeds=3)
async def test_with_fixtures(sim, clock, tmp_path):
    assert clock == "the project's own"
    assert tmp_path.exists()
    assert sim.seed < 3
