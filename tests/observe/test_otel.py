"""goloop.otel, read by OpenTelemetry's own SDK: metrics, spans, and their end."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ended
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, InMemoryMetricReader, Sum
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import goloop
import goloop.otel
from goloop import watchdog
from goloop._internal.observe import histogram as histograms
from goloop._internal.observe import metrics
from goloop._internal.observe.histogram import Histogram
from goloop._internal.observe.metric_registry import METRICS
from goloop._internal.observe.metrics import Metrics

SCENARIOS = Path(__file__).with_name("otel_scenarios.py")


class Pipeline:
    """The SDK's two providers, with the data that they received."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.exporter = InMemorySpanExporter()
        self.traces = TracerProvider(shutdown_on_exit=False)
        self.traces.add_span_processor(SimpleSpanProcessor(self.exporter))

    def collect(self) -> dict[str, Any]:
        """The metrics of goloop by their names."""
        data = self.reader.get_metrics_data()
        return {
            metric.name: metric
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            if scope.scope.name == "goloop"
            for metric in scope.metrics
        }

    def values(self) -> dict[str, Any]:
        """The values of those without attributes."""
        found = {}
        for name, metric in self.collect().items():
            for point in metric.data.data_points:
                if not point.attributes:
                    found[name] = point.value
        return found

    def spans(self, name: str) -> list[ReadableSpan]:
        """The spans of that name that have ended."""
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def instrument(self, **options: Any) -> goloop.otel.Instrumentation:
        """goloop's instrumentation, to here."""
        return goloop.otel.instrument(self.meters, self.traces, **options)


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    made = Pipeline()
    yield made
    goloop.otel.instrument().uninstrument()
    assert not watchdog._subscribers
    assert not metrics.on_exception
    made.meters.shutdown()
    made.traces.shutdown()


def histogram(*buckets: int) -> Histogram:
    """A histogram with these counts of 0, 1, 2 and 3 ns."""
    return Histogram(
        sum(buckets),
        sum(1e-9 * value * count for value, count in enumerate(buckets)),
        (len(buckets) - 1) * 1e-9,
        (*buckets, *[0] * (len(histograms.BOUNDS) - len(buckets))),
    )


# ---- metrics --------------------------------------------------------------------------


def test_every_field_is_exported_with_its_value_unit_and_kind(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: dict[str, Any] = {}
    for number, field in enumerate(Metrics._fields, 1):
        value = getattr(Metrics(), field)
        values[field] = (
            histogram(0, 0, number) if isinstance(value, Histogram) else type(value)(number)
        )
    monkeypatch.setattr(metrics, "metrics", lambda: Metrics(**values))
    pipeline.instrument()
    found = pipeline.collect()
    names = {"goloop.utilization"}
    for spec in METRICS:
        value = values[spec.field]
        if spec.kind == "histogram":
            parts = {f"{spec.otel}.{each}" for each in ("p50", "p90", "p99", "max")}
            for name in parts:
                (point,) = found[name].data.data_points
                assert isinstance(found[name].data, Gauge)
                assert (point.value, found[name].unit) == (value.max, spec.unit)
            for part, whole, unit in (
                ("count", value.count, "{value}"),
                ("sum", value.sum, spec.unit),
            ):
                metric = found[f"{spec.otel}.{part}"]
                (point,) = metric.data.data_points
                assert metric.data.is_monotonic
                assert (point.value, metric.unit) == (whole, unit)
            names |= parts | {f"{spec.otel}.count", f"{spec.otel}.sum"}
            continue
        metric = found[spec.otel]
        names.add(spec.otel)
        (point,) = [
            each
            for each in metric.data.data_points
            if dict(each.attributes) == dict(spec.attributes)
        ]
        assert (point.value, metric.unit) == (value, spec.unit)
        assert metric.description
        assert isinstance(metric.data, Gauge if spec.kind == "gauge_max" else Sum)
        if spec.kind != "gauge_max":
            assert metric.data.is_monotonic == (spec.kind == "counter")
    assert found.keys() == names


def test_percentiles_and_utilization_cover_the_last_interval(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = Metrics(iteration_time=histogram(0, 90, 0, 10), time_busy=1.0, time_idle=3.0)
    monkeypatch.setattr(metrics, "metrics", lambda: figures)
    pipeline.instrument()
    found = pipeline.values()
    name = "goloop.iteration.duration"
    assert found[f"{name}.p50"] == pytest.approx(1e-9)
    assert (found[f"{name}.p99"], found[f"{name}.count"]) == (pytest.approx(3e-9), 100)
    assert found["goloop.utilization"] == 0.25
    figures = Metrics(iteration_time=histogram(0, 90, 20, 10), time_busy=4.0, time_idle=4.0)
    found = pipeline.values()
    for part in ("p50", "p99", "max"):
        assert found[f"{name}.{part}"] == pytest.approx(2e-9)
    assert found[f"{name}.count"] == 120
    assert found["goloop.utilization"] == 0.75
    # Without a new value there are no percentiles.
    found = pipeline.values()
    assert found[f"{name}.count"] == 120
    assert not {f"{name}.p50", f"{name}.max", "goloop.utilization"} & found.keys()


def test_a_collection_takes_one_snapshot(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    monkeypatch.setattr(metrics, "metrics", lambda: taken.append(1) or Metrics())
    pipeline.instrument()
    for number in (1, 2, 3):
        pipeline.collect()
        assert len(taken) == number


def test_first_collection_of_a_forked_child_starts_at_zero(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = Metrics(iteration_time=histogram(0, 90, 0, 10), time_busy=9.0)
    monkeypatch.setattr(metrics, "metrics", lambda: figures)
    pipeline.instrument()
    pipeline.collect()
    observer = goloop.operations.otel._observers[pipeline.meters]
    # The fork happens during a collection of the parent.
    observer._collected("the first instrument")
    observer._collected("the first instrument")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    figures = Metrics(iteration_time=histogram(0, 0, 5))
    assert observer._collected("the second instrument") == (figures, figures)


def test_exported_values_equal_goloops_metrics(pipeline: Pipeline) -> None:
    pipeline.instrument()
    before = pipeline.values()

    async def main() -> dict[str, Any]:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        asyncio.get_running_loop().call_exception_handler({"message": "for the count"})
        return await asyncio.to_thread(pipeline.values)

    during = goloop.run(main())
    after, figures = pipeline.values(), goloop.metrics()
    for each in (during, after):
        assert each["goloop.unhandled_exceptions"] == before["goloop.unhandled_exceptions"] + 1
    assert during["goloop.loop.count"] == before["goloop.loop.count"] + 1
    assert during["goloop.task.count"] == before["goloop.task.count"] + 1
    assert during["goloop.iteration.duration.max"] > 0
    assert after["goloop.iterations"] == figures.iterations
    assert after["goloop.poll.duration.sum"] == figures.poll_time.sum


# ---- spans ----------------------------------------------------------------------------


def blocked(**changes: Any) -> watchdog.Blocked:
    """A spell that has ended."""
    facts: dict[str, Any] = {
        "loop": None,
        "serial": 1,
        "thread_id": 12,
        "thread_name": "loops",
        "cpu": 2.0,
        "callbacks": 1,
        "callback_time": 2.25,
        "later": (),
        "importing": False,
        "started": 1_700_000_000.5,
        "duration": 2.25,
        "ended": True,
        "gc": 0.125,
        "stack": (
            watchdog.Frame("main", "/srv/app.py", 3),
            watchdog.Frame("Shop.reckon", "/srv/shop.py", 7),
        ),
        "gil_holder": (watchdog.Frame("crunch", "/srv/sums.py", 9),),
        "task": "request",
        "awaiters": ("gatherer", "main"),
        "shares": ((2.0, watchdog.Frame("Shop.reckon", "/srv/shop.py", 7)),),
    }
    return watchdog.Blocked(**{**facts, **changes})


def test_ended_block_becomes_a_span(pipeline: Pipeline) -> None:
    pipeline.instrument()
    loop = goloop.new_event_loop()
    watchdog._publish((blocked(loop=loop, ended=False), 0))
    assert not pipeline.spans("goloop.blocked")
    spell = blocked(loop=loop)
    watchdog._publish((spell, 0))
    loop.close()
    (span,) = pipeline.spans("goloop.blocked")
    assert span.start_time == 1_700_000_000_500_000_000
    assert span.end_time == 1_700_000_002_750_000_000
    assert dict(span.attributes or {}) == {
        "thread.id": 12,
        "code.function.name": "Shop.reckon",
        "code.file.path": "/srv/shop.py",
        "code.line.number": 7,
        "code.stacktrace": spell.format_stack(),
        "goloop.blocked.gc_time": 0.125,
        "goloop.blocked.gil_holder": "crunch (/srv/sums.py:9)",
        "goloop.task.name": "request",
        "goloop.task.awaiters": ("gatherer", "main"),
    }
    assert span.parent is None


def test_a_spell_of_which_little_is_known_becomes_a_span_too(pipeline: Pipeline) -> None:
    pipeline.instrument()
    watchdog._publish((blocked(stack=(), gil_holder=(), task=None, awaiters=()), 0))
    (span,) = pipeline.spans("goloop.blocked")
    assert dict(span.attributes or {}) == {"thread.id": 12, "goloop.blocked.gc_time": 0.125}


def test_a_loop_that_blocks_leaves_a_span_in_the_trace_of_its_task(pipeline: Pipeline) -> None:
    pipeline.instrument()
    tracer = pipeline.traces.get_tracer("test")

    def reckon() -> None:
        # Until the watchdog has reported it.
        deadline = time.monotonic() + 60
        while not told and time.monotonic() < deadline:
            time.sleep(0.01)

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        loop.set_watchdog(0.02)
        await asyncio.sleep(0)
        with tracer.start_as_current_span("request"):
            reckon()
        await asyncio.sleep(0)

    told: list[watchdog.Blocked] = []
    # After goloop.otel's.
    end = watchdog.subscribe(told.append)
    try:
        goloop.run(main())
    finally:
        end()
    (span,) = pipeline.spans("goloop.blocked")
    (request,) = pipeline.spans("request")
    attributes = dict(span.attributes or {})
    assert "reckon" in str(attributes["code.stacktrace"])
    assert attributes["goloop.task.name"] == told[-1].task
    assert attributes["thread.name"] == "MainThread"
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time - span.start_time == int(told[-1].duration * 1e9)
    if sys.version_info >= (3, 12):
        assert request.context is not None
        assert span.parent is not None
        assert span.parent.span_id == request.context.span_id


def test_unhandled_exception_becomes_a_span(pipeline: Pipeline) -> None:
    pipeline.instrument()
    tracer = pipeline.traces.get_tracer("test")
    seen: list[str] = []

    async def fails() -> None:
        raise LookupError("no such thing")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: seen.append(context["message"]))
        with tracer.start_as_current_span("request"):
            task = asyncio.create_task(fails(), name="lost")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        del task
        gc.collect()
        loop.call_exception_handler({"message": "something else"})

    goloop.run(main())
    assert seen == ["Task exception was never retrieved", "something else"]
    spans = pipeline.spans("goloop.unhandled_exception")
    assert [dict(span.attributes or {}) for span in spans] == [
        {
            "goloop.message": "Task exception was never retrieved",
            "error.type": "LookupError",
            "goloop.task.name": "lost",
        },
        {"goloop.message": "something else"},
    ]
    assert [span.status.status_code for span in spans] == [StatusCode.ERROR] * 2
    assert [span.status.description for span in spans] == seen
    (event,) = spans[0].events
    assert event.attributes is not None
    assert event.attributes["exception.message"] == "no such thing"
    assert "in fails" in str(event.attributes["exception.stacktrace"])
    assert not spans[1].events
    (request,) = pipeline.spans("request")
    if sys.version_info >= (3, 12):
        assert request.context is not None
        assert spans[0].parent is not None
        assert spans[0].parent.span_id == request.context.span_id


def test_exception_is_recorded_in_its_span(pipeline: Pipeline) -> None:
    pipeline.instrument()
    loop = goloop.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)
    with pipeline.traces.get_tracer("test").start_as_current_span("outer"):
        loop.call_exception_handler({"message": "", "exception": ZeroDivisionError()})
    loop.close()
    (span,) = pipeline.spans("goloop.unhandled_exception")
    (outer,) = pipeline.spans("outer")
    assert span.parent is not None
    assert outer.context is not None
    assert span.parent.span_id == outer.context.span_id


# ---- its beginning and its end ----------------------------------------------------------


def test_uninstrument_removes_all_and_allows_instrument_again(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    loop = goloop.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)
    with caplog.at_level(logging.WARNING, "opentelemetry"):
        for number in (1, 2):
            instrumentation = pipeline.instrument()
            assert pipeline.instrument() is instrumentation
            assert pipeline.values()["goloop.loop.count"] == goloop.metrics().loops
            loop.call_exception_handler({"message": "seen"})
            watchdog._publish((blocked(), 0))
            instrumentation.uninstrument()
            instrumentation.uninstrument()
            assert pipeline.values() == {}
            loop.call_exception_handler({"message": "not seen"})
            watchdog._publish((blocked(), 0))
            assert len(pipeline.spans("goloop.unhandled_exception")) == number
            assert len(pipeline.spans("goloop.blocked")) == number
    loop.close()
    # OpenTelemetry warns of an instrument that is made twice.
    assert not [each for each in caplog.records if each.name.startswith("opentelemetry")]


def test_each_part_can_be_left_out(pipeline: Pipeline) -> None:
    loop = goloop.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)
    parts = ("metrics", "blocked", "exceptions")
    for part in parts:
        pipeline.exporter.clear()
        wanted = {each: each == part for each in parts}
        instrumentation = pipeline.instrument(**wanted)
        loop.call_exception_handler({"message": ""})
        watchdog._publish((blocked(), 0))
        found = {
            "metrics": bool(pipeline.values()),
            "blocked": bool(pipeline.spans("goloop.blocked")),
            "exceptions": bool(pipeline.spans("goloop.unhandled_exception")),
        }
        assert found == wanted
        instrumentation.uninstrument()
    loop.close()


def test_global_providers_may_be_set_later() -> None:
    ended.passes(SCENARIOS, "global_providers_may_be_set_later")


def test_the_sdks_threads_export_by_themselves(tmp_path: Path) -> None:
    pid = ended.passes(SCENARIOS, "the_sdks_threads_export_by_themselves", tmp_path)
    check(tmp_path, pid.strip(), 5)


def test_forked_child_exports_only_its_own_metrics(tmp_path: Path) -> None:
    # The intervals never end: at the fork the SDK's threads hold none of its locks.
    pids = ended.passes(SCENARIOS, "forked_child_exports_only_its_own_metrics", tmp_path)
    parent, child = pids.split()
    check(tmp_path, parent, 5)
    check(tmp_path, child, 2)


def check(folder: Path, pid: str, times: int) -> None:
    """Check the exports of a process of otel_scenarios.py."""
    spans = [json.loads(line) for line in (folder / f"spans-{pid}").read_text().splitlines()]
    assert [span["status"]["description"] for span in spans] == [f"of {pid}"] * times
    told = [exported(line) for line in (folder / f"figures-{pid}").read_text().splitlines()]
    assert told[-1]["goloop.unhandled_exceptions"] == times
    assert told[-1]["goloop.iteration.duration.count"] > 0
    assert all(value >= 0 for figures in told for value in figures.values())


def exported(line: str) -> dict[str, float]:
    """The values of a collection as JSON that have no attributes."""
    return {
        metric["name"]: point["value"]
        for resource in json.loads(line)["resource_metrics"]
        for scope in resource["scope_metrics"]
        for metric in scope["metrics"]
        for point in metric["data"]["data_points"]
        if not point["attributes"]
    }
