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
    """Run a coroutine on a new goloop loop, and return its result.

    It is asyncio.run() with another default for `loop_factory`, which is accepted on Python 3.11
    too: at the end the tasks that are left are cancelled, asynchronous generators and the default
    executor are shut down, and the loop is closed.  Since 0.1.0.

    Args:
        main: The coroutine.
        debug: Whether the loop is in debug mode; None leaves that to `PYTHONASYNCIODEBUG` and
            `-X dev`.
        loop_factory: What makes the loop; None lets asyncio's policy choose.

    Returns:
        What the coroutine returns.

    Raises:
        RuntimeError: A loop is running in this thread already.
        ValueError: `main` is no coroutine (a TypeError from Python 3.14 on).
        ImportError: The Go library can't be opened; the message says why.
    """
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("goloop.run() cannot be called from a running event loop")
    with asyncio.Runner(debug=debug, loop_factory=loop_factory) as runner:
        return runner.run(main)
