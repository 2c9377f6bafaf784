"""`python -m goloop export`: one Prometheus endpoint for all goloop processes of a machine.

At each scrape it asks every process that answers this user, all at once and with one deadline, as
`goloop top --all` does.  So it has numbers of a process whose own /metrics is silent: while
something keeps the GIL there, the monitor answers with what it knows.  What a process has not
given is left out; nothing is 0 because it is not known.

As long as a process lives its labels stay the same, and no counter goes back.  The monitor does
not count what Python itself sends and receives: where a counter of its is below the last one, it
is left out.
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

from ..._internal.metrics.metric_registry import FIGURES, bounded
from ..introspection import is_alive
from . import options
from .client import NoAnswer, Question, answering, is_anothers
from .target import command_line, metrics_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from ..._internal.metrics.metric_registry import Figure
    from ..snapshot import Row

    Family = tuple[str, str, str]

ADDRESS = "127.0.0.1:9764"
# The monitor waits half a second for the GIL before it answers itself.
SECONDS = 3.0
# How long an HTTP client may take to ask.
_CLIENT_SECONDS = 10
_NAME_MOST = 100

# Name, type and text of what only this endpoint has.
_UP = ("goloop_up", "gauge", "Whether the process has answered in time")
_GIL_HELD = (
    "goloop_gil_held", "gauge",
    "Whether something keeps the GIL of the process, so that its monitor has answered",
)  # fmt: skip
_INFO = (
    "goloop_info", "gauge",
    "The releases of goloop and of Python, and whether the loop is goloop's.",
)  # fmt: skip

# Of answers that are not understood here: another version's, or nonsense.
_NOT_UNDERSTOOD = (LookupError, TypeError, ValueError, AttributeError, OverflowError, struct.error)


# ---- the text ----------------------------------------------------------------------------


class Page:
    """Metric families with their samples, in the order in which each came first."""

    def __init__(self) -> None:
        self._families: dict[Family, list[str]] = {}

    def add(self, family: Family, labels: Row, value: float, part: str = "") -> None:
        """A sample; `part` is what its name ends with in a histogram."""
        several = ",".join(f'{label}="{_escaped(each)}"' for label, each in labels.items())
        line = f"{family[0]}{part}{{{several}}} {float(value)!r}"
        self._families.setdefault(family, []).append(line)

    def take(self, other: Page) -> None:
        """All samples of another page too."""
        for family, lines in other._families.items():
            self._families.setdefault(family, []).extend(lines)

    def encode(self) -> bytes:
        """In Prometheus' text format."""
        lines = []
        for (name, kind, text), samples in self._families.items():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *samples]
        return "".join(f"{line}\n" for line in lines).encode(errors="replace")


def _escaped(value: object) -> str:
    return str(value).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _family(figure: Figure) -> Family:
    kind = figure.kind if figure.kind in ("counter", "histogram") else "gauge"
    return figure.prometheus, kind, figure.text


def name_of(words: list[str]) -> str:
    """What a program is called, by its command line: `server.py`, `uvicorn`, or its title."""
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
    return name[:_NAME_MOST]


# ---- the processes -----------------------------------------------------------------------


class _Process:
    """What is remembered of a process from one scrape to the next."""

    def __init__(self, pid: int, began: bytes) -> None:
        self.began = began
        self._labels: Row = {"pid": pid, "program": name_of(command_line(pid))}
        self._info: Row = {}
        # Of each loop's counters: the last value.
        self._last: dict[tuple[int, str], float] = {}

    def describe(self, answer: Row | None) -> Page:
        """The samples of an answer; None: the process has given none."""
        page, rest = Page(), Page()
        if answer is not None:
            try:
                self._add(rest, answer)
            except _NOT_UNDERSTOOD:
                answer = None
        page.add(_UP, self._labels, answer is not None)
        if answer is not None:
            page.take(rest)
        return page

    def _add(self, page: Page, answer: Row) -> None:
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
        # As the watchdog numbers them in the log; versions before 0.3 did not.
        several = {
            int(loop.get("number") or at): dict(loop["metrics"])
            for at, loop in enumerate(loops, 1)
            if loop["metrics"] is not None
        }
        last, self._last = self._last, {}
        for figure in FIGURES:
            if figure.field == "loops":
                page.add(_family(figure), self._labels, len(loops))
            elif figure.source == "process":
                found = [raw[figure.field] for raw in several.values() if figure.field in raw]
                if found:
                    self._sample(page, figure, 0, max(found), last)
            else:
                for number, raw in several.items():
                    if figure.field in raw:
                        self._sample(page, figure, number, raw[figure.field], last)
        if partial:
            self._last = {**last, **self._last}

    def _sample(
        self, page: Page, figure: Figure, number: int, raw: Any, last: dict[tuple[int, str], float]
    ) -> None:
        """A figure of a loop; number 0: of the process."""
        labels = {**self._labels, "loop": number} if number else self._labels
        try:
            value = getattr(metrics_of({figure.field: raw}), figure.field)
            count = value.count if figure.kind == "histogram" else value
        except _NOT_UNDERSTOOD:
            return  # another version counts it otherwise
        if figure.kind in ("counter", "histogram"):
            if count < last.get((number, figure.field), 0):
                return
            self._last[number, figure.field] = count
        family = _family(figure)
        if figure.kind != "histogram":
            page.add(family, labels, value)
            return
        for bound, below in bounded(value):
            page.add(family, {**labels, "le": bound}, below, "_bucket")
        page.add(family, labels, value.sum, "_sum")
        page.add(family, labels, value.count, "_count")


class Exporter:
    """Asks all processes that answer this user.

    Args:
        seconds: How long a process may take to answer.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._known: dict[int, _Process] = {}
        # Of several scrapers one after the other asks.
        self._lock = threading.Lock()

    def scrape(self) -> bytes:
        """The page of this moment."""
        page = Page()
        with self._lock:
            answers = _ask(answering(), self._seconds)
            known, self._known = self._known, {}
            for pid, answer in sorted(answers.items()):
                began = _began(pid)
                process = known.get(pid)
                if process is None or process.began != began:
                    process = _Process(pid, began)
                self._known[pid] = process
                page.take(process.describe(answer))
        return page.encode()


def _ask(pids: list[int], seconds: float) -> dict[int, Row | None]:
    """The answers, None where one has not come; nothing of processes of others, or that ended."""
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
        if answer is not None or (is_alive(pid) and not is_anothers(pid))
    }


def _began(pid: int) -> bytes:
    """When a process began, for its number may have been another's (proc(5)); b"" if unknown."""
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[19]
    return b""


# ---- the server --------------------------------------------------------------------------


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "goloop", ""
    timeout = _CLIENT_SECONDS

    def do_GET(self) -> None:
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
        """A scrape each few seconds is nothing to log."""


class Server(http.server.ThreadingHTTPServer):
    """Serves the pages of an exporter; `where` is a path, or a host and a port.

    Raises OSError where that can't be listened to.
    """

    def __init__(self, exporter: Exporter, where: str | tuple[str, int]) -> None:
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
        # http.server's own looks up the name of the address.
        socketserver.TCPServer.server_bind(self)

    def get_request(self) -> tuple[socket.socket, Any]:
        client, address = super().get_request()
        return client, address or ("unix", 0)

    def server_close(self) -> None:
        super().server_close()
        if self._path:
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    @property
    def url(self) -> str:
        """Where the metrics are."""
        if self._path:
            return f"unix:{self._path}"
        host, port = self.socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"


def _remove_stale(path: str) -> None:
    """Remove a socket that nobody listens to any more."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            client.settimeout(1)
            try:
                client.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)


# ---- the command -------------------------------------------------------------------------


def _where(text: str) -> str | tuple[str, int]:
    """`HOST:PORT`, `[HOST]:PORT` or `unix:PATH`."""
    if text.startswith("unix:") and len(text) > 5:
        return text[5:]
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not host or not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise argparse.ArgumentTypeError(
            f"{text!r} is none of HOST:PORT, [HOST]:PORT and unix:PATH"
        )
    return host, int(port)


def _parser() -> argparse.ArgumentParser:
    parser = options.Parser(
        prog="python -m goloop export",
        description="Serve the figures of all goloop processes of this machine to Prometheus, "
        "also of those that hang. A process answers its own user and root, if it was started with "
        "GOLOOP_INTROSPECT=1 or has called goloop.introspect().",
    )
    add = parser.add_argument
    help_text = f"HOST:PORT, [HOST]:PORT or unix:PATH (default: {ADDRESS})"
    add("--listen", type=_where, default=_where(ADDRESS), metavar="WHERE", help=help_text)
    help_text = f"seconds that a process may take to answer (default: {SECONDS:g})"
    add("--timeout", type=options.seconds(0.1), default=SECONDS, metavar="S", help=help_text)
    add("--once", action="store_true", help="print the metrics of this moment, and end")
    return parser


def _end(number: int, frame: object) -> NoReturn:
    raise SystemExit(0)


def main(arguments: list[str]) -> int:
    """`export`; returns the exit status."""
    given = _parser().parse_args(arguments)
    exporter = Exporter(given.timeout)
    try:
        if given.once:
            sys.stdout.write(exporter.scrape().decode())
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
            signal.signal(signal.SIGTERM, _end)
            print(f"goloop export: {server.url}", file=sys.stderr, flush=True)
            server.serve_forever()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0
