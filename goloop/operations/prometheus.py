"""goloop's metrics for Prometheus, through prometheus_client.

    import goloop.prometheus

    goloop.prometheus.register()

After this call every exporter of prometheus_client's registry serves goloop's metrics, too.

Prefork servers have a process for each worker, and a scrape reaches only one of them.  If the
workers share a directory (PROMETHEUS_MULTIPROC_DIR, as for prometheus_client itself), each worker
writes its metrics into a file there, once a second and at each scrape.  Each worker can then answer
for all workers.  The following rules guarantee that no counter decreases:

* A file is written by its own process only, and replaced as a whole.
* A process writes its own metrics before it answers.  The next process that answers therefore
  reports values that are at least as great.
* The files of ended processes are added up in one file, which lists their names.  The files are
  removed after that.  If a crash leaves a listed file, it is ignored.
* A lock in the directory serialises answers, so that no process reads files during these steps.
* Times are written and added as whole nanoseconds, because a sum of floats depends on their order.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import logging
import os
import platform
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        InfoMetricFamily,
        Metric,
    )
except ImportError as error:
    raise ImportError(
        "goloop.prometheus needs prometheus_client: pip install goloop[prometheus]"
    ) from error

from .._internal.helper_threads import HelperThread
from .._internal.observe.histogram import BUCKETS
from .._internal.observe.metric_registry import METRICS, MetricSpec, prometheus_buckets
from .._internal.version import __version__, native
from . import proc_stat

if native:
    from .._internal.observe.histogram import Histogram
    from .._internal.observe.metrics import (
        _GAUGES,
        _PROCESS_METRICS,
        Metrics,
        metrics,
        total,
    )

__all__ = ("Collector", "register")

_logger = logging.getLogger("goloop.prometheus")


class Collector:
    """A collector for prometheus_client's registries, with all fields of `goloop.metrics()`.

    If `goloop.native` is False, the collector has only `goloop_info`, which says so.

    If a directory is given, a thread writes this process's metrics there, also in children that are
    forked later, and each process answers for all processes.  All collectors of a process with the
    same directory share one thread, with the interval of the first collector.  Since 0.3.0.

    Args:
        directory: The directory in which the processes of a prefork server share their metrics.
            The default is `PROMETHEUS_MULTIPROC_DIR`.  Without a directory the collector has the
            metrics of this process only.
        interval: Seconds between two writes.

    Raises:
        OSError: The directory is not writable.
        ValueError: The interval is not greater than 0, or too great.
    """

    __module__ = "goloop.prometheus"

    def __init__(
        self, directory: str | os.PathLike[str] | None = None, interval: float = 1.0
    ) -> None:
        """Create a collector; the class describes the arguments and exceptions."""
        if not 0 < interval <= threading.TIMEOUT_MAX:
            most = f"{threading.TIMEOUT_MAX:.0f}"
            raise ValueError(f"interval must be > 0 and <= {most} seconds, got {interval!r}")
        if directory is None:
            directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR") or None
        self._read: Callable[[], Metrics] | None = metrics if native else None
        if directory is not None and native:
            self._read = _share_of(Path(directory).absolute(), interval).of_all_processes

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families with their samples.  prometheus_client calls this method.

        Yields:
            `goloop_info`, and a family for each metric.
        """
        yield _info()
        if self._read is None:
            return
        snapshot = self._read()
        for spec in METRICS:
            family = _family(spec)
            value = getattr(snapshot, spec.field)
            if isinstance(family, HistogramMetricFamily):
                family.add_metric([], prometheus_buckets(value), value.sum)
            else:
                family.add_metric([], value)
            yield family

    def describe(self) -> Iterator[Metric]:
        """Yield the metric families without samples, so that registering reads no metrics.

        Yields:
            The same families as collect().
        """
        yield InfoMetricFamily(*_INFO)
        if native:
            yield from map(_family, METRICS)


def register(registry: CollectorRegistry = REGISTRY) -> Collector:
    """Register a `Collector` in a registry of prometheus_client.

    Since 0.3.0.

    Args:
        registry: The registry; by default the registry of prometheus_client's own servers.

    Returns:
        The collector, for `registry.unregister()`.

    Raises:
        ValueError: The registry already has goloop's metrics.
        OSError: The directory `PROMETHEUS_MULTIPROC_DIR` is not writable.
    """
    collector = Collector()
    registry.register(collector)
    return collector


_INFO = ("goloop", "Versions of goloop and of Python, and whether the loop is goloop's own")


def _info() -> InfoMetricFamily:
    """Return the metric goloop_info, with the versions as labels."""
    labels = {
        "version": __version__,
        "python": platform.python_version(),
        "native": str(native).lower(),
    }
    return InfoMetricFamily(*_INFO, value=labels)


def _family(spec: MetricSpec) -> CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily:
    """Return an empty metric family for a metric."""
    if spec.kind == "histogram":
        return HistogramMetricFamily(spec.prometheus, spec.text)
    if spec.kind == "counter":
        return CounterMetricFamily(spec.prometheus, spec.text)
    return GaugeMetricFamily(spec.prometheus, spec.text)


# ---- several processes ----------------------------------------------------------------

_LOCK = "goloop.lock"
_ENDED = "goloop_ended.json"
# Process id and start time: process ids are reused.
_NAME = re.compile(r"goloop_(\d+)_(\d+)\.json(\.new)?")

# Locked while this process writes and reads its files, and during a fork, so that no fork happens
# while the writing thread runs code of this module or of metrics.py.  Re-entrant, because a signal
# handler may fork while its thread writes.
_files_lock = threading.RLock()


class _SharedDirectory:
    """The shared directory: writes this process's file and reads the files of other processes."""

    def __init__(self, directory: Path, interval: float) -> None:
        """Start to write to the directory; OSError if its lock file cannot be opened."""
        self._directory = directory
        self._interval = interval
        # Operations that fail at present, for which a warning was logged: "own", "others".
        self._failing: set[str] = set()
        # Unreadable files for which a warning was logged.
        self._unreadable: set[str] = set()
        os.close(self._open_lock())  # raises at once if the directory is unusable
        self.start_writing()

    def start_writing(self) -> None:
        """Start the writing thread in this process, which may be a forked child."""
        self._name = _name_of_this_process()
        ended = threading.Event()
        HelperThread("goloop-prometheus", self._write_periodically, ended).begin(ended.set)

    def _write_periodically(self, thread: HelperThread, ended: threading.Event) -> None:
        """Write the metrics every `interval` seconds; the body of the writing thread."""
        self.write()
        while not ended.wait(self._interval):
            self.write()

    def write(self) -> Metrics:
        """Write this process's metrics to its file, and return them.

        A process in which no loop was created writes no file.  A failure is only logged.
        """
        with _files_lock:  # an older snapshot must not replace a newer one
            snapshot = metrics()
            if snapshot != Metrics():
                self._store(self._name, _to_json(_in_nanoseconds(snapshot)))
            return snapshot

    def of_all_processes(self) -> Metrics:
        """Write this process's metrics; return the sums over all processes of the directory.

        Ended processes are included.  If the directory has become unusable for this process, log a
        warning once and return this process's own metrics.
        """
        try:
            sums = self._sum_files()
        except OSError as error:
            self._warn("others", error)
            return metrics()
        self._failing.discard("others")
        return sums

    def _sum_files(self) -> Metrics:
        """Return the sums of the files of all processes, and merge the files of ended ones.

        Writes this process's file first.  The values of ended processes are moved to the file
        _ENDED.  Raises OSError if the directory is unusable.
        """
        with self._locked():
            own = _in_nanoseconds(self.write())
            past, files = self._load(_ENDED)
            names = set(os.listdir(self._directory))
            # Files that were added up already, but not removed because of a crash or a failure.
            added = files & names
            living, ended = [], []
            for name in sorted(names - added - {self._name}):
                match = _NAME.fullmatch(name)
                if match is None:
                    continue
                if not 0 < int(match[1]) < 1 << 31:
                    self._ignore_file(name, "its name has no process id")
                    continue
                # Checked before the file is read: the file of an ended process is then final.
                if not _is_running(int(match[1]), int(match[2])):
                    ended.append(name)
                elif not match[3]:
                    living.append(self._load(name)[0])
            if ended:
                last = [self._load(name)[0] for name in ended if name.endswith(".json")]
                past = _sum([past, *map(_without_states, last)])
                added.update(ended)
                if self._store(_ENDED, {**_to_json(past), "files": sorted(added)}):
                    for name in added:
                        with contextlib.suppress(OSError):
                            os.unlink(self._directory / name)
            return _in_seconds(_sum([own, past, *living]))

    def _open_lock(self) -> int:
        """Open the lock file and return its descriptor."""
        return os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the directory against other processes and other threads of this process.

        The owner of the lock may be a stopped process.  So this method polls, and has no lock while
        it sleeps: a fork, the exit of the process and the writing thread need not wait for it.
        Raises OSError if the lock file cannot be opened.
        """
        while True:
            with _files_lock:
                descriptor = self._open_lock()
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    pass
                else:
                    yield
                    return
                finally:
                    os.close(descriptor)
            time.sleep(0.01)

    def _store(self, name: str, content: dict[str, Any]) -> bool:
        """Replace a file of the directory; return false, after a warning, if that fails."""
        path = self._directory / name
        new = path.with_name(path.name + ".new")
        try:
            new.write_text(json.dumps(content))
            os.replace(new, path)
        except OSError as error:
            self._warn("own", error)
            return False
        self._failing.discard("own")
        return True

    def _warn(self, operation: str, error: OSError) -> None:
        """Log a failed operation once; no exception, because metrics must not stop the program."""
        if operation not in self._failing:
            _logger.warning("goloop's metrics can't be shared with other processes: %s", error)
        self._failing.add(operation)

    def _load(self, name: str) -> tuple[Metrics, set[str]]:
        """Return a file's metrics in nanoseconds, and the names of the files that it includes.

        An unreadable file counts as zero, so that the other files are still reported.
        """
        try:
            content = json.loads((self._directory / name).read_text())
            found = _from_json(content), _files_of(content)
        except FileNotFoundError:
            return Metrics(), set()
        except (OSError, ValueError, RecursionError) as error:
            self._ignore_file(name, error)
            return Metrics(), set()
        self._unreadable.discard(name)
        return found

    def _ignore_file(self, name: str, why: object) -> None:
        """Log once that a file can't be read."""
        if name not in self._unreadable:
            _logger.warning("goloop's metrics in %s can't be read: %s", name, why)
        self._unreadable.add(name)


def _sum(several: list[Metrics]) -> Metrics:
    """Return the sum of the metrics of several processes."""
    sums = {name: sum(getattr(each, name) for each in several) for name in _PROCESS_METRICS}
    return total(several)._replace(**sums)


def _without_states(snapshot: Metrics) -> Metrics:
    """Return the counters of an ended process, with all gauges 0."""
    zeros: dict[str, Any] = dict.fromkeys(_GAUGES, 0)
    return snapshot._replace(**zeros)


def _with_times(snapshot: Metrics, convert: Callable[[float], float]) -> Metrics:
    """Return the metrics with all times converted.  The times are the float fields of Metrics."""
    values: dict[str, Any] = {}
    for name, kind in Metrics.__annotations__.items():
        value = getattr(snapshot, name)
        if isinstance(value, Histogram):
            values[name] = value._replace(sum=convert(value.sum), max=convert(value.max))
        elif kind == "float":
            values[name] = convert(value)
    return snapshot._replace(**values)


def _in_nanoseconds(snapshot: Metrics) -> Metrics:
    """Return metrics with all times converted from seconds to whole nanoseconds."""
    return _with_times(snapshot, lambda seconds: round(seconds * 1e9))


def _in_seconds(snapshot: Metrics) -> Metrics:
    """Return metrics with all times converted from nanoseconds to seconds."""
    return _with_times(snapshot, lambda nanoseconds: nanoseconds / 1e9)


def _to_json(snapshot: Metrics) -> dict[str, Any]:
    """Convert metrics in nanoseconds for a file."""
    return {
        name: value._as_dict() if isinstance(value, Histogram) else value
        for name, value in snapshot._as_dict().items()
    }


def _from_json(content: Any) -> Metrics:
    """Return the metrics of a file, in nanoseconds.

    Unknown fields are ignored; missing fields are 0.
    Raises ValueError if the content is invalid.  All returned values can be added up and formatted.
    """
    if not isinstance(content, dict):
        raise ValueError("the file is not a JSON object")
    values: dict[str, Any] = {}
    for field in Metrics._fields:
        value = content.get(field)
        if value is None:
            continue
        if not isinstance(getattr(_ZEROS, field), Histogram):
            values[field] = _number(field, value)
        elif isinstance(value, dict):
            known = set(Histogram._fields) & value.keys()
            parts = {name: _number(name, value[name]) for name in known - {"buckets"}}
            parts["buckets"] = _buckets(value.get("buckets", []))
            values[field] = Histogram(**parts)
        else:
            raise ValueError(f"{field} is not a histogram")
    return _with_times(Metrics(**values), round)


_ZEROS = Metrics() if native else None


def _number(name: str, value: Any) -> Any:
    """Return `value`, a number of a file; ValueError if it cannot be added up."""
    # JSON allows NaN, infinity and integers of any size, whose sums cannot be formatted.
    if type(value) not in (int, float) or not abs(value) < 1e30:
        raise ValueError(f"{name} is {value!r:.40}")
    return value


def _files_of(content: dict[str, Any]) -> set[str]:
    """Return the names of the files whose values a file includes; ValueError if invalid."""
    files = content.get("files", [])
    if not isinstance(files, list) or not all(isinstance(each, str) for each in files):
        raise ValueError("files is not a list of names")
    return set(files)


def _buckets(buckets: Any) -> tuple[int, ...]:
    """Return the buckets of a histogram in a file; raises ValueError if they are invalid."""
    if not isinstance(buckets, list):
        raise ValueError("buckets is not a list")
    counts = [_number("a bucket", each) for each in buckets]
    if len(counts) not in (0, BUCKETS):
        raise ValueError(f"a histogram must have {BUCKETS} buckets, got {len(counts)}")
    return tuple(counts)


def _name_of_this_process() -> str:
    """Return the name of this process's file, with its process id and start time."""
    pid = os.getpid()
    started = proc_stat.started(pid)
    return f"goloop_{pid}_{time.time_ns() if started is None else started}.json"


def _is_running(pid: int, started: int) -> bool:
    """Return true if the process with that id and start time is running.

    Without /proc the id alone is compared.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's process
    found = proc_stat.started(pid)
    return found is None or (found == started and proc_stat.state(pid) not in ("Z", "X"))


_shares: dict[Path, _SharedDirectory] = {}


def _share_of(directory: Path, interval: float) -> _SharedDirectory:
    """Return the object for a directory; the first call creates it and starts its thread.

    Raises OSError if the directory is not writable.
    """
    with _files_lock:
        if directory not in _shares:
            _shares[directory] = _SharedDirectory(directory, interval)
        return _shares[directory]


def _before_fork() -> None:
    """Acquire the lock of the files, so that no other thread has it at the moment of the fork."""
    _files_lock.acquire()


def _after_fork() -> None:
    """Release the lock in the parent."""
    _files_lock.release()


def _in_child() -> None:
    """Replace the lock, and start the threads that write the child's own files."""
    global _files_lock
    _files_lock = threading.RLock()
    for share in list(_shares.values()):
        share.start_writing()


def _at_exit() -> None:
    """Write the last values to the files."""
    # Also in a forked child, which inherits its parent's handlers.
    for share in list(_shares.values()):
        share.write()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
atexit.register(_at_exit)
