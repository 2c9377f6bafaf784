"""goloop's metrics for Prometheus, through prometheus_client.

    import goloop.prometheus

    goloop.prometheus.register()

From then on every exporter of prometheus_client's registry serves goloop's figures, too.

Prefork servers have a process for each worker, and a scrape reaches one of them.  If the workers
share a directory (PROMETHEUS_MULTIPROC_DIR, as for prometheus_client itself), each writes its
figures into a file there, once a second and whenever it is asked.  Each can then answer for all.
These rules keep a counter from going back:

* Only its own process writes a file, and replaces it as a whole.
* A process writes its own figures before it answers: the next one to answer reports no less.
* The files of ended processes are added up in one file, which names them.  Only then are they
  removed.  If a crash leaves a file that is named there, it no longer counts.
* A lock of the directory makes answers exclude each other, so none reads in the middle of this.
* Times are written and added as whole nanoseconds: a sum of floats depends on their order.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
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

from .._internal.buckets import BUCKETS
from .._internal.metrics.metric_registry import FIGURES, Figure, bounded
from .._internal.version import __version__, native

if native:
    from .._internal.metrics.histogram import Histogram
    from .._internal.metrics.metrics import (
        _GAUGES,
        _PROCESS_METRICS,
        Metrics,
        metrics,
        total,
    )

__all__ = ("Collector", "register")

_logger = logging.getLogger("goloop.prometheus")


class Collector:
    """A collector for prometheus_client's registries: all figures of `goloop.metrics()`.

    Where `goloop.native` is False there are none, and `goloop_info` alone says so.

    With a directory a thread writes this process's figures there, also in children that are forked
    later, and whichever process is asked answers for all.  All collectors of a process with the
    same directory share that thread, and the first one's interval.  Since 0.3.0.

    Args:
        directory: In which the processes of a prefork server leave their figures for each other.
            The default is that of `PROMETHEUS_MULTIPROC_DIR`; without either the figures are this
            process's own.
        interval: Seconds between two writes.

    Raises:
        OSError: The directory can't be written to.
        ValueError: The interval is not more than 0, or not finite.
    """

    __module__ = "goloop.prometheus"

    def __init__(
        self, directory: str | os.PathLike[str] | None = None, interval: float = 1.0
    ) -> None:
        if not 0 < interval <= threading.TIMEOUT_MAX:
            most = f"{threading.TIMEOUT_MAX:.0f}"
            raise ValueError(
                f"an interval is more than 0 and at most {most} seconds, not {interval!r}"
            )
        if directory is None:
            directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR") or None
        self._figures: Callable[[], Metrics] | None = metrics if native else None
        if directory is not None and native:
            self._figures = _share_of(Path(directory).absolute(), interval).of_all_processes

    def collect(self) -> Iterator[Metric]:
        """The metric families, with their samples; prometheus_client calls this.

        Yields:
            `goloop_info`, and a family for each figure.
        """
        yield _info()
        if self._figures is None:
            return
        figures = self._figures()
        for figure in FIGURES:
            family = _family(figure)
            value = getattr(figures, figure.field)
            if isinstance(family, HistogramMetricFamily):
                family.add_metric([], bounded(value), value.sum)
            else:
                family.add_metric([], value)
            yield family

    def describe(self) -> Iterator[Metric]:
        """The metric families without samples: registering a collector asks for no figures.

        Yields:
            What collect() has.
        """
        yield InfoMetricFamily(*_INFO)
        if native:
            yield from map(_family, FIGURES)


def register(registry: CollectorRegistry = REGISTRY) -> Collector:
    """Add a `Collector` to a registry of prometheus_client.

    Since 0.3.0.

    Args:
        registry: The registry; by default the one that prometheus_client's servers serve.

    Returns:
        The collector; `registry.unregister()` takes it out again.

    Raises:
        ValueError: The registry has goloop's figures already.
        OSError: The directory that `PROMETHEUS_MULTIPROC_DIR` names can't be written to.
    """
    collector = Collector()
    registry.register(collector)
    return collector


_INFO = ("goloop", "The releases of goloop and of Python, and whether the loop is goloop's.")


def _info() -> InfoMetricFamily:
    labels = {
        "version": __version__,
        "python": platform.python_version(),
        "native": str(native).lower(),
    }
    return InfoMetricFamily(*_INFO, value=labels)


def _family(figure: Figure) -> CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily:
    if figure.kind == "histogram":
        return HistogramMetricFamily(figure.prometheus, figure.text)
    if figure.kind == "counter":
        return CounterMetricFamily(figure.prometheus, figure.text)
    return GaugeMetricFamily(figure.prometheus, figure.text)


# ---- several processes ----------------------------------------------------------------

_LOCK = "goloop.lock"
_ENDED = "goloop_ended.json"
# A process, and when it began: a number is given to another process some day.
_NAME = re.compile(r"goloop_(\d+)_(\d+)\.json(\.new)?")

# Held while this process writes and reads its files, and over a fork: then the thread that writes
# is in the middle of nothing, neither here nor in metrics.py.  Re-entrant, for a signal handler
# may fork while its thread writes.
_busy = threading.RLock()


class _Share:
    """This process's file in a directory, and what it reads of the others' there."""

    def __init__(self, directory: Path, interval: float) -> None:
        self._directory = directory
        self._interval = interval
        # What fails just now, and was warned of.
        self._failing: set[str] = set()
        # The files that can't be used just now, which were warned of, too.
        self._left_out: set[str] = set()
        os.close(self._open_lock())  # an unusable directory is told at once
        self.begin()

    def begin(self) -> None:
        """Anew in this process, which may be a forked child."""
        self._name = _name_of_this_process()
        threading.Thread(target=self._write_often, name="goloop-prometheus", daemon=True).start()

    def _write_often(self) -> None:
        while True:
            self.write()
            time.sleep(self._interval)

    def write(self) -> Metrics:
        """Writes this process's figures and returns them."""
        with _busy:  # an older snapshot must not replace a newer one
            figures = metrics()
            # A master that runs no loop leaves no file.
            if figures != Metrics():
                self._store(self._name, _to_json(_in_nanoseconds(figures)))
            return figures

    def of_all_processes(self) -> Metrics:
        """The figures of all processes that have written here, the ended ones too.

        Where the directory can't be used any more, or not by this process's user, its own.
        """
        try:
            figures = self._of_all_processes()
        except OSError as error:
            self._warn("others", error)
            return metrics()
        self._failing.discard("others")
        return figures

    def _of_all_processes(self) -> Metrics:
        with self._alone():
            own = _in_nanoseconds(self.write())
            past, files = self._load(_ENDED)
            names = set(os.listdir(self._directory))
            # Those that were added up, and that a crash or a failure has kept from being removed.
            added = files & names
            living, ended = [], []
            for name in sorted(names - added - {self._name}):
                match = _NAME.fullmatch(name)
                if match is None:
                    continue
                if not 0 < int(match[1]) < 1 << 31:
                    self._leave_out(name, "its name has no number of a process")
                    continue
                # Asked before the file is read, so that what an ended one has left is its last.
                if not _runs(int(match[1]), int(match[2])):
                    ended.append(name)
                elif not match[3]:
                    living.append(self._load(name)[0])
            if ended:
                last = [self._load(name)[0] for name in ended if name.endswith(".json")]
                past = _all([past, *map(_without_states, last)])
                added.update(ended)
                if self._store(_ENDED, {**_to_json(past), "files": sorted(added)}):
                    for name in added:
                        with contextlib.suppress(OSError):
                            os.unlink(self._directory / name)
            return _in_seconds(_all([own, past, *living]))

    def _open_lock(self) -> int:
        return os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process is in here meanwhile, and no other thread of this one.

        Another process may have stopped with the lock.  A waiter here has nothing that a
        fork, the end of the process or the thread that writes would wait for.
        """
        while True:
            with _busy:
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

    def _warn(self, what: str, error: OSError) -> None:
        # Once: figures must not keep a program from running.
        if what not in self._failing:
            _logger.warning("goloop's figures can't be shared with other processes: %s", error)
        self._failing.add(what)

    def _load(self, name: str) -> tuple[Metrics, set[str]]:
        """A file's figures, in nanoseconds, and the names of the files that were added up in them.

        One that has no figures counts as nothing, so that the others are told all the same.
        """
        try:
            content = json.loads((self._directory / name).read_text())
            found = _from_json(content), _files_of(content)
        except FileNotFoundError:
            return Metrics(), set()
        except (OSError, ValueError, RecursionError) as error:
            self._leave_out(name, error)
            return Metrics(), set()
        self._left_out.discard(name)
        return found

    def _leave_out(self, name: str, why: object) -> None:
        if name not in self._left_out:
            _logger.warning("goloop's figures in %s can't be read: %s", name, why)
        self._left_out.add(name)


def _all(several: list[Metrics]) -> Metrics:
    """The figures of several processes as one."""
    sums = {name: sum(getattr(each, name) for each in several) for name in _PROCESS_METRICS}
    return dataclasses.replace(total(several), **sums)


def _without_states(figures: Metrics) -> Metrics:
    """What is left of a process that has ended."""
    none: dict[str, Any] = dict.fromkeys(_GAUGES, 0)
    return dataclasses.replace(figures, **none)


def _with_times(figures: Metrics, convert: Callable[[float], float]) -> Metrics:
    """The figures with other times, which are what Metrics has as floats."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(figures):
        value = getattr(figures, field.name)
        if isinstance(value, Histogram):
            most = convert(value.max)
            values[field.name] = dataclasses.replace(value, sum=convert(value.sum), max=most)
        elif field.type == "float":
            values[field.name] = convert(value)
    return dataclasses.replace(figures, **values)


def _in_nanoseconds(figures: Metrics) -> Metrics:
    return _with_times(figures, lambda seconds: round(seconds * 1e9))


def _in_seconds(figures: Metrics) -> Metrics:
    return _with_times(figures, lambda nanoseconds: nanoseconds / 1e9)


def _to_json(figures: Metrics) -> dict[str, Any]:
    """Figures in nanoseconds, for a file."""
    return {**dataclasses.asdict(figures), "times": "ns"}


def _from_json(content: Any) -> Metrics:
    """The same, in nanoseconds, perhaps of another version's Metrics, and in its seconds.

    Raises ValueError for what are no figures: each that it returns can be added up and shown.
    """
    if not isinstance(content, dict):
        raise ValueError("it has no figures")
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Metrics):
        value = content.get(field.name)
        if value is None:
            continue
        if not isinstance(getattr(_NONE, field.name), Histogram):
            values[field.name] = _number(field.name, value)
        elif isinstance(value, dict):
            known = {part.name for part in dataclasses.fields(Histogram)} & value.keys()
            parts = {name: _number(name, value[name]) for name in known - {"buckets"}}
            parts["buckets"] = _buckets_of_now(value.get("buckets", []))
            values[field.name] = Histogram(**parts)
        else:
            raise ValueError(f"{field.name} is no histogram")
    figures = Metrics(**values)
    return _with_times(figures, round) if content.get("times") else _in_nanoseconds(figures)


_NONE = Metrics() if native else None


def _number(name: str, value: Any) -> Any:
    # JSON has NaN, infinity and whole numbers of any size, with which no sum can be shown.
    if type(value) not in (int, float) or not abs(value) < 1e30:
        raise ValueError(f"{name} is {value!r:.40}")
    return value


def _files_of(content: dict[str, Any]) -> set[str]:
    files = content.get("files", [])
    if not isinstance(files, list) or not all(isinstance(each, str) for each in files):
        raise ValueError("its files are no names")
    return set(files)


def _buckets_of_now(buckets: Any) -> tuple[int, ...]:
    """Those of 0.2.0, four for each power of two, in those that end where they do."""
    if not isinstance(buckets, list):
        raise ValueError("its buckets are no list")
    counts = [_number("a bucket", each) for each in buckets]
    if len(counts) == 164:
        return (*counts[:8], *(n for each in counts[8:] for n in (0, each)))
    if len(counts) not in (0, BUCKETS):
        raise ValueError(f"it has {len(counts)} buckets")
    return tuple(counts)


def _name_of_this_process() -> str:
    pid = os.getpid()
    facts = _facts_of(pid)
    return f"goloop_{pid}_{time.time_ns() if facts is None else facts[1]}.json"


def _runs(pid: int, begun: int) -> bool:
    """Whether that process has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's
    facts = _facts_of(pid)
    # Without these facts the number alone has to do.
    return facts is None or (facts[1] == begun and facts[0] not in "ZX")


def _facts_of(pid: int) -> tuple[str, int] | None:
    """The state of a process, and when it began, in ticks since the machine did (proc(5)).

    None where the system doesn't tell.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The program's name, in parentheses, may have any characters.
    fields = text.rpartition(")")[2].split()
    try:
        return fields[0], int(fields[19])
    except (IndexError, ValueError):
        return None  # a kernel that tells less than Linux


_shares: dict[Path, _Share] = {}


def _share_of(directory: Path, interval: float) -> _Share:
    with _busy:
        if directory not in _shares:
            _shares[directory] = _Share(directory, interval)
        return _shares[directory]


def _before_fork() -> None:
    _busy.acquire()


def _after_fork() -> None:
    _busy.release()


def _in_child() -> None:
    global _busy
    _busy = threading.RLock()
    for share in list(_shares.values()):
        share.begin()


def _at_exit() -> None:
    # In a child too, which has its parent's handlers.
    for share in list(_shares.values()):
        share.write()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
atexit.register(_at_exit)
