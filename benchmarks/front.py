"""The front page's results: a headline with a picture, and a table, for README and the site's home.

The text between two comments is generated and replaced as a whole.  All results are of one machine
and one Python: the newest of the usual builds that has all rows of the table.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
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

# Common uses with the number of connections, in few letters: a telephone shows the first columns.
ROWS: tuple[tuple[str, str], ...] = (
    ("FastAPI ×4", "fastapi-x4"),
    ("FastAPI ×100", "fastapi-x100"),
    ("FastAPI+db ×100", "fastapi-asyncpg-x100"),
    ("aiohttp ×4", "aiohttp-x4"),
    ("aiohttp ×100", "aiohttp-x100"),
    ("streams ×4", "streams-1k-x4"),
    ("streams ×100", "streams-1k-x100"),
    ("TLS ×4", "tls-1k-x4"),
    ("TLS ×100", "tls-1k-x100"),
    ("UDP ×4", "udp-512-x4"),
    ("UDP ×100", "udp-512-x100"),
    ("HTTP client ×100", "client-aiohttp-x100"),
    ("httpx ×20", "client-httpx-x20"),
    ("redis-py ×10", "client-redis-x10"),
    ("asyncpg ×10", "client-asyncpg-x10"),
    ("a task", "create-task"),
)
PROGRAMS = (
    "FastAPI runs on uvicorn; with +db each request queries PostgreSQL by asyncpg. Messages of "
    "streams and TLS have 1 KiB, those of UDP 512 bytes. The HTTP client is aiohttp's, of nginx, "
    "and httpx is another one. A task is created and awaited. ×100: 100 connections, each with one "
    "request or message under way."
)
# The groups of the table's cases that are web servers, and their names.
WEB = ("aiohttp", "fastapi", "fastapi-asyncpg")
WEB_NAMES = "aiohttp, FastAPI"
# The picture's programs, all with 100 connections.
PICTURE = (
    ("FastAPI", "fastapi-x100"),
    ("streams", "streams-1k-x100"),
    ("aiohttp", "aiohttp-x100"),
    ("HTTP client", "client-aiohttp-x100"),
)
SHOWN = (OURS, BASE, "zuvloop", CONTROL)

NOTHING = (
    "Undisturbed measurements of this version are not complete: "
    "[`goloop compare`]({}compare.md) measures your own program."
)

# The picture is as wide as a telephone's column: there its text keeps its size.
WIDTH, TOP, HEIGHT, COLUMN, GAP, MARGIN = 416, 80, 128, 21, 1, 8
CUT = 1.6  # a taller column is cut, with » before its value
STYLE = (
    ".row { font-size: 12.5px; font-weight: 600; text-anchor: middle; } "
    f".value {{ font-size: 10.5px; text-anchor: middle; paint-order: stroke; "
    f"stroke: {svg.paint('paper')}; stroke-width: 3px; }} "
    ".ours { font-weight: 700; } "
    f".one {{ stroke: {svg.paint('ink')}; stroke-dasharray: 2 3; opacity: .5; }}"
)


def chosen_run(chosen: dict[str, Chosen]) -> tuple[str, Chosen] | None:
    """Return the newest usual Python that has all rows, and its runs."""
    fitting = [
        tag
        for tag, runs in chosen.items()
        if not tag.endswith("t") and all(name in runs for _words, name in ROWS)
    ]
    newest = max(fitting, key=lambda tag: int(tag.removeprefix("cp3")), default=None)
    return None if newest is None else (f"3.{newest.removeprefix('cp3')}", chosen[newest])


def rewritten(
    text: str, chosen: dict[str, Chosen], images: str, pages: str, *, elsewhere: bool = False
) -> str:
    """Return a page's text with the two blocks of these runs.

    `images` and `pages` are the prefixes of the addresses of pictures and pages; with `elsewhere`
    the performance page has the rows of other machines, too.
    """
    text = blocks.replaced(text, *HEADLINE, headline(chosen, images, pages))
    return blocks.replaced(text, *FIGURES, block(chosen, pages, elsewhere=elsewhere))


def headline(chosen: dict[str, Chosen], images: str, pages: str) -> str:
    """Return the first block: the gain of web servers as a range, the losses, and the picture."""
    found = chosen_run(chosen)
    if found is None:
        return NOTHING.format(pages)
    _version, runs = found
    cases = [BY_NAME[name] for _words, name in ROWS]
    web = [Row(runs[case.name], case) for case in cases if case.group in WEB]
    beside = [
        f"{times} times as many{' requests per second' * (loop == BASE)} as on {loop}"
        for loop in (BASE, CONTROL, "zuvloop")
        if (times := _times(web, loop))
    ]
    listed = f"{', '.join(beside[:-1])}, and {beside[-1]}" if len(beside) > 1 else "".join(beside)
    sentences = [f"Web servers ({WEB_NAMES}) answer {listed}."] if beside else []
    words = " ".join([*sentences, _costs(web), _losses(runs, pages)])
    alt = (
        "Columns: the speed of FastAPI, streams, aiohttp and an HTTP client on goloop, uvloop, "
        "zuvloop and asyncio"
    )
    return f"{_wrapped(words)}\n\n![{alt}]({images}{IMAGE})"


def _times(rows: Sequence[Row], loop: str) -> str:
    """Write the range of goloop's rates in relation to another loop's; empty without any."""
    found = [lead.median for row in rows if (lead := row.speed(OURS, loop)) is not None]
    return f"{min(found):.1f} to {max(found):.1f}" if found else ""


def _costs(rows: Sequence[Row]) -> str:
    """Write the range of processor times in relation to uvloop's; empty without any."""
    found = [cost.median for row in rows if (cost := row.ratio(OURS, BASE, "server_us"))]
    if not found:
        return ""
    ends = f"{_change(max(found))} to {_change(min(found))}"
    return f"A request takes {ends} processor time than on {BASE}."


def _change(ratio: float) -> str:
    """Write a ratio of times in words: 0.66 is 34 % less."""
    return f"{abs(ratio - 1):.0%} {'more' if ratio > 1 else 'less'}".replace("%", " %")


def block(chosen: dict[str, Chosen], pages: str, *, elsewhere: bool = False) -> str:
    """Return the second block: the table, its conditions, and the other loops."""
    found = chosen_run(chosen)
    if found is None:
        return NOTHING.format(pages)
    _version, runs = found
    # The columns by which one chooses a loop are the first: a telephone shows only these.
    rows = [
        "| program | ÷ uvloop | ÷ best other | ÷ asyncio | CPU ÷ uvloop | goloop | intervals |",
        "|---|--:|---|--:|--:|--:|---|",
    ]
    rows += [
        f"| {words} | {' | '.join(_cells(Row(runs[name], BY_NAME[name])))} |"
        for words, name in ROWS
    ]
    newest = max((runs[name] for _words, name in ROWS), key=lambda run: run.date)
    others = f", [other machines]({pages}performance.md#other-machines)" * elsewhere
    method = (
        "Ratios compare speeds: above 1, goloop is faster. *In italics*: the 95 % confidence "
        "interval includes 1, so none of the two is faster for certain; the last column has the "
        "intervals of ÷ uvloop and ÷ best other. CPU: the processor time of one request; below 1, "
        f"goloop needs less. {PROGRAMS}"
    )
    place = (
        f"Measured with CPython {newest.python} on {_machine(runs)}; server and client each on "
        f"one core; all loops measured in turns. [Method]({pages}benchmarks.md), "
        f"[all rows]({pages}performance.md){others}."
    )
    return "\n\n".join(["\n".join(rows), _wrapped(method), _wrapped(place), rivals(runs)])


def rivals(runs: Chosen) -> str:
    """Return a line for each other loop of the table's rows, with its address."""
    names = {loop for _words, name in ROWS for loop in runs[name].samples.get(name, {})}
    others = [each for each in LOOPS if each.name in names and each.about]
    return "\n".join(f"- [{each.name}]({each.home}): {each.about}." for each in others)


def _machine(runs: Chosen) -> str:
    some = [runs[name] for _words, name in ROWS]
    newest = max(some, key=lambda run: run.date)
    return "; ".join(filter(None, [conditions.machine(newest), conditions.costs(some)]))


def _losses(runs: Chosen, pages: str) -> str:
    """Count the rows that goloop loses for certain: by rate, time, processor time or latency."""
    rows = measured(runs, lambda case: case.target is None)
    lost = [row for row in rows if is_lost(row)]
    return (
        f"In {len(lost)} of {len(rows)} measured rows another loop is better for certain, and by "
        f"more than {LEVEL:.0%} ([where]({pages}performance.md#where-other-loops-are-faster))."
    )


def is_lost(row: Row) -> bool:
    """Return true if a loop is ahead of goloop in one of the row's measures for certain."""
    return any(
        _is_certain(row.speed(loop, OURS, key))
        for _words, key, _more in qualities(row.case)
        for loop in row.rivals()
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
    beside = [row.speed(OURS, BASE), None if best is None else row.speed(OURS, best)]
    return [
        _plain(beside[0]),
        "–" if best is None else f"{_plain(beside[1])} {best}",
        _plain(row.speed(OURS, CONTROL)),
        _plain(cost),
        "–" if value is None else short(value) + unit,
        ", ".join(map(_interval, beside)),
    ]


def _plain(ratio: Ratio | None) -> str:
    """Write a ratio without its interval: in italics if it may be 1."""
    if ratio is None:
        return "–"
    text = f"{ratio.median:.2f}"
    certain = ratio.low is not None and ratio.high is not None
    certain = certain and not (ratio.low or 0) <= 1 <= (ratio.high or 0)
    return text if certain else f"*{text}*"


def _interval(ratio: Ratio | None) -> str:
    if ratio is None or ratio.low is None or ratio.high is None:
        return "–"
    return f"{ratio.low:.2f}–{ratio.high:.2f}"


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
    newest = max((runs[name] for _words, name in PICTURE), key=lambda run: run.date)
    words = f"100 connections, one core, CPython {version}, {conditions.processor(newest)}"
    one, end = TOP + HEIGHT * (1 - 1 / CUT), WIDTH - MARGIN
    parts = [
        svg.text(MARGIN, 22, "Requests per second, uvloop = 1", "title"),
        svg.text(MARGIN, 40, words, "note"),
        *svg.legend(SHOWN, MARGIN, 60, 76),
        f'<line x1="{MARGIN}" x2="{end}" y1="{one:g}" y2="{one:g}" class="one"/>',
    ]
    step = (WIDTH - 2 * MARGIN) / len(PICTURE)
    for number, (words, name) in enumerate(PICTURE):
        middle = MARGIN + step * (number + 0.5)
        left = middle - (len(SHOWN) * (COLUMN + GAP) - GAP) / 2
        row = Row(runs[name], BY_NAME[name])
        for place, loop in enumerate(SHOWN):
            speed = row.speed(loop, BASE)
            if speed is not None:
                parts += _column(left + place * (COLUMN + GAP), loop, speed.median)
        parts.append(svg.text(middle, TOP + HEIGHT + 17, words, "row"))
    return svg.picture(parts, WIDTH, TOP + HEIGHT + 28, "Speed of four loops, uvloop = 1", STYLE)


def _column(x: float, loop: str, speed: float) -> list[str]:
    height = HEIGHT * min(speed, CUT) / CUT
    value = "»" * (speed > CUT) + f"{speed:.2f}"
    top = TOP + HEIGHT - height
    return [
        f'<rect x="{x:.1f}" y="{top:.1f}" width="{COLUMN}" height="{height:.1f}" rx="1.5" '
        f'fill="{svg.paint(loop)}"/>',
        svg.text(x + COLUMN / 2, round(top - 4, 1), value, "value" + " ours" * (loop == OURS)),
    ][: 1 + (loop != BASE)]  # the title and the line say where BASE is
