"""The machine: its description, the choice of cores, and the account of CPU time in a window.

A *window* is the time in which a load is measured. Two snapshots, at its begin and its end, give
the CPU time of the measured processes and the use of their cores by others, who disturb it.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import os
import platform
import sys
import time
from dataclasses import dataclass, replace

from ... import proc_stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# The share of the cores' time that others may use before a window counts as disturbed. The kernel
# counts idle time in units of 10 ms: in half a second of two cores the share is exact to 0.02.
OTHERS = 0.1
# The share of a window that the program's busiest thread may wait for a core that others use.
WAITED = 0.1

# The names of a processor's family in /proc/cpuinfo, on x86 and on ARM.
_FAMILIES = (
    (("vendor_id", ""), ("cpu family", "family "), ("model", "model "), ("stepping", "stepping ")),
    (("CPU implementer", "implementer "), ("CPU variant", "variant "), ("CPU part", "part ")),
)
# Files with the hypervisor's name (Xen's), and with the maker and the name of the computer.
_HYPERVISOR = "/sys/hypervisor/type"
_COMPUTER = ("/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/product_name")
_IDLE_DRIVER = "/sys/devices/system/cpu/cpuidle/current_driver"
_HALT_POLL = "/sys/module/haltpoll/parameters/guest_halt_poll_ns"


# ---- the cores -----------------------------------------------------------------------------------


def usable_cores() -> list[int]:
    """Return the cores that this process may use; [] if the platform cannot tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def choose_cores(server_cores: int) -> tuple[list[int], list[int]]:
    """Return the cores of the server and the core of the client.

    Both are equal if there is one core, and empty if the platform cannot bind processes to cores.
    """
    usable = usable_cores()
    return usable[:-1][:server_cores] or usable, usable[-1:]


# ---- the description -----------------------------------------------------------------------------


def describe() -> str:
    """Return Python's version, the processor and the system as a line."""
    found = facts()
    gil = "" if getattr(sys, "_is_gil_enabled", lambda: True)() else " without the GIL"
    return (
        f"{platform.python_implementation()} {platform.python_version()}{gil}, "
        f"{found['processor']}, {found['cores']} core{'s' * (found['cores'] != '1')}, "
        f"{found['kernel']}"
    )


def facts(hypervisor: str = "") -> dict[str, str]:
    """Return the facts about the machine that results depend on.

    `hypervisor` is the hypervisor's name, if the caller knows it from the processor.
    """
    cpuinfo = _lines("/proc/cpuinfo")
    return {
        "processor": _fields(cpuinfo).get("model name") or platform.machine(),
        "family": family(cpuinfo),
        "cores": str(len(usable_cores()) or os.cpu_count()),
        "kernel": f"{platform.system()} {platform.release()}",
        "hypervisor": hypervisor_name(
            cpuinfo, hypervisor, _lines(_HYPERVISOR), [*map(_lines, _COMPUTER)]
        ),
        "libc": " ".join(platform.libc_ver()),
        "memory": _memory(),
        "interrupts": "apart" if excludes_interrupt_time() else "within",
        "polling": halt_polling(_lines(_IDLE_DRIVER), _lines(_HALT_POLL)),
    }


def family(cpuinfo: Sequence[str]) -> str:
    """Return the processor's family and model by the lines of /proc/cpuinfo."""
    fields = _fields(cpuinfo)
    for keys in _FAMILIES:
        words = [before + fields[key] for key, before in keys if fields.get(key)]
        if len(words) > 1:
            return ", ".join(words).replace(", family", " family", 1)
    return "unknown"


def hypervisor_name(
    cpuinfo: Sequence[str], by_cpuid: str, named: Sequence[str], computer: Sequence[Sequence[str]]
) -> str:
    """Return the hypervisor's name, with the computer's maker and name if known; or "none".

    `by_cpuid` is the name that the processor gives, or empty; `named` has the lines of
    /sys/hypervisor/type, `computer` the first lines of the computer's maker and name. A computer
    without a name that has the flag `hypervisor` has an unnamed one.
    """
    name = by_cpuid or "".join(named[:1]).strip()
    if not name and "hypervisor" in _fields(cpuinfo).get("flags", "").split():
        name = "unnamed"
    if not name:
        return "none"
    words = " ".join(line.strip() for lines in computer for line in lines[:1])
    return f"{name} ({words})" if words else name


@functools.cache
def excludes_interrupt_time() -> bool:
    """Return true if the CPU clocks of processes exclude the time of interrupts.

    The kernel's build decides this. If its configuration cannot be read, the result is true: then a
    disturbed window may be taken for a quiet one, but never the reverse.
    """
    try:
        with gzip.open("/proc/config.gz", "rt") as compressed:
            lines = compressed.read().splitlines()
    except OSError:
        lines = _lines(f"/boot/config-{platform.release()}")
    return not lines or "CONFIG_IRQ_TIME_ACCOUNTING=y" in lines


def halt_polling(driver: Sequence[str], nanoseconds: Sequence[str]) -> str:
    """Return how long an idle core of a guest polls before it halts, as "200 µs", or "none".

    `driver` has the lines of the idle driver's name, `nanoseconds` those of haltpoll's parameter.
    A core that polls is woken without the hypervisor, so a wake-up takes less time.
    """
    longest = int(nanoseconds[0]) if driver[:1] == ["haltpoll"] and nanoseconds else 0
    return f"{longest / 1000:g} µs" if longest else "none"


def _fields(cpuinfo: Sequence[str]) -> dict[str, str]:
    """Return the fields of the first processor."""
    fields: dict[str, str] = {}
    for line in cpuinfo:
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    return fields


def _memory() -> str:
    """Return the size of the memory."""
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemTotal"):
            return f"{int(line.split()[1]) / 2**20:.0f} GiB"
    return "unknown"


def _lines(path: str) -> list[str]:
    """Return the lines of a file; [] if it cannot be read."""
    with contextlib.suppress(OSError), open(path) as file:
        return file.read().splitlines()
    return []


# ---- the account of a window ---------------------------------------------------------------------


@dataclass(frozen=True)
class Snapshot:
    """The account of processes and cores at one time, in seconds.

    `cpu` has the CPU time of each process that has not ended, and `modes` its parts in user mode
    and in the kernel, in coarse ticks. `threads` has the CPU time and the wait for a core of each
    thread. `cores` has the times of /proc/stat: idle, interrupts, stolen by the host, and all; None
    if unknown.
    """

    cpu: dict[int, float]
    modes: dict[int, tuple[float, float]]
    threads: dict[int, tuple[float, float]]
    cores: tuple[float, float, float, float] | None


@dataclass(frozen=True)
class Account:
    """The difference of two snapshots; None for an unknown value.

    `waited` is the time in which the busiest thread waited for a core, without the CPU time of the
    program's other threads, which may have had the core meanwhile. `interrupts` is the time of
    interrupts that `cpu` excludes.
    """

    cpu: float | None
    waited: float | None
    idle: float | None
    interrupts: float
    steal: float
    whole: float
    user: float = 0.0
    system: float = 0.0

    def of_program(self, cpu: float) -> Account:
        """Return the account with the CPU time of a program that has ended."""
        return replace(self, cpu=cpu, waited=0.0)


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU time of a process, with its ended threads; None if it has ended."""
    with contextlib.suppress(OSError):
        return time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3) on Linux
    return proc_stat.cpu_seconds(pid)


def snapshot(pids: Iterable[int], cores: Sequence[int]) -> Snapshot:
    """Return the account of the processes and the cores now."""
    found = Snapshot({}, {}, {}, _core_times(cores))
    for pid in pids:
        cpu = cpu_seconds(pid)
        if cpu is None:
            continue
        found.cpu[pid] = cpu
        found.modes[pid] = proc_stat.cpu_modes(pid) or (0.0, 0.0)
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError, ValueError):
                    with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                        ran, waited, _ = file.read().split()
                    found.threads[int(thread)] = int(ran) / 1e9, int(waited) / 1e9
    return found


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
    if after.cpu:
        cpu = sum(end - before.cpu.get(pid, 0.0) for pid, end in after.cpu.items())
        spent = _differences(before.threads, after.threads)
        busiest = max(spent, default=(0.0, 0.0))
        # The program's own threads and processes are not others.
        waited = max(0.0, busiest[1] - max(0.0, cpu - busiest[0]))
    modes = _differences(before.modes, after.modes)
    user, system = sum(each[0] for each in modes), sum(each[1] for each in modes)
    if before.cores is None or after.cores is None:
        return Account(cpu, waited, None, 0.0, 0.0, 0.0, user, system)
    idle, interrupts, steal, whole = (b - a for a, b in zip(before.cores, after.cores, strict=True))
    if not excludes_interrupt_time():
        interrupts = 0.0  # the clocks of the processes have it
    return Account(cpu, waited, idle, interrupts, steal, whole, user, system)


def _differences(
    before: dict[int, tuple[float, float]], after: dict[int, tuple[float, float]]
) -> list[tuple[float, float]]:
    """Return the growth of the two times of each process or thread."""
    none = (0.0, 0.0)
    return [
        (end[0] - before.get(key, none)[0], end[1] - before.get(key, none)[1])
        for key, end in after.items()
    ]


def disturbance(
    found: Account, client_cpu: float, seconds: float, *, shares_core: bool = False
) -> str | None:
    """Return why a window counts as disturbed; "" if it does not, and None if that is unknown.

    `shares_core` is true if the server waits for the client, too, on the same core. Others are
    programs and the host. Idle time is no disturbance, because with few connections both ends wait
    for each other; nor are interrupts, because the measured network makes most of them.
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
