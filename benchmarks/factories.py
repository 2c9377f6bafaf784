"""Resolves loop factories inside the measuring process.

It imports as little as it can (not even typing): the start-up case counts all
that is loaded before the loop's own modules.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable


def resolve(factory: str) -> Callable[[], AbstractEventLoop]:
    """Import ``module:function`` and return the function."""
    module, _, name = factory.partition(":")
    found: Callable[[], AbstractEventLoop] = getattr(importlib.import_module(module), name)
    return found


def uvloop_with_aiofastnet() -> AbstractEventLoop:
    """Return a uvloop loop with aiofastnet's transports."""
    import aiofastnet
    import uvloop

    made: AbstractEventLoop = aiofastnet.loop_factory(uvloop.new_event_loop)()
    return made


def goloop_with_aiofastnet() -> AbstractEventLoop:
    """Return a goloop loop with aiofastnet's transports."""
    import aiofastnet

    import goloop

    made: AbstractEventLoop = aiofastnet.loop_factory(goloop.new_event_loop)()
    return made
