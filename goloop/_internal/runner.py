"""goloop.run: asyncio.run on a goloop loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from .chosen import new_event_loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    _T = TypeVar("_T")


def run(
    main: Coroutine[Any, Any, _T],
    *,
    debug: bool | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = new_event_loop,
) -> _T:
    """Execute the coroutine on a goloop loop and return the result.

    As asyncio.run, with another default for `loop_factory` (which is accepted on
    Python 3.11 too): a new loop is made, and closed at the end.
    """
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("goloop.run() cannot be called from a running event loop")
    with asyncio.Runner(debug=debug, loop_factory=loop_factory) as runner:
        return runner.run(main)
