"""The rows that others disturbed: the rule, and the commands that measure them again.

The rule for a window is goloop.operations.compare.measuring.machine.disturbance().  A row, one
case of a run with all of its loops, is refused if more than ROW of its windows were disturbed,
or more than LOOP of one loop's: the median of a loop tolerates some bad windows, not half of
them.  The report shows no figure of a refused row, but the row of an older run that was quiet,
if there is one.  Windows without an account of the cores are neither disturbed nor quiet: rows
without a server, which are timed by a process's CPU clock, and runs of older versions.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.cases import BY_NAME as CASES
from benchmarks.cases import SHARING, Case
from benchmarks.results import GIL, Run, Sample, latest
from goloop.operations.compare.measuring import machine

NO_FIGURES = "no figures: other programs or the host disturbed every window"

ROW = 0.1
LOOP = 1 / 3


@dataclass(frozen=True)
class Windows:
    """Numbers of windows: disturbed ones, and all whose account is known."""

    disturbed: int = 0
    known: int = 0

    def __add__(self, other: Windows) -> Windows:
        """Return the sums."""
        return Windows(self.disturbed + other.disturbed, self.known + other.known)

    def exceeds(self, share: float) -> bool:
        """Return true if more than this share of the known windows was disturbed."""
        return self.disturbed > share * self.known


@dataclass(frozen=True)
class Refusal:
    """A row of a run, and why it is not shown."""

    run: Run
    case: str
    reason: str

    def __str__(self) -> str:
        """Write the row and the reason as one line."""
        return f"CPython {self.run.python}, {self.case}: {self.reason}"


def windows(run: Run, case: str) -> dict[str, Windows]:
    """Count the windows of each loop in a case."""
    # The default is the result of machine.excludes_interrupt_time() for an unknown kernel.
    apart = run.machine.get("interrupts") != "within"
    counts = {}
    for loop, rounds in run.samples.get(case, {}).items():
        found = [_is_disturbed(sample, interrupts_apart=apart) for sample in rounds.values()]
        counts[loop] = Windows(found.count(True), len(found) - found.count(None))
    return counts


def _is_disturbed(sample: Sample, *, interrupts_apart: bool) -> bool | None:
    """Return true if others used too much of the cores in a window; None if unknown."""
    if not sample.get("cores"):
        return None
    span = sample.get("span", sample["seconds"])  # older runs took both at the same times
    found = machine.Account(
        cpu=sample["server_cpu"],
        waited=sample.get("waited", 0.0),
        idle=sample["idle"],
        interrupts=sample["interrupts"] if interrupts_apart else 0.0,
        steal=sample["steal"],
        whole=sample["cores"] * span,
    )
    return bool(
        machine.disturbance(found, sample["client_cpu"], span, shares_core=sample["cores"] == 1)
    )


def is_all_disturbed(run: Run, case: str) -> bool:
    """Return true if every window of a row was disturbed: its figures are those of others."""
    whole = sum(windows(run, case).values(), Windows())
    return whole.known > 0 and whole.disturbed == whole.known


def refusal(run: Run, case: str) -> Refusal | None:
    """Return why a row is refused, or None if it is shown."""
    counts = windows(run, case)
    row = sum(counts.values(), Windows())
    if row.exceeds(ROW):
        return Refusal(run, case, f"{row.disturbed} of {row.known} windows were disturbed")
    for loop, each in counts.items():
        if each.exceeds(LOOP):
            some = f"{each.disturbed} of {each.known} windows of {loop}"
            return Refusal(run, case, f"{some} were disturbed")
    return None


def choose(
    runs: Sequence[Run], *, layouts: bool = False
) -> tuple[dict[str, dict[str, Run]], list[Refusal]]:
    """Return the runs to show, and the refused rows that are newer than the shown ones.

    The first result is tag -> case -> the newest run in which the case was quiet.
    """
    newest = latest(runs, layouts=layouts)
    shown = latest(runs, layouts=layouts, fits=lambda run, case: refusal(run, case) is None)
    found = [refusal(run, case) for by_case in newest.values() for case, run in by_case.items()]
    return shown, [each for each in found if each is not None]


def commands(refusals: Iterable[Refusal]) -> list[str]:
    """Return the commands that measure refused rows again, each in the way of its run."""
    alike: dict[str, dict[str, None]] = {}
    for each in refusals:
        alike.setdefault(_way(each.run, CASES[each.case]), {})[each.case] = None
    return [f"{way} --cases {shlex.join(cases)}" for way, cases in alike.items()]


def _way(run: Run, case: Case) -> str:
    """Return the command of a run, without its cases."""
    major, minor = run.python.split(".")[:2]
    python = f"{f'{GIL}={run.gil} ' * bool(run.gil)}python{major}.{minor}{'t' * run.free_threaded}"
    options = re.sub(r" --(no-save|(cases|pinning|allocator)( (?!-)\S+)+)", "", run.command)
    options = options.partition(" -m benchmarks ")[2].removeprefix("run")
    options += " --allocator default" * bool(run.layouts)
    # The name of a row of split cores fits the row of the same core, too.
    options += " --pinning split" * (case.pinning == "split" and case.group in SHARING)
    return f"{python} -m benchmarks run{options}"


def told(refusals: Sequence[Refusal]) -> list[str]:
    """Write refused rows for a terminal, with the commands."""
    if not refusals:
        return []
    return [
        "refused, because other programs or the host used the cores:",
        *(f"  {each}" for each in refusals),
        "measure these rows again on an idle machine:",
        *(f"  {command}" for command in commands(refusals)),
    ]
