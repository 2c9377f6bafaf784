"""`python -m goloop top PID`: a running program's loops, tasks and connections, as they go on.

The programs' side and the protocol are in introspection.py, the asking is in client.py.  Here
is who is asked when, and what becomes of the reports: text, JSON, or a screen with keys.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import selectors
import signal
import sys
import time

from ..introspection import is_alive
from . import options
from .client import HINT, Question, answering
from .target import Watched, for_scripts
from .terminal import Screen, Terminal
from .top_view import ORDERS, View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..snapshot import Row


class _Ended(Exception):
    """Nothing is left to watch."""


class Top:
    """The processes that are watched, refresh after refresh."""

    def __init__(self, pids: list[int], interval: float, refreshes: int | None) -> None:
        self._watched = {pid: Watched(pid) for pid in pids}
        self._all = not pids
        self._interval = interval
        self._refreshes = refreshes
        self._answered = False

    def _begin(self) -> None:
        """Ask everybody; raises _Ended where there is nobody left."""
        if self._all:
            found = answering()
            for pid in set(self._watched) - set(found):
                self._watched.pop(pid).give_up()
            self._watched.update((pid, Watched(pid)) for pid in found if pid not in self._watched)
        for each in self._watched.values():
            each.ask()

    def _reports(self) -> list[Row]:
        """One for each process; with --all, none of those that answer other users only."""
        several = sorted(self._watched.values(), key=lambda each: each.pid)
        if self._all:
            several = [each for each in several if each.report is not None]
        return [each.told() for each in several]

    def _check(self) -> None:
        """Raises _Ended where nobody has ever answered, or all that were named are gone."""
        several = self._watched.values()
        self._answered |= any(each.report is not None for each in several)
        if any(each.question is not None for each in several):
            return
        if self._all and not self._answered:
            raise _Ended(f"no program of this user answers: {HINT}")
        # Later ones will be found.
        if self._all or any(each.report is not None and is_alive(each.pid) for each in several):
            return
        ended = [_gone(each.pid) if each.report is not None else each.error for each in several]
        raise _Ended("\n".join(ended))

    # ---- for scripts and pagers

    def print(self, show: Callable[[list[Row]], None]) -> None:
        """Refresh after refresh, each when all have answered or will not."""
        done = 0
        while True:
            started = time.monotonic()
            self._begin()
            while waiting := [each for each in self._watched.values() if each.question]:
                with selectors.DefaultSelector() as selector:
                    for each in waiting:
                        selector.register(_question(each), selectors.EVENT_READ)
                    selector.select(_until(min(_question(each).deadline for each in waiting)))
                for each in waiting:
                    each.advance()
            self._check()
            show(self._reports())
            done += 1
            if done == self._refreshes:
                return
            time.sleep(_until(started + self._interval))

    # ---- for people

    def watch(self, terminal: Terminal) -> int:
        """The screen; returns the number of the signal that has ended it, or 0."""
        with _Signals() as signals, Screen(terminal) as screen:
            view = View(terminal, *terminal.size())
            paused = asking = False
            done = 0
            due = 0.0
            while signals.ending is None:
                if signals.suspended:
                    signals.suspend(screen)
                if not paused and time.monotonic() >= due:
                    self._begin()
                    asking = True
                    due = time.monotonic() + self._interval
                with selectors.DefaultSelector() as selector:
                    asked = [each for each in self._watched.values() if each.question]
                    for source in (signals.fd, screen.keyboard, *map(_question, asked)):
                        if source is not None:
                            selector.register(source, selectors.EVENT_READ)
                    # While somebody keeps silent, how long is shown in seconds.
                    soonest = [] if paused else [due]
                    soonest += [time.monotonic() + 0.5] if asked or paused else []
                    ready = {key.fileobj for key, _ in selector.select(_until(min(soonest)))}
                signals.drain()
                for key in screen.keys() if screen.keyboard in ready else "":
                    if key == "q":
                        return 0
                    paused = paused ^ (key == "p")
                    view.scroll(key)
                    if key == "s":
                        names = list(ORDERS)
                        view.order = names[(names.index(view.order) + 1) % len(names)]
                for each in asked:
                    each.advance()
                self._check()
                view.resize(*terminal.size())
                screen.draw(view.lines(self._reports(), self._waited(), _foot(view, paused)))
                if asking and not any(each.question for each in self._watched.values()):
                    asking = False
                    done += 1
                    if done == self._refreshes:
                        return 0
            return signals.ending

    def _waited(self) -> dict[int, float]:
        now = time.monotonic()
        silent = {each.pid: now - each.asked for each in self._watched.values() if each.question}
        return {pid: waited for pid, waited in silent.items() if waited > max(1.0, self._interval)}


def _question(each: Watched) -> Question:
    assert each.question is not None
    return each.question


def _until(when: float) -> float:
    return max(0.0, when - time.monotonic())


def _gone(pid: int) -> str:
    return f"process {pid} has ended"


def _foot(view: View, paused: bool) -> str:
    what = "p go on" if paused else "p pause"
    return f"q quit   {what}   s order: {ORDERS[view.order]}" + ("   PAUSED" if paused else "")


class _Signals:
    """The signals that end, stop or redraw the screen, while it is there; a context manager."""

    _ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.ending: int | None = None
        self.suspended = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        self.fd, self._write = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write, False)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (*self._ENDING, signal.SIGTSTP, signal.SIGWINCH):
            if signal.getsignal(number) == signal.SIG_IGN:
                continue  # nohup, or a shell without job control
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self.fd)
        os.close(self._write)

    def _take(self, number: int, frame: object) -> None:
        if number in self._ENDING:
            self.ending = number
        elif number == signal.SIGTSTP:
            self.suspended = True

    def drain(self) -> None:
        """Forget the wake-ups."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.fd, 4096):
                pass

    def suspend(self, screen: Screen) -> None:
        """Stop as Ctrl-Z asks for, with the terminal given back meanwhile."""
        self.suspended = False
        screen.leave()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._take)
        screen.enter()


# ---- the command -------------------------------------------------------------------------


def _refreshes(text: str) -> int:
    with contextlib.suppress(ValueError):
        if (value := int(text)) > 0:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of refreshes")


def _parser() -> argparse.ArgumentParser:
    parser = options.Parser(
        prog="python -m goloop top",
        description="Show what the loops of running programs do, second by second.",
        epilog="Keys: q quits, p pauses, s changes the order of the tasks. Arrows, Page Up and "
        "Down, Home and End scroll, as do k, j, b, the space bar, g and G.",
    )
    add = parser.add_argument
    add("pid", nargs="*", type=options.pid, metavar="PID", help="a process that answers")
    add("--all", action="store_true", help="every process of this user that answers")
    add(
        "--interval",
        type=options.seconds(0.1),
        default=1.0,
        metavar="S",
        help="seconds (default: 1)",
    )
    add("-n", type=_refreshes, metavar="N", dest="refreshes", help="end after N refreshes")
    add("--once", action="store_true", help="one refresh; its figures are those since the start")
    add("--json", action="store_true", help="print a JSON object for each refresh")
    return parser


def main(arguments: list[str]) -> int:
    """`top PID...` or `top --all`; returns the exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if bool(given.pid) == given.all:
        parser.error("name processes, or --all")
    top = Top(given.pid, given.interval, 1 if given.once else given.refreshes)
    terminal = Terminal()
    try:
        if given.json:
            top.print(_print_json)
        elif terminal.is_screen and not given.once:
            return _end(top.watch(terminal))
        else:
            top.print(lambda reports: _print_text(terminal, reports))
    except _Ended as reason:
        print(reason, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def _print_json(reports: list[Row]) -> None:
    processes = [for_scripts(report) for report in reports]
    print(json.dumps({"time": time.time(), "processes": processes}), flush=True)


def _print_text(terminal: Terminal, reports: list[Row]) -> None:
    columns = terminal.size()[0] if terminal.is_screen else None
    lines = View(terminal, columns, None).lines(reports, {})
    terminal.write("".join(terminal.render(line, columns) + "\n" for line in [*lines, []]))


def _end(number: int) -> int:
    if number and number != signal.SIGINT:
        # Whoever has sent it sees that it was obeyed.
        os.kill(os.getpid(), number)
    return 128 + number if number else 0
