"""The front page's results: a headline with a picture, and a table, for README and the site's home.

The text between two comments is generated and replaced as a whole.  All results are of one Python:
the newest of the usual builds that has all rows of the table.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from benchmarks import conditions, svg
from benchmarks.cases import BY_NAME
from benchmarks.loops import LOOPS
from benchmarks.markdown import short
from benchmarks.tables import (
    BASE,
    CONTROL,
    LEVEL,
    OURS,
    Chosen,
    Row,
    measured,
    qualities,
    shown,
)
from goloop.operations.compare.measuring.intervals import Ratio

sys.path.append(str(Path(__file__).parents[1] / "tools"))

import blocks

# The comments around each block.
HEADLINE = (
    "<!-- headline: written by python -m benchmarks report -->",
    "<!-- end of the headline -->",
)
FIGURES = (
    "<!-- figures: written by python -m benchmarks report -->",
    "<!-- end of the figures -->",
)
IMAGE = "front.svg"

# Common uses, with the number of connections, and the case that shows each.
ROWS: tuple[tuple[str, str, str], ...] = (
    ("FastAPI on uvicorn", "4", "fastapi-x4"),
    ("FastAPI on uvicorn", "100", "fastapi-x100"),
    ("aiohttp", "4", "aiohttp-x4"),
    ("aiohttp", "100", "aiohttp-x100"),
    ("asyncio streams, 1 KiB", "4", "streams-1k-x4"),
    ("asyncio streams, 1 KiB", "100", "streams-1k-x100"),
    ("TLS, 1 KiB", "4", "tls-1k-x4"),
    ("TLS, 1 KiB", "100", "tls-1k-x100"),
    ("UDP, 512 bytes", "4", "udp-512-x4"),
    ("UDP, 512 bytes", "100", "udp-512-x100"),
    ("a task, created and awaited", "–", "create-task"),
)
# The headline's case, and the cases of its picture.
FIRST = "aiohttp-x100"
PICTURE = (("aiohttp, 100 connections", "aiohttp-x100"), ("aiohttp, 4 connections", "aiohttp-x4"))
SHOWN = (OURS, BASE, "zuvloop", CONTROL)

NOTHING = (
    "Undisturbed measurements of this version are not complete: "
    "[`goloop compare`]({}compare.md) measures your own program."
)

WIDTH, LEFT, RIGHT, BAR, GAP = 400, 66, 340, 13, 3
CUT = 2.0  # a longer bar is cut, with » before its value
STYLE = (
    ".row { font-size: 13px; font-weight: 600; } .name { text-anchor: end; } "
    ".ours { font-weight: 700; } "
    f".one {{ stroke: {svg.paint('ink')}; stroke-dasharray: 2 3; opacity: .5; }}"
)


def chosen_run(chosen: dict[str, Chosen]) -> tuple[str, Chosen] | None:
    """Return the newest usual Python that has all rows, and its runs."""
    fitting = [
        tag
        for tag, runs in chosen.items()
        if not tag.endswith("t") and all(name in runs for _words, _number, name in ROWS)
    ]
    newest = max(fitting, key=lambda tag: int(tag.removeprefix("cp3")), default=None)
    return None if newest is None else (f"3.{newest.removeprefix('cp3')}", chosen[newest])


def rewritten(text: str, chosen: dict[str, Chosen], images: str, pages: str) -> str:
    """Return a page's text with the two blocks of these runs.

    `images` and `pages` are the prefixes of the addresses of pictures and pages.
    """
    text = blocks.replaced(text, *HEADLINE, headline(chosen, images, pages))
    return blocks.replaced(text, *FIGURES, block(chosen, pages))


def headline(chosen: dict[str, Chosen], images: str, pages: str) -> str:
    """Return the first block: the picture, one figure with its interval, and the machine."""
    found = chosen_run(chosen)
    if found is None:
        return NOTHING.format(pages)
    _version, runs = found
    row = Row(runs[FIRST], BY_NAME[FIRST])
    words = (
        f"With aiohttp and 100 connections, goloop serves {row.median(OURS) or 0:,.0f} "
        f"requests per second on one core: {shown(row.speed(OURS, BASE))} times uvloop's. "
        f"{_losses(runs, pages)} "
        f"CPython {row.run.python} on {_machine(runs)}."
    )
    alt = "Bars: requests per second of goloop, uvloop, zuvloop and asyncio with aiohttp"
    return f"{_wrapped(words)}\n\n![{alt}]({images}{IMAGE})"


def block(chosen: dict[str, Chosen], pages: str) -> str:
    """Return the second block: the table, its conditions, and the other loops."""
    found = chosen_run(chosen)
    if found is None:
        return NOTHING.format(pages)
    _version, runs = found
    rows = [
        "| program | connections | goloop | ÷ asyncio | ÷ uvloop | ÷ best other | CPU ÷ uvloop |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    rows += [
        f"| {words} | {number} | {' | '.join(_cells(Row(runs[name], BY_NAME[name])))} |"
        for words, number, name in ROWS
    ]
    newest = max((runs[name] for _words, _number, name in ROWS), key=lambda run: run.date)
    method = (
        "Each connection is a client that has one request or message under way. Ratios compare "
        "speeds: above 1, goloop is faster. In parentheses: the 95 % confidence interval. The last "
        "column compares the server's processor time for one request: below 1, goloop needs less. "
        f"CPython {newest.python} on {_machine(runs)}; server and client each on one core; all "
        f"loops measured in turns. [Method]({pages}benchmarks.md), "
        f"[all rows]({pages}performance.md)."
    )
    return "\n\n".join(["\n".join(rows), _wrapped(method), _losses(runs, pages), rivals(runs)])


def rivals(runs: Chosen) -> str:
    """Return a line for each other loop of the table's rows, with its address."""
    names = {loop for _words, _number, name in ROWS for loop in runs[name].samples.get(name, {})}
    others = [each for each in LOOPS if each.name in names and each.about]
    return "\n".join(f"- [{each.name}]({each.home}): {each.about}." for each in others)


def _machine(runs: Chosen) -> str:
    some = [runs[name] for _words, _number, name in ROWS]
    newest = max(some, key=lambda run: run.date)
    return "; ".join(filter(None, [conditions.machine(newest), conditions.costs(some)]))


def _losses(runs: Chosen, pages: str) -> str:
    """Count the values that goloop loses for certain: the whole interval is on the other side."""
    values = [
        any(_is_certain(row.speed(loop, OURS, key)) for loop in row.rivals())
        for row in measured(runs, lambda case: case.target is None)
        for _words, key, _more in qualities(row.case)
    ]
    return (
        f"Another loop is better by more than {LEVEL:.0%} in {sum(values)} of {len(values)} "
        f"measured values ([where]({pages}performance.md#where-other-loops-are-faster))."
    )


def _is_certain(lead: Ratio | None) -> bool:
    """Return true if a loop is ahead in the whole interval, and by more than LEVEL."""
    return lead is not None and (lead.low or 0) > 1 and lead.median > 1 + LEVEL


def _cells(row: Row) -> list[str]:
    value = row.median(OURS)
    unit = "/s" if row.case.higher_is_better else " " + row.case.unit
    others = {
        loop: lead.median
        for loop in row.rivals()
        if loop != BASE and (lead := row.speed(loop, OURS)) is not None
    }
    best = max(others, key=lambda loop: others[loop], default=None)
    cost = row.ratio(OURS, BASE, "server_us") if row.case.higher_is_better else None
    return [
        "–" if value is None else short(value) + unit,
        shown(row.speed(OURS, CONTROL)),
        shown(row.speed(OURS, BASE)),
        "–" if best is None else f"{shown(row.speed(OURS, best))}, {best}",
        "–" if cost is None else f"{cost.median:.2f}",
    ]


def _wrapped(words: str) -> str:
    return textwrap.fill(words, 110, break_long_words=False, break_on_hyphens=False)


# ---- the picture ---------------------------------------------------------------------------


def draw(chosen: dict[str, Chosen], directory: Path) -> list[Path]:
    """Draw the picture; return its file, or no file if a row has not been measured."""
    found = chosen_run(chosen)
    if found is None:
        return []
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / IMAGE
    path.write_text(_svg(*found))
    return [path]


def _svg(version: str, runs: Chosen) -> str:
    y = 22
    parts = [svg.text(8, y, f"Requests per second, uvloop = 1 (CPython {version})", "title")]
    for words, name in PICTURE:
        y += 26
        parts.append(svg.text(8, y, words, "row"))
        y += 5
        row = Row(runs[name], BY_NAME[name])
        for loop in SHOWN:
            speed = row.speed(loop, BASE)
            if speed is not None:
                parts += _bar(y, loop, speed.median)
                y += BAR + GAP
    line = LEFT + (RIGHT - LEFT) / CUT
    parts.append(f'<line x1="{line:g}" x2="{line:g}" y1="34" y2="{y}" class="one"/>')
    return svg.picture(parts, WIDTH, y + 10, "Speed of four loops, uvloop = 1", STYLE)


def _bar(y: int, loop: str, speed: float) -> list[str]:
    length = (RIGHT - LEFT) * min(speed, CUT) / CUT
    value = "» " * (speed > CUT) + f"{speed:.2f}"
    middle = y + BAR - 3
    ours = " ours" * (loop == OURS)
    return [
        svg.text(LEFT - 6, middle, loop, f"name{ours}"),
        f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="1.5" '
        f'fill="{svg.paint(loop)}"/>',
        svg.text(LEFT + length + 5, middle, value, f"figure{ours}"),
    ]
