"""Tasks with OpenTelemetry's instrumentation of asyncio; prints its spans and its metric."""

import asyncio
import json
import threading

from loop_name import loop_name
from opentelemetry.instrumentation.asyncio import AsyncioInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import goloop

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
    return loop_name()


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
print(
    "told:"
    + json.dumps(
        {
            "loop": loop,
            "made": made,
            "spans": [
                [
                    span.name,
                    span.parent and span.parent.span_id,
                    span.context.span_id,
                    span.status.status_code.name,
                ]
                for span in spans.get_finished_spans()
            ],
        }
    )
)
