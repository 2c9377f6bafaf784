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
from ..compare import results
from ..compare.arguments import USAGE, parse
from ..compare.measuring import machine
from ..compare.output import picture, report
from ..compare.rounds import measure
from ..keeper import ENDING_SIGNALS
from .terminal import Terminal, pad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..compare.rounds import Measurement

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
            shown = pad(words, columns, self._terminal.ellipsis)
            self._write("\r" + self._terminal.render([(shown, "")]))

    def clear(self) -> None:
        """Remove the line."""
        self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        """Write to the terminal, which may have been closed."""
        if self._shown and self._terminal is not None:
            with contextlib.suppress(OSError):
                self._terminal.write(text)


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
    with _interrupted_once() as ignore_signals:
        found = measure(plan, progress.say)
        ignore_signals()  # the report is written in any case
        progress.clear()
        words = machine.describe()
        facts = {"goloop": __version__, "python": sys.version.split()[0], "machine": words}
        json_error = _write_json(found, facts)
        terminal = Terminal()
        if plan.json == "-":
            print(json.dumps(results.as_json(found, facts), indent=2))
        else:
            for line in report.lines(found, words):
                print(terminal.render([(line, "")]))
        written = _write_picture(found)
        if written and plan.json != "-":
            print()
            print(terminal.render([(f"picture: {written}", "")]))
        sys.stdout.flush()
        if json_error is not None:
            print(
                f"goloop compare: the results cannot be written ({json_error}): name another file "
                "by --json",
                file=sys.stderr,
            )
    if found.interrupted:
        return _INTERRUPTED
    return 1 if found.failures or json_error is not None else 0


def _write_json(found: Measurement, facts: dict[str, str]) -> OSError | None:
    """Write the results to the file of --json, if it names one; return the error of writing."""
    name = found.plan.json
    if name in (None, "-"):
        return None
    try:
        with open(str(name), "w", encoding="utf-8") as file:
            json.dump(results.as_json(found, facts), file, indent=2)
            file.write("\n")
    except OSError as error:
        return error
    return None


def _write_picture(found: Measurement) -> str | None:
    """Write the picture and return its file; None if there is none."""
    name = found.plan.picture
    drawn = picture.draw(found)
    if name is None or drawn is None:
        return None
    try:
        with open(name, "w", encoding="utf-8") as file:
            file.write(drawn)
    except OSError as error:
        print(
            f"goloop compare: the picture cannot be written ({error}): name another file by --svg",
            file=sys.stderr,
        )
        return None
    return name


@contextlib.contextmanager
def _interrupted_once() -> Iterator[Callable[[], None]]:
    """Make each signal that ends the command interrupt the measurement, as SIGINT does.

    Further signals are ignored, so that they do not interrupt the end of the servers. The result
    ignores them from now on. A signal that was ignored before, by nohup for example, stays ignored.
    """
    before = {
        number: signal.getsignal(number)
        for number in ENDING_SIGNALS
        if signal.getsignal(number) not in (signal.SIG_IGN, None)
    }

    def ignore() -> None:
        """Ignore the signals."""
        for number in before:
            signal.signal(number, signal.SIG_IGN)

    def interrupt(number: int, frame: object) -> None:
        """Raise KeyboardInterrupt, and ignore the signals from now on."""
        ignore()
        raise KeyboardInterrupt

    try:
        for number in before:
            signal.signal(number, interrupt)
        yield ignore
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
