"""The processors: the choice of cores, the CPU time of processes, and disturbances by others."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from dataclasses import dataclass, replace

from .. import proc_stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# The share of the cores' time that others may use before a burst counts as disturbed.
OTHERS = 0.1
# The share of a burst that the program's busiest thread may wait for a core that others use.
WAITED = 0.1


def choose_cores(server_cores: int) -> tuple[list[int], list[int]]:
    """Return the cores of the server and the core of the client.

    Both are equal if there is one core, and empty if the platform cannot bind processes to cores.
    """
    if not hasattr(os, "sched_getaffinity"):
        return [], []
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) == 1:
        return usable, usable
    return usable[:-1][:server_cores], usable[-1:]


def describe() -> str:
    """Return Python's version, the processor and the system as a line."""
    processor = platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
    gil = "" if getattr(sys, "_is_gil_enabled", lambda: True)() else " without the GIL"
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{platform.python_implementation()} {platform.python_version()}{gil}, {processor}, "
        f"{count} core{'s' * (count != 1)}, {platform.system()} {platform.release()}"
    )


@dataclass(frozen=True)
class Snapshot:
    """The account of processes and cores at one time, in seconds.

    `threads` has the CPU time and the wait for a core of each thread. `cores` has the times of
    /proc/stat: idle, interrupts, stolen by the host, and all. Both are None if unknown.
    """

    threads: dict[int, tuple[float, float]] | None
    cores: tuple[float, float, float, float] | None


@dataclass(frozen=True)
class Account:
    """The difference of two snapshots; None for an unknown value.

    `waited` is the time in which the busiest thread waited for a core, without the CPU time of the
    program's other threads, which may have had the core meanwhile.
    """

    cpu: float | None
    waited: float | None
    idle: float | None
    interrupts: float
    steal: float
    whole: float

    def of_program(self, cpu: float) -> Account:
        """Return the account with the CPU time of a program that has ended."""
        return replace(self, cpu=cpu, waited=0.0)


def snapshot(pids: Iterable[int], cores: Sequence[int]) -> Snapshot:
    """Return the account of the processes and the cores now."""
    threads: dict[int, tuple[float, float]] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError, ValueError):
                    with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                        ran, waited, _ = file.read().split()
                    threads[int(thread)] = int(ran) / 1e9, int(waited) / 1e9
    if not any(ran for ran, _ in threads.values()):
        return Snapshot(_by_ticks(pids), _core_times(cores))
    return Snapshot(threads, _core_times(cores))


def _by_ticks(pids: Iterable[int]) -> dict[int, tuple[float, float]] | None:
    """Return the CPU time of processes by /proc/PID/stat, where schedstat is missing."""
    found: dict[int, tuple[float, float]] = {}
    for pid in pids:
        cpu = proc_stat.cpu_seconds(pid)
        if cpu is not None:
            found[pid] = cpu, 0.0
    return found or None


def _core_times(cores: Sequence[int]) -> tuple[float, float, float, float] | None:
    """Return idle, interrupts, steal and the sum of all times of the cores; None if unknown."""
    names = {f"cpu{core}" for core in cores}
    idle = interrupts = steal = whole = 0.0
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/stat") as file:
        tick = os.sysconf("SC_CLK_TCK")
        for line in file:
            name, *words = line.split()
            if name in names:
                times = [int(word) / tick for word in words[:8]]
                idle += times[3] + times[4]
                interrupts += times[5] + times[6]
                steal += times[7]
                whole += sum(times)
    return (idle, interrupts, steal, whole) if whole else None


def account(before: Snapshot, after: Snapshot) -> Account:
    """Return the difference of two snapshots."""
    cpu = waited = None
    if before.threads is not None and after.threads is not None:
        spent = {
            thread: (
                ran - before.threads.get(thread, (0.0, 0.0))[0],
                wait - before.threads.get(thread, (0.0, 0.0))[1],
            )
            for thread, (ran, wait) in after.threads.items()
        }
        cpu = sum(ran for ran, _ in spent.values())
        busiest = max(spent.values(), default=(0.0, 0.0))
        # The program's own threads and processes are not others.
        waited = max(0.0, busiest[1] - (cpu - busiest[0]))
    if before.cores is None or after.cores is None:
        return Account(cpu, waited, None, 0.0, 0.0, 0.0)
    idle, interrupts, steal, whole = (b - a for a, b in zip(before.cores, after.cores, strict=True))
    return Account(cpu, waited, idle, interrupts, steal, whole)


def disturbance(
    found: Account, client_cpu: float, seconds: float, *, shares_core: bool = False
) -> str | None:
    """Return why a burst counts as disturbed; "" if it does not, and None if that is unknown.

    `shares_core` is true if the server waits for the client, too, on the only core. Others are
    programs and the host. Interrupts are not counted as theirs, because the measured network makes
    most of them.
    """
    if found.cpu is None or found.waited is None:
        return None
    waited = found.waited - (client_cpu if shares_core else 0)
    if waited > WAITED * seconds:
        share = min(1.0, waited / seconds)
        return f"the program waited for a core for {share:.0%} of the time"
    if found.idle is None or not found.whole:
        return None
    others = found.whole - found.idle - found.interrupts - found.cpu - client_cpu
    share = min(1.0, max(others, found.steal) / found.whole)
    return f"other programs or the host used {share:.0%} of the cores" if share > OTHERS else ""
