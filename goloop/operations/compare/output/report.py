"""The report of `goloop compare` as text."""

from __future__ import annotations

from .. import results
from ..measuring.others import in_words
from ..measuring.text import aligned, duration
from ..results import KEPT_UP, Quantity, Row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..rounds import Measurement, Scenario

# The columns of a server's table, in this order.
_COLUMNS = ("rate", "cpu", "p50", "p99")


def lines(found: Measurement, machine: str) -> Iterator[str]:
    """Yield the lines of the report; `machine` describes the machine."""
    yield f"goloop compare {' '.join(found.plan.program)}"
    yield machine
    yield _conditions(found)
    for scenario in found.scenarios:
        rows = results.rows(found, scenario)
        if rows:
            yield ""
            yield results.title(found, scenario)
            yield from _table(found, scenario, rows)
            sentences = [f"  {words}" for words in _sentences(found, scenario)]
            yield from ["", *sentences] if sentences else []
    notes = list(_notes(found))
    if notes:
        yield ""
        yield from (f"note: {words}" for words in notes)
    alike: dict[tuple[str, str], list[str]] = {}
    for name, failure in found.failures.items():
        alike.setdefault((str(failure), failure.output), []).append(name)
    for (message, output), names in alike.items():
        yield ""
        yield f"{', '.join(names)} failed: {message}"
        yield from (f"  | {line}" for line in output.splitlines())


def _conditions(found: Measurement) -> str:
    """Return how the measurement was made."""
    plan = found.plan
    parts = [f"{found.rounds} {f'of {plan.rounds} ' if plan.rounds else ''}rounds"]
    if found.plan.kind != "run":
        parts[0] += f" of {found.plan.bursts} bursts of {found.plan.seconds:g} s"
        parts.append("all servers at once" if found.plan.alive_at_once else "one server at a time")
    if found.server_cores and found.client_cores:
        parts.append(
            f"server on {_cores(found.server_cores)}, load on {_cores(found.client_cores)}"
        )
    if found.interrupted:
        parts.append("interrupted")
    return "; ".join(parts)


def _cores(numbers: Sequence[int]) -> str:
    """Return cores in words."""
    return f"core{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers))}"


def _table(found: Measurement, scenario: Scenario, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of a load."""
    shown = list(results.quantities(found, scenario))
    first = shown[0]
    if scenario.connections:
        shown.sort(key=lambda each: _COLUMNS.index(each.key))
    present = [name for name in results.references(found) if any(r.loop == name for r in rows)]
    ratios = [f"{first.words} ÷ {name}" for name in present]
    table = [["loop", *(each.title for each in shown), *ratios]]
    for row in rows:
        cells = [_cell(quantity, row.values[quantity.key]) for quantity in shown]
        for name in present:
            comparison = results.compare(found, scenario, row.loop, name, first)
            own = row.loop == name
            cells.append("–" if own else comparison.shown())
        table.append([row.loop, *cells])
    yield from (f"  {line}" for line in aligned(table))


def _cell(quantity: Quantity, value: float | None) -> str:
    """Return a value with its unit."""
    if value is None:
        return "–"
    if quantity.key == "rate":
        return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
    return duration(value)


def _sentences(found: Measurement, scenario: Scenario) -> Iterator[str]:
    """Yield the verdicts on the first and the last quantity of a load."""
    without: dict[tuple[str, str], dict[str, None]] = {}
    for each in results.judged(found, scenario):
        if each.ratio is None:
            without.setdefault((each.loop, each.verdict.reason), {})[each.reference] = None
        else:
            yield each.sentence()
    for (loop, reason), names in without.items():
        yield f"{loop} and {', '.join(names)}: can't tell ({reason})"


def _notes(found: Measurement) -> Iterator[str]:
    """Yield sentences about the conditions that limit the results."""
    if found.server_cores and found.server_cores == found.client_cores:
        yield "server and load share the only core, so differences look smaller than they are"
    known, disturbed = results.disturbed_bursts(found)
    noun = found.noun
    if known:
        users = in_words(found.others.shares()) if disturbed else ""
        users = f" ({users} of a core)" if users else ""
        yield (
            f"other programs or the host{users} disturbed {disturbed} of {known} {noun}. Disturbed "
            f"{noun} are left out; if more than a third are disturbed, all {noun} count, and the "
            "result is marked"
        )
    if number := results.unknown_disturbances(found):
        yield f"it is not known whether other programs or the host disturbed {number} {noun}"
    for scenario in found.scenarios:
        for row in results.rows(found, scenario):
            rate = row.values.get("rate")
            if scenario.rate and rate is not None and rate < KEPT_UP * scenario.rate:
                yield (
                    f"{row.loop} answered only {rate:,.0f} of {scenario.rate:,.0f} requests/s "
                    f"with {scenario.connections} connections"
                )
            if row.unanswered:
                words = results.unanswered_words(row.loop, row.unanswered, row.bursts)
                yield f"{words} with {scenario}"
            if row.errors:
                yield f"{row.loop}: {row.errors} errors with {scenario}"
