"""The scenarios of test_otel.py: `python otel_scenarios.py NAME FOLDER` runs one."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import warnings

warnings.simplefilter("ignore")  # of forks beside threads
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

import goloop.otel


class Out:
    # A file of each process.
    def __init__(self, name):
        self.name = name

    def path(self):
        return f"{sys.argv[2]}/{self.name}-{os.getpid()}"

    def write(self, text):
        with open(self.path(), "a") as file:
            file.write(text)

    def flush(self):
        pass

    def lines(self):
        return open(self.path()).readlines() if os.path.exists(self.path()) else []


figures, spans = Out("figures"), Out("spans")


def line(each):
    return each.to_json(indent=None) + "\n"


def instrument(milliseconds):
    global meters, traces
    reader = PeriodicExportingMetricReader(
        ConsoleMetricExporter(out=figures, formatter=line), milliseconds
    )
    meters, traces = MeterProvider([reader]), TracerProvider()
    traces.add_span_processor(
        BatchSpanProcessor(
            ConsoleSpanExporter(out=spans, formatter=line), schedule_delay_millis=milliseconds
        )
    )
    goloop.otel.instrument(meters, traces)


def fail(times):
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)
    for _ in range(times):
        loop.call_exception_handler({"message": f"of {os.getpid()}"})


def the_sdks_threads_export_by_themselves() -> None:
    async def main():
        fail(5)
        deadline = time.monotonic() + 60
        while len(spans.lines()) < 5 or len(figures.lines()) < 3:
            assert time.monotonic() < deadline, "nothing was exported"
            await asyncio.sleep(0.02)

    instrument(20)
    goloop.run(main())
    print(os.getpid())
    meters.shutdown()
    traces.shutdown()


def forked_child_exports_only_its_own_metrics() -> None:
    async def main(times):
        fail(times)
        await asyncio.sleep(0.001)
        meters.force_flush()
        traces.force_flush()

    instrument(10**8)
    goloop.run(main(5))
    pid = os.fork()
    if pid == 0:
        goloop.run(main(2))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    print(os.getpid(), pid, flush=True)
    os._exit(0)


def global_providers_may_be_set_later() -> None:
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    import goloop.otel

    goloop.otel.instrument()
    reader, exporter = InMemoryMetricReader(), InMemorySpanExporter()
    metrics.set_meter_provider(MeterProvider([reader]))
    trace.set_tracer_provider(TracerProvider())
    trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))

    def names():
        data = reader.get_metrics_data()
        return {
            metric.name
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    loop = goloop.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)
    loop.call_exception_handler({"message": ""})
    assert "goloop.iterations" in names()
    assert len(exporter.get_finished_spans()) == 1
    goloop.otel.instrument().uninstrument()
    assert not names()
    goloop.otel.instrument()  # by another name of the same provider
    assert "goloop.iterations" in names()
    loop.close()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
