"""The statistics of `goloop compare`: ratios of two loops, their intervals, and the verdicts.

A *round* starts the program again on each loop, because two processes of the same program already
differ (hashes, the layout of memory); its value is the median of its quiet bursts. Ratios are
taken within a round, which cancels a change of the machine's speed, and the interval of their
median is by order statistics: it holds for every distribution.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONFIDENCE = 0.95
# An interval within this share of 1 means that there is no difference.
SAME = 0.02
# The limit for an interval that contains 1.
NEAR = 0.03
# More disturbed bursts than this share, and nothing can be said.
MOST_DISTURBED = 1 / 3
# Fewer rounds than these have no interval.
MIN_ROUNDS = 6

FASTER = "faster"
SLOWER = "slower"
NO_DIFFERENCE = "no difference"
CANNOT_TELL = "can't tell"


@dataclass(frozen=True)
class Ratio:
    """The median of ratios and the ends of its interval, which are None for too few rounds."""

    median: float
    low: float | None
    high: float | None
    rounds: int


@dataclass(frozen=True)
class Verdict:
    """A verdict: one of the four words, and the reason for "can't tell"."""

    word: str
    reason: str = ""


def rank(count: int) -> int | None:
    """Return k such that the k-th smallest and k-th largest of `count` values bound the median.

    A value is below the true median with probability 1/2, so that the interval misses the median
    with probability 2 P(B(count, 1/2) < k); k is the largest with at most 1 - CONFIDENCE. None if
    there is none: for fewer than MIN_ROUNDS values.
    """
    below, k = 0, 0
    while k < count:
        below += math.comb(count, k)
        if 2 * below > (1 - CONFIDENCE) * 2**count:
            break
        k += 1
    return k or None


def ratio(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Ratio | None:
    """Return ours / theirs over the rounds that have both; None if no round has."""
    found = sorted(
        ours[number] / theirs[number]
        for number in ours.keys() & theirs.keys()
        if theirs[number] > 0 and ours[number] > 0
    )
    if not found:
        return None
    k = rank(len(found))
    low, high = (None, None) if k is None else (found[k - 1], found[-k])
    return Ratio(statistics.median(found), low, high, len(found))


def judge(found: Ratio | None, disturbed: float, reason: str = "") -> Verdict:
    """Return the verdict on a ratio of speeds, more being faster.

    `disturbed` is the share of disturbed bursts of both loops; `reason` is another reason why
    nothing can be said, or empty.
    """
    if disturbed > MOST_DISTURBED:
        return Verdict(CANNOT_TELL, f"{disturbed:.0%} of the bursts were disturbed")
    if found is None:
        return Verdict(CANNOT_TELL, "no round measured both loops")
    if found.low is None or found.high is None:
        return Verdict(
            CANNOT_TELL, f"{found.rounds} rounds were measured, and an interval needs {MIN_ROUNDS}"
        )
    if reason:
        return Verdict(CANNOT_TELL, reason)
    if found.low >= 1 - SAME and found.high <= 1 + SAME:
        return Verdict(NO_DIFFERENCE)
    if found.low > 1:
        return Verdict(FASTER)
    if found.high < 1:
        return Verdict(SLOWER)
    if found.low >= 1 - NEAR and found.high <= 1 + NEAR:
        return Verdict(NO_DIFFERENCE)
    return Verdict(CANNOT_TELL, "the interval is too wide: pass a larger --rounds")


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the sorted values are; there must be one."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def round_values(bursts: Sequence[tuple[int, float, bool]]) -> dict[int, float]:
    """Return the median of each round's quiet bursts, given as (round, value, disturbed)."""
    by_round: dict[int, list[float]] = {}
    for number, value, disturbed in bursts:
        if not disturbed:
            by_round.setdefault(number, []).append(value)
    return {number: statistics.median(values) for number, values in by_round.items()}
