"""pytest-asyncio: each test runs on asyncio's loop and on goloop's."""

import asyncio

import goloop


def pytest_asyncio_loop_factories(config, item):
    return {"asyncio": asyncio.SelectorEventLoop, "goloop": goloop.new_event_loop}
