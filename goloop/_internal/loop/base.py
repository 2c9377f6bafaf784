"""The class that every part of the loop extends.

`CoreLoop` puts the native loop before CPython's own `BaseEventLoop`.  What runs
per callback is found in `_core.Loop`; what runs per connection or per loop is
found in the running version's `BaseEventLoop`, so that its argument names, checks,
errors and warnings are CPython's by construction.  The other modules of this
package fill in what `BaseEventLoop` leaves to its subclasses.

The attributes below belong to `BaseEventLoop`; they are declared here for the type
checker only, because they are not part of asyncio's published types.
"""

from __future__ import annotations

import asyncio.base_events
from collections.abc import Callable
from concurrent.futures import Executor

from ... import _core
from ..buckets import BUCKETS, bucket_of
from ..tasks.tasks import Task
from .cpu_time import CpuTime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# What goloop.diagnostics() tells of a loop.
_COUNTERS = (
    "iterations", "turns", "polls", "recvs", "sends", "accepts", "wakeups", "late_writes",
    "ready", "timers", "fences",
)  # fmt: skip


class CoreLoop(_core.Loop, asyncio.base_events.BaseEventLoop):
    """The native loop over the inherited one; not usable by itself."""

    # Asks for call_at(): what the native call_later stands aside for where that is another one.
    _call_later = asyncio.base_events.BaseEventLoop.call_later
    # For a task factory, and to word errors.
    _create_by_asyncio = asyncio.base_events.BaseEventLoop.create_task

    # The figures of metric_registry.py that are counted in Python.
    _tally: dict[str, int]
    _cpu_time: CpuTime
    _dns_time: memoryview[int] | None = None

    slow_callback_duration: float
    _default_executor: Executor | None
    _internal_fds: int
    __del__: Callable[..., None]
    _check_running: Callable[[], None]
    _check_default_executor: Callable[[], None]
    _check_callback: Callable[[object, str], None]
    _set_coroutine_origin_tracking: Callable[[bool], None]
    _asyncgen_firstiter_hook: Callable[[Any], None]
    _asyncgen_finalizer_hook: Callable[[Any], None]
    _check_sendfile_params: Callable[..., None]
    _ensure_resolved: Callable[..., Any]

    @property
    def _thread_id(self) -> int | None:
        """Identity of the thread that runs the loop, or None."""
        return self._thread or None

    @_thread_id.setter
    def _thread_id(self, ident: int | None) -> None:
        self._thread = ident or 0

    def _create_task(self, coro: Any, **kwargs: Any) -> Any:
        """For C, where a create_task() is no usual one, as in debug mode."""
        task: Any = Task(coro, loop=self, **kwargs)
        if task._source_traceback:
            # Not with this function, as in asyncio.
            del task._source_traceback[-1]
        return task

    def _count(self, figure: str, by: int = 1) -> None:
        self._tally[figure] = self._tally.get(figure, 0) + by

    def _metrics(self) -> dict[str, Any]:
        """The figures as they are counted; metric_registry.unpacked() gives them names."""
        figures: dict[str, Any] = {"counted": self._counted(), **self._tally}
        figures["time_cpu"] = self._cpu_time.so_far()
        if self._dns_time is not None:
            figures["dns_time"] = self._dns_time.tobytes()
        return figures

    def _note_lookup(self, ns: int) -> None:
        """A name was looked up, which took so long."""
        if self._dns_time is None:
            self._dns_time = memoryview(bytearray(8 * (3 + BUCKETS))).cast("Q")
        noted = self._dns_time
        noted[0] += 1
        noted[1] += ns
        noted[2] = max(noted[2], ns)
        noted[3 + bucket_of(ns)] += 1

    def _diagnostics(self) -> dict[str, Any]:
        """Counters, and what Go tells as JSON; nothing of a closed loop."""
        # Not needed by programs that only run.
        import json

        from ..metrics.metric_registry import unpacked

        told = unpacked(self._metrics())
        if not told:
            return {}
        runtime = self._describe()
        told = {**json.loads(runtime or "{}"), **told, "accepts": told["connections_accepted"]}
        return {**{name: told.get(name, 0) for name in _COUNTERS}, "runtime": runtime}
