"""The command `goloop top PID`: live view of a running program's loops, tasks and connections.

The server and the protocol are in introspection.py, the client is in client.py.  This module
schedules the requests and shows the reports as text, as JSON, or on a screen with keys.
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
from .client import ANSWER_SECONDS, HINT, Question, introspectable_pids
from .target import WatchedProcess, without_unknown_fields
from .terminal import Screen, Terminal
from .top_view import ORDERS, View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..snapshot import Row


class _NothingToShow(Exception):
    """No process is left to observe; the text says why."""


class Top:
    """The observed processes, and the loop of refreshes."""

    def __init__(self, pids: list[int], interval: float, refreshes: int | None) -> None:
        """Observe processes; [] means all. `interval` is in seconds, `refreshes` None: no limit."""
        self._watched = {pid: WatchedProcess(pid) for pid in pids}
        self._all = not pids
        self._interval = interval
        self._refreshes = refreshes
        self._answered = False
        # Until this time the command waits for programs that have not imported goloop yet.
        self._patient_until = time.monotonic() + ANSWER_SECONDS

    def _send_requests(self) -> None:
        """Send a request to each process; with --all, find new and ended processes first."""
        if self._all:
            found = introspectable_pids()
            for pid in set(self._watched) - set(found):
                self._watched.pop(pid).give_up()
            self._watched.update(
                (pid, WatchedProcess(pid)) for pid in found if pid not in self._watched
            )
        for each in self._watched.values():
            each.ask()

    def _reports(self) -> list[Row]:
        """Return a report for each process; with --all, only for processes that have answered."""
        several = sorted(self._watched.values(), key=lambda each: each.pid)
        if self._all:
            several = [each for each in several if each.report is not None]
        return [each.latest() for each in several]

    def _waits_for_start(self) -> bool:
        """Return true if no process has answered, and one of them may still import goloop."""
        several = self._watched.values()
        return (
            time.monotonic() < self._patient_until
            and any(each.starting for each in several)
            and all(each.report is None for each in several)
        )

    def _check(self) -> None:
        """Record whether a process has answered; raise _NothingToShow if there is nothing to show.

        That is the case if all requests have finished and no process has ever answered, or if all
        given processes have ended.
        """
        several = self._watched.values()
        self._answered |= any(each.report is not None for each in several)
        if any(each.question is not None for each in several) or self._waits_for_start():
            return
        if self._all and not self._answered:
            raise _NothingToShow(f"there is no program of this user to show: {HINT}")
        # With --all, processes that start later are found by later refreshes.
        if self._all or any(each.report is not None and is_alive(each.pid) for each in several):
            return
        ended = [_gone(each.pid) if each.report is not None else each.error for each in several]
        raise _NothingToShow("\n".join(ended))

    # ---- output for scripts and pagers

    def print(self, show: Callable[[list[Row]], None]) -> None:
        """Call `show` with the reports of each refresh, when all its requests have finished.

        Raises _NothingToShow.
        """
        done = 0
        while True:
            started = time.monotonic()
            self._send_requests()
            while waiting := [each for each in self._watched.values() if each.question]:
                with selectors.DefaultSelector() as selector:
                    for each in waiting:
                        selector.register(_question(each), selectors.EVENT_READ)
                    selector.select(
                        _seconds_until(min(_question(each).deadline for each in waiting))
                    )
                for each in waiting:
                    each.advance()
            self._check()
            if self._waits_for_start():
                time.sleep(0.1)
                continue
            show(self._reports())
            done += 1
            if done == self._refreshes:
                return
            time.sleep(_seconds_until(started + self._interval))

    # ---- the screen

    def watch(self, terminal: Terminal) -> int:
        """Show refreshes on the screen until a key, a signal or the number of refreshes ends it.

        Returns the number of the signal, or 0.
        Raises _NothingToShow.
        """
        with _Signals() as signals, Screen(terminal) as screen:
            view = View(terminal, *terminal.size())
            paused = asking = False
            done = 0
            due = 0.0
            while signals.ending is None:
                if signals.suspended:
                    signals.suspend(screen)
                if not paused and time.monotonic() >= due:
                    self._send_requests()
                    asking = True
                    due = time.monotonic() + self._interval
                with selectors.DefaultSelector() as selector:
                    asked = [each for each in self._watched.values() if each.question]
                    for source in (signals.fd, screen.keyboard, *map(_question, asked)):
                        if source is not None:
                            selector.register(source, selectors.EVENT_READ)
                    # While an answer is overdue, its waiting time is redrawn twice a second.
                    soonest = [] if paused else [due]
                    soonest += [time.monotonic() + 0.5] if asked or paused else []
                    ready = {
                        key.fileobj for key, _ in selector.select(_seconds_until(min(soonest)))
                    }
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
                screen.draw(view.lines(self._reports(), self._overdue(), _footer(view, paused)))
                if asking and not any(each.question for each in self._watched.values()):
                    asking = False
                    done += 1
                    if done == self._refreshes:
                        return 0
            return signals.ending

    def _overdue(self) -> dict[int, float]:
        """Return the seconds since the pending request by process id, for late answers only."""
        now = time.monotonic()
        silent = {each.pid: now - each.asked for each in self._watched.values() if each.question}
        return {pid: waited for pid, waited in silent.items() if waited > max(1.0, self._interval)}


def _question(each: WatchedProcess) -> Question:
    """Return the pending request of a process, which must have one."""
    assert each.question is not None
    return each.question


def _seconds_until(when: float) -> float:
    """Return the seconds until a monotonic time, 0.0 if it is over."""
    return max(0.0, when - time.monotonic())


def _gone(pid: int) -> str:
    """Return the text for a process that has ended."""
    return f"process {pid} has ended"


def _footer(view: View, paused: bool) -> str:
    """Return the last line of the screen: the keys and the order of the tasks."""
    toggle = "p continue" if paused else "p pause"
    return f"q quit   {toggle}   s order: {ORDERS[view.order]}" + ("   PAUSED" if paused else "")


class _Signals:
    """Handlers for signals that end, suspend or redraw the screen; a context manager."""

    _ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        """Install nothing yet."""
        self.ending: int | None = None
        self.suspended = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        """Install the handlers, except for ignored signals, and a wakeup fd, read at `fd`."""
        self.fd, self._write = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write, False)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (*self._ENDING, signal.SIGTSTP, signal.SIGWINCH):
            if signal.getsignal(number) == signal.SIG_IGN:
                continue  # nohup, or a shell without job control
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the previous handlers and the wakeup fd."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self.fd)
        os.close(self._write)

    def _handle(self, number: int, frame: object) -> None:
        """Record a signal that ends or suspends the screen; a signal handler."""
        if number in self._ENDING:
            self.ending = number
        elif number == signal.SIGTSTP:
            self.suspended = True

    def drain(self) -> None:
        """Discard the bytes in the wake-up pipe."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.fd, 4096):
                pass

    def suspend(self, screen: Screen) -> None:
        """Suspend this process for Ctrl-Z; the terminal is restored until the process continues."""
        self.suspended = False
        screen.leave()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._handle)
        screen.enter()


# ---- the command -------------------------------------------------------------------------


def _refreshes(text: str) -> int:
    """Return the number of refreshes in a text, for argparse; ArgumentTypeError if below 1."""
    with contextlib.suppress(ValueError):
        if (value := int(text)) > 0:
            return value
    raise argparse.ArgumentTypeError(f"must be a number of refreshes >= 1, got {text!r}")


def _parser() -> argparse.ArgumentParser:
    """Return the argument parser of `top`."""
    parser = options.Parser(
        prog="python -m goloop top",
        description="Show the loops, tasks and connections of running programs. The screen is "
        "refreshed every second.",
        epilog="Keys: q quits, p pauses and continues, s changes the order of the tasks. The arrow "
        "keys, Page Up, Page Down, Home and End scroll the screen; so do k, j, b, the space bar, "
        "g and G.",
    )
    add = parser.add_argument
    add("pid", nargs="*", type=options.pid, metavar="PID", help=options.PID_HELP)
    add("--all", action="store_true", help="show all of your programs that were started with it")
    add(
        "--interval",
        type=options.seconds(0.1),
        default=1.0,
        metavar="S",
        help="seconds between refreshes (default: 1)",
    )
    add("-n", type=_refreshes, metavar="N", dest="refreshes", help="show N refreshes, then exit")
    add(
        "--once",
        action="store_true",
        help="print the values since the start of the program, then exit",
    )
    add("--json", action="store_true", help="print one JSON object for each refresh")
    return parser


def main(arguments: list[str]) -> int:
    """Run `top PID...` or `top --all`; return the exit status.

    It is 1 if no process answers or all have ended, 130 after Ctrl-C, else 0. Any other signal
    that ends the screen ends the process.
    """
    parser = _parser()
    given = parser.parse_args(arguments)
    if bool(given.pid) == given.all:
        parser.error("give process ids or --all")
    top = Top(given.pid, given.interval, 1 if given.once else given.refreshes)
    terminal = Terminal()
    try:
        if given.json:
            top.print(_print_json)
        elif terminal.is_screen and not given.once:
            return _exit_status(top.watch(terminal))
        else:
            top.print(lambda reports: _print_text(terminal, reports))
    except _NothingToShow as reason:
        print(reason, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def _print_json(reports: list[Row]) -> None:
    """Print the reports of one refresh as one line of JSON."""
    processes = [without_unknown_fields(report) for report in reports]
    print(json.dumps({"time": time.time(), "processes": processes}), flush=True)


def _print_text(terminal: Terminal, reports: list[Row]) -> None:
    """Print the reports of one refresh as lines, cut to the width of the terminal.

    Without a terminal the variable COLUMNS has the width; the default is 120.
    """
    columns = terminal.size()[0]
    if not terminal.is_screen:
        wished = os.environ.get("COLUMNS", "")
        columns = max(40, int(wished)) if wished.isascii() and wished.isdecimal() else 120
    lines = View(terminal, columns, None).lines(reports, {})
    terminal.write("".join(terminal.render(line, columns) + "\n" for line in [*lines, []]))


def _exit_status(number: int) -> int:
    """Return the exit status for the signal that ended the screen; 0 for none.

    Except for SIGINT, the process ends itself by the same signal first.
    """
    if number and number != signal.SIGINT:
        # End by the same signal, so that the parent sees it in the exit status.
        os.kill(os.getpid(), number)
    return 128 + number if number else 0
