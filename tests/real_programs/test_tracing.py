"""Sentry and OpenTelemetry: their instrumentation of asyncio, with tasks on goloop."""

from __future__ import annotations

import json
from typing import Any

import pytest

from real_programs.programs import APPS, LOOP, Programs, needs

pytestmark = pytest.mark.real


def told(said: str) -> Any:
    """Return the program's output, read as JSON."""
    (line,) = [line for line in said.splitlines() if line.startswith("told:")]
    return json.loads(line.removeprefix("told:"))


def test_sentry_has_errors_and_spans_of_tasks(programs: Programs) -> None:
    needs("sentry_sdk")
    facts = told(programs.ends_well(APPS / "sentry_app.py"))
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
            APPS / "opentelemetry_app.py",
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
