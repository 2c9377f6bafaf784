"""Tests with pytest-asyncio's marks: one on each loop of conftest_two_loops.py, one on goloop."""

import pytest
from asyncio_works import asyncio_works
from loop_name import loop_name


@pytest.mark.asyncio
async def test_loop(request):
    on_goloop = await asyncio_works() == "goloop.Loop"
    assert on_goloop == ("goloop" in request.node.name)
    assert on_goloop != ("asyncio" in request.node.name)


@pytest.mark.asyncio(loop_factories=["goloop"])
async def test_on_goloop_alone():
    assert loop_name() == "goloop.Loop"
