"""The time of one message by function: perf's samples of each server, side by side.

perf samples the server's threads at a fixed rate of their processor time.  A share is the share of
perf's samples in all rounds.  The microseconds are these shares of the server's processor time for
a message, by its own clock, as in the other tables.  perf itself takes some of the processor time,
the same for all loops, so the sums can be compared within this table only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.cases import Case
from benchmarks.loops import Loop
from benchmarks.results import Run, Sample
from benchmarks.runner import Runner
from benchmarks.servers import Server
from goloop.operations.compare.measuring.text import aligned
from goloop.operations.compare.measuring.turns import Failure

# Samples per second of processor time: a prime, so that no timer runs in step with it.
FREQUENCY = 3989

KERNEL, OPENSSL, PYTHON, GO, OWN, REST = PLACES = (
    "kernel", "OpenSSL", "Python", "Go's runtime", "the loop's own", "libc and others",
)  # fmt: skip
# The prefix of a DSO's file name.
_BEGINNINGS = {
    "[kernel": KERNEL, "[unknown]": KERNEL, "libcrypto": OPENSSL, "libssl": OPENSSL,
    "python": PYTHON, "libpython": PYTHON, "_ssl.": PYTHON, "_asyncio.": PYTHON,
    "_socket.": PYTHON, "libc.": REST, "libc-": REST, "ld-linux": REST, "libm.": REST,
    "[vdso]": REST, "libpthread": REST,
}  # fmt: skip
_OF_GO = ("runtime.", "runtime/", "internal/runtime", "gogo", "_cgo", "crosscall", "cgocall")


def place_of(dso: str, symbol: str) -> str:
    """Return the place to which a sample belongs."""
    for beginning, place in _BEGINNINGS.items():
        if dso.startswith(beginning):
            return place
    return GO if symbol.startswith(_OF_GO) else OWN


def read_samples(text: str) -> Counter[str]:
    """Count the samples by place, of lines "samples;DSO;symbol" as perf report writes them."""
    found: Counter[str] = Counter()
    for line in text.splitlines():
        words = [word.strip() for word in line.split(";")]
        if len(words) == 3 and words[0].isdecimal():
            symbol = words[2].removeprefix("[.] ").removeprefix("[k] ")
            found[place_of(words[1], symbol)] += int(words[0])
    return found


class NoPerf(Exception):
    """Raised if this machine has no perf."""


class Sampling(Runner):
    """A runner that samples each measured server with perf."""

    # (case, loop) -> its samples by place, in all rounds
    found: dict[tuple[str, str], Counter[str]]

    def look(self, run: Run, cases: Sequence[Case], loops: Sequence[Loop]) -> None:
        """Measure cases into a run; raises NoPerf."""
        if shutil.which("perf") is None:
            raise NoPerf("there is no perf: it comes with the kernel's tools (linux-perf)")
        self.found = {}
        self.measure(run, cases, loops)

    def _network_sample(
        self, case: Case, name: str, layout: int = 0, rate: int | None = None
    ) -> Sample:
        self._samples = self.found.setdefault((case.name, name), Counter())
        return super()._network_sample(case, name, layout, rate)

    def _load(self, case: Case, server: Server, rate: int | None = None) -> Sample:
        with tempfile.TemporaryDirectory(prefix="goloop-bench-") as directory:
            kept = Path(directory) / "perf.data"
            with _recording(server.process.pid, kept) as complaints:
                sample = super()._load(case, server, rate)
            told = subprocess.run(
                ["perf", "report", "-q", "-i", kept, "--stdio", "-F", "sample,dso,symbol",
                 "-t", ";"],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            )  # fmt: skip
        here = read_samples(told.stdout)
        if not here:
            words = " ".join([*complaints, told.stderr]).split()
            raise Failure(f"perf has no samples: {' '.join(words)}")
        self._samples.update(here)
        return sample


@contextlib.contextmanager
def _recording(pid: int, kept: Path) -> Iterator[list[str]]:
    """Sample with perf during the block; its error messages are in the list at the end."""
    complaints: list[str] = []
    told, tells = os.pipe()
    answer, answers = os.pipe()
    # The pipes stay open until perf has ended; otherwise perf would not write its samples.
    with open(tells, "wb", buffering=0) as order, open(answer, "rb", buffering=0) as acknowledged:
        record = subprocess.Popen(
            ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(FREQUENCY), "-p", str(pid),
             "-o", kept, "-D", "-1", "--control", f"fd:{told},{answers}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, pass_fds=(told, answers),
        )  # fmt: skip
        os.close(told)
        os.close(answers)
        try:
            with contextlib.suppress(BrokenPipeError):
                order.write(b"enable\n")
            acknowledged.read(len(b"ack\n"))  # returns nothing if perf has ended
            yield complaints
        finally:
            record.send_signal(signal.SIGINT)
            complaints.append(record.communicate()[1].strip())


def table(run: Run, found: dict[tuple[str, str], Counter[str]], case: Case) -> str:
    """Write the table of a case: a row for each loop, microseconds of a message by place."""
    names = [name for each, name in found if each == case.name and found[each, name]]
    rows = [[case.name, "CPU, µs", *PLACES]]
    for name in names:
        samples = found[case.name, name]
        spent = median(run.figures(case.name, name, "server_us").values())
        whole = sum(samples.values())
        parts = [spent * samples[place] / whole for place in PLACES]
        rows.append([name, *(f"{part:.2f}" for part in (spent, *parts))])
    return "\n".join(aligned(rows))
