"""The programs that use the cores beside the measured ones, by name, as in `top`."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from ... import proc_stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# The name of the time that the host gave to other virtual machines.
HOST = "the host"
# Programs that use less than this share of a core are not shown, and not more than these.
_LEAST = 0.02
_MOST_SHOWN = 3


@dataclass(frozen=True)
class Process:
    """A process: its name, its parent, its session, its start, and its CPU time in seconds."""

    name: str
    parent: int
    session: int
    started: int
    cpu: float


class OtherPrograms:
    """The CPU time of other programs since the first look().

    A process that starts and ends between two looks is not seen.
    """

    def __init__(self) -> None:
        """Wait for the first look."""
        self._last: dict[tuple[int, int], float] | None = None
        self._stolen = 0.0
        self._used: dict[str, float] = {}
        self._sessions: set[int] = set()  # sessions of the measured programs
        self._begin = self._end = 0.0

    def add_session(self, number: int) -> None:
        """Count the processes of a session as measured, also when its leader has ended."""
        self._sessions.add(number)

    def look(self) -> None:
        """Add the CPU time since the last look. The first look only begins."""
        now = time.monotonic()
        found = _processes()
        own = measured(found, os.getpid(), self._sessions)
        # A session without a process is forgotten, because its number may be used again.
        self._sessions = {found[pid].session for pid in own if pid in found} - {os.getsid(0)}
        seen = {(pid, each.started): each.cpu for pid, each in found.items()}
        stolen = _stolen_seconds()
        if self._last is None:
            self._begin = now
        else:
            for pid, each in found.items():
                grown = each.cpu - self._last.get((pid, each.started), 0.0)
                if pid not in own and grown > 0:
                    self._used[each.name] = self._used.get(each.name, 0.0) + grown
            if stolen > self._stolen:
                self._used[HOST] = self._used.get(HOST, 0.0) + stolen - self._stolen
        self._last, self._stolen, self._end = seen, stolen, now

    def shares(self) -> dict[str, float]:
        """Return the CPU time of each program as a share of a core, the largest first."""
        seconds = self._end - self._begin
        ordered = sorted(self._used.items(), key=lambda each: -each[1])
        return {name: used / seconds for name, used in ordered} if seconds > 0 else {}


def in_words(shares: Mapping[str, float]) -> str:
    """Return the largest users: "cc1 38 %, make 4 %"; "" if none uses a notable share."""
    notable = [each for each in shares.items() if each[1] >= _LEAST][:_MOST_SHOWN]
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in notable)


def measured(found: Mapping[int, Process], own: int, sessions: Iterable[int] = ()) -> set[int]:
    """Return this process, its descendants, and the processes in sessions that those lead.

    The processes in these other sessions belong to them, too.
    """
    members = {own}
    known = set(sessions)
    while True:
        led = (members | known) - {own}
        more = {pid for pid, each in found.items() if each.parent in members or each.session in led}
        if more <= members:
            return members
        members |= more


def _processes() -> dict[int, Process]:
    """Return all processes; {} without /proc."""
    found = {}
    tick = os.sysconf("SC_CLK_TCK")
    for pid in proc_stat.all_pids():
        name, fields = proc_stat.name_and_fields(pid)
        if len(fields) > proc_stat.STARTED:
            found[pid] = Process(
                name,
                int(fields[proc_stat.PARENT]),
                int(fields[proc_stat.SESSION]),
                int(fields[proc_stat.STARTED]),
                (int(fields[proc_stat.USER]) + int(fields[proc_stat.SYSTEM])) / tick,
            )
    return found


def _stolen_seconds() -> float:
    """Return the time of all cores in which the host ran other virtual machines."""
    try:
        with open("/proc/stat") as file:
            return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
