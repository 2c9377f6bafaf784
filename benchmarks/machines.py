"""The rows of other machines, beside those of the machine of docs/performance.json.

Each of the others has a file of its own, docs/performance-NAME.json, which
`python -m benchmarks report --machine NAME` writes from the runs that were made there.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path

from benchmarks import conditions
from benchmarks.cases import BY_NAME
from benchmarks.markdown import table
from benchmarks.tables import BASE, OURS, Chosen, Row
from benchmarks.usual import best_python, in_usual

HEADING = "Other machines"
WORDS = f"""\
The same rows on each measured machine, in relation to {BASE}. A ratio belongs to its machine: it
changes with the costs of a system call and of a wake-up
([how](benchmarks.md#how-the-results-depend-on-the-machine)). Rates above 1 and processor times
below 1 are better. The rows above, and the tables of all rows, are those of machine A."""


def files(docs: Path) -> dict[str, Path]:
    """Return the files of the other machines by their names, in alphabetical order."""
    found = sorted(docs.glob("performance-*.json"))
    return {path.stem.removeprefix("performance-"): path for path in found}


def different(chosen: dict[str, Chosen]) -> str:
    """Return the fact in which the machines of some runs differ; empty for the same machine.

    A run that did not record a fact may be of any of the machines.
    """
    runs = {id(run): run for each in chosen.values() for run in each.values()}.values()
    for key in ("processor", "family", "polling"):
        values = sorted({run.machine[key] for run in runs if key in run.machine})
        if len(values) > 1:
            return f"{key}: {' and '.join(values)}"
    return ""


def beside(machines: Sequence[dict[str, Chosen]]) -> str:
    """Write the usual rows of several machines side by side; the first is the main one.

    Rows of one machine alone are omitted.  Returns an empty text for a single machine.
    """
    measured = [runs for each in machines if (runs := best_python(each)) is not None]
    names = [name for name in in_usual(measured) if sum(name in runs for runs in measured) > 1]
    if not names:
        return ""
    header, lines = ["case"], []
    for letter, runs in zip(string.ascii_uppercase, measured, strict=False):
        header += [f"{letter}: rate ÷ {BASE}", f"{letter}: CPU ÷ {BASE}"]
        shown = [run for name, run in runs.items() if name in names]
        newest = max(shown, key=lambda run: run.date)
        words = [f"CPython {newest.python} on {conditions.machine(newest)}"]
        words += filter(None, [conditions.costs(shown)])
        lines.append(f"- **{letter}**: {'; '.join(words)}.")
    rows = [
        [BY_NAME[name].title, *(cell for runs in measured for cell in _cells(runs, name))]
        for name in names
    ]
    return "\n\n".join([f"## {HEADING}", WORDS, "\n".join(lines), table(header, rows)])


def _cells(runs: Chosen, name: str) -> list[str]:
    if name not in runs:
        return ["–", "–"]
    row = Row(runs[name], BY_NAME[name])
    return [row.claim(OURS, BASE, key, sign="") for key in ("rate", "server_us")]
