"""Threads that a simulation has in its own thread: anyio's workers, an executor of their own.

A worker takes jobs from its queue and calls in with each result.  Here `start()` begins no thread:
what is put into the queue is a job of the loop's executor, which runs the worker's loop for one
job.  Starlette and FastAPI run functions that are no coroutines so.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent import futures

from .errors import EscapedSimulation
from .kernel import here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_start: Any = threading.Thread.start
_result: Any = futures.Future.result


class _Jobs:
    """A worker's queue."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._items: deque[Any] = deque()

    def put_nowait(self, item: Any) -> None:
        if item is not None:  # else the worker is to end
            asyncio.get_running_loop().run_in_executor(None, self._run, item)

    def _run(self, item: Any) -> None:
        self._items += (item, None)
        self._worker.run()

    def get(self) -> Any:
        return self._items.popleft()

    def task_done(self) -> None:
        """Nobody waits for that."""


def start(self: Any) -> None:
    """threading.Thread.start."""
    is_worker = type(self).__module__ == "anyio._backends._asyncio" and hasattr(self, "queue")
    if is_worker and threading.get_ident() in here:
        self.queue = _Jobs(self)
    else:
        _start(self)


def result(self: Any, timeout: float | None = None) -> Any:
    """concurrent.futures.Future.result."""
    if threading.get_ident() in here and not self.done():
        raise EscapedSimulation(
            "a job of an executor waits for the loop, which runs in the same thread in a "
            "simulation; let the coroutine that began the job do what it waits for"
        )
    return _result(self, timeout)
