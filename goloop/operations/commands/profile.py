"""The commands `goloop profile PID` and `goloop slow PID`.

A program samples its loops all the time.  `profile` requests the sums twice and shows the
difference: the loops' time by task and line.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time

from ..._internal.frames import Frame
from ..._internal.observe import flight_recorder, profiling
from . import options
from .client import GIL_HELD, NoAnswer, ask
from .terminal import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    from ..._internal.observe.flight_recorder import Unfinished
    from ..._internal.observe.profiling import Profile
    from ..snapshot import Row

    _Result = TypeVar("_Result")

# A loop that makes no turn for this time is blocked. The monitor takes samples more often.
_BLOCKED_SECONDS = 0.2
_EXTENSIONS = (".pb.gz", ".svg", ".folded")


def _output_file(text: str) -> str:
    """Return a file name that has one of _EXTENSIONS, for argparse; else ArgumentTypeError."""
    if not text.endswith(_EXTENSIONS):
        endings = ", ".join(_EXTENSIONS)
        raise argparse.ArgumentTypeError(f"the extension must be one of {endings}, got {text!r}")
    return text


def _parser() -> argparse.ArgumentParser:
    """Return the argument parser of `profile`."""
    parser = options.Parser(
        prog="python -m goloop profile",
        description="Show in which tasks, functions and lines the loops of a running program spend "
        "their time.",
        epilog="Ctrl-C ends the measurement early, and shows the samples up to then.",
    )
    add = parser.add_argument
    add("pid", type=options.pid, metavar="PID", help=options.PID_HELP)
    help_text = (
        "seconds to measure (default: 30); 0 shows all samples since the start of the program"
    )
    add("--seconds", type=options.seconds(0), default=30.0, metavar="S", help=help_text)
    help_text = (
        "write the samples to a file: NAME.svg is a flame graph for the browser, NAME.pb.gz "
    )
    help_text += "is for pprof, NAME.folded for speedscope; may be repeated"
    add(
        "-o",
        "--output",
        type=_output_file,
        action="append",
        default=[],
        metavar="FILE",
        help=help_text,
    )
    return parser


def _request_answer(pid: int) -> Row:
    """Request the profile of a process and return the answer; raises NoAnswer.

    Prints a note to stderr if the monitor has answered.
    """
    answer = ask(pid, "profile")
    if "profile" not in answer:
        raise NoAnswer(
            f"process {pid} runs a version of goloop that has no profile: update goloop there"
        )
    if answer.get("partial"):
        print(f"process {pid}: {GIL_HELD}", file=sys.stderr)
        # The monitor's answer has no time.
        answer["profile"].update(clock=time.monotonic(), time=time.time())
    return answer


def _request_profile(pid: int) -> Profile:
    """Request a profile and return it; raises NoAnswer."""
    return _read(pid, profiling.from_raw, _request_answer(pid)["profile"])


def _read(pid: int, read: Callable[[Row], _Result], raw: Row) -> _Result:
    """Return `read(raw)` for a part of an answer; NoAnswer if it is invalid."""
    try:
        return read(raw)
    except (LookupError, TypeError, ValueError) as error:
        raise NoAnswer(f"process {pid}: its answer is invalid ({error!r})") from None


def write(profile: Profile, path: str, title: str) -> None:
    """Write the profile to a file, in the format of its extension."""
    if path.endswith(".pb.gz"):
        content = profile.pprof()
    elif path.endswith(".svg"):
        content = profile.flame_graph(title).encode()
    else:
        content = profile.folded().encode()
    with open(path, "wb") as file:
        file.write(content)


def main(arguments: list[str]) -> int:
    """Run `profile PID`: print the profile and write the output files.

    Returns the exit status: 1 if the process does not answer or a file cannot be written, 130 after
    Ctrl-C during a request, else 0.
    """
    given = _parser().parse_args(arguments)
    try:
        profile = _request_profile(given.pid)
        if given.seconds:
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(given.seconds)
            profile = _request_profile(given.pid) - profile
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
    """Print a text, with escapes for characters that may affect a terminal."""
    for line in text.split("\n"):
        print(printable(line))


def slow_main(arguments: list[str]) -> int:
    """Run `slow PID`; return the exit status: 1 if the process does not answer, else 0.

    The program is asked twice, because an iteration that does not end between the two answers
    blocks its loop.
    """
    parser = options.Parser(
        prog="python -m goloop slow",
        description="Show the last iterations of a running program's loops that took longer than "
        "50 ms (or the seconds in GOLOOP_SLOW), each with its stack, and those that block a loop "
        "now.",
    )
    parser.add_argument("pid", type=options.pid, metavar="PID", help=options.PID_HELP)
    given = parser.parse_args(arguments)
    try:
        before = ask(given.pid, "top", tasks=0, connections=0)
        time.sleep(_BLOCKED_SECONDS)
        answer = _request_answer(given.pid)
        after = answer
        if not answer.get("partial"):
            after = ask(given.pid, "top", tasks=0, connections=0)
        found = _read(given.pid, flight_recorder.from_raw, answer["profile"])
        blocked = _read(
            given.pid, lambda raw: list(_blocked_loops(before, after, raw)), answer["profile"]
        )
    except NoAnswer as reason:
        print(reason, file=sys.stderr)
        return 1
    # A loop that is blocked now matters most.
    for each in blocked:
        _show(str(each))
    if found or not blocked:
        _show(flight_recorder.iterations_text(found))
    return 0


def _blocked_loops(before: Row, after: Row, raw: Row) -> Iterator[Unfinished]:
    """Yield the iterations that have not ended between two answers to "top".

    The second answer may be the monitor's. `raw` is a profile that was made between the two, or
    with the second one. Raises LookupError or TypeError if an answer is invalid.
    """
    earlier = {loop.get("number"): loop for loop in before.get("loops") or ()}
    for loop in after.get("loops") or ():
        first, number = earlier.get(loop.get("number")), loop.get("number")
        if first is None or not (first.get("metrics") and loop.get("metrics")):
            continue
        now, then = loop["metrics"], first["metrics"]
        seconds = loop["clock"] - first["clock"]
        busy = (now["time_busy"] - then["time_busy"]) / 1e9
        if not loop.get("running") or now["turns"] != then["turns"] or busy < 0.9 * seconds:
            continue
        lasted = max(seconds, loop.get("blocked_for") or 0.0, now.get("blocked_for", 0) / 1e9)
        known = flight_recorder.unfinished_iteration(raw, number, first["clock"])
        stack = None if known is None else known.stack
        if stack is None and loop.get("stack"):
            frames = tuple(Frame(*each) for each in reversed(loop["stack"]))
            stack = flight_recorder.SlowStack(lasted, frames[0].function, frames)
        if known is not None:
            lasted = max(lasted, known.seconds)
        yield flight_recorder.Unfinished(number, lasted, stack)
