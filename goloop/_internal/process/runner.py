"""goloop.run, which is asyncio.run with a goloop loop, and goloop.install."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine

from ..backend import Loop, native, new_event_loop
from . import policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    _T = TypeVar("_T")


def run(
    main: Coroutine[Any, Any, _T],
    *,
    debug: bool | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = new_event_loop,
    busy_poll: float | None = None,
) -> _T:
    """Run a coroutine on a new goloop loop and return its result.

    This is asyncio.run() with another default of `loop_factory`, which is accepted on Python 3.11,
    too: at the end remaining tasks are cancelled, asynchronous generators and the default executor
    are shut down, and the loop is closed. Since 0.3.0.

    Args:
        main: The coroutine; from Python 3.14 on, any awaitable.
        debug: Debug mode of the loop; None uses `PYTHONASYNCIODEBUG` and `-X dev`.
        loop_factory: Returns a new loop; None uses asyncio's policy.
        busy_poll: Seconds of `loop.set_busy_poll()`; None uses `GOLOOP_BUSY_POLL`. The pure-Python
            wheel ignores it.

    Returns:
        The result of the coroutine.

    Raises:
        RuntimeError: A loop is already running in this thread.
        ValueError: Before Python 3.14, `main` is not a coroutine; or `busy_poll` is out of range.
        TypeError: From Python 3.14 on, `main` is not awaitable; or `busy_poll` is given, and the
            loop is not a goloop loop.
        ImportError: The Go library cannot be opened; the message has the reason.
    """
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("goloop.run() cannot be called from a running event loop")
    with asyncio.Runner(debug=debug, loop_factory=loop_factory) as runner:
        if busy_poll is not None and native:
            try:
                _set_busy_poll(runner.get_loop(), busy_poll)
            except BaseException:
                if asyncio.iscoroutine(main):
                    main.close()  # avoids the warning that the coroutine was never awaited
                raise
        return runner.run(main)


def _set_busy_poll(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Set the busy polling of a goloop loop; TypeError for another loop."""
    if not isinstance(loop, Loop):
        raise TypeError(f"busy_poll needs a goloop loop, but loop_factory returned {loop!r}")
    loop.set_busy_poll(seconds)


def install() -> None:
    """Make every event loop that this process gets from asyncio a goloop loop.

    This includes servers that choose a loop themselves (uvicorn, granian and gunicorn with their
    setting "auto", taskiq), and the processes that multiprocessing starts. It sets
    `EventLoopPolicy` as asyncio's policy. Deprecated from Python 3.14 on, with a
    DeprecationWarning: use `goloop.run()`, or `loop_factory=goloop.new_event_loop`. Since 0.3.0.

    Raises:
        RuntimeError: This Python's asyncio has no policies.
    """
    from .patch_process import use_goloop

    if sys.version_info >= (3, 14) and policy.AVAILABLE:
        policy.warn_deprecated("goloop.install")
    use_goloop()
