"""The command `goloop export`: one Prometheus endpoint for all goloop processes of a machine.

Each scrape sends a request to every process of this user, in parallel and with one deadline, as
`goloop top --all` does.  So the endpoint has metrics even of processes that cannot serve their own
/metrics: while the GIL of a process is held, its monitor answers with the metrics that it knows.
Unknown metrics are omitted, not reported as 0.

While a process lives, its labels stay the same, and no counter decreases.  The monitor does not
include bytes that Python code sends and receives.  A counter that is less in the monitor's answer
than in the previous scrape is omitted.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import os
import re
import selectors
import signal
import socket
import socketserver
import stat
import struct
import sys
import threading
import time

from ..._internal.observe.metric_registry import METRICS, prometheus_buckets
from .. import proc_stat
from ..introspection import is_alive
from . import options
from .client import NoAnswer, Question, belongs_to_other_user, introspectable_pids
from .target import command_line, metrics_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..._internal.observe.metric_registry import MetricSpec
    from ..snapshot import Row

    Family = tuple[str, str, str]

ADDRESS = "127.0.0.1:9764"
# The monitor waits half a second for the GIL before it answers.
SECONDS = 3.0
# Timeout of an HTTP client's request.
_CLIENT_SECONDS = 10
_MAX_NAME = 100

# Name, type and description of the metrics that only this endpoint has.
_UP = ("goloop_up", "gauge", "1 if the process has answered in time, else 0")
_GIL_HELD = (
    "goloop_gil_held", "gauge",
    "1 if the GIL of the process is held, so that its monitor has answered, else 0",
)  # fmt: skip
_INFO = (
    "goloop_info", "gauge",
    "Versions of goloop and of Python, and whether the loop is goloop's own",
)  # fmt: skip

# Exceptions for invalid answers, for example of another version.
_INVALID_ANSWER = (LookupError, TypeError, ValueError, AttributeError, OverflowError, struct.error)


# ---- the text ----------------------------------------------------------------------------


class Page:
    """Metric families with their samples, in the order of their first sample."""

    def __init__(self) -> None:
        """Create a page without samples."""
        self._families: dict[Family, list[str]] = {}

    def add(self, family: Family, labels: Row, value: float, part: str = "") -> None:
        """Add a sample; `part` is the suffix of its name in a histogram."""
        several = ",".join(f'{label}="{_escaped(each)}"' for label, each in labels.items())
        line = f"{family[0]}{part}{{{several}}} {float(value)!r}"
        self._families.setdefault(family, []).append(line)

    def merge(self, other: Page) -> None:
        """Add all samples of another page."""
        for family, lines in other._families.items():
            self._families.setdefault(family, []).extend(lines)

    def encode(self) -> bytes:
        """Return the page in Prometheus' text format."""
        lines = []
        for (name, kind, text), samples in self._families.items():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *samples]
        return "".join(f"{line}\n" for line in lines).encode(errors="replace")


def _escaped(value: object) -> str:
    """Return a label's value with Prometheus' escapes."""
    return str(value).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _family(spec: MetricSpec) -> Family:
    """Return a metric's Prometheus name, type and help text."""
    kind = spec.kind if spec.kind in ("counter", "histogram") else "gauge"
    return spec.prometheus, kind, spec.text


def name_of(words: list[str]) -> str:
    """Return a program's name from the words of its command line.

    That is the name of the script or module that Python or goloop runs, such as `server.py` or
    `uvicorn`, or "-c"; else the first word or the process title, at most _MAX_NAME characters.
    """
    first, rest = "".join(words[:1]), words[1:]
    name = first if " " in first else os.path.basename(first)
    if re.match("python|pypy|goloop$", name):
        while rest:
            word = rest.pop(0)
            if word in ("-X", "-W"):
                del rest[:1]
            elif word.startswith("-c"):
                return "-c"
            elif word == "-m" or word == "-" or not word.startswith("-"):
                found = rest[0] if word == "-m" and rest else os.path.basename(word)
                at = rest[word == "-m" :]
                return name_of(["goloop", *at]) if found == "goloop" and at else found
    return name[:_MAX_NAME]


# ---- the processes -----------------------------------------------------------------------


class _Process:
    """The state of a process between scrapes."""

    def __init__(self, pid: int, started: int | None) -> None:
        """Create the state; `started` is the start time by which a reused process id is noticed."""
        self.started = started
        self._labels: Row = {"pid": pid, "program": name_of(command_line(pid))}
        self._info: Row = {}
        # The last value of each counter, by the loop's number and the counter's name.
        self._last: dict[tuple[int, str], float] = {}

    def describe(self, answer: Row | None) -> Page:
        """Return the samples of an answer.

        If it is None (the process has not answered) or invalid, there is only goloop_up with 0.
        """
        page, rest = Page(), Page()
        if answer is not None:
            try:
                self._add(rest, answer)
            except _INVALID_ANSWER:
                answer = None
        page.add(_UP, self._labels, answer is not None)
        if answer is not None:
            page.merge(rest)
        return page

    def _add(self, page: Page, answer: Row) -> None:
        """Add the samples of an answer to a page, and store the values of counters in `_last`.

        Raises one of _INVALID_ANSWER if the answer is invalid.
        """
        loops, partial = answer["loops"], bool(answer.get("partial"))
        if not self._labels["program"]:
            self._labels["program"] = name_of(str(answer.get("program", "")).split())
        if "goloop" in answer:
            native = all(loop["metrics"] is not None for loop in loops)
            self._info = {"version": answer["goloop"], "python": answer["python"]}
            self._info["native"] = str(native).lower()
        page.add(_GIL_HELD, self._labels, partial)
        if self._info:
            page.add(_INFO, {**self._labels, **self._info}, 1)
        # The loops have the same numbers as in the watchdog's log.
        several = {
            int(loop.get("number") or position): dict(loop["metrics"])
            for position, loop in enumerate(loops, 1)
            if loop["metrics"] is not None
        }
        last, self._last = self._last, {}
        for spec in METRICS:
            if spec.field == "loops":
                page.add(_family(spec), self._labels, len(loops))
            elif spec.source == "process":
                found = [raw[spec.field] for raw in several.values() if spec.field in raw]
                if found:
                    self._sample(page, spec, 0, max(found), last)
            else:
                for number, raw in several.items():
                    if spec.field in raw:
                        self._sample(page, spec, number, raw[spec.field], last)
        if partial:
            self._last = {**last, **self._last}

    def _sample(
        self,
        page: Page,
        spec: MetricSpec,
        number: int,
        raw: Any,
        last: dict[tuple[int, str], float],
    ) -> None:
        """Add the samples of one metric of a loop; number 0: of the process.

        A counter that is less than in `last`, and an invalid value, add no samples.
        """
        labels = {**self._labels, "loop": number} if number else self._labels
        try:
            value = getattr(metrics_of({spec.field: raw}), spec.field)
            count = value.count if spec.kind == "histogram" else value
        except _INVALID_ANSWER:
            return  # another version of goloop with another type
        if spec.kind in ("counter", "histogram"):
            if count < last.get((number, spec.field), 0):
                return
            self._last[number, spec.field] = count
        family = _family(spec)
        if spec.kind != "histogram":
            page.add(family, labels, value)
            return
        for bound, below in prometheus_buckets(value):
            page.add(family, {**labels, "le": bound}, below, "_bucket")
        page.add(family, labels, value.sum, "_sum")
        page.add(family, labels, value.count, "_count")


class Exporter:
    """Collects the metrics of all goloop processes of this user.

    Args:
        seconds: Timeout for the answers of the processes.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        """Create an exporter that waits up to `seconds` for the answers of a scrape."""
        self._seconds = seconds
        self._known: dict[int, _Process] = {}
        # Concurrent scrapes run one after the other.
        self._lock = threading.Lock()

    def scrape(self) -> bytes:
        """Send requests to all processes, and return the page; may be called in any thread.

        Processes that are not found any more are forgotten.
        """
        page = Page()
        with self._lock:
            answers = _ask(introspectable_pids(), self._seconds)
            known, self._known = self._known, {}
            for pid, answer in sorted(answers.items()):
                started = proc_stat.started(pid)
                process = known.get(pid)
                if process is None or process.started != started:
                    process = _Process(pid, started)
                self._known[pid] = process
                page.merge(process.describe(answer))
        return page.encode()


def _ask(pids: list[int], seconds: float) -> dict[int, Row | None]:
    """Return the answers by process id; None for a process that has not answered in time.

    Ended processes and processes of other users are omitted.
    """
    answers: dict[int, Row | None] = dict.fromkeys(pids)
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for pid in pids:
            with contextlib.suppress(NoAnswer):
                question = Question(pid, seconds=seconds, ask="top", tasks=0, connections=0)
                stack.enter_context(contextlib.closing(question))
                selector.register(question, selectors.EVENT_READ)
        while asked := [key.fileobj for key in selector.get_map().values()]:
            due = min(each.deadline for each in asked if isinstance(each, Question))
            selector.select(max(0.0, due - time.monotonic()))
            for each in asked:
                assert isinstance(each, Question)
                try:
                    answer = each.advance()
                    if answer is None:
                        continue
                    answers[each.pid] = answer
                except NoAnswer:
                    pass
                selector.unregister(each)
    return {
        pid: answer
        for pid, answer in answers.items()
        if answer is not None or (is_alive(pid) and not belongs_to_other_user(pid))
    }


# ---- the server --------------------------------------------------------------------------


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers HTTP requests of an exporter's server."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "goloop", ""
    timeout = _CLIENT_SECONDS

    def do_GET(self) -> None:
        """Answer a request for /metrics or /healthz; 404 for other paths."""
        path = self.path.partition("?")[0]
        status, kind, body = 200, "text/plain; charset=utf-8", b"ok\n"
        if path == "/metrics":
            kind = "text/plain; version=0.0.4; charset=utf-8"
            body = self.server.exporter.scrape()
        elif path != "/healthz":
            status, body = 404, b"There are /metrics and /healthz.\n"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: scrapes come every few seconds."""


class Server(http.server.ThreadingHTTPServer):
    """HTTP server for an exporter; `where` is the path of a Unix socket, or a host and a port.

    Raises OSError if the address cannot be bound.
    """

    def __init__(self, exporter: Exporter, where: str | tuple[str, int]) -> None:
        """Bind the address; the path of a stale Unix socket is removed before."""
        self.exporter = exporter
        self._path = ""
        if isinstance(where, str):
            self.address_family = socket.AF_UNIX
            _remove_stale(where)
        elif ":" in where[0]:
            self.address_family = socket.AF_INET6
        super().__init__(where, _Handler)  # type: ignore[arg-type]
        if isinstance(where, str):
            self._path = where

    def server_bind(self) -> None:
        """Bind the socket without http.server's reverse DNS lookup of the address."""
        socketserver.TCPServer.server_bind(self)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; a client of a Unix socket gets a placeholder as its address."""
        client, address = super().get_request()
        return client, address or ("unix", 0)

    def server_close(self) -> None:
        """Close the server, and remove the path of its Unix socket."""
        super().server_close()
        if self._path:
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def handle_error(self, request: object, client_address: object) -> None:
        """Print an error of a request to stderr, except a failure of the connection."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    @property
    def url(self) -> str:
        """The URL of the metrics."""
        if self._path:
            return f"unix:{self._path}"
        host, port = self.socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"


def _remove_stale(path: str) -> None:
    """Remove a socket file if no process listens at it."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            client.settimeout(1)
            try:
                client.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)


# ---- the command -------------------------------------------------------------------------


def _listen_address(text: str) -> str | tuple[str, int]:
    """Convert `HOST:PORT`, `[HOST]:PORT` or `unix:PATH`, for argparse.

    Returns (host, port), or the path; raises ArgumentTypeError.
    """
    if text.startswith("unix:") and len(text) > 5:
        return text[5:]
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not host or not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise argparse.ArgumentTypeError(
            f"must be HOST:PORT, [HOST]:PORT or unix:PATH, got {text!r}"
        )
    return host, int(port)


def _parser() -> argparse.ArgumentParser:
    """Return the argument parser of `export`."""
    parser = options.Parser(
        prog="python -m goloop export",
        description="Serve the metrics of all goloop processes of this machine at one address for "
        "Prometheus, also of processes that hang. It serves the processes of your user (as root: "
        "of all users) that were started with GOLOOP_INTROSPECT=1 or have called "
        "goloop.introspect().",
    )
    add = parser.add_argument
    help_text = f"address: HOST:PORT, [HOST]:PORT or unix:PATH (default: {ADDRESS})"
    add(
        "--listen",
        type=_listen_address,
        default=_listen_address(ADDRESS),
        metavar="WHERE",
        help=help_text,
    )
    help_text = f"seconds to wait for the answer of each process (default: {SECONDS:g})"
    add("--timeout", type=options.seconds(0.1), default=SECONDS, metavar="S", help=help_text)
    add("--once", action="store_true", help="print the metrics once, then exit")
    return parser


def _no_effect(number: int, frame: object) -> None:
    """Do nothing; the handler of signals that arrive as bytes of the wakeup socket."""


def _serve(server: Server) -> int:
    """Serve requests until SIGTERM or SIGINT arrives; return the signal's number.

    The handlers raise no exception: one that is raised within a finalizer or a weak reference's
    callback would be printed and dropped, and the server would not end.
    """
    signals, wakeup = socket.socketpair()
    with signals, wakeup, selectors.DefaultSelector() as selector:
        signals.setblocking(False)
        wakeup.setblocking(False)
        signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, _no_effect)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # a job in the background
            signal.signal(signal.SIGINT, _no_effect)
        print(f"goloop export: {server.url}", file=sys.stderr, flush=True)
        server.timeout = 0
        selector.register(server, selectors.EVENT_READ)
        selector.register(signals, selectors.EVENT_READ)
        try:
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if signals in ready:
                    return signals.recv(1)[0]
                server.handle_request()
        finally:
            signal.set_wakeup_fd(-1)


def main(arguments: list[str]) -> int:
    """Run `export` until a signal ends it; return the exit status.

    The status is 0 for SIGTERM and --once, 130 for SIGINT, 1 if the address cannot be bound.
    """
    given = _parser().parse_args(arguments)
    exporter = Exporter(given.timeout)
    try:
        if given.once:
            sys.stdout.buffer.write(exporter.scrape())  # UTF-8 in any locale
            sys.stdout.flush()
            return 0
        try:
            server = Server(exporter, given.listen)
        except OSError as error:
            where = given.listen
            if not isinstance(where, str):
                where = ":".join(map(str, where))
            print(f"goloop export: {where}: {error.strerror or error}", file=sys.stderr)
            return 1
        with server:
            if _serve(server) == signal.SIGTERM:
                return 0
            return 128 + signal.SIGINT
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
