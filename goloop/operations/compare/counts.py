"""The number of requests that a measured program says it has made."""

from __future__ import annotations

import re
from dataclasses import dataclass

# "5000 requests" or "5,000 requests in 2.41 s", as a whole line.
_COUNT = re.compile(
    r"\s*([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)\s+([^\W\d][\w-]*)"
    r"(?:\s+in\s+([0-9]{1,9}(?:\.[0-9]+)?)\s+s)?\s*"
)
_MOST_DIGITS = 15


@dataclass(frozen=True)
class Count:
    """A number of requests, their name, and the seconds that they took if the program says so."""

    number: int
    unit: str
    seconds: float | None = None


def read_count(output: str) -> Count | None:
    """Return the count that is the last line of output that is not empty; None if it is no count.

    A time of 0 is left out: it was too short for the program's clock or for its digits.
    """
    lines = output.rstrip().splitlines()
    found = _COUNT.fullmatch(lines[-1]) if lines else None
    if found is None:
        return None
    digits, unit, seconds = found.groups()
    digits = digits.replace(",", "")
    if len(digits) > _MOST_DIGITS or not int(digits):
        return None
    return Count(int(digits), unit, float(seconds or 0) or None)
