"""`python -m goloop profile PID`: who has the time of a running program's loops.

The program samples itself all the time; this asks for its sums twice, and tells the difference.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time

from ..._internal.metrics import flight_recorder, profiling
from . import options
from .client import GIL_HELD, NoAnswer, ask
from .terminal import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from ..._internal.metrics.profiling import Profile
    from ..snapshot import Row

    _Read = TypeVar("_Read")

_ENDINGS = (".pb.gz", ".svg", ".folded")


def _file(text: str) -> str:
    if not text.endswith(_ENDINGS):
        raise argparse.ArgumentTypeError(f"{text!r} ends with none of {', '.join(_ENDINGS)}")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = options.Parser(
        prog="python -m goloop profile",
        description="Show who has the time of a running program's loops, by task and line.",
        epilog="An interrupt ends the time early.",
    )
    add = parser.add_argument
    add("pid", type=options.pid, metavar="PID", help="a process that answers")
    help_text = "how long to look (default: 30); 0: all since the program's first sample"
    add("--seconds", type=options.seconds(0), default=30.0, metavar="S", help=help_text)
    help_text = "write a file, of the kind of its ending: .pb.gz for pprof, .svg for a "
    help_text += "flame graph, .folded for folded stacks; may be repeated"
    add("-o", "--output", type=_file, action="append", default=[], metavar="FILE", help=help_text)
    return parser


def _raw(pid: int) -> Row:
    answer = ask(pid, "profile")
    if "profile" not in answer:
        raise NoAnswer(f"process {pid} runs a goloop that has no profile: its version is too old")
    if answer.get("partial"):
        print(f"process {pid}: {GIL_HELD}", file=sys.stderr)
        # The monitor knows no other clock.
        answer["profile"].update(clock=time.monotonic(), time=time.time())
    raw: Row = answer["profile"]
    return raw


def _asked(pid: int, read: Callable[[Row], _Read]) -> _Read:
    raw = _raw(pid)
    try:
        return read(raw)
    except (LookupError, TypeError, ValueError) as error:
        raise NoAnswer(f"process {pid} answers what is not understood here ({error!r})") from None


def write(profile: Profile, path: str, title: str) -> None:
    """A file of the kind that its ending tells."""
    if path.endswith(".pb.gz"):
        content = profile.pprof()
    elif path.endswith(".svg"):
        content = profile.flame_graph(title).encode()
    else:
        content = profile.folded().encode()
    with open(path, "wb") as file:
        file.write(content)


def main(arguments: list[str]) -> int:
    """`profile PID`; returns the exit status."""
    given = _parser().parse_args(arguments)
    try:
        profile = _asked(given.pid, profiling.from_raw)
        if given.seconds:
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(given.seconds)
            profile = _asked(given.pid, profiling.from_raw) - profile
    except NoAnswer as reason:
        print(reason, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    try:
        for path in given.output:
            write(profile, path, f"process {given.pid}")
    except OSError as error:
        print(f"{error.filename}: {os.strerror(error.errno or 0)}", file=sys.stderr)
        return 1
    _show(str(profile))
    return 0


def _show(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    for line in text.split("\n"):
        print(printable(line).encode(encoding, "backslashreplace").decode(encoding))


def slow_main(arguments: list[str]) -> int:
    """`slow PID`; returns the exit status."""
    parser = options.Parser(
        prog="python -m goloop slow",
        description="Show the last iterations of a running program's loops that took long.",
    )
    parser.add_argument("pid", type=options.pid, metavar="PID", help="a process that answers")
    given = parser.parse_args(arguments)
    try:
        found = _asked(given.pid, flight_recorder.from_raw)
    except NoAnswer as reason:
        print(reason, file=sys.stderr)
        return 1
    _show(flight_recorder.table(found))
    return 0
