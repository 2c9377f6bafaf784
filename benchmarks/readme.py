"""Writes README's table of figures, so that no claim there is without its row.

The table stands between two comments, and only what is between them is replaced.
"""

from __future__ import annotations

import textwrap

from benchmarks.cases import BY_NAME
from benchmarks.results import Run
from benchmarks.tables import BASE, OURS, Chosen, claimed

BEGIN = "<!-- figures: written by python -m benchmarks report -->"
END = "<!-- end of the figures -->"

# A row's words, and the cases that it shows, side by side where there are two.
ROWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Protocol echo, 1 KiB ×1", ("protocol-1k-x1",)),
    ("Protocol echo, 1 KiB ×10", ("protocol-1k-x10",)),
    ("Protocol echo, 1 KiB ×100", ("protocol-1k-x100",)),
    ("Protocol echo, 100 KiB ×10", ("protocol-100k-x10",)),
    ("streams, 1 KiB ×100", ("streams-1k-x100",)),
    ("sock_recv / sock_sendall, 1 KiB ×100", ("sock-1k-x100",)),
    ("aiohttp hello ×100", ("aiohttp-x100",)),
    ("uvicorn hello ×100", ("uvicorn-x100",)),
    ("TLS echo, 1 KiB ×100", ("tls-1k-x100",)),
    ("TLS echo, 100 KiB ×10", ("tls-100k-x10",)),
    ("UDP echo, 512 B ×50", ("udp-512-x50",)),
    ("Unix socket echo, 1 KiB ×100", ("unix-1k-x100",)),
    ("pipe, reading / writing", ("pipe-read", "pipe-write")),
    ("start /bin/true and wait", ("spawn",)),
    ("connect, echo, close ×100", ("churn-x100",)),
)

STEADY = "malloc trimming is off for every loop ([why]({}))"
AS_IT_COMES = """\
the allocator as it comes, so that rows with large blocks hold the luck of the heap's layout
([more]({}))"""

# README is shown on PyPI too, where a relative link leads nowhere.
PAGE = (
    "https://github.com/goloop/goloop/blob/main/docs/performance-tables.md"
    "#how-the-figures-are-taken"
)


def rewritten(text: str, chosen: dict[str, Chosen]) -> str:
    """Return README's text with the table of these runs: tag -> case -> run.

    Raises ValueError where the comments are not there, once each and in order.
    """
    before, begin, rest = text.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise ValueError("README.md does not have the two comments round its figures")
    return "".join([before, BEGIN, "\n\n", block(chosen), "\n\n", END, after])


def block(chosen: dict[str, Chosen], page: str = PAGE) -> str:
    """Write what stands between the comments; `page` explains the method."""
    # What a build without the GIL reaches is the page's subject.
    usual = (tag for tag in chosen if chosen[tag] and not tag.endswith("t"))
    tags = sorted(usual, key=_version, reverse=True)
    titled = [f"3.{_version(tag)}" for tag in tags]
    shown = {name for _words, names in ROWS for name in names}
    runs = [run for tag in tags for name, run in chosen[tag].items() if name in shown]
    if not runs:
        return "Nothing of this has been measured yet."
    rate, cpu = (
        [f"{words} ÷ {BASE}, {titled[0]}", *titled[1:]] for words in ("rate", "server CPU")
    )
    rows = []
    for words, names in ROWS:
        if any(name in chosen[tag] for tag in tags for name in names):
            cells = [
                " / ".join(_claim(chosen[tag], name, key) for name in names)
                for key in ("rate", "server_us")
                for tag in tags
            ]
            rows.append(f"| {words} | {' | '.join(cells)} |")
    header = ["case", *rate, *cpu]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|", *rows]
    return "\n".join([_paragraph(runs, page), "", *lines])


def _version(tag: str) -> int:
    """Return the second number of a Python by its tag: cp314 -> 14."""
    return int(tag.removeprefix("cp3"))


def _claim(chosen: Chosen, name: str, key: str) -> str:
    run = chosen.get(name)
    return "–" if run is None else claimed(run, BY_NAME[name], OURS, BASE, key, sign="")


def _paragraph(runs: list[Run], page: str) -> str:
    newest = max(runs, key=lambda run: run.date)
    base = newest.loops.get(BASE, {}).get("version", BASE)
    setting = STEADY if all(run.allocator for run in runs) else AS_IT_COMES
    machine = f"{newest.machine['processor']}, {newest.machine['cores']} cores"
    words = (
        f"Beside {base}, on {machine}: server and client on a core each, loops interleaved, "
        f"{setting.format(page)}. A figure is the median of the rounds' ratios, "
        "with its 95 % confidence interval where there were six rounds or more:"
    )
    return textwrap.fill(words, 100, break_long_words=False, break_on_hyphens=False)
