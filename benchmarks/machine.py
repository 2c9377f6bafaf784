"""The machine of the measurements, recorded with every run."""

from __future__ import annotations

import gzip
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import native

# The names of a processor's family in /proc/cpuinfo, on x86 and on ARM.
FAMILIES = (
    (("vendor_id", ""), ("cpu family", "family "), ("model", "model "), ("stepping", "stepping ")),
    (("CPU implementer", "implementer "), ("CPU variant", "variant "), ("CPU part", "part ")),
)
# Files with the hypervisor's name (Xen's), and with the maker and the name of the computer.
NAMED = "/sys/hypervisor/type"
COMPUTER = ("/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/product_name")
SECONDS = 30.0  # the program of the costs takes less than one


@dataclass(frozen=True)
class Cores:
    """The core of the server and the core of the load generator."""

    server: int
    client: int

    @property
    def apart(self) -> bool:
        """Return true if the two cores differ; results from a single core mean little."""
        return self.server != self.client


def cores() -> Cores:
    """Choose the first and the last core that this process may use."""
    found = usable()
    return Cores(server=found[0], client=found[-1])


def usable() -> list[int]:
    """Return the cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def describe() -> dict[str, str]:
    """Describe the machine in words for the report."""
    cpuinfo = _lines("/proc/cpuinfo")
    found = costs()
    return {
        "processor": _processor(cpuinfo),
        "family": family(cpuinfo),
        "cores": str(len(os.sched_getaffinity(0))),
        "kernel": f"{platform.system()} {platform.release()}",
        "hypervisor": hypervisor(
            cpuinfo, found.pop("hypervisor", ""), _lines(NAMED), [*map(_lines, COMPUTER)]
        ),
        "libc": " ".join(platform.libc_ver()),
        "memory": _memory(),
        "interrupts": "apart" if interrupts_apart() else "within",
        **found,
    }


def costs() -> dict[str, str]:
    """Measure a system call and a wake-up between the two cores.

    The keys are those of ceiling/machine.c.  A cost that can't be measured is omitted, for
    example all of them if there is no C compiler.
    """
    chosen = cores()
    try:
        command = [str(native.c_program("machine")), str(chosen.server), str(chosen.client)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)
    except (native.BuildError, OSError, subprocess.SubprocessError):
        return {}
    return {key: str(value) for key, value in json.loads(done.stdout).items()}


def family(cpuinfo: Sequence[str]) -> str:
    """Write the processor's family and model by the lines of /proc/cpuinfo."""
    fields = _fields(cpuinfo)
    for keys in FAMILIES:
        words = [before + fields[key] for key, before in keys if fields.get(key)]
        if len(words) > 1:
            return ", ".join(words).replace(", family", " family", 1)
    return "unknown"


def hypervisor(
    cpuinfo: Sequence[str], by_cpuid: str, named: Sequence[str], computer: Sequence[Sequence[str]]
) -> str:
    """Name the hypervisor, with the computer's maker and name if they are known; or "none".

    `by_cpuid` is the name that the processor gives, or empty; `named` has the lines of NAMED,
    `computer` those of each file of COMPUTER.  A computer without a name that has the flag
    `hypervisor` has an unnamed one.
    """
    name = by_cpuid or "".join(named[:1]).strip()
    if not name and "hypervisor" in _fields(cpuinfo).get("flags", "").split():
        name = "unnamed"
    if not name:
        return "none"
    words = " ".join(line.strip() for lines in computer for line in lines[:1])
    return f"{name} ({words})" if words else name


def interrupts_apart() -> bool:
    """Return true if the CPU clocks of processes exclude the time of interrupts.

    The kernel's build decides this.  If its configuration can't be read, the result is true:
    then a disturbed window may be taken for a quiet one, but never the reverse.
    """
    try:
        with gzip.open("/proc/config.gz", "rt") as compressed:
            lines = compressed.read().splitlines()
    except OSError:
        lines = _lines(f"/boot/config-{platform.release()}")
    return not lines or "CONFIG_IRQ_TIME_ACCOUNTING=y" in lines


def _processor(cpuinfo: Sequence[str]) -> str:
    return _fields(cpuinfo).get("model name") or platform.machine()


def _fields(cpuinfo: Sequence[str]) -> dict[str, str]:
    """Return the fields of the first processor."""
    fields: dict[str, str] = {}
    for line in cpuinfo:
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    return fields


def _memory() -> str:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemTotal"):
            return f"{int(line.split()[1]) / 2**20:.0f} GiB"
    return "unknown"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
