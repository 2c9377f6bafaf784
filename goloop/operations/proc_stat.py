"""Facts about a process from /proc/PID/stat (proc_pid_stat(5)).

Where the file is missing or has fewer fields, as on a system without /proc or for a process that
has ended, a fact is None, and a state is empty.
"""

from __future__ import annotations

import os
import time

# Positions in fields(), which begins with the third field of the manual page.
STATE, PARENT, SESSION, USER, SYSTEM, STARTED = 0, 1, 3, 11, 12, 19


def all_pids() -> list[int]:
    """Return the ids of all processes; [] without /proc."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def name_and_fields(pid: int | str) -> tuple[str, list[str]]:
    """Return the program's name, and the fields after it; "" and [] if there is no such file."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The program's name is in parentheses and may contain any characters.
            before, _, after = file.read().rpartition(b")")
    except OSError:
        return "", []
    name = before.partition(b"(")[2].decode(errors="replace")
    return name, after.decode("ascii", "replace").split()


def fields(pid: int | str) -> list[str]:
    """Return the fields after the program's name, the state first; [] if there is no such file."""
    return name_and_fields(pid)[1]


def state(pid: int | str) -> str:
    """Return the letter of a process's state: R for running, Z for a zombie, and so on."""
    found = fields(pid)
    return found[STATE] if found else ""


def parent(pid: int | str) -> int | None:
    """Return the id of a process's parent."""
    return _number(fields(pid), PARENT)


def started(pid: int | str) -> int | None:
    """Return the start time of a process, in clock ticks since boot; with the id it is unique."""
    return _number(fields(pid), STARTED)


def age(pid: int | str) -> float | None:
    """Return the seconds since the start of a process."""
    ticks = started(pid)
    if ticks is None or not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    return max(0.0, now - ticks / os.sysconf("SC_CLK_TCK"))


def cpu_seconds(pid: int | str) -> float | None:
    """Return the CPU time of a process, of all its threads."""
    modes = cpu_modes(pid)
    return None if modes is None else sum(modes)


def cpu_modes(pid: int | str) -> tuple[float, float] | None:
    """Return the seconds of CPU time of a process in user mode and in the kernel."""
    found = fields(pid)
    user, system = _number(found, USER), _number(found, SYSTEM)
    if user is None or system is None:
        return None
    tick = os.sysconf("SC_CLK_TCK")
    return user / tick, system / tick


def _number(found: list[str], position: int) -> int | None:
    """Return a field as an integer."""
    try:
        return int(found[position])
    except (IndexError, ValueError):
        return None
