"""The arithmetic of the benchmarks.

A *sample* is the measurement of one process in one round.  Rounds interleave the
loops, so samples of one round were taken within seconds of each other; ratios
are therefore taken inside a round and only then condensed, which cancels the
drift of a machine that speeds up or slows down during a run.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# The share of the two cores' time that other programs may use before a window counts as
# disturbed.  The kernel reports idle time in units of 10 ms, so the share is exact to about
# 0.02 in a window of half a second on two cores.
OTHERS = 0.1


@dataclass(frozen=True)
class Summary:
    """The summary of a loop's samples of a case."""

    median: float
    minimum: float
    maximum: float
    rounds: int


def summarize(values: Sequence[float]) -> Summary:
    """Summarize the samples of one loop; there must be at least one."""
    return Summary(statistics.median(values), min(values), max(values), len(values))


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> list[float]:
    """Return ours / theirs of each round that both finished.

    The keys are round numbers.  A round with a divisor of 0 is omitted.
    """
    return [
        ours[number] / theirs[number]
        for number in sorted(ours.keys() & theirs.keys())
        if theirs[number] != 0
    ]


def paired_ratio(ours: Mapping[int, float], theirs: Mapping[int, float]) -> float | None:
    """Return the median over the rounds of ours / theirs; None if no round has both."""
    ratios = paired(ours, theirs)
    return statistics.median(ratios) if ratios else None


@dataclass(frozen=True)
class Ratio:
    """A median ratio and the interval that contains the true one with CONFIDENCE."""

    median: float
    low: float
    high: float

    def within(self, share: float) -> bool:
        """Return true if both ends of the interval are within `share` of the median."""
        return max(self.high - self.median, self.median - self.low) <= share * self.median


CONFIDENCE = 0.95


def rank(n: int) -> int | None:
    """Return k, so that the k-th smallest and the k-th largest of n bound the median.

    Each sample is below the true median with probability 1/2, for every distribution,
    so the number of those below it is binomial, and the interval misses the median with
    probability 2 P(B(n, 1/2) < k).  k is the largest for which that is at most
    1 - CONFIDENCE.  (H. A. David and H. N. Nagaraja, Order Statistics, 3rd edition,
    section 7.1; W. J. Conover, Practical Nonparametric Statistics, 3rd edition, section
    3.2.)  Returns None for five samples or fewer, because there is no such k.
    """
    below, k = 0, 0
    while k < n:
        below += math.comb(n, k)  # P(B <= k), as a count of 2**n outcomes
        if 2 * below > (1 - CONFIDENCE) * 2**n:
            break
        k += 1
    return k or None


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the interval of the median by rank(); None for too few values."""
    k = rank(len(values))
    if k is None:
        return None
    ordered = sorted(values)
    return ordered[k - 1], ordered[-k]


def ratio_of(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Ratio | None:
    """Return the paired ratio with its interval; None if there are too few rounds for one."""
    ratios = paired(ours, theirs)
    ends = interval(ratios)
    return None if ends is None else Ratio(statistics.median(ratios), *ends)


def others(sample: Mapping[str, float], *, interrupts_apart: bool) -> float | None:
    """Return the share of the two cores' time that other programs or the host used.

    This is the time in which a core was neither idle nor used by client or server; the host may
    have taken the core (steal).  Idle time does not count as disturbance, because with few
    connections both ends wait for each other.  Returns None if the sample has no account of the
    cores.

    Some kernels do not charge the time of interrupts to the interrupted processes.  It is work of
    the measured network, so it does not count as other programs' time.
    """
    if not sample.get("cores"):
        return None
    whole = sample["cores"] * sample["seconds"]
    away = whole - sample["idle"] - sample["client_cpu"] - sample["server_cpu"]
    if interrupts_apart:
        away -= sample["interrupts"]
    return max(away, sample["steal"], 0) / whole


def disturbed(sample: Mapping[str, float], *, interrupts_apart: bool) -> bool | None:
    """Return true if others used too much of the cores in a window; None if unknown."""
    share = others(sample, interrupts_apart=interrupts_apart)
    return None if share is None else share > OTHERS


def short(value: float) -> str:
    """Write a number with three significant digits and k or M: 183412 -> '183k'."""
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
    """Write a ratio for a table cell, or a dash for None."""
    return "–" if ratio is None else f"{ratio:.2f}×"


def claim(
    ours: Mapping[int, float],
    theirs: Mapping[int, float],
    sign: str = "×",
    digits: int = 2,
) -> str:
    """Write a paired ratio, with its interval if there is one: 1.22× (1.18–1.27)."""
    median = paired_ratio(ours, theirs)
    if median is None:
        return "–"
    found = ratio_of(ours, theirs)
    text = f"{median:.{digits}f}{sign}"
    return text if found is None else f"{text} ({found.low:.{digits}f}–{found.high:.{digits}f})"


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
