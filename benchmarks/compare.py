"""Two builds of goloop, before and after a change, interleaved.

Each build is an interpreter that has goloop: a virtual environment of this tree and one
of another checkout.  The rounds of the two alternate, the first of each pair in turn, and
ratios are taken inside a round (stats.py), so that a machine which speeds up or slows
down meanwhile does both alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.cases import Case
from benchmarks.loops import BY_NAME
from benchmarks.results import Run
from benchmarks.runner import Failure, Runner, Settings
from benchmarks.stats import paired_ratio, short, summarize, table

NAMES = ("before", "after")


def compare(
    before: str,
    after: str,
    cases: Sequence[Case],
    settings: Settings,
    say: Callable[[str], None],
) -> str:
    """Measure both builds and return a table; a case that one can't run has a dash."""
    runners = {
        name: Runner(path, settings, say) for name, path in zip(NAMES, (before, after), strict=True)
    }
    # Both are asked for the same rate.
    runners["before"].peaks = runners["after"].peaks
    loop = BY_NAME["goloop"]
    run = runners["after"].new_run([loop], "", (), cases)
    for number, case in enumerate(cases, 1):
        if case.name in run.missing or not loop.takes_part(case):
            continue
        for turn in range(settings.rounds):
            for name in NAMES[:: 1 if turn % 2 == 0 else -1]:
                try:
                    run.add(case.name, name, turn, runners[name]._sample(case, "goloop", turn))
                except Failure as error:
                    say(f"  {case.name}: {name} failed in round {turn}: {error}")
        say(f"[{number}/{len(cases)}] {' | '.join(_row(run, case))}")
    return table(
        ["case", "before", "after", "after ÷ before", "server CPU, after ÷ before"],
        [_row(run, case) for case in cases if case.name in run.samples],
    )


def _row(run: Run, case: Case) -> list[str]:
    figures = [run.figures(case.name, name, case.key) for name in NAMES]
    cells = [short(summarize(list(each.values())).median) if each else "–" for each in figures]
    cpu = None
    if case.key == "rate":
        costs = [run.figures(case.name, name, "server_us") for name in NAMES]
        cpu = paired_ratio(costs[1], costs[0])
    ratio = paired_ratio(figures[1], figures[0])
    return [case.name, *cells, *("–" if each is None else f"{each:.3f}×" for each in (ratio, cpu))]
