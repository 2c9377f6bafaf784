"""The machine of the measurements, recorded with every run."""

from __future__ import annotations

import gzip
import os
import platform
from dataclasses import dataclass
from pathlib import Path


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
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "kernel": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()),
        "memory": _memory(),
        "interrupts": "apart" if interrupts_apart() else "within",
    }


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


def _processor() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


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
