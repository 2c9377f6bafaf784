"""goloop's metrics and incidents for OpenTelemetry.

    import goloop.otel

    goloop.otel.instrument()

The metrics are observable instruments, which cost time only when a reader collects.
OpenTelemetry has no observable histogram, and recording each value would cost more time than most
iterations take.  So a histogram becomes gauges with the percentiles since the last collection,
and counters with its count and sum.  The conventions for nodejs.eventloop.delay.* do the same.

Incidents are spans: iterations that blocked the loop, as reported by the watchdog, and
exceptions that reached the loop's exception handler.  From Python 3.12 on, where a task's context
is accessible, the spans belong to the trace of their task.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

try:
    from opentelemetry.context import Context, get_current
    from opentelemetry.metrics import (
        CallbackOptions,
        Meter,
        MeterProvider,
        Observation,
        get_meter_provider,
    )
    from opentelemetry.trace import Status, StatusCode, Tracer, TracerProvider, get_tracer_provider
except ImportError as error:
    raise ImportError("goloop.otel needs opentelemetry: pip install goloop[otel]") from error

from .. import watchdog
from .._internal.observe import metrics as metrics_module
from .._internal.observe.histogram import Histogram
from .._internal.observe.metric_registry import METRICS, MetricSpec
from .._internal.observe.metrics import Metrics
from .._internal.version import __version__

__all__ = ("Instrumentation", "instrument")

_NAME = "goloop"
# The maximum has the same precision as the percentiles.
_PERCENTILES = (
    ("p50", 50, "the median"),
    ("p90", 90, "the 90th percentile"),
    ("p99", 99, "the 99th percentile"),
    ("max", 100, "the maximum"),
)


class Instrumentation:
    """A running instrumentation.  `instrument()` returns it; programs do not create it directly.

    Since 0.3.0.
    """

    __module__ = "goloop.otel"

    def __init__(self, cleanups: list[Callable[[], object]]) -> None:
        """Store the functions that end the instrumentation."""
        self._cleanups = cleanups

    def uninstrument(self) -> None:
        """Stop the instrumentation; further calls change nothing.

        OpenTelemetry cannot remove instruments: they stay, but report no values.
        """
        global _current
        while self._cleanups:
            self._cleanups.pop()()
        if _current is self:
            _current = None


_current: Instrumentation | None = None


def instrument(
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
    *,
    metrics: bool = True,
    blocked: bool = True,
    exceptions: bool = True,
) -> Instrumentation:
    """Export goloop's metrics and incidents through OpenTelemetry.

    While an instrumentation is active, further calls return it and ignore their arguments.
    Since 0.3.0.

    Args:
        meter_provider: The provider of the meter; by default the global provider, which may be set
            later.
        tracer_provider: The provider of the tracer; by default the global provider, which may be
            set later.
        metrics: Whether to export `goloop.metrics()`.
        blocked: Whether to record a span for each iteration longer than its loop's limit.
        exceptions: Whether to record a span for each call of a loop's exception handler.

    Returns:
        The instrumentation; its `uninstrument()` stops the export.
    """
    global _current
    if _current is not None:
        return _current
    cleanups: list[Callable[[], object]] = []
    if metrics:
        observer = _observer(meter_provider)
        observer.active = True
        cleanups.append(observer.stop)
    traces = tracer_provider if tracer_provider is not None else get_tracer_provider()
    tracer = traces.get_tracer(_NAME, __version__)
    if blocked:
        cleanups.append(watchdog.subscribe(_BlockedSpans(tracer)))
    if exceptions:
        observe = _ExceptionSpans(tracer)
        metrics_module.on_exception.append(observe)
        cleanups.append(lambda: metrics_module.on_exception.remove(observe))
    _current = Instrumentation(cleanups)
    return _current


# ---- metrics --------------------------------------------------------------------------

_Observe = Callable[[Metrics, Metrics], Iterable[Observation]]


class _Observer:
    """The instruments of a meter, which cannot be created twice and cannot be removed."""

    def __init__(self, meter: Meter) -> None:
        """Create the instruments, which report nothing until `active` is true."""
        self._meter = meter
        self.active = False
        # The process id, the metrics at the latest collection, their difference to the previous
        # collection, and the names of the instruments that have reported these values.
        self._latest: tuple[int, Metrics, Metrics, set[str]] = 0, Metrics(), Metrics(), set()
        groups: dict[str, list[MetricSpec]] = {}
        for spec in METRICS:
            groups.setdefault(spec.otel, []).append(spec)
        for group in groups.values():
            self._make(group)
        self._gauge("goloop.utilization", "1", "Busy fraction of the loops' time", _utilization)

    def stop(self) -> None:
        """Make the instruments report no values until `active` is set again."""
        self.active = False

    def _make(self, group: list[MetricSpec]) -> None:
        """Create the instrument of a group: the metrics with one OpenTelemetry name."""
        first = group[0]
        if first.kind == "histogram":
            self._make_histogram(first)
            return

        def observe(now: Metrics, since: Metrics) -> Iterator[Observation]:
            """Yield the value of each metric, with its attributes."""
            for spec in group:
                yield Observation(getattr(now, spec.field), dict(spec.attributes))

        # Metrics that differ only in their attributes have one common description.
        text = first.text if len(group) == 1 else _SHARED[first.otel]
        if first.kind == "gauge_max":
            self._gauge(first.otel, first.unit, text, observe)
            return
        callbacks = [self._callback(first.otel, observe)]
        if first.kind == "state":
            self._meter.create_observable_up_down_counter(first.otel, callbacks, first.unit, text)
        else:
            self._meter.create_observable_counter(first.otel, callbacks, first.unit, text)

    def _make_histogram(self, spec: MetricSpec) -> None:
        """Create the instruments of a histogram: recent percentiles, count and sum."""

        def histogram_of(snapshot: Metrics) -> Histogram:
            """Return the histogram in a snapshot."""
            value: Histogram = getattr(snapshot, spec.field)
            return value

        for name, percent, label in _PERCENTILES:

            def percentile(
                now: Metrics, since: Metrics, percent: int = percent
            ) -> Iterator[Observation]:
                """Yield a percentile of the values since the last collection, if there are any."""
                if histogram_of(since).count:
                    yield Observation(histogram_of(since).percentile(percent))

            text = f"{spec.text}: {label} since the last collection"
            self._gauge(f"{spec.otel}.{name}", spec.unit, text, percentile)
        for name, unit, label in (("count", "{value}", "the count"), ("sum", spec.unit, "the sum")):

            def counter(now: Metrics, since: Metrics, name: str = name) -> Iterator[Observation]:
                """Yield the count or the sum since the start."""
                yield Observation(getattr(histogram_of(now), name))

            text = f"{spec.text}: {label}"
            name = f"{spec.otel}.{name}"
            self._meter.create_observable_counter(name, [self._callback(name, counter)], unit, text)

    def _gauge(self, name: str, unit: str, text: str, observe: _Observe) -> None:
        """Create an observable gauge."""
        self._meter.create_observable_gauge(name, [self._callback(name, observe)], unit, text)

    def _callback(
        self, name: str, observe: _Observe
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """Return the callback of an instrument; it yields no values after stop()."""

        def callback(options: CallbackOptions) -> Iterable[Observation]:
            """Return the observations for one collection."""
            return observe(*self._collected(name)) if self.active else ()

        return callback

    def _collected(self, name: str) -> tuple[Metrics, Metrics]:
        """Return the metrics of the current collection, and their difference to the previous one.

        OpenTelemetry does not announce a collection.  A new one has started when an instrument asks
        for the second time.  There is no lock, because a forked child would have to discard it.
        Two readers that collect at the same time may see each other's values.
        """
        pid, now, since, observed = self._latest
        if name in observed or pid != os.getpid():
            # A forked child starts with zeros.
            before = now if pid == os.getpid() else Metrics()
            now, observed = metrics_module.metrics(), set()
            since = now - before
            self._latest = os.getpid(), now, since, observed
        observed.add(name)
        return now, since


_SHARED = {
    "goloop.time": "Time in the poll (idle) and outside of it (active)",
    "goloop.network.io": "Bytes received from the kernel and accepted by it for sending",
    "goloop.network.operations": "Receive and send calls that transferred data",
}


def _utilization(now: Metrics, since: Metrics) -> Iterator[Observation]:
    """Yield the utilization since the last collection, if a loop has run since then."""
    if since.time_busy + since.time_idle > 0:
        yield Observation(since.utilization)


_observers: weakref.WeakKeyDictionary[object, _Observer] = weakref.WeakKeyDictionary()


class _GlobalProvider:
    """The key of the global provider, whose object is a proxy until the program sets it."""


def _observer(provider: MeterProvider | None) -> _Observer:
    """Return the observer of a provider, which is created once; None is the global provider."""
    key = _GlobalProvider if provider is None else provider
    if key not in _observers:
        provider = get_meter_provider() if provider is None else provider
        _observers[key] = _Observer(provider.get_meter(_NAME, __version__))
    return _observers[key]


# ---- incidents ------------------------------------------------------------------------


class _BlockedSpans:
    """Records a span for each blocking iteration, when the iteration has ended."""

    def __init__(self, tracer: Tracer) -> None:
        """Record spans by `tracer`."""
        self._tracer = tracer
        # The context of the task that blocks the loop, for iterations that have not ended.
        self._contexts: dict[tuple[int, int], Context] = {}

    def __call__(self, blocked: watchdog.Blocked) -> None:
        """Record the span when a block has ended; when it begins, only store the task's context.

        The span lasts as long as the block. It belongs to the trace of the task that ran when the
        block was first reported.
        """
        spell = id(blocked.loop), blocked.serial
        if not blocked.ended:
            task = asyncio.current_task(blocked.loop)
            if task is not None and task.get_name() == blocked.task:
                self._contexts[spell] = _context_of(task)
            return  # until the end, the metric goloop.blocked.current shows it
        attributes: dict[str, Any] = {
            "thread.id": blocked.thread_id,
            "goloop.blocked.gc_time": blocked.gc,
        }
        for thread in threading.enumerate():
            if thread.ident == blocked.thread_id:
                attributes["thread.name"] = thread.name
        if blocked.stack:
            frame = blocked.stack[-1]
            attributes["code.function.name"] = frame.function
            attributes["code.file.path"] = frame.file
            attributes["code.line.number"] = frame.line
            attributes["code.stacktrace"] = blocked.format_stack()
        if blocked.gil_holder:
            function, file, line = blocked.gil_holder[-1]
            attributes["goloop.blocked.gil_holder"] = f"{function} ({file}:{line})"
        if blocked.task is not None:
            attributes["goloop.task.name"] = blocked.task
        if blocked.awaiters:
            attributes["goloop.task.awaiters"] = list(blocked.awaiters)
        started = int(blocked.started * 1e9)
        span = self._tracer.start_span(
            "goloop.blocked",
            # The current context of this thread is unrelated to the incident.
            context=self._contexts.pop(spell, Context()),
            attributes=attributes,
            start_time=started,
        )
        span.end(started + int(blocked.duration * 1e9))


class _ExceptionSpans:
    """Records a span without duration for each call of a loop's exception handler."""

    def __init__(self, tracer: Tracer) -> None:
        """Record spans by `tracer`."""
        self._tracer = tracer

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record the span of one call of the exception handler, with its exception and task.

        From Python 3.12 on the span belongs to the trace of the task, if there is a task.
        """
        message = str(context.get("message") or "Unhandled exception in event loop")
        attributes = {"goloop.message": message}
        within = get_current()
        exception = context.get("exception")
        if isinstance(exception, BaseException):
            attributes["error.type"] = _name_of(type(exception))
        task = context.get("task") or context.get("future")
        if isinstance(task, asyncio.Task):
            attributes["goloop.task.name"] = task.get_name()
            within = _context_of(task) or within
        span = self._tracer.start_span(
            "goloop.unhandled_exception", context=within, attributes=attributes
        )
        if isinstance(exception, BaseException):
            span.record_exception(exception)
        span.set_status(Status(StatusCode.ERROR, message))
        span.end()


def _name_of(kind: type[BaseException]) -> str:
    """Return an exception's qualified name, without "builtins."."""
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _context_of(task: asyncio.Task[Any]) -> Context:
    """Return OpenTelemetry's context in a task; an empty context before Python 3.12."""
    if sys.version_info < (3, 12):
        return Context()
    # A copy, because another thread may have entered the task's own context.
    return task.get_context().copy().run(get_current)
