"""The base class of every part of the loop, and the CPU time of a loop's thread.

`CoreLoop` inherits from the native loop first and then from CPython's `BaseEventLoop`.
`_core.Loop` has the methods that run per callback. The `BaseEventLoop` of the running version has
those that run per connection or per loop, so that their argument names, checks, errors and
warnings are CPython's. The other modules of this package implement the methods that
`BaseEventLoop` leaves to its subclasses.

The annotations below declare attributes of `BaseEventLoop` for the type checker, because typeshed
does not declare them.
"""

from __future__ import annotations

import asyncio.base_events
import contextlib
import struct
import time
from collections.abc import Callable
from concurrent.futures import Executor

from ... import _core
from .. import system
from ..observe.histogram import BUCKETS, bucket_of
from ..observe.metric_registry import unpack_metrics
from ..records import decode_json
from ..tasks.tasks import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_thread_ident = _core._thread_ident
# Not available on macOS: a run's time is added when the run ends.
_clock_of = getattr(time, "pthread_getcpuclockid", None)
# CLOCK_REALTIME, which is not the clock of any thread.
_NO_CLOCK = 0

_STATE = struct.Struct("=3q")
_pack, _unpack = _STATE.pack, _STATE.unpack


class CpuTime:
    """The CPU time of one loop's thread while it runs the loop, in nanoseconds.

    The loop's thread marks the begin and the end of a run. Any thread may read the time, also
    during a run: it then reads the CPU clock of the loop's thread from the kernel. That clock is
    identified by a number, so the thread may end at any moment. The reported time never decreases.

    It uses no lock, because a KeyboardInterrupt may come between acquiring and releasing one.
    Values that belong together are in one bytes object, which one thread replaces and all threads
    read. A tuple would do, too, but the garbage collector tracks tuples: a leak test would find a
    new object after each run of a loop.
    """

    __slots__ = ("_reported", "_state")

    def __init__(self) -> None:
        """Start without a run and without CPU time."""
        # Nanoseconds of all earlier runs; of the current run, the clock's value at its begin,
        # and the clock.
        self._state = _pack(0, 0, _NO_CLOCK)
        self._reported = 0

    def begin(self) -> None:
        """Mark the begin of a run by the current thread."""
        clock = _clock_of(_thread_ident()) if _clock_of is not None else _NO_CLOCK
        self._state = _pack(_unpack(self._state)[0], time.thread_time_ns(), clock)

    def end(self) -> None:
        """Mark the end of a run and add its time."""
        ended, began, _ = _unpack(self._state)
        self._state = _pack(ended + time.thread_time_ns() - began, 0, _NO_CLOCK)

    def total_ns(self) -> int:
        """Return the CPU time of all runs, including the current one, in nanoseconds."""
        state = None
        while state is not self._state:  # repeat if a run has begun or ended meanwhile
            state = self._state
            taken, began, clock = _unpack(state)
            if clock != _NO_CLOCK:
                with contextlib.suppress(OSError):  # the thread has ended
                    taken += time.clock_gettime_ns(clock) - began
        # Not max(): during a call another thread could store a greater value.
        if taken > self._reported:
            self._reported = taken
        return self._reported


# The counters of a loop in goloop.diagnostics().
_COUNTERS = (
    "iterations", "turns", "polls", "recvs", "sends", "accepts", "wakeups", "late_writes",
    "ready", "timers", "fences",
)  # fmt: skip


class CoreLoop(_core.Loop, asyncio.base_events.BaseEventLoop):
    """The native loop combined with asyncio's; not usable by itself."""

    # The native call_later() calls this one, which calls call_at(), if call_at() is overridden.
    _call_later = asyncio.base_events.BaseEventLoop.call_later

    # The metrics of metric_registry.py that are counted in Python, by name.
    _python_counters: dict[str, int]
    _cpu_time: CpuTime
    # The system under the thread that made the loop.
    _system: system.System
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
        """The identifier of the thread that runs the loop, or None."""
        return self._thread or None

    @_thread_id.setter
    def _thread_id(self, ident: int | None) -> None:
        """Set the identifier of the thread that runs the loop."""
        self._thread = ident or 0

    @property
    def _create_by_asyncio(self) -> Callable[..., Any]:
        """Return the bound create_task() of asyncio's loop, or a program's replacement of it.

        C calls it if there is a replacement or a task factory, and to raise errors about arguments.
        """
        return super(_core.Loop, self).create_task

    def _create_task(self, coro: Any, **kwargs: Any) -> Any:
        """Create and return a goloop Task with `kwargs` as its options.

        C calls this in debug mode and for a subclass with its own create_task().
        """
        task: Any = Task(coro, loop=self, **kwargs)
        if task._source_traceback:
            # Without the entry of this function, as in asyncio.
            del task._source_traceback[-1]
        return task

    def _count(self, figure: str, by: int = 1) -> None:
        """Add `by` to the counter `figure` of the loop's metrics, such as "bytes_sent"."""
        self._python_counters[figure] = self._python_counters.get(figure, 0) + by

    def _metrics(self) -> dict[str, Any]:
        """Return the raw metrics; metric_registry.unpack_metrics() decodes them."""
        figures: dict[str, Any] = {"counted": self._counted(), **self._python_counters}
        figures["time_cpu"] = self._cpu_time.total_ns()
        if self._dns_time is not None:
            figures["dns_time"] = self._dns_time.tobytes()
        return figures

    def _record_lookup(self, ns: int) -> None:
        """Record the duration of a name lookup, in nanoseconds."""
        if self._dns_time is None:
            self._dns_time = memoryview(bytearray(8 * (3 + BUCKETS))).cast("Q")
        noted = self._dns_time
        noted[0] += 1
        noted[1] += ns
        noted[2] = max(noted[2], ns)
        noted[3 + bucket_of(ns)] += 1

    def _diagnostics(self) -> dict[str, Any]:
        """Return the counters and Go's runtime information (JSON); {} if the loop is closed."""
        counters = unpack_metrics(self._metrics())
        if not counters:
            return {}
        runtime = self._describe()
        counters = {
            **decode_json(runtime or "{}"),
            **counters,
            "accepts": counters["connections_accepted"],
        }
        return {**{name: counters.get(name, 0) for name in _COUNTERS}, "runtime": runtime}
