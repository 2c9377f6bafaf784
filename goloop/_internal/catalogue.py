"""What the figures of `Metrics` are called outside: the one table that all exporters follow.

Whether a figure counts or tells a state is metering.py's to say; here are names, units and a
sentence.  Prometheus' names have its suffixes, OpenTelemetry's follow its semantic conventions
where there are any (nodejs.eventloop.* is the model: no runtime of Python has them yet).
"""

from __future__ import annotations

import dataclasses

from .chosen import native

if not native:
    raise ImportError("asyncio's loop has no metrics; goloop.diagnostics() tells why it is used")

from .metering import _MOST, _STATES, Histogram, Metrics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Kind = Literal["counter", "state", "most", "histogram"]


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """A field of Metrics, as exporters name it."""

    field: str
    prometheus: str
    otel: str
    """The name; of a histogram what its instruments begin with."""
    unit: str
    """As OpenTelemetry has it (UCUM): `s`, `By`, `{connection}`."""
    text: str
    """What it is, a sentence without its full stop."""
    attributes: tuple[tuple[str, str], ...] = ()
    """OpenTelemetry's, which tell apart figures that share an instrument."""

    @property
    def kind(self) -> Kind:
        """`counter` never goes back; a `state` can be added up, a `most` can't."""
        if isinstance(getattr(_NOTHING, self.field), Histogram):
            return "histogram"
        if self.field in _MOST:
            return "most"
        return "state" if self.field in _STATES else "counter"


_NOTHING = Metrics()

_RECEIVE = (("network.io.direction", "receive"),)
_TRANSMIT = (("network.io.direction", "transmit"),)

FIGURES: tuple[Figure, ...] = (
    Figure("loops", "goloop_loops", "goloop.loop.count", "{loop}", "Loops that are open"),
    Figure(
        "iterations", "goloop_iterations_total", "goloop.iterations", "{iteration}",
        "Iterations of the loops",
    ),
    Figure(
        "turns", "goloop_turns_total", "goloop.turns", "{turn}",
        "Iterations that have asked the kernel for events",
    ),
    Figure(
        "time_busy", "goloop_busy_seconds_total", "goloop.time", "s",
        "Time outside the poll: callbacks, sending and receiving",
        (("goloop.state", "active"),),
    ),
    Figure(
        "time_idle", "goloop_idle_seconds_total", "goloop.time", "s",
        "Time in the poll",
        (("goloop.state", "idle"),),
    ),
    Figure(
        "iteration_time", "goloop_iteration_seconds", "goloop.iteration.duration", "s",
        "From the end of a poll to the beginning of the next",
    ),
    Figure(
        "poll_time", "goloop_poll_seconds", "goloop.poll.duration", "s",
        "Time of a poll",
    ),
    Figure(
        "ready_wait", "goloop_ready_wait_seconds", "goloop.ready.delay", "s",
        "How long a callback was ready before it ran, of one in each turn",
    ),
    Figure(
        "timer_lateness", "goloop_timer_lateness_seconds", "goloop.timer.delay", "s",
        "How much later than it was due a timer's callback began",
    ),
    Figure(
        "events_per_turn", "goloop_events_per_turn", "goloop.turn.events", "{event}",
        "Events, received messages and due timers that a turn has brought",
    ),
    Figure(
        "ready", "goloop_ready_callbacks", "goloop.ready.count", "{callback}",
        "Callbacks and tasks that are ready",
    ),
    Figure(
        "ready_max", "goloop_ready_callbacks_max", "goloop.ready.max", "{callback}",
        "The most callbacks and tasks that were ready at the beginning of an iteration",
    ),
    Figure("timers", "goloop_timers", "goloop.timer.count", "{timer}", "Timers that are armed"),
    Figure(
        "timers_max", "goloop_timers_max", "goloop.timer.max", "{timer}",
        "The most timers that were armed",
    ),
    Figure("tasks", "goloop_tasks", "goloop.task.count", "{task}", "Tasks that are not done"),
    Figure(
        "threadsafe_calls", "goloop_threadsafe_calls_total", "goloop.threadsafe_calls", "{call}",
        "Calls of call_soon_threadsafe()",
    ),
    Figure(
        "unhandled_exceptions", "goloop_unhandled_exceptions_total", "goloop.unhandled_exceptions",
        "{exception}",
        "Calls of the loop's exception handler",
    ),
    Figure(
        "bytes_received", "goloop_received_bytes_total", "goloop.network.io", "By",
        "Bytes received, as the kernel gave them",
        _RECEIVE,
    ),
    Figure(
        "bytes_sent", "goloop_sent_bytes_total", "goloop.network.io", "By",
        "Bytes sent, as the kernel took them",
        _TRANSMIT,
    ),
    Figure(
        "reads", "goloop_reads_total", "goloop.network.operations", "{operation}",
        "Receiving calls that have brought something",
        _RECEIVE,
    ),
    Figure(
        "writes", "goloop_writes_total", "goloop.network.operations", "{operation}",
        "Sending calls of which the kernel took something",
        _TRANSMIT,
    ),
    Figure(
        "late_writes", "goloop_late_writes_total", "goloop.network.late_writes", "{operation}",
        "How often the monitor has sent what waited behind a long callback",
    ),
    Figure(
        "write_buffer_bytes", "goloop_write_buffer_bytes", "goloop.network.write_buffer.size", "By",
        "Bytes written to transports and not yet taken by the kernel",
    ),
    Figure(
        "connections_open", "goloop_connections_open", "goloop.connection.count", "{connection}",
        "Transports of streams that are open: sockets and pipes",
    ),
    Figure(
        "connections_accepted", "goloop_connections_accepted_total", "goloop.connection.accepted",
        "{connection}",
        "Connections that were accepted",
    ),
    Figure(
        "connections_refused", "goloop_connections_refused_total", "goloop.connection.refused",
        "{connection}",
        "Accepted connections that were closed at once: their protocol factory failed",
    ),
    Figure(
        "accept_failures", "goloop_accept_failures_total", "goloop.connection.accept_failures",
        "{failure}",
        "Reports of failed accepts: out of descriptors or memory",
    ),
    Figure(
        "tls_handshakes", "goloop_tls_handshakes_total", "goloop.tls.handshakes", "{handshake}",
        "TLS handshakes that succeeded",
    ),
    Figure(
        "tls_handshake_failures", "goloop_tls_handshake_failures_total",
        "goloop.tls.handshake_failures", "{handshake}",
        "TLS handshakes that failed",
    ),
    Figure(
        "dns_lookups", "goloop_dns_lookups_total", "goloop.dns.lookups", "{lookup}",
        "Look-ups of names that were answered",
    ),
    Figure(
        "dns_in_flight", "goloop_dns_lookups_in_flight", "goloop.dns.lookup.active", "{lookup}",
        "Look-ups of names that are not answered yet",
    ),
    Figure(
        "dns_time", "goloop_dns_lookup_seconds", "goloop.dns.lookup.duration", "s",
        "Time of a look-up of a name",
    ),
    Figure(
        "children", "goloop_children", "goloop.child.count", "{process}",
        "Child processes that run",
    ),
    Figure(
        "children_started", "goloop_children_started_total", "goloop.child.started", "{process}",
        "Child processes that were started",
    ),
    Figure(
        "blocked_spells", "goloop_blocked_spells_total", "goloop.blocked.spells", "{spell}",
        "Iterations that were longer than the watchdog's limit",
    ),
    Figure(
        "time_blocked", "goloop_blocked_seconds_total", "goloop.blocked.time", "s",
        "Time of the iterations that were longer than the watchdog's limit",
    ),
    Figure(
        "blocked_for", "goloop_blocked_for_seconds", "goloop.blocked.current", "s",
        "How long the loop is blocked now, or 0: the longest, of several loops",
    ),
    Figure(
        "gc_time", "goloop_gc_seconds_total", "goloop.gc.time", "s",
        "Time in Python's garbage collector, since the first loop",
    ),
    Figure("go_heap_bytes", "goloop_go_heap_bytes", "goloop.go.heap.size", "By", "Go's heap"),
    Figure(
        "goroutines", "goloop_goroutines", "go.goroutine.count", "{goroutine}",
        "Goroutines of Go's runtime",
    ),
)  # fmt: skip
