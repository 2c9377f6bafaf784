"""aiohttp's own plugin: it has a list of factories, so that a project replaces its fixture."""

import asyncio

import pytest
from aiohttp.test_utils import loop_context

import goloop


@pytest.fixture
def loop():
    with loop_context(goloop.new_event_loop) as loop:
        asyncio.set_event_loop(loop)
        yield loop
