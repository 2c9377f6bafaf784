"""Two builds of goloop, before and after a change, interleaved.

Each build is an interpreter that has goloop: a virtual environment of this tree and one
of another checkout.  Both servers are alive at once, each round has a short window of each in
a random order, and ratios are taken inside a round, so that a change of the machine's speed
affects both builds.  With six rounds or more, the 95 % confidence interval of the median
follows a ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.cases import Case
from benchmarks.conditions import disturbances
from benchmarks.loops import BY_NAME
from benchmarks.markdown import table
from benchmarks.runner import Runner, Settings
from benchmarks.tables import OURS, Row, qualities
from goloop.operations.compare.measuring.turns import Failure, take_turns

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
    loop = BY_NAME[OURS]
    run = runners["after"].new_run([loop], "", (), cases)
    rows = []

    def measure(case: Case, number: int, name: str) -> None:
        run.add(case.name, name, number, runners[name].sample(case, OURS, number))

    def failed(case: Case, number: int, name: str, failure: Failure) -> None:
        say(f"  {case.name}: {name} failed in round {number}: {failure}")

    for place, case in enumerate(cases, 1):
        if case.name in run.missing or not loop.takes_part(case):
            continue
        try:
            for number in range(settings.rounds):
                take_turns(
                    NAMES, partial(measure, case, number), partial(failed, case, number), number
                )
        finally:
            for each in runners.values():
                each.end_servers()
        if case.name in run.samples:
            found = _rows(Row(run, case))
            rows += found
            for cells in found:
                say(f"[{place}/{len(cases)}] {' | '.join(cells)}")
    header = ["case", *NAMES, "after ÷ before", "server CPU, after ÷ before"]
    return "\n".join([table(header, rows), *disturbances(dict.fromkeys(run.samples, run))])


def _rows(row: Row) -> list[list[str]]:
    """Return the cells of a case, or at a constant rate of each of its qualities."""
    name, key = row.case.name, row.case.key
    if row.case.kind in ("latency", "fixed"):
        titles = {key: f"{name}, {words}" for words, key, _more in qualities(row.case)}
    else:
        titles = {key: name}
    return [
        [
            title,
            *(row.median_cell(build, key) for build in NAMES),
            row.claim("after", "before", key, digits=3),
            row.claim("after", "before", "server_us", digits=3) if key == "rate" else "–",
        ]
        for key, title in titles.items()
    ]
