"""What loops have done, in figures: Loop.metrics() and goloop.metrics().

The figures are counted all the time, by C, by Go and by the parts of the loop that are Python's,
and are read without stopping a loop, from any thread.  A snapshot is a `Metrics`; times are
seconds, sizes bytes.

Those of loops that were closed stay in goloop.metrics(), so that its counters never go back.  A
forked child begins at nothing: its parent's loops are not its own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import marshal
import operator
import os
import threading

from ..version import native

if not native:
    raise ImportError("asyncio's loop has no metrics; goloop.diagnostics() has the reason")

from ... import _core
from ..loop.running import closed_loop_metrics, unpack_final_metrics
from ..loop.running import on_exception as on_exception
from .histogram import HISTOGRAM, Histogram
from .metric_registry import FIGURES, unpacked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


_EMPTY = Histogram()
_EMPTY_SIZES = Histogram(scale=1.0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The figures of a loop, or of all loops of the process, at one moment.

    Times are seconds, sizes bytes.  Counters never go back; what is so at the moment (`ready`,
    `tasks` and the like) is not counted.  `later - earlier` is what has happened between two
    snapshots.  A later version may add figures; none goes within a major version.  Since 0.3.0.
    """

    loops: int = 0
    """Open loops; of a single loop 1 while it is open."""

    # ---- iterations ----
    iterations: int = 0
    """Iterations of the loop."""
    turns: int = 0
    """Iterations that asked the kernel for events.  While callbacks are ready, several iterations
    share one."""
    time_busy: float = 0.0
    """Seconds outside the poll: callbacks, sending and receiving.  What lasts counts, too."""
    time_idle: float = 0.0
    """Seconds in the poll.  One that lasts counts, too."""
    time_cpu: float = 0.0
    """Seconds of a processor that the loop's thread took while it ran the loop (on macOS: until its
    last run ended)."""
    iteration_time: Histogram = _EMPTY
    """From the end of a poll to the beginning of the next."""
    poll_time: Histogram = _EMPTY
    """The duration of each poll."""
    ready_wait: Histogram = _EMPTY
    """How long callbacks, steps of tasks and due timers waited until they ran; and events, where
    they waited for the GIL.  A sample is measured, and counts for all."""
    timer_lateness: Histogram = _EMPTY
    """How much later than it was due a timer's callback began."""
    gil_wait: Histogram = _EMPTY
    """How long the loop's thread waited for the GIL after each poll; without a GIL for the loop's
    lock, and for a stopped world."""
    events_per_turn: Histogram = _EMPTY_SIZES
    """Events, received messages and due timers that a turn brought (no seconds)."""
    ready: int = 0
    """Callbacks and tasks that are ready."""
    ready_max: int = 0
    """The most that were ready at the beginning of an iteration, in the last one to two minutes.
    While the loop has nothing to do, it stands."""
    timers: int = 0
    """Timers that are armed."""
    timers_max: int = 0
    """The most that were armed, in the last one to two minutes, as `ready_max`."""
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
    """Bytes that the kernel took."""
    reads: int = 0
    """Receiving calls that brought something."""
    writes: int = 0
    """Sending calls of which the kernel took something."""
    late_writes: int = 0
    """How often the monitor sent what waited behind a long callback."""
    write_buffer_bytes: int = 0
    """Bytes written to transports that the kernel has not taken yet."""
    connections_open: int = 0
    """Transports of streams that are open: sockets and pipes."""
    connections_accepted: int = 0
    """Connections that were accepted."""
    connections_refused: int = 0
    """Accepted connections that were closed at once, because the protocol factory failed."""
    accept_failures: int = 0
    """Reports of failed accepts: no descriptors or no memory (once a second at most)."""
    listeners_paused: int = 0
    """Listening sockets that don't accept now, because their server is paused or full."""
    accept_pauses: int = 0
    """How often a listening socket stopped accepting: its server was paused or became full."""
    tls_handshakes: int = 0
    """TLS handshakes that succeeded."""
    tls_handshake_failures: int = 0
    """TLS handshakes that failed."""
    dns_lookups: int = 0
    """Look-ups of names that were answered."""
    dns_failures: int = 0
    """Those of them that were answered with an error: no such name, or no server that answers."""
    dns_in_flight: int = 0
    """Look-ups of names that are not answered yet."""
    dns_time: Histogram = _EMPTY
    """From question to answer."""
    children: int = 0
    """Child processes that run."""
    children_started: int = 0
    """Child processes that were started."""

    # ---- the monitor ----
    blocked_spells: int = 0
    """Iterations that lasted longer than the watchdog's limit."""
    time_blocked: float = 0.0
    """Seconds that these iterations took."""
    blocked_for: float = 0.0
    """Seconds that the current iteration has been blocked, or 0.0; of several loops the longest."""

    # ---- the process ----
    gc_time: float = 0.0
    """Seconds in Python's garbage collector, since the first loop."""
    go_heap_bytes: int = 0
    """Go's heap."""
    goroutines: int = 0
    """Goroutines of Go's runtime."""

    @property
    def utilization(self) -> float:
        """The share of time that was busy: 0.0 to 1.0."""
        whole = self.time_busy + self.time_idle
        return self.time_busy / whole if whole else 0.0

    def __sub__(self, earlier: Metrics) -> Metrics:
        """What has come since an earlier snapshot; what is not counted is the later one's."""
        if not isinstance(earlier, Metrics):
            return NotImplemented
        changed: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            now, then = getattr(self, field.name), getattr(earlier, field.name)
            if isinstance(now, Histogram):
                changed[field.name] = _less(now, then)
            elif field.name not in _STATES:
                changed[field.name] = now - then
        return dataclasses.replace(self, **changed)


def _less(now: Histogram, then: Histogram) -> Histogram:
    if not then.count:
        return now
    return Histogram(
        now.count - then.count,
        now.sum - then.sum,
        now.max,
        tuple(map(operator.sub, now.buckets, then.buckets)),
        now.scale,
    )


# What is so at the moment of the snapshot, and not counted.
_STATES = frozenset(each.field for each in FIGURES if each.kind in ("state", "gauge_max"))
_MOST = frozenset(each.field for each in FIGURES if each.kind == "gauge_max")
# The process has them once, however many loops there are.
_OF_THE_PROCESS = frozenset(each.field for each in FIGURES if each.source == "process")
_SCALES = {each.field: 1e-9 if each.unit == "s" else 1 for each in FIGURES}


def from_raw(raw: dict[str, Any]) -> Metrics:
    """The figures that `unpacked` has named, whose times are nanoseconds."""
    values: dict[str, Any] = {}
    for name, value in raw.items():
        scale = _SCALES[name]
        if isinstance(value, bytes):
            values[name] = Histogram._from_raw(value, float(scale))
        else:
            values[name] = value * scale
    return Metrics(**values)


def total(several: Iterable[Metrics]) -> Metrics:
    """The figures of several loops as one."""
    sums: dict[str, Any] = {}
    for each in several:
        for field in dataclasses.fields(each):
            name, value = field.name, getattr(each, field.name)
            if name not in sums:
                sums[name] = value
            elif name in _MOST or name in _OF_THE_PROCESS:
                sums[name] = max(sums[name], value)
            else:
                sums[name] += value
    return Metrics(**sums)


_lock = threading.Lock()


def _in_child() -> None:
    # Another thread may have asked for figures at the moment of the fork.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_in_child)

# The figures of the closed loops of the process whose id it is, added up, as marshal packs them:
# see `closed_loop_metrics`.
_closed_pid = os.getpid()
_closed = b""

# What is so while a loop is open, and no longer when it was closed.
_OF_OPEN_LOOPS: dict[str, Any] = dict.fromkeys(_STATES - _MOST - _OF_THE_PROCESS, 0)


def of_loop(loop: Any) -> Metrics:
    """The figures of one loop; those of a closed one are its last."""
    last = unpack_final_metrics(loop._final_metrics)
    if last is not None:
        return _of_closed(unpacked(last[1]))
    raw = unpacked(loop._metrics())
    raw["tasks"] = len(asyncio.all_tasks(loop))
    return dataclasses.replace(from_raw(raw), **_of_the_process(loop))


def metrics() -> Metrics:
    """Return the figures of all loops of this process, closed ones included.

    Call it from any thread.  Counters never go back.  docs/metrics.md has a table of the
    figures.
    """
    while True:
        sums = add_closed_loops()
        several = [
            of_loop(loop)
            for loop in _core._open_loops()
            if unpack_final_metrics(loop._final_metrics) is None
        ]
        if add_closed_loops() is sums:  # else a loop was closed between the two
            closed = _of_closed(marshal.loads(sums)) if sums else Metrics()
            return dataclasses.replace(total([closed, *several]), gc_time=_core._collected())


def add_closed_loops() -> bytes:
    """Adds up the closed loops; returns their figures packed, the same object if there is none."""
    global _closed, _closed_pid
    pid = os.getpid()
    with _lock:
        if _closed_pid != pid:
            _closed_pid, _closed = pid, b""
        several = []
        for packed in list(closed_loop_metrics):
            last = unpack_final_metrics(packed)
            if last is None:
                continue  # it is about to close
            closed_loop_metrics.remove(packed)
            if last[0] == pid:  # else C has forked, and nobody has emptied the list
                several.append(unpacked(last[1]))
        if several:
            before = [marshal.loads(_closed)] if _closed else []
            _closed = marshal.dumps(_added([*before, *several]))
        return _closed


def _added(several: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The figures of several loops as one, all as `unpacked` names them."""
    sums: dict[str, Any] = {}
    for raw in several:
        for name, value in raw.items():
            before = sums.get(name)
            if not before:  # absent, 0, or a histogram without values
                sums[name] = value
            elif isinstance(value, bytes):
                sums[name] = _added_histograms(before, value) if value else before
            elif name in _MOST or name in _OF_THE_PROCESS:
                sums[name] = max(before, value)
            else:
                sums[name] = before + value
    return sums


_MOST_NS = 2**64 - 1


def _added_histograms(one: bytes, other: bytes) -> bytes:
    count, whole, most, *buckets = map(operator.add, HISTOGRAM.unpack(one), HISTOGRAM.unpack(other))
    most = max(HISTOGRAM.unpack(one)[2], HISTOGRAM.unpack(other)[2])
    # Loops of simulations wait for centuries, whose sum has no room.
    return HISTOGRAM.pack(count, min(whole, _MOST_NS), most, *buckets)


def _of_closed(raw: dict[str, Any]) -> Metrics:
    return dataclasses.replace(from_raw(raw), **_OF_OPEN_LOOPS)


def _of_the_process(loop: Any) -> dict[str, Any]:
    runtime = json.loads(loop._describe() or "{}")
    return {
        "gc_time": _core._collected(),
        "go_heap_bytes": runtime.get("heap_bytes", 0),
        "goroutines": runtime.get("goroutines", 0),
    }
