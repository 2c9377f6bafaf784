"""The rows that others disturbed: the rule, and the commands that measure them again.

A window is disturbed if others had more than stats.OTHERS of the two cores in it.  A row, one
case of a run with all of its loops, is refused if more than ROW of its windows were disturbed,
or more than LOOP of one loop's: the median of a loop tolerates some bad windows, not half of
them.  The report shows no figure of a refused row, but the row of an older run that was quiet,
if there is one.  Windows without an account of the cores are neither disturbed nor quiet: rows
without a server, which are timed by a process's CPU clock, and runs of older versions.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.cases import BY_NAME as CASES
from benchmarks.cases import SHARING
from benchmarks.loops import BY_NAME as LOOPS
from benchmarks.results import Run, Sample, latest
from benchmarks.runner import GIL, ROUNDS, UNTIL, Settings
from benchmarks.stats import disturbed

ROW = 0.1
LOOP = 1 / 3


@dataclass(frozen=True)
class Windows:
    """Numbers of windows: disturbed ones, all whose account is known, and the others."""

    disturbed: int = 0
    known: int = 0
    unknown: int = 0

    def __add__(self, other: Windows) -> Windows:
        """Return the sums."""
        return Windows(
            self.disturbed + other.disturbed,
            self.known + other.known,
            self.unknown + other.unknown,
        )

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
    # The default is the result of machine.interrupts_apart() for an unknown kernel.
    apart = run.machine.get("interrupts") != "within"
    return {
        loop: _count(rounds, interrupts_apart=apart)
        for loop, rounds in run.samples.get(case, {}).items()
    }


def _count(rounds: Mapping[int, Sample], *, interrupts_apart: bool) -> Windows:
    found = [disturbed(sample, interrupts_apart=interrupts_apart) for sample in rounds.values()]
    return Windows(found.count(True), len(found) - found.count(None), found.count(None))


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
    alike: dict[tuple[str, ...], list[str]] = {}
    for each in refusals:
        pinning = CASES[each.case].pinning
        way = (each.run.gil, _interpreter(each.run), pinning, *_options(each.run))
        cases = alike.setdefault(way, [])
        if each.case not in cases:
            cases.append(each.case)
    return [
        shlex.join([f"{GIL}={gil}"] * bool(gil) + [python, "-m", "benchmarks", "run", *options])
        + " --pinning split" * (pinning == "split" and any(map(_shares, cases)))
        + f" --cases {shlex.join(cases)}"
        for (gil, python, pinning, *options), cases in alike.items()
    ]


def _shares(case: str) -> bool:
    """Return true if a case also has a row of the same core, which its name would fit."""
    return CASES[case].group in SHARING


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


def _interpreter(run: Run) -> str:
    major, minor = run.python.split(".")[:2]
    return f"python{major}.{minor}{'t' * run.free_threaded}"


def _options(run: Run) -> list[str]:
    """Return the options that differ from those of a plain run."""
    usual = Settings()
    options = []
    if run.layouts:
        options += ["--allocator", "default", "--layouts", str(run.layouts)]
    elif not run.until:
        options += ["--rounds", str(run.rounds)]
    elif (run.rounds, run.until, run.max_rounds) != (ROUNDS, UNTIL, usual.max_rounds):
        options += ["--rounds", str(run.rounds), "--until", f"{run.until:g}"]
        options += ["--max-rounds", str(run.max_rounds)]
    taken = replace(usual, seconds=run.seconds, warmup=run.warmup)
    if taken != usual:
        options += ["--seconds", f"{run.seconds:g}", "--warmup", f"{run.warmup:g}"]
    loops = [name for name in run.loops if name in LOOPS]
    if set(loops) != set(LOOPS):
        options += ["--loops", *loops]
    return options
