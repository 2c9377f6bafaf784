"""The command `goloop compare`: measures which event loop is faster for a program.

The parts are in the package goloop.operations.compare. Tables go to standard output, and the
progress to standard error if that is a terminal.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys

from ..._internal import backend
from ..._internal.version import __version__
from ..compare import machine, report, results
from ..compare.arguments import USAGE, parse
from ..compare.rounds import measure
from .terminal import Terminal, pad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_INTERRUPTED = 130


class Progress:
    """A line on a terminal that is overwritten; nothing without a terminal."""

    def __init__(self) -> None:
        """Find out whether standard error is a terminal."""
        self._terminal = Terminal(sys.stderr) if sys.stderr is not None else None
        self._shown = self._terminal is not None and self._terminal.is_screen

    def say(self, words: str) -> None:
        """Replace the line."""
        if self._shown and self._terminal is not None:
            columns = self._terminal.size()[0] - 1
            self._terminal.write("\r" + pad(words, columns))

    def clear(self) -> None:
        """Remove the line."""
        if self._shown and self._terminal is not None:
            self._terminal.write("\r\x1b[K")


def main(arguments: list[str]) -> int:
    """Run `compare` and return the exit status."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    plan = parse(arguments)
    if not backend.native:
        print(
            "goloop compare: goloop's own loop is not available on this Python, so there is "
            "nothing to compare; `goloop doctor` has the reason",
            file=sys.stderr,
        )
        return 1
    progress = Progress()
    with _ended_by_sigterm():
        found = measure(plan, progress.say)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the report is written in any case
    progress.clear()
    words = machine.describe()
    facts = {"goloop": __version__, "python": sys.version.split()[0], "machine": words}
    if plan.json == "-":
        print(json.dumps(results.as_json(found, facts), indent=2))
    else:
        terminal = Terminal()
        for line in report.lines(found, words):
            print(terminal.render([(line, "")]))
    if plan.json not in (None, "-"):
        with open(str(plan.json), "w", encoding="utf-8") as file:
            json.dump(results.as_json(found, facts), file, indent=2)
            file.write("\n")
    if found.interrupted:
        return _INTERRUPTED
    return 1 if found.failures else 0


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Make SIGTERM interrupt the measurement, like SIGINT, so that no process stays."""

    def interrupt(number: int, frame: object) -> None:
        """Raise KeyboardInterrupt."""
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
