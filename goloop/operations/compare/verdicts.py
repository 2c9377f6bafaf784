"""The verdicts of `goloop compare` on the ratio of two loops.

A round starts the program again on each loop, because two processes of the same program already
differ (hashes, the layout of memory); its value is the median of its quiet bursts.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from .measuring.intervals import MIN_ROUNDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .measuring.intervals import Ratio

# An interval within this share of 1 means that there is no difference.
SAME = 0.02
# The limit for an interval that contains 1.
NEAR = 0.03
# More disturbed bursts than this share, and nothing can be said.
MOST_DISTURBED = 1 / 3

FASTER = "faster"
SLOWER = "slower"
NO_DIFFERENCE = "no difference"
CANNOT_TELL = "can't tell"

# The reason of a verdict that more rounds may change.
TOO_WIDE = "the interval is too wide: pass a larger --rounds"


@dataclass(frozen=True)
class Verdict:
    """A verdict: one of the four words, and the reason for "can't tell"."""

    word: str
    reason: str = ""


def judge(found: Ratio | None, disturbed: float, reason: str = "", noun: str = "bursts") -> Verdict:
    """Return the verdict on a ratio of speeds, more being faster.

    `disturbed` is the share of disturbed bursts of both loops, which `noun` names; `reason` is
    another reason why nothing can be said, or empty.
    """
    if disturbed > MOST_DISTURBED:
        return Verdict(CANNOT_TELL, f"{disturbed:.0%} of the {noun} were disturbed")
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
    return Verdict(CANNOT_TELL, TOO_WIDE)


def round_values(bursts: Sequence[tuple[int, float, bool]]) -> dict[int, float]:
    """Return the median of each round's quiet bursts, given as (round, value, disturbed)."""
    by_round: dict[int, list[float]] = {}
    for number, value, disturbed in bursts:
        if not disturbed:
            by_round.setdefault(number, []).append(value)
    return {number: statistics.median(values) for number, values in by_round.items()}
