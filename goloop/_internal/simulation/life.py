"""The life of one simulation: its kernel, its loop, and what its thread sees."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import random
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NoReturn

from ... import _core
from ..loop import running
from ..tasks.looking import await_stack, awaiters, waiting_tasks
from ..top.inspecting import tree
from .errors import EscapedSimulation, SimulationDeadlock, SimulationTimeout
from .kernel import Kernel
from .loop import SimulatedLoop
from .world import fresh_counters, replacements, worlds

# What clocks say first: the monotonic one in seconds, and at the same moment the calendar.
_START = 1.0
_START_NS = 1_000_000_000
_WALL = 1_767_225_600 * 1_000_000_000  # 2026-01-01 00:00:00 UTC
_LATENCY = (0.000_05, 0.005)
_EXECUTOR = (0.000_01, 0.02)
# Seconds of virtual time that are left for tasks to end after an error.
_CLEAN_UP = 60.0


class Life:
    """A simulation from its beginning to its end."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.kernel = Kernel(seed, start=_START, latency=_LATENCY, trace=True)
        self.random = random.Random(f"decisions {seed}")
        self.program_random = random.Random(f"program {seed}")
        self._handlers: dict[int, asyncio.Handle] = {}
        self._slept = 0
        self._in_job = False
        self._escape: EscapedSimulation | None = None
        self._monotonic: Callable[[], float] = self.kernel.now
        self._max_time: float | None = None
        self._unhandled: list[dict[str, Any]] = []
        self.loop: Any = None

    def time(self) -> float:
        """Seconds of virtual time since the beginning."""
        return (self.monotonic_ns() - _START_NS) / 1e9

    # ---- for the replaced functions, and the loop

    def monotonic_ns(self) -> int:
        """What the monotonic clock says."""
        return round(self._monotonic() * 1e9) + self._slept

    def wall_ns(self) -> int:
        """What the calendar's clock says."""
        return _WALL - _START_NS + self.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        """time.sleep."""
        if self._in_job:
            self._slept += round(seconds * 1e9)
            return
        try:
            self.kernel.sleep(seconds)
        except OSError as exc:
            self._explain(exc)
            raise

    def resolve(self, name: str, family: int) -> list[str]:
        """The addresses of a name."""
        if name.rstrip(".").lower() == "localhost":
            return ["127.0.0.1"]
        return []

    def hostname(self) -> str:
        """The name of this host."""
        return "localhost"

    def executor_delay(self) -> float:
        """Seconds until an executor's job runs."""
        return self.random.uniform(*_EXECUTOR)

    def job_begins(self) -> None:
        """Until it ends, time that it sleeps is its own."""
        self._in_job, self._slept = True, 0

    def job_ends(self) -> float:
        """How long the job has slept."""
        slept, self._in_job, self._slept = self._slept, False, 0
        return slept / 1e9

    def signal_handlers(self) -> dict[int, asyncio.Handle]:
        """By signal."""
        return self._handlers

    def escaped(self, message: str) -> NoReturn:
        """Raises, and the simulation ends with it, in whatever thread that is."""
        self._escape = EscapedSimulation(message)
        raise self._escape

    # ---- its life

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        thread = threading.get_ident()
        collecting = gc.isenabled()
        gc.disable()  # what finalizers do must not depend on when it runs
        try:
            with replacements(), fresh_counters(), self.kernel:
                worlds[thread] = self
                try:
                    self.loop = SimulatedLoop(self)
                    self._monotonic = _core.Loop.time.__get__(self.loop)
                    running.on_exception.append(self._note_unhandled)
                    try:
                        yield
                    finally:
                        running.on_exception.remove(self._note_unhandled)
                        self._monotonic = self.kernel.now
                        self.loop.close()
                        self.loop = None
                finally:
                    del worlds[thread]
        finally:
            self.kernel.close()
            if collecting:
                gc.enable()

    def _note_unhandled(self, loop: Any, context: dict[str, Any]) -> None:
        if loop is self.loop:
            self._unhandled.append(context)

    def run(self, main: Coroutine[Any, Any, Any], max_time: float | None) -> Any:
        """What the coroutine returns; meanwhile, and with what it leaves, time passes."""
        loop = self.loop
        asyncio.set_event_loop(loop)
        try:
            end = 0 if max_time is None else _START_NS + round(max_time * 1e9)
            self.kernel.end_time_at(end)
            self._max_time = max_time
            task = loop.create_task(main)
            try:
                return loop.run_until_complete(task)
            except OSError as exc:
                if not task.done():
                    self._explain(exc)
                raise
            finally:
                self._clean_up()
                if self._escape is not None and not isinstance(
                    sys.exc_info()[1], EscapedSimulation
                ):
                    raise self._escape
        finally:
            asyncio.set_event_loop(None)

    def _explain(self, exc: OSError) -> None:
        """Raises what an error of the kernel's means."""
        if exc.errno == errno.EDEADLK:
            raise SimulationDeadlock(
                f"nothing can run, no timer is set, and nothing is on its way, at "
                f"{self.time():.6f} s; seed {self.seed}\n{describe(self.loop)}"
            ) from None
        if exc.errno == errno.ETIME:
            raise SimulationTimeout(
                f"not done after {self._max_time} s of virtual time; seed {self.seed}\n"
                f"{describe(self.loop)}"
            ) from None

    def _clean_up(self) -> None:
        """As asyncio.run: what is left is cancelled."""
        loop = self.loop
        self.kernel.end_time_at(self.kernel.now_ns() + round(_CLEAN_UP * 1e9))
        left = sorted(asyncio.all_tasks(loop), key=_by_number)
        for task in left:
            task.cancel()
        with contextlib.suppress(OSError):  # of the kernel: they do not end
            if left:
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        for task in left:
            if task.done() and not task.cancelled() and task.exception() is not None:
                loop.call_exception_handler(
                    {
                        "message": "unhandled exception during the end of a simulation",
                        "exception": task.exception(),
                        "task": task,
                    }
                )


def _by_number(task: asyncio.Task[Any]) -> tuple[int, str]:
    name = task.get_name()
    return len(name), name


def describe(loop: Any) -> str:
    """The tasks of a loop as `goloop pstree` shows them."""
    tasks = sorted(asyncio.all_tasks(loop), key=_by_number)
    waiting = waiting_tasks(tasks)
    rows = [
        {**_row(task), "awaiters": [_row(each) for each in awaiters(task, waiting)]}
        for task in tasks
    ]
    return tree(rows) or "(no task is left)"


def _row(task: Any) -> dict[str, Any]:
    return {"id": id(task), "name": task.get_name(), "stack": await_stack(task.get_coro())}
