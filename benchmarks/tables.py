"""The tables of docs/performance.md: results of chosen runs, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.cases import CASES, Case
from benchmarks.loops import BY_NAME, CEILINGS, LOOPS
from benchmarks.markdown import short, table
from benchmarks.results import Run
from goloop.operations.compare.measuring import intervals
from goloop.operations.compare.measuring.intervals import Ratio

OURS, BASE, CONTROL = "goloop", "uvloop", "asyncio"
# A row counts as level within this share of the best peer, because rounds differ as much.
LEVEL = 0.02

# The words of qualities() in the heads of columns.
SHORT = {"median": "p50", "99th percentile": "p99"}

Chosen = dict[str, Run]  # case -> the run that is shown


@dataclass(frozen=True)
class Row:
    """A case, and the run whose results of it are shown."""

    run: Run
    case: Case

    def values(self, loop: str, key: str | None = None) -> dict[int, float]:
        """Return a loop's results of each round."""
        return self.run.figures(self.case.name, loop, key or self.case.key)

    def median(self, loop: str, key: str | None = None) -> float | None:
        """Return the median of a loop's results; None if there are none."""
        values = self.values(loop, key).values()
        return median(values) if values else None

    def ratio(self, ours: str, theirs: str, key: str | None = None) -> Ratio | None:
        """Return ours / theirs, taken inside the rounds."""
        return intervals.ratio(self.values(ours, key), self.values(theirs, key))

    def speed(self, ours: str, theirs: str, key: str | None = None) -> Ratio | None:
        """Return the ratio of two loops, above 1 if ours is better."""
        key = key or self.case.key
        more = next((more for _words, each, more in qualities(self.case) if each == key), False)
        return self.ratio(ours, theirs, key) if more else self.ratio(theirs, ours, key)

    def claim(
        self, ours: str, theirs: str, key: str | None = None, sign: str = "×", digits: int = 2
    ) -> str:
        """Write ours / theirs with its interval: 1.22× (1.18–1.27)."""
        return shown(self.ratio(ours, theirs, key), sign, digits)

    def cell(self, loop: str, text: str | None) -> str:
        """Write a table cell: the text, or the reason for a missing one."""
        failed = loop in self.run.errors.get(self.case.name, {})
        if text is not None:
            return text + "\u00a0†" * failed
        if not self.run.reaches(self.case.name, loop):
            return "not reached"
        return "failed" if failed else "–"

    def median_cell(self, loop: str, key: str | None = None) -> str:
        """Write the cell of one loop's median."""
        found = self.median(loop, key)
        return self.cell(loop, None if found is None else short(found))

    def rivals(self) -> list[str]:
        """Return the measured loops that goloop is compared with."""
        measured = self.run.samples.get(self.case.name, {})
        return [name for name in measured if name in BY_NAME and name != OURS]


def shown(ratio: Ratio | None, sign: str = "", digits: int = 2) -> str:
    """Write a ratio with its interval, or a dash for None."""
    return "–" if ratio is None else ratio.shown(sign, digits)


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


# ---- choices -------------------------------------------------------------------------


def measured(chosen: Chosen, wanted: Callable[[Case], bool] = lambda _case: True) -> list[Row]:
    """Return the rows whose cases `wanted` selects, in catalogue order."""
    return [Row(chosen[case.name], case) for case in CASES if case.name in chosen and wanted(case)]


def loops_in(rows: Sequence[Row]) -> list[str]:
    """Return the loops with a figure or a failure in one of the rows, in catalogue order."""
    present: set[str] = set()
    for row in rows:
        present |= row.run.samples.get(row.case.name, {}).keys()
        present |= row.run.errors.get(row.case.name, {}).keys()
    return [loop.name for loop in LOOPS if loop.name in present]


def _with_ceilings(rows: Sequence[Row]) -> list[str]:
    """Return the loops in the rows, and the ceilings with a figure in one of them."""
    return loops_in(rows) + [
        name
        for name in CEILINGS
        if any(name in row.run.samples.get(row.case.name, {}) for row in rows)
    ]


def _against(rows: Sequence[Row]) -> list[str]:
    """Return the loops with a column of their own, which goloop is compared with."""
    return [BASE] + ["c-epoll"] * ("c-epoll" in _with_ceilings(rows))


# ---- tables ----------------------------------------------------------------------------

Column = tuple[str, Callable[[Row], str]]


def _written(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Write a table with a row of each case, and columns with these titles."""
    cells = [[row.case.title, *(write(row) for _title, write in columns)] for row in rows]
    return table(["case", *(title for title, _write in columns)], cells)


def _columns(
    names: Sequence[str], write: Callable[[Row, str], str], title: str = "{}"
) -> list[Column]:
    """Return a column of each name, which a function of row and name writes."""

    def column(name: str) -> Column:
        return title.format(name), lambda row: write(row, name)

    return list(map(column, names))


def _medians(loops: Sequence[str], key: str | None = None, title: str = "{}") -> list[Column]:
    """Return a column with the medians of each loop."""
    return _columns(loops, lambda row, loop: row.median_cell(loop, key), title)


def _ratios(others: Sequence[str], key: str | None = None, more: str = "") -> list[Column]:
    """Return a column with goloop's ratio to each other loop."""
    return _columns(others, lambda row, other: row.claim(OURS, other, key), f"{OURS} ÷ {{}}{more}")


def network_table(rows: Sequence[Row]) -> str:
    """Return the rates of goloop, and every loop's ratio to uvloop."""

    def against_base(row: Row, loop: str) -> str:
        found = row.ratio(loop, BASE)
        return row.cell(loop, None if found is None else f"{found.median:.2f}×")

    others = [name for name in _with_ceilings(rows) if name not in (OURS, BASE)]
    factors = _columns(others, against_base, f"{{}} ÷ {BASE}")
    rates = _medians([BASE, OURS], title="{}/s")
    return _written(rows, [*rates, *_ratios(_against(rows)), *factors])


def cpu_table(rows: Sequence[Row]) -> str:
    """Return the server's CPU time for one message, which excludes waiting for the client."""

    def by_mode(row: Row, loop: str) -> str:
        """Write CPU time as a whole and, where it is known, as user + system."""
        whole = row.median(loop, "server_us")
        if whole is None:
            return row.cell(loop, None)
        user, system = (
            sum(row.values(loop, key).values()) for key in ("server_user", "server_system")
        )
        text = short(whole)
        if user + system:
            # The kernel reports the two in coarse ticks, so their share is taken over all rounds.
            share = system / (user + system)
            text += f" ({short(whole * (1 - share))} + {short(whole * share)})"
        return row.cell(loop, text)

    columns = _columns(_with_ceilings(rows), by_mode)
    return _written(rows, [*columns, *_ratios(_against(rows), "server_us")])


def allocator_table(rows: Sequence[Row]) -> str:
    """Return each loop's lowest and highest rate over the layouts, and its ratio to uvloop."""

    def extremes(row: Row, loop: str) -> str:
        found = row.values(loop).values()
        if not found:
            return row.cell(loop, None)
        text = f"{short(min(found))}–{short(max(found))}"
        ratios = intervals.paired(row.values(loop), row.values(BASE))
        if loop != BASE and ratios:
            text += f" ({min(ratios):.2f}–{max(ratios):.2f}×)"
        return row.cell(loop, text)

    return _written(rows, _columns(loops_in(rows), extremes))


def paced_table(rows: Sequence[Row]) -> str:
    """Return the qualities of every loop at a constant rate, and goloop's ratios of each.

    The cases are of one kind.  A loop that does not reach the rate has these words as its cell.
    """
    measures = [(words, key) for words, key, _more in qualities(rows[0].case)]

    def asked(row: Row) -> str:
        found = row.median(BASE, "asked") or row.median(OURS, "asked")
        return "–" if found is None else short(found)

    def all_of(row: Row, loop: str) -> str:
        found = [row.median(loop, key) for _words, key in measures]
        return row.cell(loop, " / ".join(short(each) for each in found if each is not None) or None)

    columns = [("asked/s", asked), *_columns(_with_ceilings(rows), all_of)]
    for words, key in measures:
        columns += _ratios([BASE], key, f", {SHORT.get(words, words)}")
    return _written(rows, columns)


def time_table(rows: Sequence[Row]) -> str:
    """Return the times of every loop, and goloop's in relation to uvloop's and asyncio's."""

    def minimum(row: Row) -> str:
        found = row.values(OURS).values()
        return short(min(found)) if found else "–"

    columns = [*_medians(_with_ceilings(rows)), *_ratios([BASE, CONTROL])]
    return _written(rows, [*columns, (f"{OURS} minimum", minimum)])


def plain_table(rows: Sequence[Row], key: str | None = None) -> str:
    """Medians only."""
    return _written(rows, _medians(loops_in(rows), key))


def scaling_table(rows: Sequence[Row]) -> str:
    """Return rates with one loop and with two, and the gain of the second, for every loop."""
    loops = loops_in(rows)
    groups: dict[str, dict[int, Row]] = {}
    for row in rows:
        groups.setdefault(row.case.group, {})[row.case.loops] = row
    header = ["case"]
    for loop in loops:
        header += [f"{loop}, 1 loop", "2 loops", "2 ÷ 1"]
    lines = []
    for group in groups.values():
        case = next(iter(group.values())).case
        cells = [f"{case.title.rpartition(', ')[0]}, {case.unit}"]
        for loop in loops:
            cells += [group[n].median_cell(loop) if n in group else "–" for n in (1, 2)]
            gain = None
            if len(group) == 2 and group[1].run is group[2].run:  # taken inside the rounds
                gain = intervals.ratio(group[2].values(loop), group[1].values(loop))
            cells.append(shown(gain, "×"))
        lines.append(cells)
    return table(header, lines)


def startup_table(rows: Sequence[Row]) -> str:
    """Return medians, and the difference of each loop to asyncio."""
    loops = loops_in(rows)
    lines = []
    for row in rows:
        base = row.median(CONTROL)
        cells = [f"{row.case.title}, {row.case.unit}"]
        for loop in loops:
            found = row.median(loop)
            text = None if found is None else short(found)
            if found is not None and base is not None and loop != CONTROL:
                text = f"{text} ({'+' if found >= base else ''}{short(found - base)})"
            cells.append(row.cell(loop, text))
        lines.append(cells)
    return table(["case (more than asyncio)", *loops], lines)
