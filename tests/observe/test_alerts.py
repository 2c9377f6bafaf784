"""docs/alerts.yml: Prometheus can read it, each alert has its runbook, and they fire where they
should.  Each expression is evaluated as Prometheus does it, on two scrapes of a loop under a load.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import goloop.prometheus
from goloop._internal.observe.metric_registry import METRICS
from goloop.operations.commands import export
from goloop_build import address

pytestmark = pytest.mark.goloop_only("asyncio counts nothing")

DOCS = Path(__file__).resolve().parents[2] / "docs"
FILE = DOCS / "alerts.yml"
REPOSITORY = f"{address.REPOSITORY}/blob/main/docs/"


def rules() -> list[dict[str, Any]]:
    """The rules of the file, which has no more of YAML than is read here: a line each."""
    found: list[dict[str, Any]] = []
    within: dict[str, str] = {}
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    assert lines[:3] == ["groups:", "  - name: goloop", "    rules:"]
    for line in lines[3:]:
        match = re.fullmatch(r"( {6}- | {8}| {10})(\w+):(?: (.*))?", line)
        assert match, line
        indent, key, value = match.groups()
        if indent == "      - ":
            assert key == "alert"
            found.append({key: value})
        elif indent == " " * 10:
            # A value that could be taken for something else than a text is in quotes.
            text = re.fullmatch(r'"([^"\\]*)"|(\w+)', value)
            assert text, line
            within[key] = text[1] or text[2]
        elif value is None:
            within = found[-1][key] = {}
        else:
            assert not re.search(r": | #|^[\"'&*!|>%@`{\[]", value), "YAML reads that otherwise"
            found[-1][key] = value
    return found


ALERTS = {rule["alert"]: rule["expr"] for rule in rules()}

Scrape = dict[str, dict[str, float]]


def scrape() -> Scrape:
    """By their names, and by their bounds: all that the process has."""
    found: Scrape = {}
    for family in goloop.prometheus.Collector().collect():
        for sample in family.samples:
            found.setdefault(sample.name, {})[sample.labels.get("le", "")] = sample.value
    return found


def quantile(share: float, buckets: dict[str, float]) -> float:
    """Prometheus' histogram_quantile()."""
    counts = sorted((float(bound), count) for bound, count in buckets.items())
    rank = share * counts[-1][1]
    low = below = 0.0
    for bound, count in counts:
        if count >= rank and count:
            return (
                low
                if bound == float("inf")
                else low + (bound - low) * (rank - below) / (count - below)
            )
        low, below = bound, count
    return float("nan")


def fires(alert: str, earlier: Scrape, later: Scrape) -> bool:
    """Return true if the alert fires, given the changes between two scrapes."""

    def grown(name: str) -> dict[str, float]:
        return {key: value - earlier[name][key] for key, value in later[name].items()}

    expression, _, limit = ALERTS[alert].rpartition(" > ")
    found = re.fullmatch(
        r"histogram_quantile\((.*?), sum by \(job, instance, le\) \(rate\((\w+)\[5m\]\)\)\)",
        expression,
    )
    if found:
        return quantile(float(found[1]), grown(found[2])) > float(limit)
    terms = re.sub(
        r"(?:rate|increase)\((\w+)\[5m\]\)", lambda each: str(grown(each[1])[""]), expression
    )
    terms = re.sub(
        r"max by \(job, instance\) \((\w+)\)", lambda each: str(later[each[1]][""]), terms
    )
    try:
        return bool(eval(terms) > float(limit))  # sums and quotients of numbers
    except ZeroDivisionError:
        return False  # NaN is not more


LAG, GIL, BUSY, HANGS = (
    *("GoloopRequestsWait", "GoloopThreadKeepsGIL", "GoloopLoopBusy", "GoloopLoopHangs"),
)
# Of processes that do not answer a scrape of their own: test_export.py sees their metrics.
OF_TARGETS = {"GoloopTargetSilent", "GoloopProcessSilent", "GoloopGILHeld"}


def fired(earlier: Scrape, later: Scrape) -> set[str]:
    return {alert for alert in ALERTS.keys() - OF_TARGETS if fires(alert, earlier, later)}


def spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


async def test_the_lag_alert_fires_where_requests_wait(loop: Any) -> None:
    before = scrape()
    for _ in range(60):
        loop.call_soon(spin, 0.005)  # the last waits for 0.3 s
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    found = fired(before, scrape())
    assert LAG in found
    assert GIL not in found


async def test_no_alert_fires_on_a_loop_that_has_little_to_do(loop: Any) -> None:
    before = scrape()
    for _ in range(30):
        await asyncio.sleep(0.01)
        spin(0.0005)
    assert not fired(before, scrape()) & {LAG, BUSY, HANGS}


@pytest.mark.skipif(
    not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="there is no GIL to keep"
)
async def test_gil_alert_fires_if_a_thread_keeps_the_gil(loop: Any) -> None:
    over = threading.Event()

    def computes() -> None:
        while not over.is_set():
            pass

    thread = threading.Thread(target=computes)
    thread.start()
    figures, before = loop.metrics(), scrape()
    for _ in range(40):
        await asyncio.sleep(0.001)
    found, since = fired(before, scrape()), loop.metrics() - figures
    over.set()
    thread.join()
    assert GIL in found
    # The difference from a loop that computes.
    assert since.time_cpu < since.time_busy / 2


async def test_cpu_time_excludes_sleeping_callbacks(loop: Any) -> None:
    figures = loop.metrics()
    for _ in range(5):
        loop.call_soon(time.sleep, 0.01)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    since = loop.metrics() - figures
    assert since.time_cpu < since.time_busy / 2


async def test_alerts_fire_while_a_loop_hangs(loop: Any) -> None:
    loop.set_watchdog(0.01)
    found: list[set[str]] = []
    seen = threading.Event()

    def looks() -> None:
        while not loop.metrics().blocked_for:
            time.sleep(0.001)
        before = scrape()
        while loop.metrics().blocked_for < 0.1:
            time.sleep(0.001)
        found.append(fired(before, scrape()))
        seen.set()

    thread = threading.Thread(target=looks)
    thread.start()
    await asyncio.sleep(0)
    seen.wait()
    thread.join()
    assert BUSY in found[0]
    before = scrape()
    later = {**before, "goloop_blocked_for_seconds": {"": 6.0}}
    assert HANGS in fired(before, later)


# ---- the file --------------------------------------------------------------------------------


def test_each_alert_has_all_its_parts() -> None:
    assert len(ALERTS) == len(rules())
    for rule in rules():
        assert list(rule) == ["alert", "expr", "for", "labels", "annotations"], rule
        assert re.fullmatch(r"\d+[sm]", rule["for"]), rule
        assert rule["labels"].keys() == {"severity"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        annotations = rule["annotations"]
        assert list(annotations) == ["summary", "description", "runbook_url"]
        for text in annotations.values():
            assert set(re.findall(r"{{(.*?)}}", text)) <= {
                *(f" $labels.{name} " for name in ("instance", "pid", "program")),
                *(" $value | humanizeDuration ", " $value | humanizePercentage "),
            }


def test_each_alert_has_a_runbook_and_a_line_on_the_page() -> None:
    runbooks = re.findall(r"^## (\w+)$", (DOCS / "runbooks.md").read_text(), re.MULTILINE)
    assert runbooks == list(ALERTS)
    page = (DOCS / "observability.md").read_text()
    assert re.findall(r"^\| \[`(Goloop\w+)`\]", page, re.MULTILINE) == list(ALERTS)
    for rule in rules():
        url = f"{REPOSITORY}runbooks.md#{rule['alert'].lower()}"
        assert rule["annotations"]["runbook_url"] == url


def exported() -> dict[str, str]:
    """Each name that a sample may have, and its type."""
    found = {name: kind for name, kind, _ in (export._UP, export._GIL_HELD, export._INFO)}
    for spec in METRICS:
        name, kind, _ = export._family(spec)
        parts = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        found |= dict.fromkeys((name + part for part in parts), kind)
    return found


def named(expression: str) -> dict[str, bool]:
    """The metrics of an expression that Prometheus' grammar has, and whether each has a range."""
    parser = pytest.importorskip("promql_parser", reason="reads Prometheus' language")
    found: dict[str, bool] = {}

    def visit(node: Any, ranged: bool = False) -> None:
        if isinstance(node, parser.VectorSelector):
            found[node.name] = ranged
        for name in ("lhs", "rhs", "expr", "vector_selector"):
            if (inner := getattr(node, name, None)) is not None:
                visit(inner, isinstance(node, parser.MatrixSelector))
        for inner in getattr(node, "args", ()):
            visit(inner)

    visit(parser.parse(expression))
    return found


@pytest.mark.parametrize("alert", ALERTS)
def test_alert_expressions_are_valid_and_use_exported_metrics(alert: str) -> None:
    kinds = exported()
    metrics = named(ALERTS[alert])
    assert metrics
    for name, ranged in metrics.items():
        if name != "up":
            # A counter says something by its growth alone.
            assert ranged == (kinds[name] != "gauge") or "last_over_time" in ALERTS[alert], name
    # The labels of the texts are left by the expression.
    left = re.search(r"by \(([\w, ]+)\)", ALERTS[alert])
    [rule] = [each for each in rules() if each["alert"] == alert]
    labels = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert not left or labels <= set(left[1].split(", "))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus' promtool")
def test_promtool_takes_the_file() -> None:
    subprocess.run(["promtool", "check", "rules", "--lint-fatal", FILE], check=True)
