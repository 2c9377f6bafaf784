"""A loop that was run and closed leaks no object that the collector tracks.

Leak tests of libraries compare gc.get_objects() before and after, with the collector switched off.
"""

from __future__ import annotations

import asyncio
import collections
import gc
import sys
import threading
from collections.abc import Callable

import pytest

Factory = Callable[[], asyncio.AbstractEventLoop]


def new_objects(run: Callable[[], object]) -> collections.Counter[str]:
    """The types of the objects that a call leaves."""
    gc.collect()
    gc.disable()
    try:
        before = set(map(id, gc.get_objects()))
        run()
        left = [each for each in gc.get_objects() if id(each) not in before]
    finally:
        gc.enable()
    # Before 3.14 the collector tracks a dict, which may be an older one, when something is added.
    kept = [each for each in left if sys.version_info >= (3, 14) or type(each) is not dict]
    return collections.Counter(type(each).__name__ for each in kept)


async def main() -> None:
    asyncio.get_running_loop().call_later(0, int)
    await asyncio.sleep(0)


def once(factory: Factory, *, debug: bool = False) -> None:
    loop = factory()
    loop.set_debug(debug)
    loop.run_until_complete(main())
    loop.close()


def in_debug_mode(factory: Factory) -> None:
    once(factory, debug=True)


def in_a_thread(factory: Factory) -> None:
    thread = threading.Thread(target=once, args=(factory,))
    thread.start()
    thread.join()


def several_times(factory: Factory) -> None:
    for _ in range(3):
        once(factory)


@pytest.mark.parametrize("run", [once, in_debug_mode, in_a_thread, several_times])
def test_a_closed_loop_leaves_no_objects(
    run: Callable[[Factory], None], loop_factory: Factory
) -> None:
    run(loop_factory)  # the first run imports and caches
    usual = new_objects(lambda: None)
    # A leak is left each time; an object of a read in another thread of pytest-xdist is not.
    left = new_objects(lambda: run(loop_factory)) & new_objects(lambda: run(loop_factory))
    assert left - usual == collections.Counter()


def test_a_loop_that_was_run_before_leaves_no_objects(loop_factory: Factory) -> None:
    once(loop_factory)
    usual = new_objects(lambda: None)
    loop = loop_factory()
    loop.run_until_complete(main())

    def run() -> None:
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    assert new_objects(run) - usual == collections.Counter()
