"""pytest-asyncio: all tests run on goloop, by a policy."""

import pytest

import goloop


@pytest.fixture(scope="session")
def event_loop_policy():
    return goloop.EventLoopPolicy()
