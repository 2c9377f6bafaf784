"""The alerts of docs/observability.md fire where they should: each expression is evaluated as
Prometheus does it, on two scrapes of a loop under a load."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import goloop.prometheus

pytestmark = pytest.mark.goloop_only("asyncio counts nothing")

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "observability.md").read_text()
ALERTS = dict(re.findall(r"^# ([^\n]+)\n([a-z][^\n]+)$", PAGE.split("## Grafana")[1], re.MULTILINE))

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
    """Whether it does, of what has come between two scrapes."""

    def grown(name: str) -> dict[str, float]:
        return {key: value - earlier[name][key] for key, value in later[name].items()}

    expression, _, limit = ALERTS[alert].rpartition(" > ")
    found = re.fullmatch(
        r"histogram_quantile\((.*?), sum by \(instance, le\) \(rate\((\w+)\[5m\]\)\)\)", expression
    )
    if found:
        return quantile(float(found[1]), grown(found[2])) > float(limit)
    terms = re.sub(
        r"(?:rate|increase)\((\w+)\[5m\]\)", lambda each: str(grown(each[1])[""]), expression
    )
    terms = re.sub(r"max by \(instance\) \((\w+)\)", lambda each: str(later[each[1]][""]), terms)
    try:
        return bool(eval(terms) > float(limit))  # sums and quotients of numbers
    except ZeroDivisionError:
        return False  # NaN is not more


def name_of(*words: str) -> str:
    [name] = [alert for alert in ALERTS if all(word in alert for word in words)]
    return name


LAG, GIL = name_of("Requests wait"), name_of("keeps the GIL")
BUSY, HANGS = name_of("busy"), name_of("hangs")


def fired(earlier: Scrape, later: Scrape) -> set[str]:
    return {alert for alert in ALERTS if fires(alert, earlier, later)}


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
async def test_the_gils_alert_fires_where_a_thread_keeps_it(loop: Any) -> None:
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
    # Which is what tells it from a loop that computes.
    assert since.time_cpu < since.time_busy / 2


async def test_processor_time_tells_who_computes(loop: Any) -> None:
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
