"""Metrics of loops: Loop.metrics() and goloop.metrics().

C, Go and the Python parts of the loop count all the time. The counts are read without stopping a
loop, from any thread. A snapshot is a `Metrics`; times are in seconds, sizes in bytes.

The counts of closed loops remain in goloop.metrics(), so that its counters never decrease. A
forked child starts at 0, because its parent's loops are not its own.
"""

from __future__ import annotations

import asyncio
import marshal
import operator
import os
import threading

from ..records import Record, decode_json
from ..version import native

if not native:
    raise ImportError(
        "metrics need goloop's own loop, and this Python runs asyncio's; "
        "goloop.diagnostics()['reason'] has the cause"
    )

from ... import _core
from ..loop.running import closed_loop_metrics, unpack_final_metrics
from ..loop.running import on_exception as on_exception
from .histogram import HISTOGRAM, Histogram
from .metric_registry import METRICS, unpack_metrics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


_EMPTY = Histogram()
_EMPTY_SIZES = Histogram(scale=1.0)


class Metrics(Record):
    """A snapshot of the metrics of a loop, or of all loops of the process.

    Times are in seconds, sizes in bytes. Counters never decrease; gauges (`ready`, `tasks` and the
    like) are current values. `later - earlier` is the change between two snapshots. A later
    version may add metrics; none is removed within a major version. Since 0.3.0.
    """

    loops: int = 0
    """Open loops; for a single loop 1 while it is open."""

    # ---- iterations ----
    iterations: int = 0
    """Iterations of the loop."""
    turns: int = 0
    """Iterations that polled the kernel for events. While callbacks are ready, several iterations
    share one poll."""
    time_busy: float = 0.0
    """Seconds outside the poll: callbacks, sending and receiving, up to the present."""
    time_idle: float = 0.0
    """Seconds in the poll, up to the present."""
    time_cpu: float = 0.0
    """CPU seconds of the loop's thread while it ran the loop (on macOS: up to the end of its last
    run)."""
    iteration_time: Histogram = _EMPTY
    """Time from the end of a poll to the beginning of the next."""
    poll_time: Histogram = _EMPTY
    """The duration of each poll."""
    ready_wait: Histogram = _EMPTY
    """Time that callbacks, steps of tasks and due timers waited until they ran, and events for the
    GIL. Measured by a weighted sample."""
    timer_lateness: Histogram = _EMPTY
    """Delay of a timer's callback after its due time."""
    gil_wait: Histogram = _EMPTY
    """Time that the loop's thread waited for the GIL after each poll; on free-threaded Python for
    the loop's lock and for a stopped world."""
    events_per_turn: Histogram = _EMPTY_SIZES
    """Events, received messages and due timers per turn (numbers, not seconds)."""
    ready: int = 0
    """Callbacks and tasks that are ready."""
    ready_max: int = 0
    """Maximum of `ready` at the beginning of an iteration, over the last one to two minutes. It
    does not change while the loop has nothing to do."""
    timers: int = 0
    """Timers that are armed."""
    timers_max: int = 0
    """Maximum of `timers` over the last one to two minutes, like `ready_max`."""
    tasks: int = 0
    """Tasks that are not done."""
    threadsafe_calls: int = 0
    """Calls of call_soon_threadsafe()."""
    unhandled_exceptions: int = 0
    """Calls of the loop's exception handler."""

    # ---- the network ----
    bytes_received: int = 0
    """Bytes that transports and the sock_ methods received from the kernel (TLS: encrypted)."""
    bytes_sent: int = 0
    """Bytes that the kernel accepted."""
    reads: int = 0
    """Receive calls that returned data."""
    writes: int = 0
    """Send calls of which the kernel accepted data."""
    late_writes: int = 0
    """Number of times that the monitor sent writes that a long callback delayed."""
    busy_polls: int = 0
    """Attempts of busy polling: the loop polled for a while instead of sleeping at once."""
    busy_poll_hits: int = 0
    """Attempts of busy polling that found an event and so saved a sleep."""
    busy_poll_time: float = 0.0
    """Processor time that busy polling has cost, a part of `time_idle`, in seconds."""
    write_buffer_bytes: int = 0
    """Bytes written to transports that the kernel has not accepted yet."""
    connections_open: int = 0
    """Open stream transports: sockets and pipes."""
    connections_accepted: int = 0
    """Accepted connections."""
    connections_refused: int = 0
    """Accepted connections that were closed immediately because the protocol factory failed."""
    accept_failures: int = 0
    """Reports of failed accepts: no free descriptors or no memory (at most one per second)."""
    listeners_paused: int = 0
    """Listening sockets that do not accept, because their server is paused or full."""
    accept_pauses: int = 0
    """Number of times that a listening socket stopped accepting: its server was paused or full."""
    tls_handshakes: int = 0
    """TLS handshakes that succeeded."""
    tls_handshake_failures: int = 0
    """TLS handshakes that failed."""
    dns_lookups: int = 0
    """Completed name lookups."""
    dns_failures: int = 0
    """Name lookups that failed: no such name, or no server responded."""
    dns_in_flight: int = 0
    """Name lookups in progress."""
    dns_time: Histogram = _EMPTY
    """Duration of name lookups."""
    children: int = 0
    """Child processes that run."""
    children_started: int = 0
    """Child processes that were started."""

    # ---- the monitor ----
    blocked_spells: int = 0
    """Iterations that lasted longer than the watchdog's limit."""
    time_blocked: float = 0.0
    """Seconds of these iterations."""
    blocked_for: float = 0.0
    """Seconds that the current iteration has been blocked, or 0.0; the maximum of several loops."""

    # ---- the process ----
    gc_time: float = 0.0
    """Seconds in Python's garbage collector since the first loop was created."""
    go_heap_bytes: int = 0
    """Bytes of Go's heap."""
    goroutines: int = 0
    """Goroutines of Go's runtime."""

    @property
    def utilization(self) -> float:
        """The busy share of the time, from 0.0 to 1.0."""
        whole = self.time_busy + self.time_idle
        return self.time_busy / whole if whole else 0.0

    def __sub__(self, earlier: Metrics) -> Metrics:
        """Return the change since an earlier snapshot; gauges have the later values."""
        if not isinstance(earlier, Metrics):
            return NotImplemented
        changed: dict[str, Any] = {}
        for name in self._fields:
            now, then = getattr(self, name), getattr(earlier, name)
            if isinstance(now, Histogram):
                changed[name] = _subtract(now, then)
            elif name not in _GAUGES:
                changed[name] = now - then
        return self._replace(**changed)


def _subtract(now: Histogram, then: Histogram) -> Histogram:
    """Return the histogram of the values that were added since `then`."""
    if not then.count:
        return now
    return Histogram(
        now.count - then.count,
        now.sum - then.sum,
        now.max,
        tuple(map(operator.sub, now.buckets, then.buckets)),
        now.scale,
    )


# Gauges: values of the moment, which are not counted.
_GAUGES = frozenset(each.field for each in METRICS if each.kind in ("state", "gauge_max"))
_MAX_GAUGES = frozenset(each.field for each in METRICS if each.kind == "gauge_max")
# Metrics of the process, which has one value for all loops.
_PROCESS_METRICS = frozenset(each.field for each in METRICS if each.source == "process")
_SCALES = {each.field: 1e-9 if each.unit == "s" else 1 for each in METRICS}


def from_raw(raw: dict[str, Any]) -> Metrics:
    """Return the metrics that `unpack_metrics` returned by name, with times in nanoseconds."""
    values: dict[str, Any] = {}
    for name, value in raw.items():
        scale = _SCALES[name]
        if isinstance(value, bytes):
            values[name] = Histogram._from_raw(value, float(scale))
        else:
            values[name] = value * scale
    return Metrics(**values)


def total(several: Iterable[Metrics]) -> Metrics:
    """Return the sums of several snapshots; for `gauge_max` and process metrics the maxima."""
    sums: dict[str, Any] = {}
    for each in several:
        for name in each._fields:
            value = getattr(each, name)
            if name not in sums:
                sums[name] = value
            elif name in _MAX_GAUGES or name in _PROCESS_METRICS:
                sums[name] = max(sums[name], value)
            else:
                sums[name] += value
    return Metrics(**sums)


_lock = threading.Lock()


def _reset_lock_in_child() -> None:
    """Reset the lock: another thread may have had it at the moment of the fork."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_reset_lock_in_child)

# The sums over the closed loops of the process with the id _closed_pid, packed by marshal: see
# `closed_loop_metrics`.
_closed_pid = os.getpid()
_closed = b""

# Gauges that are 0 for a closed loop.
_ZERO_GAUGES: dict[str, Any] = dict.fromkeys(_GAUGES - _MAX_GAUGES - _PROCESS_METRICS, 0)


def of_loop(loop: Any) -> Metrics:
    """Return the metrics of one loop; for a closed one the final values."""
    last = unpack_final_metrics(loop._final_metrics)
    if last is not None:
        return from_raw(unpack_metrics(last[1]) | _ZERO_GAUGES)
    return from_raw(_raw_of_open_loop(loop))._replace(gc_time=_core._collected())


def _raw_of_open_loop(loop: Any) -> dict[str, Any]:
    """Return the metrics of an open loop by name, with times in nanoseconds; without `gc_time`."""
    raw = unpack_metrics(loop._metrics())
    runtime = decode_json(loop._describe() or "{}")
    raw["tasks"] = len(asyncio.all_tasks(loop))
    raw["go_heap_bytes"] = runtime.get("heap_bytes", 0)
    raw["goroutines"] = runtime.get("goroutines", 0)
    return raw


def metrics() -> Metrics:
    """Return a snapshot of the metrics of all loops in this process, including closed ones.

    May be called from any thread. Counters never decrease. docs/metrics.md describes each metric.
    """
    while True:
        sums = add_closed_loops()
        several = [
            _raw_of_open_loop(loop)
            for loop in _core._open_loops()
            if unpack_final_metrics(loop._final_metrics) is None
        ]
        if add_closed_loops() is sums:  # otherwise a loop was closed in between
            closed = marshal.loads(sums) | _ZERO_GAUGES if sums else {}
            # Whole nanoseconds are added: a sum of floats depends on their order, so the sum could
            # decrease by a rounding error when a loop is closed.
            summed = from_raw(_sum_raw([closed, *several]))
            return summed._replace(gc_time=_core._collected())


def add_closed_loops() -> bytes:
    """Move the entries of `closed_loop_metrics` into the sums of closed loops.

    Returns the packed sums, the same object as before if no loop was added.
    """
    global _closed, _closed_pid
    pid = os.getpid()
    with _lock:
        if _closed_pid != pid:
            _closed_pid, _closed = pid, b""
        several = []
        for packed in list(closed_loop_metrics):
            last = unpack_final_metrics(packed)
            if last is None:
                continue  # the loop is just being closed
            closed_loop_metrics.remove(packed)
            if last[0] == pid:  # otherwise C code has forked, so that the list was not cleared
                several.append(unpack_metrics(last[1]))
        if several:
            before = [marshal.loads(_closed)] if _closed else []
            _closed = marshal.dumps(_sum_raw([*before, *several]))
        return _closed


def _sum_raw(several: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Do the same as total() for metrics by name, in the form that `unpack_metrics` returns."""
    sums: dict[str, Any] = {}
    for raw in several:
        for name, value in raw.items():
            before = sums.get(name)
            if not before:  # absent, 0, or a histogram without values
                sums[name] = value
            elif isinstance(value, bytes):
                sums[name] = _add_histograms(before, value) if value else before
            elif name in _MAX_GAUGES or name in _PROCESS_METRICS:
                sums[name] = max(before, value)
            else:
                sums[name] = before + value
    return sums


_MAX_NS = 2**64 - 1


def _add_histograms(one: bytes, other: bytes) -> bytes:
    """Return the sum of two packed histograms."""
    count, whole, maximum, *buckets = map(
        operator.add, HISTOGRAM.unpack(one), HISTOGRAM.unpack(other)
    )
    maximum = max(HISTOGRAM.unpack(one)[2], HISTOGRAM.unpack(other)[2])
    # Loops with a virtual clock may wait for centuries: the sum could exceed 64 bits.
    return HISTOGRAM.pack(count, min(whole, _MAX_NS), maximum, *buckets)
