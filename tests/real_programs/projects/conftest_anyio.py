"""anyio: its backend `asyncio` has goloop's loops."""

import pytest

import goloop


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio", {"loop_factory": goloop.new_event_loop}
