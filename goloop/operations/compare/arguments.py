"""The command line of `goloop compare`: its own options, and the program with its arguments."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field

from ..commands.options import Parser, seconds
from . import loops
from .answers import host_in_url, read_requests, request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

USAGE = """\
usage: python -m goloop compare [option...] program.py|-m module [arg...]

Run a program on asyncio, goloop and every other event loop that is installed, and measure which
one is faster for it. The program is a server, which is loaded by short bursts in random turns, or
with --run a program that ends.

  goloop compare -m uvicorn app:app --no-access-log --path / --connections 4,100
  goloop compare server.py --listen {port}     {port} is replaced by a free port
  goloop compare server.py                     the server listens on the port of the variable PORT
  goloop compare server.py --port 8000         the server always listens on port 8000
  goloop compare --tcp --size 1024 echo.py
  goloop compare --run client.py               a program that ends, a client for example

The options may stand before the program or after it. After `--` all words are the program's.

the load
  --path PATH          request of HTTP/1.1 with keep-alive: GET PATH (/)
  --requests FILE      requests of a file instead: a request line, headers, an empty line, a body;
                       lines that begin with ### separate requests, which are sent in turn
  --tcp                no HTTP: send --size bytes, and wait for the same number of bytes
  --size N             bytes of a message of --tcp (1024)
  --tls, --insecure    use TLS; do not verify the certificate
  --host HOST          address of the server (127.0.0.1)
  --port N             port on which the server always listens: one loop is run at a time
  --connections LIST   numbers of connections, each measured by itself (4,100)
  --rate N             also measure at N requests a second, for latencies at equal load
  --run                run a program that ends, and measure its time and CPU time; no load. If the
                       last line of output that is not empty is `5000 requests` or
                       `5,000 requests in 2.5 s`, with any noun, the rate is measured

the measurement
  --loops LIST         loops: names, or NAME=module:function for any factory (the installed ones)
  --rounds N           starts of the program on each loop; 6 or more (9). `auto` ends when each
                       interval is narrow: from 6 to 40
  --bursts N           bursts of each loop in a round (3)
  --seconds S          length of a burst (0.3)
  --server-cores N     cores of the server, for servers with several processes or threads (1)
  --start-limit S      time in which a server must accept connections (30); with --run, the time
                       after which an idle program that listens on a port counts as a server
  --svg FILE           file of the picture (goloop-compare.svg)
  --json FILE          also write all results to a file; - prints them instead of the tables
  -h, --help           show this help

The exit status is 0 if everything was measured, whichever loop is faster; 1 if the program failed
on a loop; 2 for a wrong command line; 130 after Ctrl-C or another signal that ends the command,
which shows the results up to then.
"""

# The file of the picture, in the current folder.
PICTURE = "goloop-compare.svg"
# The limit of --rounds auto.
MOST_ROUNDS = 40

_FLAGS = frozenset({"--tcp", "--tls", "--insecure", "--run"})
_WITH_VALUE = frozenset(
    {"--path", "--requests", "--size", "--host", "--port", "--connections", "--rate", "--loops",
     "--rounds", "--bursts", "--seconds", "--server-cores", "--start-limit", "--svg", "--json"}
)  # fmt: skip
# How servers that are run by -m get their port.
_PORT_ARGUMENTS = {
    "uvicorn": ("--port", "{port}"),
    "granian": ("--port", "{port}"),
    "aiohttp.web": ("--port", "{port}"),
    "hypercorn": ("--bind", "{host}:{port}"),
    "gunicorn": ("--bind", "{host}:{port}"),
}


@dataclass
class Plan:
    """A checked command line."""

    program: list[str]
    loops: list[loops.Loop]
    kind: str  # "http", "tcp" or "run"
    connections: list[int] = field(default_factory=lambda: [4, 100])
    rate: float | None = None
    payloads: list[bytes] = field(default_factory=list)
    tls: bool = False
    insecure: bool = False
    host: str = "127.0.0.1"
    port: int | None = None  # the port on which the server always listens
    rounds: int | None = 9  # None: as many as narrow intervals need, up to MOST_ROUNDS
    bursts: int = 3
    seconds: float = 0.3
    server_cores: int = 1
    start_limit: float = 30.0
    svg: str | None = None  # None: PICTURE, unless the results are printed as JSON
    json: str | None = None

    @property
    def picture(self) -> str | None:
        """The file of the picture; None if none is to be written."""
        return self.svg or (None if self.json == "-" else PICTURE)

    @property
    def alive_at_once(self) -> bool:
        """True if the servers of all loops run at the same time, each with its own port."""
        return self.port is None

    def command(self, port: int) -> list[str]:
        """Return the program's words for a server on this port."""
        places = {
            "{host}:{port}": f"{host_in_url(self.host)}:{port}",
            "{port}": str(port),
            "{host}": self.host,
        }
        words = []
        for word in self.program:
            for place, value in places.items():
                word = word.replace(place, value)
            words.append(word)
        return words


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of the command's own options, and those of the program."""
    own: list[str] = []
    program: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return own, program + rest
        name, equals, _ = word.partition("=")
        if name in _FLAGS or (equals and name in _WITH_VALUE):
            own.append(word)
        elif name in _WITH_VALUE:
            own += [word, *rest[:1]]
            del rest[:1]
        elif program or word == "-m" or not word.startswith("-"):
            program.append(word)
            if word == "-m" and len(program) == 1:
                program += rest[:1]
                del rest[:1]
        else:
            own.append(word)
    return own, program


def parse(words: Sequence[str]) -> Plan:
    """Return the plan of a command line; exits with status 2 and a message for a wrong one."""
    own, program = split(words)
    parser = _parser()
    options = parser.parse_args(own)
    if not program or program == ["-m"]:
        parser.error("a program is missing: pass a file, or -m and a module")
    if program[0] != "-m" and not os.path.isfile(program[0]):
        parser.error(f"there is no file {program[0]!r}; a module is run by -m {program[0]}")
    kind = "run" if options.run else "tcp" if options.tcp else "http"
    if options.run and (options.tcp or options.rate or options.port or options.requests):
        parser.error(
            "--run measures a program that ends, without a load: omit --tcp, --rate, --port and "
            "--requests"
        )
    given = vars(options)
    fields = {name: given[name] for name in Plan.__dataclass_fields__ if name in given}
    plan = Plan(program, kind=kind, **fields | {"tls": options.tls or options.insecure})
    if kind != "run":
        _add_port_arguments(plan)
        try:
            plan.payloads = _payloads(options)
        except (OSError, UnicodeError, ValueError) as error:
            parser.error(f"--requests {options.requests}: {error}")
    return plan


def _add_port_arguments(plan: Plan) -> None:
    """Add the port to the arguments of a known server; {port} needs no fixed port."""
    if not any("{port}" in word for word in plan.program) and plan.program[0] == "-m":
        plan.program += _PORT_ARGUMENTS.get(plan.program[1], ())
    if any("{port}" in word for word in plan.program):
        plan.port = None


def _payloads(options: argparse.Namespace) -> list[bytes]:
    """Return the bytes that the load generator sends."""
    if options.tcp:
        return [(b"0123456789abcdef" * (options.size // 16 + 1))[: options.size]]
    if options.requests is None:
        return [request(options.path, options.host)]
    with open(options.requests, encoding="utf-8") as file:
        return read_requests(file.read(), options.host)


def _parser() -> Parser:
    """Return the parser of the command's own options."""

    class Own(Parser):
        """A parser with the written help."""

        def format_help(self) -> str:
            """Return the help."""
            return USAGE

        def format_usage(self) -> str:
            """Return the first line of the help."""
            return USAGE.partition("\n")[0] + "\n"

    parser = Own(prog="goloop compare", allow_abbrev=False)
    for flag in sorted(_FLAGS):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--path", default="/", type=_path)
    parser.add_argument("--requests")
    parser.add_argument("--size", type=_number(1, 1 << 30), default=1024)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=_number(1, 65535))
    parser.add_argument("--connections", type=_numbers, default=[4, 100])
    parser.add_argument("--rate", type=_number(1, 10_000_000))
    parser.add_argument("--loops", type=_loops, default=loops.installed())
    parser.add_argument("--rounds", type=_rounds, default=9)
    parser.add_argument("--bursts", type=_number(1, 1000), default=3)
    parser.add_argument("--seconds", type=seconds(0.01), default=0.3)
    parser.add_argument("--server-cores", type=_number(1, 4096), default=1)
    parser.add_argument("--start-limit", type=seconds(0.1), default=30.0)
    parser.add_argument("--svg")
    parser.add_argument("--json")
    return parser


def _number(least: int, most: int) -> Callable[[str], int]:
    """Return a converter for argparse: text to an integer from `least` to `most`."""

    def converted(text: str) -> int:
        """Return the integer in the text."""
        if text.isascii() and text.isdigit() and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(f"must be from {least} to {most}, got {text!r}")

    return converted


def _rounds(text: str) -> int | None:
    """Return the number of rounds, or None for `auto`, for argparse."""
    if text == "auto":
        return None
    try:
        return _number(1, 1000)(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"must be auto or {str(error)[8:]}") from None


def _numbers(text: str) -> list[int]:
    """Return the numbers of connections in a list, for argparse."""
    return [_number(1, 100_000)(word) for word in text.split(",")]


def _path(text: str) -> str:
    """Return a path of a URL, for argparse."""
    if text.startswith("/") and text.isascii() and text.isprintable() and " " not in text:
        return text
    raise argparse.ArgumentTypeError(
        f"must begin with / and have no spaces (written %20), got {text!r}"
    )


def _loops(text: str) -> list[loops.Loop]:
    """Return the loops in a list, for argparse."""
    try:
        return loops.parse_loops(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
