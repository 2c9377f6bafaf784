"""goloop.prometheus: the exported metrics, of one process and of several forked ones; and the
documentation and dashboard, which name existing metrics."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import dataclasses
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ended
import prometheus_client
import pytest
from observed_programs import Program
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

import goloop
import goloop.prometheus
from goloop._internal.observe import histogram as histograms
from goloop._internal.observe.histogram import Histogram
from goloop._internal.observe.metric_registry import METRICS
from goloop._internal.observe.metrics import Metrics
from goloop.operations import proc_stat

PROGRAMS = Path(__file__).with_name("programs")

DOCS = Path(__file__).resolve().parents[2] / "docs"
FIELDS = set(Metrics._fields)


def histogram(*values: int, scale: float = 1e-9) -> Histogram:
    """Return the histogram of these values, which are nanoseconds or events."""
    buckets = [0] * len(histograms.BOUNDS)
    for value in values:
        buckets[bisect.bisect_right(histograms.BOUNDS, value)] += 1
    return Histogram(len(values), sum(values) * scale, max(values) * scale, tuple(buckets), scale)


def some_metrics() -> Metrics:
    """Return metrics with a different value in each field."""
    values: dict[str, Any] = {}
    for number, field in enumerate(Metrics._fields, 1):
        value = getattr(Metrics(), field)
        if isinstance(value, Histogram):
            values[field] = histogram(*[number] * number, scale=value.scale)
        else:
            values[field] = type(value)(number)
    return Metrics(**values)


def exported(metrics: Metrics, monkeypatch: pytest.MonkeyPatch) -> dict[str, Metric]:
    """Return the metrics of a registry if goloop.metrics() returns these."""
    monkeypatch.setattr(goloop.operations.prometheus, "metrics", lambda: metrics)
    registry = CollectorRegistry()
    goloop.prometheus.register(registry)
    return {
        sample.name: family
        for family in parse(prometheus_client.generate_latest(registry).decode())
        for sample in family.samples
    }


PYTHON = platform.python_version()


def value_of(family: Metric, name: str, **labels: str) -> float:
    (value,) = [
        sample.value for sample in family.samples if (sample.name, sample.labels) == (name, labels)
    ]
    return value


def scrape(port: int) -> dict[str, float]:
    """The samples without labels that a process serves."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return {
        sample.name: sample.value
        for family in parse(text)
        for sample in family.samples
        if not sample.labels
    }


# ---- exported metrics -----------------------------------------------------------------


def test_every_field_has_a_name_of_its_own_in_each_system() -> None:
    assert [spec.field for spec in METRICS] == list(Metrics._fields)
    assert len({spec.prometheus for spec in METRICS}) == len(METRICS)
    assert len({(spec.otel, spec.attributes) for spec in METRICS}) == len(METRICS)


def test_metric_names_contain_kind_and_base_unit() -> None:
    for spec in METRICS:
        assert re.fullmatch(r"goloop_[a-z_]+", spec.prometheus)
        assert spec.prometheus.endswith("_total") == (spec.kind == "counter"), spec
        unit = {"s": "_seconds", "By": "_bytes"}.get(spec.unit, "")
        assert spec.prometheus.removesuffix("_total").endswith(unit), spec
        assert unit or not re.search("_seconds|_bytes", spec.prometheus), spec


def test_every_field_is_exported_with_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = some_metrics()
    families = exported(metrics, monkeypatch)
    for spec in METRICS:
        value = getattr(metrics, spec.field)
        if spec.kind == "histogram":
            family = families[f"{spec.prometheus}_sum"]
            assert family.type == "histogram"
            assert value_of(family, f"{spec.prometheus}_sum") == pytest.approx(value.sum)
            assert value_of(family, f"{spec.prometheus}_count") == value.count
        else:
            family = families[spec.prometheus]
            assert family.type == ("counter" if spec.kind == "counter" else "gauge")
            assert value_of(family, spec.prometheus) == value
        assert family.documentation == spec.text


def test_a_value_is_in_the_buckets_of_all_bounds_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics(
        iteration_time=histogram(500, 900_000, 900_000, 70_000_000_000),
        events_per_turn=histogram(0, 3, 3, 4, scale=1.0),
    )
    families = exported(metrics, monkeypatch)
    name = "goloop_iteration_seconds_bucket"
    buckets = {
        float(sample.labels["le"]): sample.value
        for sample in families[name].samples
        if sample.name == name
    }
    assert list(buckets) == sorted(buckets)
    assert (min(buckets), max(buckets)) == (1e-6, float("inf"))
    assert {bound: count for bound, count in buckets.items() if bound in (1e-6, 5e-4)} == {
        1e-6: 1, 5e-4: 1
    }  # fmt: skip
    assert (buckets[1e-3], buckets[60.0], buckets[float("inf")]) == (3, 3, 4)
    family = families["goloop_events_per_turn_bucket"]
    found = {
        bound: value_of(family, "goloop_events_per_turn_bucket", le=bound)
        for bound in ("0", "1", "3", "7", "+Inf")
    }
    assert found == {"0": 1, "1": 1, "3": 3, "7": 4, "+Inf": 4}


def test_the_releases_are_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    family = exported(Metrics(), monkeypatch)["goloop_info"]
    labels = {"version": goloop.__version__, "python": PYTHON, "native": "true"}
    assert value_of(family, "goloop_info", **labels) == 1


def test_strict_openmetrics_parser_accepts_the_output() -> None:
    registry = CollectorRegistry()
    goloop.prometheus.register(registry)
    asyncio.new_event_loop().close()
    families = parse_openmetrics(openmetrics.generate_latest(registry).decode())
    assert len(list(families)) == 1 + len(METRICS)


def test_registry_accepts_one_collector_and_unregisters_it() -> None:
    registry = CollectorRegistry()
    collector = goloop.prometheus.register(registry)
    with pytest.raises(ValueError, match="goloop_loops"):
        goloop.prometheus.register(registry)
    registry.unregister(collector)
    assert prometheus_client.generate_latest(registry) == b""
    goloop.prometheus.register(registry)
    restricted = registry.restricted_registry(["goloop_tasks"])
    assert [family.name for family in restricted.collect()] == ["goloop_tasks"]


def test_a_scrape_shows_the_loops_of_the_process() -> None:
    registry = CollectorRegistry()
    goloop.prometheus.register(registry)
    server, thread = prometheus_client.start_http_server(0, "127.0.0.1", registry)

    async def main() -> dict[str, float]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: None)
        for _ in range(3):
            loop.call_exception_handler({"message": "for the count"})
        return await asyncio.to_thread(scrape, server.server_port)

    try:
        before = scrape(server.server_port)
        during = goloop.run(main())
        after = scrape(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert during["goloop_loops"] == before["goloop_loops"] + 1
    assert during["goloop_tasks"] == before["goloop_tasks"] + 1
    for name in ("goloop_iterations_total", "goloop_iteration_seconds_count"):
        assert before[name] < during[name] <= after[name]
    for each in (during, after):
        name = "goloop_unhandled_exceptions_total"
        assert each[name] == before[name] + 3
    assert after["goloop_loops"] == before["goloop_loops"]


# ---- several processes ----------------------------------------------------------------


COUNTER = "goloop_unhandled_exceptions_total"


@dataclasses.dataclass
class Worker:
    """A process of the server, and the connection to it."""

    server: Server
    pid: int
    port: int

    def count(self, times: int) -> None:
        """Increase the worker's counter."""
        assert self.server.tell(f"count {self.pid} {times}") == "counted"

    def end(self) -> None:
        """End the worker regularly."""
        assert self.server.tell(f"end {self.pid}") == "ended"
        self.server.pids.remove(self.pid)

    def kill(self) -> None:
        """Kill the worker, so that it can't write anything."""
        assert self.server.tell(f"kill {self.pid}") == "ended"
        self.server.pids.remove(self.pid)

    def scrape(self) -> dict[str, float]:
        """Return the worker's metrics."""
        return scrape(self.port)

    def file(self) -> Path:
        """Return the worker's file."""
        (path,) = self.server.directory.glob(f"goloop_{self.pid}_*.json")
        return path


@dataclasses.dataclass
class Server:
    """The master."""

    process: Program
    directory: Path
    pids: set[int] = dataclasses.field(default_factory=set)

    def tell(self, command: str) -> str:
        """The answer to a command."""
        self.process.say(command)
        return self.process.stdout.readline().strip()

    def fork(self) -> Worker:
        """A further worker, which listens."""
        pid, port = self.tell("fork").split()
        self.pids.add(int(pid))
        return Worker(self, int(pid), int(port))


@contextlib.contextmanager
def prefork(directory: Path, interval: float) -> Iterator[Server]:
    """The master, with a directory for its workers."""
    with Program(
        [sys.executable, PROGRAMS / "prefork.py", str(interval)],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(directory)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        server = Server(process, directory)
        try:
            yield server
        finally:
            for pid in server.pids:
                os.kill(pid, signal.SIGKILL)
            process.kill()


# Nothing is written but at a scrape and at the end.
NEVER = 86400.0


@pytest.mark.forks
def test_any_worker_answers_for_all(tmp_path: Path) -> None:
    with prefork(tmp_path, 0.05) as server:
        workers = [server.fork() for _ in range(3)]
        for times, worker in enumerate(workers, 1):
            worker.count(times)
        for worker in workers:
            deadline = time.monotonic() + 60
            while (found := worker.scrape())[COUNTER] != 6 or found["goloop_loops"] != 3:
                assert time.monotonic() < deadline, found
                time.sleep(0.02)
            assert found["goloop_tasks"] == 3
            # Each process has a Go of its own.
            assert found["goloop_goroutines"] >= 3
        # The master, which has no loop, left no file.
        files = {path.name.split("_")[1] for path in tmp_path.glob("goloop_*.json")}
        assert files == {str(worker.pid) for worker in workers}


@pytest.mark.forks
def test_counters_do_not_decrease_between_workers(tmp_path: Path) -> None:
    with prefork(tmp_path, NEVER) as server:
        first, second = server.fork(), server.fork()
        first.count(3)
        assert first.scrape()[COUNTER] == 3
        assert second.scrape()[COUNTER] == 3
        second.count(2)
        assert second.scrape()[COUNTER] == 5
        assert first.scrape()[COUNTER] == 5


@pytest.mark.forks
def test_counts_of_a_killed_worker_remain(tmp_path: Path) -> None:
    with prefork(tmp_path, NEVER) as server:
        first, second = server.fork(), server.fork()
        first.count(3)
        before = first.scrape()
        file = first.file()
        first.kill()
        for _ in range(2):
            found = second.scrape()
            assert found[COUNTER] == 3
            assert found["goloop_loops"] == 1
            assert (
                found["goloop_iteration_seconds_count"] > before["goloop_iteration_seconds_count"]
            )
            assert not file.exists()
        third = server.fork()
        third.count(4)
        assert third.scrape()[COUNTER] == 7
        third.kill()
        found = second.scrape()
        assert (found[COUNTER], found["goloop_loops"]) == (7, 1)


@pytest.mark.forks
def test_crash_while_adding_up_counts_nothing_twice(tmp_path: Path) -> None:
    with prefork(tmp_path, NEVER) as server:
        first, second = server.fork(), server.fork()
        first.count(3)
        first.scrape()
        file = first.file()
        kept = file.read_text()
        first.kill()
        assert second.scrape()[COUNTER] == 3
        # As if the process that added the counts up had ended before it removed the file.
        file.write_text(kept)
        assert second.scrape()[COUNTER] == 3
        third = server.fork()
        third.count(1)
        third.scrape()
        last = third.file().name
        third.end()
        assert second.scrape()[COUNTER] == 4
        assert not file.exists()  # another worker has finished that work
        fourth = server.fork()
        fourth.count(1)
        fourth.end()
        assert second.scrape()[COUNTER] == 5
        # Files that are gone need no mention.
        mentioned = json.loads((tmp_path / "goloop_ended.json").read_text())["files"]
        assert last not in mentioned
        assert file.name not in mentioned
        assert second.scrape()[COUNTER] == 5


@pytest.mark.forks
def test_process_with_the_lock_does_not_block_forks_of_others(tmp_path: Path) -> None:
    assert ended.python(PROGRAMS / "process_with_the_lock.py", tmp_path).stdout == "forked True\n"


@pytest.mark.forks
def test_reused_process_id_counts_as_another_process(tmp_path: Path) -> None:
    with prefork(tmp_path, NEVER) as server:
        first, second = server.fork(), server.fork()
        first.count(3)
        first.scrape()
        earlier = tmp_path / f"goloop_{first.pid}_1.json"
        shutil.copy(first.file(), earlier)
        for worker in (second, first):
            found = worker.scrape()
            assert (found[COUNTER], found["goloop_loops"]) == (6, 2)
        assert not earlier.exists()
        assert first.file().exists()


@pytest.mark.forks
def test_known_metrics_in_files_of_other_versions_count(tmp_path: Path) -> None:
    figures = {"unhandled_exceptions": 5, "gc_time": 1000e9, "of_the_future": {"count": 1}}
    (tmp_path / "goloop_1_1.json").write_text(json.dumps(figures))
    future = {"count": 7, "of_the_future": 1}
    (tmp_path / "goloop_1_2.json").write_text(json.dumps({"dns_time": future, "gc_time": 500e9}))
    with prefork(tmp_path, NEVER) as server:
        worker = server.fork()
        worker.count(2)
        for _ in range(2):
            found = worker.scrape()
            assert found[COUNTER] == 7
            assert found["goloop_dns_lookup_seconds_count"] == 7
            # Each process has a collector of its own.
            assert found["goloop_gc_seconds_total"] >= 1500


@pytest.mark.forks
def test_sums_do_not_depend_on_the_order_of_ending_processes(tmp_path: Path) -> None:
    assert (
        ended.python(PROGRAMS / "order_of_ending_processes.py", tmp_path).stdout == "{300000.6}\n"
    )


@pytest.mark.parametrize("how", ["removed", "another user's"])
def test_unusable_directory_leaves_the_processs_own_metrics(how: str, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    done = ended.python(PROGRAMS / "unusable_directory.py", tmp_path / "shared", how, apart=True)
    assert done.stdout == "True\nTrue\n"
    # Once for each thing that fails: where the folder is gone, writing the own ones, too.
    warned = done.stderr.count("metrics can't be shared with other processes")
    assert warned == {"removed": 2, "another user's": 1}[how]


@pytest.mark.forks
def test_unknown_files_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "goloop_1_1.json").write_text("{")
    (tmp_path / "goloop_1_2.json").write_text("[]")
    (tmp_path / "goloop_1_3.json.new").write_text('{"unhandled_exceptions": 100}')
    (tmp_path / "counter_1.db").write_text("prometheus_client's own")
    with prefork(tmp_path, NEVER) as server:
        worker, other = server.fork(), server.fork()
        other.count(1)
        other.scrape()
        # The file that the worker is just writing.
        unfinished = other.file().with_suffix(".json.new")
        unfinished.write_text('{"unhandled_exceptions": 100}')
        worker.count(2)
        for _ in range(2):
            assert worker.scrape()[COUNTER] == 3
        left = {path.name for path in tmp_path.iterdir()}
        left -= {worker.file().name, other.file().name, unfinished.name}
        assert left == {"counter_1.db", "goloop.lock", "goloop_ended.json"}


WRONG = {
    "no JSON": "{",
    "no object": "[]",
    "deep": "[" * 100_000,
    "text": {"unhandled_exceptions": "5"},
    "truth": {"unhandled_exceptions": True},
    "NaN": {"unhandled_exceptions": float("nan")},
    "infinite": {"time_idle": float("inf")},
    "huge": {"time_idle": 10**400},
    "a histogram for a number": {"unhandled_exceptions": {"count": 1}},
    "a number for a histogram": {"dns_time": 1},
    "no list of buckets": {"dns_time": {"count": 1, "buckets": 5}},
    "too few buckets": {"dns_time": {"count": 2, "buckets": [1, 1]}},
    "a bucket": {"dns_time": {"count": 1, "buckets": ["1"] * len(histograms.BOUNDS)}},
    "files": {"unhandled_exceptions": 1, "files": 5},
}


@pytest.fixture
def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the shared directory of this process; its thread ends at once."""
    monkeypatch.setattr(
        goloop.operations.prometheus._SharedDirectory, "_write_periodically", lambda *args: None
    )
    return goloop.operations.prometheus._SharedDirectory(tmp_path, NEVER)


@pytest.mark.parametrize("of", ["living", "ended", "sum"])
@pytest.mark.parametrize("what", WRONG)
def test_file_with_invalid_contents_is_skipped_with_one_warning(
    what: str, of: str, share: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    figures = goloop.operations.prometheus._in_nanoseconds(Metrics(unhandled_exceptions=7))
    share._store(
        "goloop_1_1.json", goloop.operations.prometheus._to_json(figures)
    )  # of one that has ended
    living = f"goloop_{os.getppid()}_{proc_stat.started(os.getppid())}.json"
    name = {"living": living, "ended": "goloop_1_2.json", "sum": "goloop_ended.json"}[of]
    content = WRONG[what]
    (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    own = goloop.metrics().unhandled_exceptions
    for _ in range(2):
        found = share.of_all_processes()
        assert found.unhandled_exceptions == own + 7
        assert found.time_idle < 1e18
    [record] = caplog.records
    assert record.getMessage().startswith(f"goloop's metrics in {name} can't be read: ")
    # Later changes count.
    share._store(living, goloop.operations.prometheus._to_json(figures))
    assert share.of_all_processes().unhandled_exceptions == own + 14


@pytest.mark.parametrize("number", ["0", "99999999999999999999"])
def test_file_with_an_invalid_name_is_skipped_with_one_warning(
    number: str, share: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"goloop_{number}_1.json").write_text('{"unhandled_exceptions": 5}')
    own = goloop.metrics().unhandled_exceptions
    for _ in range(2):
        assert share.of_all_processes().unhandled_exceptions == own
    [record] = caplog.records
    assert "its name has no process id" in record.getMessage()


@pytest.mark.forks
def test_a_worker_that_cannot_write_answers_for_itself(tmp_path: Path) -> None:
    with prefork(tmp_path, NEVER) as server:
        worker = server.fork()
        worker.count(2)
        worker.scrape()
        # The temporary file can't be written.
        worker.file().with_suffix(".json.new").mkdir()
        worker.count(3)
        assert worker.scrape()[COUNTER] == 5


def test_a_fork_waits_until_the_figures_were_taken() -> None:
    """A lock that the thread holds would be held in the child for ever."""
    ended.passes(PROGRAMS / "fork_beside_a_writer.py")


def test_child_can_read_metrics_after_a_fork_during_a_read() -> None:
    ended.passes(PROGRAMS / "fork_during_a_read.py")


def test_invalid_directory_and_interval_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        goloop.prometheus.Collector(tmp_path / "missing")
    for interval in (0, -1.0, float("nan"), float("inf"), 1e300):
        with pytest.raises(ValueError, match="interval must be > 0 and <= "):
            goloop.prometheus.Collector(tmp_path, interval)
    assert not list(tmp_path.iterdir())


# ---- requirements ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("goloop.prometheus", "prometheus_client", "goloop[prometheus]"),
        ("goloop.otel", "opentelemetry", "goloop[otel]"),
    ],
)
def test_import_without_the_package_names_the_extra_to_install(
    module: str, package: str, extra: str
) -> None:
    ended.passes(PROGRAMS / "missing_package.py", module, package, extra)


def test_import_of_otel_without_the_extension_is_an_error() -> None:
    assert "goloop.diagnostics()" in ended.passes(PROGRAMS / "without_the_extension.py", "otel")


def test_without_the_extension_prometheus_exports_one_metric() -> None:
    text = ended.passes(PROGRAMS / "without_the_extension.py", "prometheus")
    (family,) = parse(text)
    labels = {"version": goloop.__version__, "python": PYTHON, "native": "false"}
    assert value_of(family, "goloop_info", **labels) == 1


# ---- documentation --------------------------------------------------------------------


def test_the_page_of_metrics_is_current() -> None:
    """docs/metrics.md has the tables that tools/metrics_page.py makes of the catalogue."""
    import metrics_page

    text = metrics_page.PAGE.read_text()
    assert metrics_page.written(text) == text
    # And its advice names metrics of the catalogue only.
    advice = text.split("## Values that need attention")[1]
    named = {name for row in re.findall(r"^\| (`.*?) \|", advice, re.M) for name in row.split(", ")}
    assert {name.strip("`") for name in named} <= {spec.field for spec in METRICS}


def panels() -> list[dict[str, Any]]:
    """Return the panels of docs/grafana-dashboard.json, from all rows."""
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text())
    return [
        panel
        for outer in dashboard["panels"]
        for panel in (outer, *outer.get("panels", ()))
        if panel["type"] != "row"
    ]


def test_the_dashboard_can_be_imported() -> None:
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text())
    assert dashboard["title"] == "goloop"
    assert dashboard["uid"]
    # Every panel has the data source that is chosen at the top.
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    source = {"type": "prometheus", "uid": "${datasource}"}
    identities = [panel["id"] for panel in panels()]
    assert len(set(identities)) == len(identities)
    for panel in panels():
        assert panel["datasource"] == source, panel["title"]
        assert panel["targets"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24, panel["title"]
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters)
    for panel in panels():
        for target in panel["targets"]:
            used = set(re.findall(r"\$(?!__)(\w+)", target["expr"]))
            assert used <= variables.keys()
            assert used, "it is of every program that Prometheus knows"
    places = [
        (row, column)
        for panel in panels()
        for row in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        for column in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
    ]
    assert len(set(places)) == len(places), "panels lie on one another"


# Grafana's units, and the fields of a panel and its parts in its schema of version 39.
UNITS = {"short", "s", "percentunit", "ops", "Bps", "bytes"}
PANEL = {
    *("id", "type", "title", "description", "datasource", "gridPos", "targets", "fieldConfig"),
    *("options", "interval"),
}
TARGET = {"refId", "expr", "legendFormat", "datasource", "instant", "range", "format", "editorMode"}


def test_the_dashboard_has_nothing_that_grafana_does_not_know() -> None:
    promql = pytest.importorskip("promql_parser", reason="reads Prometheus' language")
    for panel in panels():
        assert panel.keys() <= PANEL, panel.keys() - PANEL
        assert panel["type"] in ("stat", "timeseries")
        assert panel["gridPos"].keys() == {"x", "y", "w", "h"}
        assert panel["fieldConfig"].keys() == {"defaults", "overrides"}
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        for target in panel["targets"]:
            assert target.keys() <= TARGET, target.keys() - TARGET
            # As Grafana fills it in.
            filled = target["expr"].replace("$__rate_interval", "1m")
            promql.parse(re.sub(r"\$\w+", ".*", filled))


def test_dashboard_queries_only_exported_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    families = exported(some_metrics(), monkeypatch)
    asked: set[str] = set()
    for panel in panels():
        for target in panel["targets"]:
            names = set(re.findall(r"goloop_\w+", target["expr"]))
            assert names, target
            assert names <= families.keys(), target
            asked |= names
            for name in names:
                kind = families[name].type
                # A counter says something by its rate alone, a gauge by its value.
                rates = re.search(rf"(rate|increase)\({name}\b", target["expr"])
                assert bool(rates) == (kind in ("counter", "histogram")), target
    wanted = (
        "busy_seconds_total idle_seconds_total iteration_seconds_bucket ready_wait_seconds_bucket"
    )
    wanted += (
        " timer_lateness_seconds_bucket received_bytes_total sent_bytes_total connections_open"
    )
    wanted += " unhandled_exceptions_total accept_failures_total tls_handshake_failures_total"
    wanted += " blocked_spells_total blocked_for_seconds gc_seconds_total"
    assert {f"goloop_{name}" for name in wanted.split()} <= asked
    variables = json.loads((DOCS / "grafana-dashboard.json").read_text())["templating"]["list"]
    for variable in variables:
        assert set(re.findall(r"goloop_\w+", json.dumps(variable))) <= families.keys()
