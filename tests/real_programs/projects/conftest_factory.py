"""pytest-asyncio: all tests run on goloop, by a loop factory."""

import goloop


def pytest_asyncio_loop_factories(config, item):
    return {"goloop": goloop.new_event_loop}
