"""The table of all metrics, by which they are unpacked, added up and exported.

C and Go count most of them, in gl_metrics (pybridge/abi.h) and gl_counts (core/state/state.h).
These structs have exactly these fields in the order of this table: Loop._metrics() copies their
bytes, and `unpack_metrics` returns the values by name. Tests compare this table with both structs,
with `Metrics`, which has the types and docstrings, and with the pages and the dashboard in docs/.

Prometheus' names have its suffixes. OpenTelemetry's names follow its semantic conventions where
they exist (nodejs.eventloop.* is the model: there are none for Python runtimes yet).
"""

from __future__ import annotations

import struct

from .histogram import HISTOGRAM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from .histogram import Histogram

    Kind = Literal["counter", "state", "gauge_max", "histogram"]


class MetricSpec:
    """A metric: a field of Metrics, the source of its value, and its names in exporters."""

    __slots__ = (
        "attributes", "field", "kind", "otel", "prometheus", "source", "text", "unit",
    )  # fmt: skip

    field: str
    kind: Kind
    """`counter` never decreases; `state` is a gauge that is summed over loops; `gauge_max` is a
    gauge of which the maximum is taken."""
    source: str
    """`gl_metrics` or `gl_counts`; `python` if Loop._count() counts it or metrics.py computes it;
    `process` if the process has one value for all loops; or a part of a histogram."""
    unit: str
    """OpenTelemetry's unit (UCUM): `s`, `By`, `{connection}`. Times are counted in nanoseconds."""
    prometheus: str
    otel: str
    """OpenTelemetry's name; for a histogram the prefix of its instruments."""
    text: str
    """The description, a sentence without a full stop."""
    attributes: tuple[tuple[str, str], ...]
    """OpenTelemetry's attributes, which distinguish metrics of the same instrument."""

    def __init__(
        self, field: str, kind: Kind, source: str, unit: str, prometheus: str, otel: str,
        text: str, attributes: tuple[tuple[str, str], ...] = (),
    ) -> None:  # fmt: skip
        """Set all fields."""
        self.field = field
        self.kind = kind
        self.source = source
        self.unit = unit
        self.prometheus = prometheus
        self.otel = otel
        self.text = text
        self.attributes = attributes


_RECEIVE = (("network.io.direction", "receive"),)
_TRANSMIT = (("network.io.direction", "transmit"),)

METRICS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "loops", "state", "python", "{loop}", "goloop_loops", "goloop.loop.count",
        "Open loops",
    ),
    MetricSpec(
        "iterations", "counter", "gl_counts", "{iteration}",
        "goloop_iterations_total", "goloop.iterations",
        "Iterations of the loops",
    ),
    MetricSpec(
        "turns", "counter", "gl_metrics", "{turn}", "goloop_turns_total", "goloop.turns",
        "Iterations that polled the kernel for events",
    ),
    MetricSpec(
        "time_busy", "counter", "gl_counts", "s",
        "goloop_busy_seconds_total", "goloop.time",
        "Time outside the poll: callbacks, sending and receiving", (("goloop.state", "active"),),
    ),
    MetricSpec(
        "time_idle", "counter", "gl_counts", "s", "goloop_idle_seconds_total", "goloop.time",
        "Time in the poll", (("goloop.state", "idle"),),
    ),
    MetricSpec(
        "time_cpu", "counter", "python", "s", "goloop_cpu_seconds_total", "goloop.cpu.time",
        "CPU time of the loop's thread while it runs the loop",
    ),
    MetricSpec(
        "iteration_time", "histogram", "gl_metrics", "s",
        "goloop_iteration_seconds", "goloop.iteration.duration",
        "Time from the end of a poll to the beginning of the next",
    ),
    MetricSpec(
        "poll_time", "histogram", "gl_metrics", "s", "goloop_poll_seconds", "goloop.poll.duration",
        "Duration of a poll",
    ),
    MetricSpec(
        "ready_wait", "histogram", "gl_metrics", "s",
        "goloop_ready_wait_seconds", "goloop.ready.delay",
        "Time that ready callbacks, tasks and events waited until they ran, from a sample",
    ),
    MetricSpec(
        "timer_lateness", "histogram", "gl_metrics", "s",
        "goloop_timer_lateness_seconds", "goloop.timer.delay",
        "Delay of a timer's callback after its due time",
    ),
    MetricSpec(
        "gil_wait", "histogram", "gl_metrics", "s",
        "goloop_gil_wait_seconds", "goloop.gil.delay",
        "Time that the loop's thread waited for the GIL after a poll",
    ),
    MetricSpec(
        "events_per_turn", "histogram", "gl_metrics", "{event}",
        "goloop_events_per_turn", "goloop.turn.events",
        "Events, received messages and due timers per turn",
    ),
    MetricSpec(
        "ready", "state", "gl_counts", "{callback}", "goloop_ready_callbacks", "goloop.ready.count",
        "Callbacks and tasks that are ready",
    ),
    MetricSpec(
        "ready_max", "gauge_max", "gl_metrics", "{callback}",
        "goloop_ready_callbacks_max", "goloop.ready.max",
        "Maximum of ready callbacks and tasks in the last one to two minutes",
    ),
    MetricSpec(
        "timers", "state", "gl_counts", "{timer}", "goloop_timers", "goloop.timer.count",
        "Armed timers",
    ),
    MetricSpec(
        "timers_max", "gauge_max", "gl_metrics", "{timer}", "goloop_timers_max", "goloop.timer.max",
        "Maximum of armed timers in the last one to two minutes",
    ),
    MetricSpec(
        "tasks", "state", "python", "{task}", "goloop_tasks", "goloop.task.count",
        "Tasks that are not done",
    ),
    MetricSpec(
        "threadsafe_calls", "counter", "gl_counts", "{call}",
        "goloop_threadsafe_calls_total", "goloop.threadsafe_calls",
        "Calls of call_soon_threadsafe()",
    ),
    MetricSpec(
        "unhandled_exceptions", "counter", "python", "{exception}",
        "goloop_unhandled_exceptions_total", "goloop.unhandled_exceptions",
        "Calls of the loop's exception handler",
    ),
    MetricSpec(
        "bytes_received", "counter", "gl_metrics", "By",
        "goloop_received_bytes_total", "goloop.network.io",
        "Bytes received from the kernel", _RECEIVE,
    ),
    MetricSpec(
        "bytes_sent", "counter", "gl_metrics", "By", "goloop_sent_bytes_total", "goloop.network.io",
        "Bytes sent to the kernel", _TRANSMIT,
    ),
    MetricSpec(
        "reads", "counter", "gl_metrics", "{operation}",
        "goloop_reads_total", "goloop.network.operations",
        "Receive calls that returned data", _RECEIVE,
    ),
    MetricSpec(
        "writes", "counter", "gl_metrics", "{operation}",
        "goloop_writes_total", "goloop.network.operations",
        "Send calls of which the kernel accepted data", _TRANSMIT,
    ),
    MetricSpec(
        "late_writes", "counter", "gl_metrics", "{operation}",
        "goloop_late_writes_total", "goloop.network.late_writes",
        "Number of times that the monitor sent writes that a long callback delayed",
    ),
    MetricSpec(
        "busy_polls", "counter", "gl_metrics", "{attempt}",
        "goloop_busy_polls_total", "goloop.busy_poll.attempts",
        "Attempts of busy polling: the loop polled for a while instead of sleeping at once",
    ),
    MetricSpec(
        "busy_poll_hits", "counter", "gl_metrics", "{attempt}",
        "goloop_busy_poll_hits_total", "goloop.busy_poll.hits",
        "Attempts of busy polling that found an event and so saved a sleep",
    ),
    MetricSpec(
        "busy_poll_time", "counter", "gl_metrics", "s",
        "goloop_busy_poll_seconds_total", "goloop.busy_poll.time",
        "Processor time that busy polling has cost, a part of the time in the poll",
    ),
    MetricSpec(
        "write_buffer_bytes", "state", "gl_counts", "By",
        "goloop_write_buffer_bytes", "goloop.network.write_buffer.size",
        "Bytes written to transports and not yet accepted by the kernel",
    ),
    MetricSpec(
        "connections_open", "state", "gl_counts", "{connection}",
        "goloop_connections_open", "goloop.connection.count",
        "Open stream transports: sockets and pipes",
    ),
    MetricSpec(
        "connections_accepted", "counter", "gl_metrics", "{connection}",
        "goloop_connections_accepted_total", "goloop.connection.accepted",
        "Accepted connections",
    ),
    MetricSpec(
        "connections_refused", "counter", "gl_counts", "{connection}",
        "goloop_connections_refused_total", "goloop.connection.refused",
        "Accepted connections that were closed immediately: their protocol factory failed",
    ),
    MetricSpec(
        "accept_failures", "counter", "gl_counts", "{failure}",
        "goloop_accept_failures_total", "goloop.connection.accept_failures",
        "Reports of failed accepts: no free descriptors or memory",
    ),
    MetricSpec(
        "listeners_paused", "state", "python", "{listener}",
        "goloop_listeners_paused", "goloop.listener.paused",
        "Listening sockets that do not accept: their server is paused or full",
    ),
    MetricSpec(
        "accept_pauses", "counter", "python", "{pause}",
        "goloop_accept_pauses_total", "goloop.listener.pauses",
        "Number of times that a listening socket stopped accepting: its server was paused or full",
    ),
    MetricSpec(
        "tls_handshakes", "counter", "python", "{handshake}",
        "goloop_tls_handshakes_total", "goloop.tls.handshakes",
        "TLS handshakes that succeeded",
    ),
    MetricSpec(
        "tls_handshake_failures", "counter", "python", "{handshake}",
        "goloop_tls_handshake_failures_total", "goloop.tls.handshake_failures",
        "TLS handshakes that failed",
    ),
    MetricSpec(
        "dns_lookups", "counter", "dns_time.count", "{lookup}",
        "goloop_dns_lookups_total", "goloop.dns.lookups",
        "Completed name lookups",
    ),
    MetricSpec(
        "dns_failures", "counter", "python", "{lookup}",
        "goloop_dns_lookup_failures_total", "goloop.dns.lookup.failures",
        "Failed name lookups",
    ),
    MetricSpec(
        "dns_in_flight", "state", "python", "{lookup}",
        "goloop_dns_lookups_in_flight", "goloop.dns.lookup.active",
        "Name lookups in progress",
    ),
    MetricSpec(
        "dns_time", "histogram", "python", "s",
        "goloop_dns_lookup_seconds", "goloop.dns.lookup.duration",
        "Duration of a name lookup",
    ),
    MetricSpec(
        "children", "state", "python", "{process}", "goloop_children", "goloop.child.count",
        "Running child processes",
    ),
    MetricSpec(
        "children_started", "counter", "python", "{process}",
        "goloop_children_started_total", "goloop.child.started",
        "Started child processes",
    ),
    MetricSpec(
        "blocked_spells", "counter", "gl_metrics", "{spell}",
        "goloop_blocked_spells_total", "goloop.blocked.spells",
        "Iterations that lasted longer than the watchdog's limit",
    ),
    MetricSpec(
        "time_blocked", "counter", "gl_counts", "s",
        "goloop_blocked_seconds_total", "goloop.blocked.time",
        "Time of the iterations that lasted longer than the watchdog's limit",
    ),
    MetricSpec(
        "blocked_for", "gauge_max", "gl_counts", "s",
        "goloop_blocked_for_seconds", "goloop.blocked.current",
        "Time that the loop has been blocked, or 0: the maximum of several loops",
    ),
    MetricSpec(
        "gc_time", "counter", "process", "s", "goloop_gc_seconds_total", "goloop.gc.time",
        "Time in Python's garbage collector since the first loop was created",
    ),
    MetricSpec(
        "go_heap_bytes", "state", "process", "By", "goloop_go_heap_bytes", "goloop.go.heap.size",
        "Size of Go's heap",
    ),
    MetricSpec(
        "goroutines", "state", "process", "{goroutine}", "goloop_goroutines", "go.goroutine.count",
        "Goroutines of Go's runtime",
    ),
)  # fmt: skip


BLOCKS = ("gl_metrics", "gl_counts")
_COUNTED = [spec for block in BLOCKS for spec in METRICS if spec.source == block]
_COUNTED_LAYOUT = struct.Struct(
    "=" + "".join(f"{HISTOGRAM.size}s" if each.kind == "histogram" else "Q" for each in _COUNTED)
)
# Metrics that are a part of a histogram: the histogram's name and the index of the part.
_PARTS = {
    spec.field: (spec.source.split(".")[0], ("count", "sum").index(spec.source.split(".")[1]))
    for spec in METRICS
    if "." in spec.source
}


def unpack_metrics(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics of Loop._metrics() by name; {} if the loop's memory is freed.

    Times are in nanoseconds. Histograms are packed bytes, b"" without values.
    """
    if not raw["counted"]:
        return {}
    figures = {**raw, "loops": 1}
    values = _COUNTED_LAYOUT.unpack(figures.pop("counted"))
    counted = dict(zip((spec.field for spec in _COUNTED), values, strict=True))
    for name in counted.keys() & raw.keys():  # bytes that Python itself sent and received
        counted[name] += raw[name]
    figures.update(counted)
    for name, (histogram, place) in _PARTS.items():
        figures[name] = HISTOGRAM.unpack(figures.get(histogram) or bytes(HISTOGRAM.size))[place]
    for spec in _COUNTED:
        if spec.kind == "histogram" and not any(figures[spec.field][:8]):
            figures[spec.field] = b""
    return figures


# Prometheus' bucket bounds for times, from 1 us to 60 s. They are round, unlike goloop's own: a
# value may be counted one bucket too high if it is less than a ninth below the bound.
_SECONDS = (
    1e-06, 2.5e-06, 5e-06, 1e-05, 2.5e-05, 5e-05, 0.0001, 0.00025, 0.0005,
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
# Bounds for numbers; these are bounds of goloop's own buckets.
_NUMBERS = (0, *(2**power - 1 for power in range(1, 13)))


def prometheus_buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Return Prometheus' buckets of a histogram: bounds as text, and the values up to each bound.

    The last bound is "+Inf".
    """
    # Prometheus counts values <= the bound, cumulative() counts values below it.
    if histogram.scale == 1.0:
        bounds = [(str(bound), float(bound + 1)) for bound in _NUMBERS]
    else:
        bounds = [(repr(bound), bound) for bound in _SECONDS]
    counts = histogram.cumulative(bound for _, bound in bounds)
    found = [(name, float(count)) for (name, _), (_, count) in zip(bounds, counts, strict=True)]
    return [*found, ("+Inf", float(histogram.count))]
