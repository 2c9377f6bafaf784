"""goloop's metrics and incidents for OpenTelemetry.

    import goloop.otel

    goloop.otel.instrument()

The metrics are observable instruments: they cost something only when a reader collects.
OpenTelemetry has no observable histogram, and recording each value would cost more than most
iterations take.  So a histogram becomes gauges with the percentiles since the last collection,
and counters with its count and sum.  The conventions for nodejs.eventloop.delay.* do the same.

Incidents are spans: iterations that blocked the loop, as the watchdog reports them, and
exceptions that reached the loop's exception handler.  From Python 3.12 on, which tells a task's
context, they belong to the trace of their task.
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
from .._internal.metrics import metrics as metrics_module
from .._internal.metrics.histogram import Histogram
from .._internal.metrics.metric_registry import FIGURES, Figure
from .._internal.metrics.metrics import Metrics
from .._internal.version import __version__

__all__ = ("Instrumentation", "instrument")

_NAME = "goloop"
# The greatest value is told as exactly as the percentiles are.
_PERCENTILES = (
    ("p50", 50, "the median"),
    ("p90", 90, "the 90th percentile"),
    ("p99", 99, "the 99th percentile"),
    ("max", 100, "the greatest"),
)


class Instrumentation:
    """What `instrument()` has begun; a program makes none itself.  Since 0.3.0."""

    __module__ = "goloop.otel"

    def __init__(self, endings: list[Callable[[], object]]) -> None:
        self._endings = endings

    def uninstrument(self) -> None:
        """Observe nothing more; further calls change nothing.

        OpenTelemetry cannot remove an instrument: they stay, and report nothing.
        """
        global _current
        while self._endings:
            self._endings.pop()()
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
    """Give goloop's metrics and incidents to OpenTelemetry.

    As long as an instrumentation lasts further calls just return it, whatever their arguments.
    Since 0.3.0.

    Args:
        meter_provider: What makes the instruments; the global one by default, which may be set
            later.
        tracer_provider: What makes the spans; the global one by default, which may be set later.
        metrics: Whether `goloop.metrics()` is observed.
        blocked: Whether each iteration that lasts longer than its loop's limit becomes a span.
        exceptions: Whether what comes to the loops' exception handlers becomes a span.

    Returns:
        What ends it.
    """
    global _current
    if _current is not None:
        return _current
    endings: list[Callable[[], object]] = []
    if metrics:
        observer = _observer(meter_provider)
        observer.active = True
        endings.append(observer.stop)
    traces = tracer_provider if tracer_provider is not None else get_tracer_provider()
    tracer = traces.get_tracer(_NAME, __version__)
    if blocked:
        endings.append(watchdog.subscribe(_BlockedSpells(tracer)))
    if exceptions:
        observe = _Exceptions(tracer)
        metrics_module.on_exception.append(observe)
        endings.append(lambda: metrics_module.on_exception.remove(observe))
    _current = Instrumentation(endings)
    return _current


# ---- metrics --------------------------------------------------------------------------

_Observe = Callable[[Metrics, Metrics], Iterable[Observation]]


class _Observer:
    """The instruments of a meter: they can't be made twice, and can't be removed."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.active = False
        # The process, its figures at the latest collection, what of them has come since the one
        # before, and the instruments that have told of them.
        self._latest: tuple[int, Metrics, Metrics, set[str]] = 0, Metrics(), Metrics(), set()
        groups: dict[str, list[Figure]] = {}
        for figure in FIGURES:
            groups.setdefault(figure.otel, []).append(figure)
        for group in groups.values():
            self._make(group)
        self._gauge("goloop.utilization", "1", "The busy part of the time", _utilization)

    def stop(self) -> None:
        """Until `active` is set again the instruments tell nothing."""
        self.active = False

    def _make(self, group: list[Figure]) -> None:
        first = group[0]
        if first.kind == "histogram":
            self._make_histogram(first)
            return

        def observe(now: Metrics, since: Metrics) -> Iterator[Observation]:
            for figure in group:
                yield Observation(getattr(now, figure.field), dict(figure.attributes))

        # That of figures which differ in their attributes holds for all of them.
        text = first.text if len(group) == 1 else _SHARED[first.otel]
        if first.kind == "gauge_max":
            self._gauge(first.otel, first.unit, text, observe)
            return
        callbacks = [self._callback(first.otel, observe)]
        if first.kind == "state":
            self._meter.create_observable_up_down_counter(first.otel, callbacks, first.unit, text)
        else:
            self._meter.create_observable_counter(first.otel, callbacks, first.unit, text)

    def _make_histogram(self, figure: Figure) -> None:
        def of(figures: Metrics) -> Histogram:
            value: Histogram = getattr(figures, figure.field)
            return value

        for name, percent, what in _PERCENTILES:

            def percentile(
                now: Metrics, since: Metrics, percent: int = percent
            ) -> Iterator[Observation]:
                if of(since).count:
                    yield Observation(of(since).percentile(percent))

            text = f"{figure.text}: {what} since the last collection"
            self._gauge(f"{figure.otel}.{name}", figure.unit, text, percentile)
        for name, unit, what in (("count", "{value}", "how many"), ("sum", figure.unit, "the sum")):

            def counter(now: Metrics, since: Metrics, name: str = name) -> Iterator[Observation]:
                yield Observation(getattr(of(now), name))

            text = f"{figure.text}: {what}"
            name = f"{figure.otel}.{name}"
            self._meter.create_observable_counter(name, [self._callback(name, counter)], unit, text)

    def _gauge(self, name: str, unit: str, text: str, observe: _Observe) -> None:
        self._meter.create_observable_gauge(name, [self._callback(name, observe)], unit, text)

    def _callback(
        self, name: str, observe: _Observe
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def callback(options: CallbackOptions) -> Iterable[Observation]:
            return observe(*self._of_a_collection(name)) if self.active else ()

        return callback

    def _of_a_collection(self, name: str) -> tuple[Metrics, Metrics]:
        """The figures of this collection, and what has come since the one before.

        Nothing tells that a collection begins: it has when an instrument asks for the second
        time.  No lock, which a child would have to get rid of after a fork: two readers that
        collect at once at worst see each other's figures.
        """
        pid, now, since, observed = self._latest
        if name in observed or pid != os.getpid():
            # A forked child has begun at nothing.
            before = now if pid == os.getpid() else Metrics()
            now, observed = metrics_module.metrics(), set()
            since = now - before
            self._latest = os.getpid(), now, since, observed
        observed.add(name)
        return now, since


_SHARED = {
    "goloop.time": "Time in the poll (idle) and outside of it (active)",
    "goloop.network.io": "Bytes received and sent, as the kernel gave and took them",
    "goloop.network.operations": "Receiving and sending calls that have moved something",
}


def _utilization(now: Metrics, since: Metrics) -> Iterator[Observation]:
    if since.time_busy + since.time_idle > 0:
        yield Observation(since.utilization)


_observers: weakref.WeakKeyDictionary[object, _Observer] = weakref.WeakKeyDictionary()


class _Global:
    """Stands for the global provider: before that is set another object answers for it."""


def _observer(provider: MeterProvider | None) -> _Observer:
    key = _Global if provider is None else provider
    if key not in _observers:
        provider = get_meter_provider() if provider is None else provider
        _observers[key] = _Observer(provider.get_meter(_NAME, __version__))
    return _observers[key]


# ---- incidents ------------------------------------------------------------------------


class _BlockedSpells:
    """A span for each spell of a blocked loop, made when it has ended."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        # Of spells that go on, what the task that blocks the loop is part of.
        self._contexts: dict[tuple[int, int], Context] = {}

    def __call__(self, blocked: watchdog.Blocked) -> None:
        spell = id(blocked.loop), blocked.serial
        if not blocked.ended:
            task = asyncio.current_task(blocked.loop)
            if task is not None and task.get_name() == blocked.task:
                self._contexts[spell] = _context_of(task)
            return  # meanwhile the metric goloop.blocked.current tells of it
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
        begun = int(blocked.started * 1e9)
        span = self._tracer.start_span(
            "goloop.blocked",
            # Not what this thread happens to do now.
            context=self._contexts.pop(spell, Context()),
            attributes=attributes,
            start_time=begun,
        )
        span.end(begun + int(blocked.duration * 1e9))


class _Exceptions:
    """A span without duration for each call of a loop's exception handler."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
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
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _context_of(task: asyncio.Task[Any]) -> Context:
    """OpenTelemetry's context in a task; empty before Python 3.12."""
    if sys.version_info < (3, 12):
        return Context()
    # Another thread may be in the task's own.
    return task.get_context().copy().run(get_current)
