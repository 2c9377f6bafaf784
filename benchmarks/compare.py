"""Two builds of goloop, before and after a change, interleaved.

Each build is an interpreter that has goloop: a virtual environment of this tree and one
of another checkout.  Both servers are alive at once, each round has a short window of each in
a random order, and ratios are taken inside a round (stats.py), so that a change of the machine's
speed affects both builds.  With six rounds or more, the 95 % confidence interval of the median
follows a ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.cases import Case
from benchmarks.conditions import disturbances
from benchmarks.loops import BY_NAME
from benchmarks.results import Run
from benchmarks.runner import Runner, Settings, order
from benchmarks.servers import Failure
from benchmarks.stats import claim, table
from benchmarks.tables import median_cell, qualities

NAMES = ("before", "after")


def compare(
    before: str,
    after: str,
    cases: Sequence[Case],
    settings: Settings,
    say: Callable[[str], None],
) -> str:
    """Measure both builds and return a table, with a dash for a case that a build can't run.

    The number of disturbed windows follows the table.
    """
    runners = {
        name: Runner(path, settings, say) for name, path in zip(NAMES, (before, after), strict=True)
    }
    # The builds get requests at the same rate, and their clients use the same servers.
    runners["before"].peaks = runners["after"].peaks
    runners["before"].services = runners["after"].services
    loop = BY_NAME["goloop"]
    run = runners["after"].new_run([loop], "", (), cases)
    for place, case in enumerate(cases, 1):
        if case.name in run.missing or not loop.takes_part(case):
            continue
        try:
            for number in range(settings.rounds):
                for name in order(NAMES, number):
                    try:
                        found = runners[name]._sample(case, "goloop", number)
                        run.add(case.name, name, number, found)
                    except Failure as error:
                        say(f"  {case.name}: {name} failed in round {number}: {error}")
        finally:
            for each in runners.values():
                each.end_servers()
        for row in _rows(run, case):
            say(f"[{place}/{len(cases)}] {' | '.join(row)}")
    measured = [case for case in cases if case.name in run.samples]
    rows = table(
        ["case", "before", "after", "after ÷ before", "server CPU, after ÷ before"],
        [row for case in measured for row in _rows(run, case)],
    )
    return "\n".join([rows, *disturbances({case.name: run for case in measured})])


def _rows(run: Run, case: Case) -> list[list[str]]:
    """Return a row for a case, or at a constant rate one for each quality."""
    if case.kind not in ("latency", "fixed"):
        return [_row(run, case, case.name, case.key)]
    return [_row(run, case, f"{case.name}, {words}", key) for words, key, _more in qualities(case)]


def _row(run: Run, case: Case, title: str, key: str) -> list[str]:
    figures = [run.figures(case.name, name, key) for name in NAMES]
    cells = [median_cell(run, case, name, key) for name in NAMES]
    ratios = [_claim(*figures)]
    if key == "rate":
        ratios.append(_claim(*(run.figures(case.name, name, "server_us") for name in NAMES)))
    return [title, *cells, *ratios, *["–"] * (2 - len(ratios))]


def _claim(before: Mapping[int, float], after: Mapping[int, float]) -> str:
    """Write after ÷ before with one digit more than in the tables."""
    return claim(after, before, digits=3)
