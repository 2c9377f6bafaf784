"""Resolves loop factories inside the measuring process.

This module imports as little as possible (not even typing), because the start-up case
counts every module that is loaded before the loop's own.
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
