"""The number of requests that a measured program says it has made."""

from __future__ import annotations

import re
from dataclasses import dataclass

# "5000 requests" or "5,000 requests in 2.41 s", as a whole line.
_COUNT = re.compile(r"\s*([\d,_]*\d)\s+([^\W\d][\w-]*)(?:\s+in\s+(\d+(?:\.\d+)?)\s*s)?\s*\Z")


@dataclass(frozen=True)
class Count:
    """A number of requests, their name, and the seconds that they took if the program says so."""

    number: int
    unit: str
    seconds: float | None = None


def read_count(output: str) -> Count | None:
    """Return the count in the last line of a program's output that has one; None without any."""
    for line in reversed(output.splitlines()):
        found = _COUNT.match(line)
        if found is None:
            continue
        number, unit, seconds = found.groups()
        count = Count(int(re.sub(r"[,_]", "", number)), unit, float(seconds) if seconds else None)
        if count.number > 0 and count.seconds != 0:
            return count
    return None
