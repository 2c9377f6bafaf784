"""The statistics of everything that is measured in turns: ratios of two, and their intervals.

A *round* has values of all that are compared, taken within seconds of each other. Ratios are taken
inside a round, which cancels a change of the machine's speed, and the interval of their median is
by order statistics: it holds for every distribution.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONFIDENCE = 0.95
# Fewer rounds than these have no interval.
MIN_ROUNDS = 6


@dataclass(frozen=True)
class Ratio:
    """The median of ratios and the ends of its interval, which are None for too few rounds."""

    median: float
    low: float | None
    high: float | None
    rounds: int

    def within(self, share: float) -> bool:
        """Return true if both ends of the interval are within `share` of the median."""
        if self.low is None or self.high is None:
            return False
        return max(self.high - self.median, self.median - self.low) <= share * self.median

    def shown(self, sign: str = "", digits: int = 2) -> str:
        """Return the ratio with its interval: "1.52 (1.48–1.57)"; `sign` follows the ratio."""
        text = f"{self.median:.{digits}f}{sign}"
        if self.low is None or self.high is None:
            return text
        return f"{text} ({self.low:.{digits}f}–{self.high:.{digits}f})"


def rank(count: int) -> int | None:
    """Return k such that the k-th smallest and k-th largest of `count` values bound the median.

    A value is below the true median with probability 1/2, so that the interval misses the median
    with probability 2 P(B(count, 1/2) < k); k is the largest with at most 1 - CONFIDENCE (David and
    Nagaraja, Order Statistics, 3rd edition, section 7.1). None if there is none: for fewer than
    MIN_ROUNDS values.
    """
    below, k = 0, 0
    while k < count:
        below += math.comb(count, k)
        if 2 * below > (1 - CONFIDENCE) * 2**count:
            break
        k += 1
    return k or None


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> list[float]:
    """Return ours / theirs of each round that has both, in order; a value of 0 counts as none."""
    return [
        ours[number] / theirs[number]
        for number in sorted(ours.keys() & theirs.keys())
        if theirs[number] > 0 and ours[number] > 0
    ]


def ratio(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Ratio | None:
    """Return ours / theirs over the rounds that have both; None if no round has."""
    found = sorted(paired(ours, theirs))
    if not found:
        return None
    k = rank(len(found))
    low, high = (None, None) if k is None else (found[k - 1], found[-k])
    return Ratio(statistics.median(found), low, high, len(found))


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the sorted values are; there must be one."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
