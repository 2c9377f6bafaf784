"""The arithmetic of the benchmarks, and nothing else.

A *sample* is what one process measured in one round.  Rounds interleave the
loops, so samples of one round were taken within seconds of each other; ratios
are therefore taken inside a round and only then condensed, which cancels the
drift of a machine that speeds up or slows down during a run.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# A closed-loop load with several connections keeps one of the two cores busy;
# where neither reaches this share, someone else was running on them.
BUSY = 0.85


@dataclass(frozen=True)
class Summary:
    """One loop's samples of one case, condensed."""

    median: float
    minimum: float
    maximum: float
    rounds: int


def summarize(values: Sequence[float]) -> Summary:
    """Condense the samples of one loop; there must be at least one."""
    return Summary(statistics.median(values), min(values), max(values), len(values))


def paired_ratio(ours: Mapping[int, float], theirs: Mapping[int, float]) -> float | None:
    """Return the median over the rounds that both finished of ours / theirs.

    The keys are round numbers.  None where no round has both, or where the
    divisor is 0.
    """
    ratios = [
        ours[number] / theirs[number]
        for number in sorted(ours.keys() & theirs.keys())
        if theirs[number] != 0
    ]
    return statistics.median(ratios) if ratios else None


def disturbed(seconds: float, client_cpu: float, server_cpu: float) -> bool:
    """Tell whether neither core was busy in a window that should fill one."""
    return max(client_cpu, server_cpu) < BUSY * seconds


def short(value: float) -> str:
    """Write a figure with three significant digits and k or M: 183412 -> '183k'."""
    if value == 0:
        return "0"
    for limit, suffix in ((1e6, "M"), (1e3, "k")):
        # 999,500 and more would round to "1000k".
        if abs(value) >= limit * 0.9995:
            return _digits(value / limit) + suffix
    return _digits(value)


def _digits(value: float) -> str:
    magnitude = abs(value)
    if magnitude >= 99.95:
        return f"{value:.0f}"
    if magnitude >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"


def times(ratio: float | None) -> str:
    """Write a ratio for a table cell; a dash where there is none."""
    return "–" if ratio is None else f"{ratio:.2f}×"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a Markdown table: the first column left, the others right aligned."""
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"a row of {len(row)} cells under {len(header)} headings: {row}")
    widths = [max(3, len(header[i]), *(len(row[i]) for row in rows)) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "| " + " | ".join(padded) + " |"

    rule = ["-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join([line(header), line(rule), *(line(row) for row in rows)])
