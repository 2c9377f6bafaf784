"""Binds CPython's tests of Task and Future to goloop.Task and goloop.Future.

Two more kinds of runs for run.py:

* `--loop tasks`: goloop's classes on the test loops of CPython's own tests, which are
  foreign loops to them;
* `--loop tasks-goloop`: goloop's classes on goloop's loop, with a virtual clock where a
  test drives one.

In both, goloop's classes take the place of the C-accelerated ones before the test
modules are imported, so that CPython's concrete classes (`CTask_CFuture_Tests`, ...)
test them, alone and mixed with asyncio's Python classes.  Tests of Python classes
only is left out.
"""

from __future__ import annotations

import asyncio
import asyncio.base_events
import asyncio.futures
import asyncio.tasks
import heapq
import itertools
from collections.abc import Callable, Generator
from typing import Any

from groups import Group

PURE_PYTHON = (
    "PyTask_PyFuture_Tests",
    "PyTask_PyFuture_SubclassTests",
    "PyIntrospectionTests",
    "PyCurrentLoopTests",
    "PyFutureTests",
    "PyFutureDoneCallbackTests",
    "PyFutureInheritanceTests",
    "PyEagerTaskFactoryLoopTests",
    "NonEagerPyTaskTests",
    "EagerPyTaskTests",
    "TestCallStackPy",
    "TestPyFreeThreading",
    "TestEagerPyFreeThreading",
)

TASK_GROUPS: tuple[Group, ...] = tuple(
    Group(module, skip_classes=PURE_PYTHON)
    for module in (
        "test_tasks",
        "test_futures",
        "test_futures2",
        "test_eager_task_factory",
        "test_taskgroups",
        "test_timeouts",
        "test_waitfor",
        "test_locks",
        "test_queues",
        "test_context",
        "test_graph",
        "test_free_threading",
    )
)


def bind_classes() -> None:
    """goloop's classes where asyncio keeps its C-accelerated ones."""
    import goloop
    import goloop._internal.tasks.tasks

    if goloop._internal.tasks.tasks.reason is not None:
        raise RuntimeError(
            f"goloop has no classes of its own here: {goloop._internal.tasks.tasks.reason}"
        )
    module: Any
    for module, name, cls in (
        (asyncio.futures, "_CFuture", goloop.Future),
        (asyncio.futures, "Future", goloop.Future),
        (asyncio, "Future", goloop.Future),
        (asyncio.tasks, "_CTask", goloop.Task),
        (asyncio.tasks, "Task", goloop.Task),
        (asyncio, "Task", goloop.Task),
    ):
        setattr(module, name, cls)


def bind_test_loop() -> None:
    """goloop's loop with the virtual clock of test_utils.TestLoop in its place."""
    from test.test_asyncio import utils

    import goloop

    class VirtualClockLoop(goloop.Loop):
        """Time goes on only as the test's generator says; the loop's turns are real."""

        def __init__(self, gen: Callable[[], Generator[float, float, None]] | None = None) -> None:
            super().__init__()
            self._now = 0.0
            self._clock_resolution = 1e-9
            self._asked: list[float] = []
            self._heap: list[tuple[float, int, asyncio.TimerHandle]] = []
            self._order = itertools.count()
            self._ticking = False
            self._gen: Any = gen() if gen is not None else None
            if self._gen is not None:
                next(self._gen)

        @property
        def _ready(self) -> list[None]:
            """Some tests run the loop for as long as this is not empty."""
            return [None] * self._diagnostics().get("ready", 0)

        @_ready.setter
        def _ready(self, queue: object) -> None:
            """BaseEventLoop would keep its queue here."""

        def time(self) -> float:
            return self._now

        def advance_time(self, advance: float) -> None:
            self._now += advance

        def call_later(self, delay: Any, callback: Any, *args: Any, context: Any = None) -> Any:
            return self.call_at(self._now + delay, callback, *args, context=context)

        def call_at(self, when: Any, callback: Any, *args: Any, context: Any = None) -> Any:
            handle: Any = asyncio.TimerHandle(when, callback, args, self, context)
            heapq.heappush(self._heap, (when, next(self._order), handle))
            self._asked.append(when)
            if not self._ticking:
                self._ticking = True
                self.call_soon(self._tick)
            return handle

        def _advance(self) -> None:
            asked, self._asked = self._asked, []
            for when in asked:
                if self._gen is not None:
                    self._now += self._gen.send(when) or 0

        def run_forever(self) -> None:
            try:
                super().run_forever()
            finally:
                self._advance()

        def _tick(self) -> None:
            self._advance()
            while self._heap and (
                self._heap[0][0] <= self._now + self._clock_resolution
                or self._heap[0][2].cancelled()
            ):
                handle: Any = heapq.heappop(self._heap)[2]
                if not handle.cancelled():
                    self.call_soon(handle._run)
            self._ticking = bool(self._heap)
            if self._ticking:
                self.call_soon(self._tick)

        def _run_once(self) -> None:
            self.call_soon(self.stop)
            self.run_forever()

    module: Any = utils
    module.TestLoop = VirtualClockLoop
