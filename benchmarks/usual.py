"""The table of the usual rows in docs/performance.md, with split cores beside the same core."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from benchmarks import conditions
from benchmarks.cases import BY_NAME, SAME
from benchmarks.markdown import table
from benchmarks.tables import BASE, OURS, Chosen, Row

TABLES = "performance-tables.md#how-the-figures-are-taken"
STEADY = "malloc trimming is off for every loop ([why]({}))"
AS_IT_COMES = """\
the allocator as it comes, so that rows with large blocks depend on the heap's layout
([more]({}))"""

# The cases that most programs depend on.
USUAL = (
    "protocol-1k-x1", "protocol-1k-x4", "protocol-1k-x10", "protocol-1k-x100", "protocol-100k-x10",
    "streams-1k-x4", "streams-1k-x100", "sock-1k-x100", "aiohttp-x4", "aiohttp-x100",
    "uvicorn-x100", "fastapi-x100", "tls-1k-x100", "tls-100k-x10", "udp-512-x50", "unix-1k-x100",
    "broadcast-x1000", "broadcast-x5000", "pipe-read", "pipe-write", "spawn", "churn-x100",
    "fastapi-sync-x100", "fastapi-asyncpg-x100", "websockets-x50", "client-protocol-x10",
    "client-protocol-x100", "client-aiohttp-x10", "client-aiohttp-x100", "client-httpx-x20",
    "client-redis-x10", "client-redis-unix-x10", "client-redis-pipeline-x10",
    "client-redis-pipeline-unix-x10", "client-asyncpg-x10",
)  # fmt: skip


def best_python(chosen: dict[str, Chosen]) -> Chosen | None:
    """Return the runs of the newest Python among those with the most rows of USUAL."""
    tags = [tag for tag in chosen if chosen[tag] and not tag.endswith("t")]
    best = max(
        tags, key=lambda tag: (sum(name in chosen[tag] for name in USUAL), tag), default=None
    )
    return None if best is None else chosen[best]


def in_usual(machines: Sequence[Chosen]) -> list[str]:
    """Return the cases of USUAL that one of the machines has."""
    return [name for name in USUAL if any(name in runs for runs in machines)]


def usual(chosen: dict[str, Chosen]) -> str:
    """Write the table of USUAL, for the Python of best_python()."""
    runs = best_python(chosen)
    if runs is None:
        return "Nothing of this has been measured yet."
    ends = ["", SAME] if any(name + SAME in runs for name in USUAL) else [""]
    columns = [(key, end) for end in ends for key in ("rate", "server_us")]
    header = ["case", f"rate ÷ {BASE}", f"CPU ÷ {BASE}"]
    header += [f"same core: {words}" for words in header[1:]] * (len(ends) - 1)
    names = in_usual([runs])
    rows = []
    for name in names:
        cells = [
            Row(runs[name + end], BY_NAME[name + end]).claim(OURS, BASE, key, sign="")
            if name + end in runs
            else "–"
            for key, end in columns
        ]
        rows.append([BY_NAME[name].title, *cells])
    newest = max((runs[name] for name in names), key=lambda run: run.date)
    steady = all(runs[name].allocator for name in names)
    version = newest.loops.get(BASE, {}).get("version", BASE)
    words = (
        f"CPython {newest.python} beside {version}, on {conditions.machine(newest)}; "
        f"{(STEADY if steady else AS_IT_COMES).format(TABLES)}. A figure is the median of the "
        "rounds' ratios, with its 95 % confidence interval for six rounds or more:"
    )
    filled = textwrap.fill(words, 100, break_long_words=False, break_on_hyphens=False)
    return f"{filled}\n\n{table(header, rows)}"
