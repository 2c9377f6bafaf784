"""The table of the usual rows in docs/performance.md, with split cores beside the same core."""

from __future__ import annotations

import textwrap

from benchmarks import conditions
from benchmarks.cases import BY_NAME, SAME
from benchmarks.markdown import table
from benchmarks.tables import BASE, OURS, Chosen, Row

TABLES = "performance-tables.md#how-the-figures-are-taken"
STEADY = "malloc trimming is off for every loop ([why]({}))"
AS_IT_COMES = """\
the allocator as it comes, so that rows with large blocks depend on the heap's layout
([more]({}))"""

# The rows that most programs depend on; two cases in one row stand side by side.
USUAL: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Protocol echo, 1 KiB ×1", ("protocol-1k-x1",)),
    ("Protocol echo, 1 KiB ×4", ("protocol-1k-x4",)),
    ("Protocol echo, 1 KiB ×10", ("protocol-1k-x10",)),
    ("Protocol echo, 1 KiB ×100", ("protocol-1k-x100",)),
    ("Protocol echo, 100 KiB ×10", ("protocol-100k-x10",)),
    ("streams, 1 KiB ×4", ("streams-1k-x4",)),
    ("streams, 1 KiB ×100", ("streams-1k-x100",)),
    ("sock_recv / sock_sendall, 1 KiB ×100", ("sock-1k-x100",)),
    ("aiohttp hello ×4", ("aiohttp-x4",)),
    ("aiohttp hello ×100", ("aiohttp-x100",)),
    ("uvicorn hello ×100", ("uvicorn-x100",)),
    ("FastAPI hello ×100", ("fastapi-x100",)),
    ("TLS echo, 1 KiB ×100", ("tls-1k-x100",)),
    ("TLS echo, 100 KiB ×10", ("tls-100k-x10",)),
    ("UDP echo, 512 B ×50", ("udp-512-x50",)),
    ("Unix socket echo, 1 KiB ×100", ("unix-1k-x100",)),
    ("broadcast of 100 B to 1,000 / 5,000", ("broadcast-x1000", "broadcast-x5000")),
    ("pipe, reading / writing", ("pipe-read", "pipe-write")),
    ("start /bin/true and wait", ("spawn",)),
    ("connect, echo, close ×100", ("churn-x100",)),
    ("FastAPI ×100, plain `def`", ("fastapi-sync-x100",)),
    ("FastAPI + asyncpg ×100", ("fastapi-asyncpg-x100",)),
    ("websockets, 1 KiB ×50", ("websockets-x50",)),
    ("Protocol clients, 1 KiB ×10", ("client-protocol-x10",)),
    ("Protocol clients, 1 KiB ×100", ("client-protocol-x100",)),
    ("aiohttp client of nginx ×10", ("client-aiohttp-x10",)),
    ("aiohttp client of nginx ×100", ("client-aiohttp-x100",)),
    ("httpx client of nginx ×20", ("client-httpx-x20",)),
    ("redis-py ×10, TCP / Unix", ("client-redis-x10", "client-redis-unix-x10")),
    ("redis-py, pipelines ×10, TCP / Unix",
     ("client-redis-pipeline-x10", "client-redis-pipeline-unix-x10")),
    ("asyncpg ×10", ("client-asyncpg-x10",)),
)  # fmt: skip


def usual(chosen: dict[str, Chosen]) -> str:
    """Write the table of USUAL, for the newest Python among those with the most of these rows."""
    names = [name for _words, names in USUAL for name in names]
    tags = [tag for tag in chosen if chosen[tag] and not tag.endswith("t")]
    best = max(
        tags, key=lambda tag: (sum(name in chosen[tag] for name in names), tag), default=None
    )
    if best is None:
        return "Nothing of this has been measured yet."
    runs = chosen[best]
    rates = [(key, "") for key in ("rate", "server_us")]
    header = ["case", f"rate ÷ {BASE}", f"CPU ÷ {BASE}"]
    if any(name + SAME in runs for name in names):
        rates += [(key, SAME) for key, _end in rates]
        header += [f"same core: {words}" for words in header[1:]]
    rows = []
    for words, cases in USUAL:
        if any(name in runs for name in cases):
            cells = [
                " / ".join(
                    Row(runs[name + end], BY_NAME[name + end]).claim(OURS, BASE, key, sign="")
                    for name in cases
                    if name + end in runs
                )
                for key, end in rates
            ]
            rows.append([words, *(cell or "–" for cell in cells)])
    shown = [runs[name] for name in names if name in runs]
    newest = max(shown, key=lambda run: run.date)
    steady = all(run.allocator for run in shown)
    version = newest.loops.get(BASE, {}).get("version", BASE)
    words = (
        f"CPython {newest.python} beside {version}, on {conditions.machine(newest)}; "
        f"{(STEADY if steady else AS_IT_COMES).format(TABLES)}. A figure is the median of the "
        "rounds' ratios, with its 95 % confidence interval for six rounds or more:"
    )
    filled = textwrap.fill(words, 100, break_long_words=False, break_on_hyphens=False)
    return f"{filled}\n\n{table(header, rows)}"
