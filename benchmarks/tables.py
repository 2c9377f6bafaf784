"""The tables of docs/performance.md: results of chosen runs, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.cases import CASES, Case
from benchmarks.loops import CEILINGS, LOOPS
from benchmarks.results import Run
from benchmarks.stats import Summary, claim, paired, paired_ratio, short, summarize, table, times

OURS, BASE, CONTROL = "goloop", "uvloop", "asyncio"
# A row counts as level within this share of the best peer, because rounds differ as much.
LEVEL = 0.02

# The words of qualities() in the heads of columns.
SHORT = {"median": "p50", "99th percentile": "p99"}

Chosen = dict[str, Run]  # case -> the run that is shown


# ---- figures -------------------------------------------------------------------


def figure(run: Run, case: Case, loop: str, key: str | None = None) -> Summary | None:
    """Summarize one loop's results of a case; None if there are none."""
    values = list(run.figures(case.name, loop, key or case.key).values())
    return summarize(values) if values else None


def ratio(run: Run, case: Case, ours: str, theirs: str, key: str | None = None) -> float | None:
    """Return ours / theirs, taken inside the rounds."""
    return paired_ratio(
        run.figures(case.name, ours, key or case.key),
        run.figures(case.name, theirs, key or case.key),
    )


def claimed(
    run: Run, case: Case, ours: str, theirs: str, key: str | None = None, *, sign: str = "×"
) -> str:
    """Write ours / theirs with its interval."""
    return claim(
        run.figures(case.name, ours, key or case.key),
        run.figures(case.name, theirs, key or case.key),
        sign,
    )


def median_cell(run: Run, case: Case, loop: str, key: str | None = None) -> str:
    """Write the cell of one loop's median."""
    found = figure(run, case, loop, key)
    return cell(run, case, loop, None if found is None else short(found.median))


def cell(run: Run, case: Case, loop: str, text: str | None) -> str:
    """Write a table cell: the text, or the reason for a missing one."""
    if text is None and not run.reaches(case.name, loop):
        return "not reached"
    if text is not None:
        return text + ("\u00a0†" if loop in run.errors.get(case.name, {}) else "")
    return "failed" if loop in run.errors.get(case.name, {}) else "–"


def qualities(case: Case) -> list[tuple[str, str, bool]]:
    """Return the measures of a case: name, key of the results, and true if more is better."""
    waiting = [("median", "p50_us", False), ("99th percentile", "p99_us", False)]
    if case.kind == "latency":
        return waiting
    if case.kind == "fixed":
        return [("CPU", "server_us", False), *waiting]
    found = [("", case.key, case.higher_is_better)]
    if case.higher_is_better:
        found.append(("CPU", "server_us", False))
    return found


def behind(run: Run, case: Case, key: str, more_is_better: bool) -> list[str]:
    """Name the loops that are more than LEVEL better than goloop in a case, best first."""
    ahead: list[tuple[float, str]] = []
    for loop in run.samples.get(case.name, {}):
        if loop == OURS or loop in CEILINGS:
            continue
        first, second = (loop, OURS) if more_is_better else (OURS, loop)
        lead = ratio(run, case, first, second, key)
        if lead is not None and lead > 1 + LEVEL:
            ahead.append((lead, f"{loop} {claimed(run, case, first, second, key)}"))
    return [text for _lead, text in sorted(ahead, reverse=True)]


# ---- choices -------------------------------------------------------------------------


def measured(chosen: Chosen, wanted: Callable[[Case], bool]) -> list[Case]:
    """Return the shown cases that `wanted` selects, in catalogue order."""
    return [case for case in CASES if case.name in chosen and wanted(case)]


def loops_in(chosen: Chosen, cases: Sequence[Case]) -> list[str]:
    """Return the loops with a figure or a failure in one of the cases, in catalogue order.

    Variants of a loop with another setting are omitted: see report.variants().
    """
    present: set[str] = set()
    for case in cases:
        run = chosen[case.name]
        present |= run.samples.get(case.name, {}).keys() | run.errors.get(case.name, {}).keys()
    return [loop.name for loop in LOOPS if loop.name in present and not loop.variant_of]


def ceilings_in(chosen: Chosen, cases: Sequence[Case]) -> list[str]:
    """Return the ceilings with a figure in one of the cases."""
    return [
        name
        for name in CEILINGS
        if any(name in chosen[case.name].samples.get(case.name, {}) for case in cases)
    ]


def _compared(cases: Sequence[Case]) -> list[str]:
    """Return the loops with a column of their own, which goloop is compared with."""
    return [BASE] + ["c-epoll"] * any("c-epoll" in case.ceilings for case in cases)


# ---- tables ----------------------------------------------------------------------------


def network_table(chosen: Chosen, cases: Sequence[Case]) -> str:
    """Return the rates of goloop, and every loop's ratio to uvloop."""
    loops = [loop for loop in loops_in(chosen, cases) if loop not in (OURS, BASE)]
    ceilings = [name for name in CEILINGS if any(name in case.ceilings for case in cases)]
    against = _compared(cases)
    header = ["case", f"{BASE}/s", f"{OURS}/s", *(f"{OURS} ÷ {theirs}" for theirs in against)]
    header += [f"{name} ÷ {BASE}" for name in [*loops, *ceilings]]
    rows = []
    for case in cases:
        run = chosen[case.name]
        row = [case.title, *(median_cell(run, case, loop) for loop in (BASE, OURS))]
        row += [claimed(run, case, OURS, theirs) for theirs in against]
        for loop in [*loops, *ceilings]:
            found = ratio(run, case, loop, BASE)
            row.append(cell(run, case, loop, None if found is None else times(found)))
        rows.append(row)
    return table(header, rows)


def cpu_table(chosen: Chosen, cases: Sequence[Case]) -> str:
    """Return the server's CPU time for one message, which excludes waiting for the client."""
    shown = [*loops_in(chosen, cases), *ceilings_in(chosen, cases)]
    against = _compared(cases)
    rows = []
    for case in cases:
        run = chosen[case.name]
        row = [case.title]
        row += [cell(run, case, loop, _by_mode(run, case, loop)) for loop in shown]
        row += [claimed(run, case, OURS, theirs, "server_us") for theirs in against]
        rows.append(row)
    return table(["case", *shown, *(f"{OURS} ÷ {each}" for each in against)], rows)


def _by_mode(run: Run, case: Case, loop: str) -> str | None:
    """Write CPU time as a whole and, where it is known, as user + system."""
    whole = figure(run, case, loop, "server_us")
    if whole is None:
        return None
    user, system = (
        sum(run.figures(case.name, loop, key).values()) for key in ("server_user", "server_system")
    )
    if not user + system:
        return short(whole.median)
    # The kernel reports the two in coarse ticks, so their share is taken over all rounds.
    share = system / (user + system)
    parts = f"{short(whole.median * (1 - share))} + {short(whole.median * share)}"
    return f"{short(whole.median)} ({parts})"


def instructions_tables(chosen: Chosen, cases: Sequence[Case]) -> list[str]:
    """Return the server's instructions for one message, if the machine has a counter."""
    parts = []
    for key, words in (
        ("each_instructions", "Instructions of the server for one message:"),
        ("each_user_instructions", "Instructions of the server in user mode for one message:"),
    ):
        counted = [
            case for case in cases if any(
                chosen[case.name].figures(case.name, loop, key)
                for loop in chosen[case.name].samples.get(case.name, {})
            )
        ]  # fmt: skip
        if counted:
            parts += [words, _with_ratios(chosen, counted, key)]
    return parts


def _with_ratios(chosen: Chosen, cases: Sequence[Case], key: str) -> str:
    """Return the medians of one measure, and goloop's ratios."""
    shown = [*loops_in(chosen, cases), *ceilings_in(chosen, cases)]
    against = _compared(cases)
    rows = []
    for case in cases:
        run = chosen[case.name]
        row = [case.title, *(median_cell(run, case, loop, key) for loop in shown)]
        rows.append([*row, *(claimed(run, case, OURS, theirs, key) for theirs in against)])
    return table(["case", *shown, *(f"{OURS} ÷ {each}" for each in against)], rows)


def allocator_table(chosen: Chosen, cases: Sequence[Case]) -> str:
    """Return each loop's lowest and highest rate over the layouts, and its ratio to uvloop."""
    loops = loops_in(chosen, cases)
    rows = []
    for case in cases:
        run = chosen[case.name]
        cells = [cell(run, case, loop, _extremes(run, case, loop)) for loop in loops]
        rows.append([case.title, *cells])
    return table(["case", *loops], rows)


def _extremes(run: Run, case: Case, loop: str) -> str | None:
    found = figure(run, case, loop)
    if found is None:
        return None
    text = f"{short(found.minimum)}–{short(found.maximum)}"
    ratios = paired(*(run.figures(case.name, name, case.key) for name in (loop, BASE)))
    if loop == BASE or not ratios:
        return text
    return f"{text} ({min(ratios):.2f}–{max(ratios):.2f}×)"


def paced_table(chosen: Chosen, cases: Sequence[Case]) -> str:
    """Return the qualities of every loop at a constant rate, and goloop's ratios of each.

    The cases are of one kind.  A loop that does not reach the rate has these words as its cell.
    """
    shown = [*loops_in(chosen, cases), *ceilings_in(chosen, cases)]
    measures = [(words, key) for words, key, _more in qualities(cases[0])]
    rows = []
    for case in cases:
        run = chosen[case.name]
        asked = figure(run, case, BASE, "asked") or figure(run, case, OURS, "asked")
        row = [case.title, "–" if asked is None else short(asked.median)]
        for loop in shown:
            found = [figure(run, case, loop, key) for _words, key in measures]
            text = " / ".join(short(each.median) for each in found if each is not None)
            row.append(cell(run, case, loop, text or None))
        rows.append([*row, *(claimed(run, case, OURS, BASE, key) for _words, key in measures)])
    ratios = [f"{OURS} ÷ {BASE}, {SHORT.get(words, words)}" for words, _key in measures]
    return table(["case", "asked/s", *shown, *ratios], rows)


def time_table(chosen: Chosen, cases: Sequence[Case]) -> str:
    """Return the times of every loop, and goloop's in relation to uvloop's and asyncio's."""
    loops, limits = loops_in(chosen, cases), ceilings_in(chosen, cases)
    header = ["case", *loops, *limits, f"{OURS} ÷ {BASE}", f"{OURS} ÷ {CONTROL}"]
    rows = []
    for case in cases:
        run = chosen[case.name]
        row = [case.title, *(median_cell(run, case, loop) for loop in [*loops, *limits])]
        row += [claimed(run, case, OURS, theirs) for theirs in (BASE, CONTROL)]
        ours = figure(run, case, OURS)
        rows.append([*row, "–" if ours is None else short(ours.minimum)])
    return table([*header, f"{OURS} minimum"], rows)


def plain_table(chosen: Chosen, cases: Sequence[Case]) -> str:
    """Medians only."""
    loops = loops_in(chosen, cases)
    rows = [
        [case.title, *(median_cell(chosen[case.name], case, loop) for loop in loops)]
        for case in cases
    ]
    return table(["case", *loops], rows)


def scaling_table(chosen: Chosen, cases: Sequence[Case]) -> str:
    """Return rates with one loop and with two, and the gain of the second, for every loop."""
    loops = loops_in(chosen, cases)
    groups: dict[str, dict[int, Case]] = {}
    for case in cases:
        groups.setdefault(case.group, {})[case.loops] = case
    header = ["case"]
    for loop in loops:
        header += [f"{loop}, 1 loop", "2 loops", "2 ÷ 1"]
    rows = []
    for group in groups.values():
        any_case = next(iter(group.values()))
        row = [f"{any_case.title.rpartition(', ')[0]}, {any_case.unit}"]
        for loop in loops:
            for count in (1, 2):
                found = group.get(count)
                row.append(median_cell(chosen[found.name], found, loop) if found else "–")
            row.append(_scaling(chosen, group, loop))
        rows.append(row)
    return table(header, rows)


def _scaling(chosen: Chosen, group: dict[int, Case], loop: str) -> str:
    """Write two loops ÷ one, taken inside the rounds of one run."""
    if group.keys() < {1, 2}:
        return "–"
    one, two = group[1], group[2]
    run = chosen[two.name]
    if run is not chosen[one.name]:
        return "–"
    return claim(run.figures(two.name, loop, two.key), run.figures(one.name, loop, one.key))


def calls_table(chosen: Chosen, cases: Sequence[Case]) -> str:
    """Return the time of a call in a thread that makes calls in sequence, if measured."""
    loops = loops_in(chosen, cases)
    rows = [
        [case.title, *(median_cell(chosen[case.name], case, loop, "call_ns") for loop in loops)]
        for case in cases
        if any(chosen[case.name].figures(case.name, loop, "call_ns") for loop in loops)
    ]
    return table(["case", *loops], rows) if rows else ""


def with_gil(chosen: Chosen, cases: Sequence[Case]) -> list[str]:
    """Name the loops that had the GIL in a case."""
    return [
        loop
        for loop in loops_in(chosen, cases)
        if any(any(chosen[case.name].figures(case.name, loop, "gil").values()) for case in cases)
    ]


def startup_table(chosen: Chosen, cases: Sequence[Case]) -> str:
    """Return medians, and the difference of each loop to asyncio."""
    loops = loops_in(chosen, cases)
    rows = []
    for case in cases:
        run = chosen[case.name]
        base = figure(run, case, CONTROL)
        row = [f"{case.title}, {case.unit}"]
        for loop in loops:
            found = figure(run, case, loop)
            text = None
            if found is not None:
                text = short(found.median)
                if base is not None and loop != CONTROL:
                    more = found.median - base.median
                    text += f" ({'+' if more >= 0 else ''}{short(more)})"
            row.append(cell(run, case, loop, text))
        rows.append(row)
    return table(["case (more than asyncio)", *loops], rows)
