"""The figures of `Metrics`: the one table that they are read, added up and exported by.

C and Go count most of them, in gl_metrics (pybridge/abi.h) and gl_counts (core/state/state.h).
These have nothing else, and the order of this table: Loop._metrics() takes their bytes, and
`unpacked` gives them names.  Tests compare this table with both blocks, with `Metrics`, which has
the types and docstrings, and with the pages and the dashboard in docs/.

Prometheus' names have its suffixes, OpenTelemetry's follow its semantic conventions where there
are any (nodejs.eventloop.* is the model: no runtime of Python has them yet).
"""

from __future__ import annotations

import dataclasses
import struct

from .histogram import HISTOGRAM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from .histogram import Histogram

    Kind = Literal["counter", "state", "gauge_max", "histogram"]


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """A field of Metrics: what it is, where its value lies, and how exporters name it."""

    field: str
    kind: Kind
    """`counter` never goes back; a `state` can be added up, a `gauge_max` can't."""
    source: str
    """`gl_metrics` or `gl_counts`; `python`, where Loop._count() counts it or metrics.py knows
    it; `process`, which has it once, however many loops there are; or a part of a histogram."""
    unit: str
    """As OpenTelemetry has it (UCUM): `s`, `By`, `{connection}`.  Seconds are counted in ns."""
    prometheus: str
    otel: str
    """The name; of a histogram what its instruments begin with."""
    text: str
    """What it is, a sentence without its full stop."""
    attributes: tuple[tuple[str, str], ...] = ()
    """OpenTelemetry's, which tell apart figures that share an instrument."""


_RECEIVE = (("network.io.direction", "receive"),)
_TRANSMIT = (("network.io.direction", "transmit"),)

FIGURES: tuple[Figure, ...] = (
    Figure(
        "loops", "state", "python", "{loop}", "goloop_loops", "goloop.loop.count",
        "Loops that are open",
    ),
    Figure(
        "iterations", "counter", "gl_counts", "{iteration}",
        "goloop_iterations_total", "goloop.iterations",
        "Iterations of the loops",
    ),
    Figure(
        "turns", "counter", "gl_metrics", "{turn}", "goloop_turns_total", "goloop.turns",
        "Iterations that have asked the kernel for events",
    ),
    Figure(
        "time_busy", "counter", "gl_counts", "s",
        "goloop_busy_seconds_total", "goloop.time",
        "Time outside the poll: callbacks, sending and receiving", (("goloop.state", "active"),),
    ),
    Figure(
        "time_idle", "counter", "gl_counts", "s", "goloop_idle_seconds_total", "goloop.time",
        "Time in the poll", (("goloop.state", "idle"),),
    ),
    Figure(
        "time_cpu", "counter", "python", "s", "goloop_cpu_seconds_total", "goloop.cpu.time",
        "Processor time of the loop's thread while it runs the loop",
    ),
    Figure(
        "iteration_time", "histogram", "gl_metrics", "s",
        "goloop_iteration_seconds", "goloop.iteration.duration",
        "From the end of a poll to the beginning of the next",
    ),
    Figure(
        "poll_time", "histogram", "gl_metrics", "s", "goloop_poll_seconds", "goloop.poll.duration",
        "Time of a poll",
    ),
    Figure(
        "ready_wait", "histogram", "gl_metrics", "s",
        "goloop_ready_wait_seconds", "goloop.ready.delay",
        "How long what was ready waited until it ran, of a sample",
    ),
    Figure(
        "timer_lateness", "histogram", "gl_metrics", "s",
        "goloop_timer_lateness_seconds", "goloop.timer.delay",
        "How much later than it was due a timer's callback began",
    ),
    Figure(
        "gil_wait", "histogram", "gl_metrics", "s",
        "goloop_gil_wait_seconds", "goloop.gil.delay",
        "How long the loop's thread waited for the GIL after a poll",
    ),
    Figure(
        "events_per_turn", "histogram", "gl_metrics", "{event}",
        "goloop_events_per_turn", "goloop.turn.events",
        "Events, received messages and due timers that a turn has brought",
    ),
    Figure(
        "ready", "state", "gl_counts", "{callback}", "goloop_ready_callbacks", "goloop.ready.count",
        "Callbacks and tasks that are ready",
    ),
    Figure(
        "ready_max", "gauge_max", "gl_metrics", "{callback}",
        "goloop_ready_callbacks_max", "goloop.ready.max",
        "The most callbacks and tasks that were ready at once, in the last one to two minutes",
    ),
    Figure(
        "timers", "state", "gl_counts", "{timer}", "goloop_timers", "goloop.timer.count",
        "Timers that are armed",
    ),
    Figure(
        "timers_max", "gauge_max", "gl_metrics", "{timer}", "goloop_timers_max", "goloop.timer.max",
        "The most timers that were armed at once, in the last one to two minutes",
    ),
    Figure(
        "tasks", "state", "python", "{task}", "goloop_tasks", "goloop.task.count",
        "Tasks that are not done",
    ),
    Figure(
        "threadsafe_calls", "counter", "gl_counts", "{call}",
        "goloop_threadsafe_calls_total", "goloop.threadsafe_calls",
        "Calls of call_soon_threadsafe()",
    ),
    Figure(
        "unhandled_exceptions", "counter", "python", "{exception}",
        "goloop_unhandled_exceptions_total", "goloop.unhandled_exceptions",
        "Calls of the loop's exception handler",
    ),
    Figure(
        "bytes_received", "counter", "gl_metrics", "By",
        "goloop_received_bytes_total", "goloop.network.io",
        "Bytes received, as the kernel gave them", _RECEIVE,
    ),
    Figure(
        "bytes_sent", "counter", "gl_metrics", "By", "goloop_sent_bytes_total", "goloop.network.io",
        "Bytes sent, as the kernel took them", _TRANSMIT,
    ),
    Figure(
        "reads", "counter", "gl_metrics", "{operation}",
        "goloop_reads_total", "goloop.network.operations",
        "Receiving calls that have brought something", _RECEIVE,
    ),
    Figure(
        "writes", "counter", "gl_metrics", "{operation}",
        "goloop_writes_total", "goloop.network.operations",
        "Sending calls of which the kernel took something", _TRANSMIT,
    ),
    Figure(
        "late_writes", "counter", "gl_metrics", "{operation}",
        "goloop_late_writes_total", "goloop.network.late_writes",
        "How often the monitor has sent what waited behind a long callback",
    ),
    Figure(
        "write_buffer_bytes", "state", "gl_counts", "By",
        "goloop_write_buffer_bytes", "goloop.network.write_buffer.size",
        "Bytes written to transports and not yet taken by the kernel",
    ),
    Figure(
        "connections_open", "state", "gl_counts", "{connection}",
        "goloop_connections_open", "goloop.connection.count",
        "Transports of streams that are open: sockets and pipes",
    ),
    Figure(
        "connections_accepted", "counter", "gl_metrics", "{connection}",
        "goloop_connections_accepted_total", "goloop.connection.accepted",
        "Connections that were accepted",
    ),
    Figure(
        "connections_refused", "counter", "gl_counts", "{connection}",
        "goloop_connections_refused_total", "goloop.connection.refused",
        "Accepted connections that were closed at once: their protocol factory failed",
    ),
    Figure(
        "accept_failures", "counter", "gl_counts", "{failure}",
        "goloop_accept_failures_total", "goloop.connection.accept_failures",
        "Reports of failed accepts: out of descriptors or memory",
    ),
    Figure(
        "listeners_paused", "state", "python", "{listener}",
        "goloop_listeners_paused", "goloop.listener.paused",
        "Listening sockets that don't accept now: their server is paused, or full",
    ),
    Figure(
        "accept_pauses", "counter", "python", "{pause}",
        "goloop_accept_pauses_total", "goloop.listener.pauses",
        "How often a listening socket stopped accepting: its server was paused, or became full",
    ),
    Figure(
        "tls_handshakes", "counter", "python", "{handshake}",
        "goloop_tls_handshakes_total", "goloop.tls.handshakes",
        "TLS handshakes that succeeded",
    ),
    Figure(
        "tls_handshake_failures", "counter", "python", "{handshake}",
        "goloop_tls_handshake_failures_total", "goloop.tls.handshake_failures",
        "TLS handshakes that failed",
    ),
    Figure(
        "dns_lookups", "counter", "dns_time.count", "{lookup}",
        "goloop_dns_lookups_total", "goloop.dns.lookups",
        "Look-ups of names that were answered",
    ),
    Figure(
        "dns_failures", "counter", "python", "{lookup}",
        "goloop_dns_lookup_failures_total", "goloop.dns.lookup.failures",
        "Look-ups of names that were answered with an error",
    ),
    Figure(
        "dns_in_flight", "state", "python", "{lookup}",
        "goloop_dns_lookups_in_flight", "goloop.dns.lookup.active",
        "Look-ups of names that are not answered yet",
    ),
    Figure(
        "dns_time", "histogram", "python", "s",
        "goloop_dns_lookup_seconds", "goloop.dns.lookup.duration",
        "Time of a look-up of a name",
    ),
    Figure(
        "children", "state", "python", "{process}", "goloop_children", "goloop.child.count",
        "Child processes that run",
    ),
    Figure(
        "children_started", "counter", "python", "{process}",
        "goloop_children_started_total", "goloop.child.started",
        "Child processes that were started",
    ),
    Figure(
        "blocked_spells", "counter", "gl_metrics", "{spell}",
        "goloop_blocked_spells_total", "goloop.blocked.spells",
        "Iterations that were longer than the watchdog's limit",
    ),
    Figure(
        "time_blocked", "counter", "gl_counts", "s",
        "goloop_blocked_seconds_total", "goloop.blocked.time",
        "Time of the iterations that were longer than the watchdog's limit",
    ),
    Figure(
        "blocked_for", "gauge_max", "gl_counts", "s",
        "goloop_blocked_for_seconds", "goloop.blocked.current",
        "How long the loop is blocked now, or 0: the longest, of several loops",
    ),
    Figure(
        "gc_time", "counter", "process", "s", "goloop_gc_seconds_total", "goloop.gc.time",
        "Time in Python's garbage collector, since the first loop",
    ),
    Figure(
        "go_heap_bytes", "state", "process", "By", "goloop_go_heap_bytes", "goloop.go.heap.size",
        "Go's heap",
    ),
    Figure(
        "goroutines", "state", "process", "{goroutine}", "goloop_goroutines", "go.goroutine.count",
        "Goroutines of Go's runtime",
    ),
)  # fmt: skip


BLOCKS = ("gl_metrics", "gl_counts")
_COUNTED = [figure for block in BLOCKS for figure in FIGURES if figure.source == block]
_COUNTED_LAYOUT = struct.Struct(
    "=" + "".join(f"{HISTOGRAM.size}s" if each.kind == "histogram" else "Q" for each in _COUNTED)
)
# Those that are a part of a histogram: its name, and the place of the part in it.
_PARTS = {
    figure.field: (figure.source.split(".")[0], ("count", "sum").index(figure.source.split(".")[1]))
    for figure in FIGURES
    if "." in figure.source
}


def unpacked(raw: dict[str, Any]) -> dict[str, Any]:
    """The figures of Loop._metrics() by name, none of a loop whose memory is gone.

    Times are nanoseconds.  Histograms stay bytes; without values they are empty.
    """
    if not raw["counted"]:
        return {}
    figures = {**raw, "loops": 1}
    values = _COUNTED_LAYOUT.unpack(figures.pop("counted"))
    counted = dict(zip((figure.field for figure in _COUNTED), values, strict=True))
    for name in counted.keys() & raw.keys():  # what Python sends and receives itself
        counted[name] += raw[name]
    figures.update(counted)
    for name, (histogram, place) in _PARTS.items():
        figures[name] = HISTOGRAM.unpack(figures.get(histogram) or bytes(HISTOGRAM.size))[place]
    for figure in _COUNTED:
        if figure.kind == "histogram" and not any(figures[figure.field][:8]):
            figures[figure.field] = b""
    return figures


# Prometheus' bucket bounds of times, from 1 us to 60 s.  They are round, unlike those that goloop
# counts by: a value may be counted one bucket too high if it is less than a ninth below the bound.
_SECONDS = (
    1e-06, 2.5e-06, 5e-06, 1e-05, 2.5e-05, 5e-05, 0.0001, 0.00025, 0.0005,
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
# And of numbers; with these goloop's own buckets end.
_NUMBERS = (0, *(2**power - 1 for power in range(1, 13)))


def bounded(histogram: Histogram) -> list[tuple[str, float]]:
    """Prometheus' buckets of a histogram: each bound in words, and how many values it has."""
    # Prometheus counts what is equal to the bound, cumulative() what is less.
    if histogram.scale == 1.0:
        bounds = [(str(bound), float(bound + 1)) for bound in _NUMBERS]
    else:
        bounds = [(repr(bound), bound) for bound in _SECONDS]
    counts = histogram.cumulative(bound for _, bound in bounds)
    found = [(name, float(count)) for (name, _), (_, count) in zip(bounds, counts, strict=True)]
    return [*found, ("+Inf", float(histogram.count))]
