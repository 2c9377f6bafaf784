"""Sentry and OpenTelemetry: their instrumentation of asyncio, with tasks on goloop."""

from __future__ import annotations

import json
from typing import Any

import pytest

from real_programs.programs import LOOP, Programs, needs

pytestmark = pytest.mark.real

SENTRY = """
import asyncio, goloop, json, sentry_sdk
from sentry_sdk.integrations.asyncio import AsyncioIntegration
from sentry_sdk.transport import Transport

class Kept(Transport):
    items = []

    def capture_envelope(self, envelope):
        self.items += [item.payload.json for item in envelope.items]

async def fails():
    sentry_sdk.set_tag("within", "fails")
    await asyncio.sleep(0)
    raise KeyError("lost")

async def works():
    await asyncio.sleep(0)
    return 1

def callback_fails():
    1 / 0

async def main():
    loop = asyncio.get_running_loop()
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:9/1", transport=Kept, traces_sample_rate=1.0,
        integrations=[AsyncioIntegration()],
    )
    with sentry_sdk.start_transaction(name="request", op="test"):
        assert await asyncio.create_task(works()) == 1
        async with asyncio.TaskGroup() as group:
            group.create_task(works())
        await asyncio.gather(fails(), return_exceptions=True)
    # The loop's exception handler logs it, and Sentry takes what is logged.
    loop.call_soon(callback_fails)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    kind = type(loop)
    return f"{kind.__module__}.{kind.__qualname__}"

loop = goloop.run(main())
print("told:" + json.dumps({"loop": loop, "items": Kept.items}, default=str))
"""

OPENTELEMETRY = """
import asyncio, json, threading
import goloop
from opentelemetry.instrumentation.asyncio import AsyncioInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans, figures = InMemorySpanExporter(), InMemoryMetricReader()
tracing = TracerProvider()
tracing.add_span_processor(SimpleSpanProcessor(spans))
metering = MeterProvider([figures])
AsyncioInstrumentor().instrument(tracer_provider=tracing, meter_provider=metering)

async def step(name):
    await asyncio.sleep(0)
    return name

async def fails():
    await asyncio.sleep(0)
    raise KeyError("lost")

def in_a_thread():
    return threading.current_thread() is not threading.main_thread()

async def main():
    loop = asyncio.get_running_loop()
    tracer = tracing.get_tracer("program")
    with tracer.start_as_current_span("request"):
        assert await asyncio.create_task(step("task")) == "task"
        async with asyncio.TaskGroup() as group:
            group.create_task(step("group"))
        assert await asyncio.gather(step("a"), step("b")) == ["a", "b"]
        await asyncio.gather(fails(), return_exceptions=True)
        assert await asyncio.to_thread(in_a_thread)
        future = loop.create_future()
        loop.call_soon(future.set_result, 1)
        assert await asyncio.wait_for(future, 10) == 1
    kind = type(loop)
    return f"{kind.__module__}.{kind.__qualname__}"

loop = goloop.run(main())
made = [
    point.attributes["name"]
    for resource in figures.get_metrics_data().resource_metrics
    for scope in resource.scope_metrics
    for metric in scope.metrics
    if metric.name == "asyncio.process.created"
    for point in metric.data.data_points
    for _ in range(point.value)
    if "name" in point.attributes
]
print("told:" + json.dumps({
    "loop": loop,
    "made": made,
    "spans": [
        [span.name, span.parent and span.parent.span_id, span.context.span_id,
         span.status.status_code.name]
        for span in spans.get_finished_spans()
    ],
}))
"""


def told(said: str) -> Any:
    """Return the program's output, read as JSON."""
    (line,) = [line for line in said.splitlines() if line.startswith("told:")]
    return json.loads(line.removeprefix("told:"))


def test_sentry_has_errors_and_spans_of_tasks(programs: Programs) -> None:
    needs("sentry_sdk")
    facts = told(programs.ends_well("-c", SENTRY))
    assert facts["loop"] == LOOP
    events = [item for item in facts["items"] if item.get("exception")]
    by_type = {event["exception"]["values"][-1]["type"]: event for event in events}
    assert by_type.keys() == {"KeyError", "ZeroDivisionError"}
    lost = by_type["KeyError"]
    assert lost["exception"]["values"][-1]["mechanism"]["type"] == "asyncio"
    # A task has a scope of its own: no other event has its tag.
    assert lost["tags"] == {"within": "fails"}
    assert "within" not in by_type["ZeroDivisionError"].get("tags", {})
    assert by_type["ZeroDivisionError"]["logger"] == "asyncio"
    (request,) = [item for item in facts["items"] if item.get("type") == "transaction"]
    spans = [(span["op"], span["description"], span.get("status")) for span in request["spans"]]
    assert spans.count(("function", "works", None)) == 2
    assert ("function", "fails", "internal_error") in spans


def test_opentelemetry_traces_tasks_futures_and_threads(programs: Programs) -> None:
    needs("opentelemetry.instrumentation.asyncio", "opentelemetry.sdk")
    facts = told(
        programs.ends_well(
            *("-c", OPENTELEMETRY),
            OTEL_PYTHON_ASYNCIO_COROUTINE_NAMES_TO_TRACE="step,fails",
            OTEL_PYTHON_ASYNCIO_FUTURE_TRACE_ENABLED="true",
            OTEL_PYTHON_ASYNCIO_TO_THREAD_FUNCTION_NAMES_TO_TRACE="in_a_thread",
        )
    )
    assert facts["loop"] == LOOP
    (request,) = [span for span in facts["spans"] if span[0] == "request"]
    children = [
        (name, status) for name, parent, _, status in facts["spans"] if parent == request[2]
    ]
    assert children.count(("asyncio coro-step", "UNSET")) == 4
    assert ("asyncio coro-fails", "ERROR") in children
    assert ("asyncio to_thread-in_a_thread", "UNSET") in children
    assert ("asyncio future", "UNSET") in children
    assert len(children) == len(facts["spans"]) - 1
    assert facts["made"].count("step") == 4
