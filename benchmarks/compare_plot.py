"""The picture of docs/compare.md: `python -m benchmarks.compare_plot [RESULTS] [-o FILE.svg]`.

RESULTS is a file that `goloop compare --json` has written.  Without it, the picture is drawn from
the two outputs on docs/compare.md, so that the page and its picture have one source, and it is
written to docs/img.  A loop's point is its ratio to asyncio's requests a second, and the line
through it is the 95 % interval.  Intervals within the grey band count as no difference.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.plot import COLOURS
from goloop.operations.compare.verdicts import SAME

DOCS = Path(__file__).parents[1] / "docs"
PAGE, IMAGE = DOCS / "compare.md", DOCS / "img" / "compare.svg"
REFERENCE = "asyncio"
COLUMN = f"requests/s ÷ {REFERENCE}"

# The words above the loads of the page's outputs, in the order of the page.
OUTPUTS = ("uvicorn", "test with known speeds")

WIDTH, LEFT, RIGHT, ROW, HEAD, GAP = 450, 70, 320, 20, 24, 5
TOP = 36  # of the first load; the title is above it
STEPS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # between two marks of the axis: the first with few
MARKS = 8

_BLOCK = re.compile(r"^```text\n(goloop compare .*?)^```$", re.MULTILINE | re.DOTALL)
_RATIO = re.compile(r"(\d+\.\d+)(?: \((\d+\.\d+)–(\d+\.\d+)\))?")


@dataclass(frozen=True)
class Point:
    """A loop's ratio to asyncio, with the ends of its interval if there is one."""

    loop: str
    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Load:
    """The ratios of all loops under one load, such as "4 connections, full load"."""

    title: str
    points: list[Point]


def loads_of_page(page: str) -> list[Load]:
    """Return the loads of the outputs on the page; ValueError unless there is one for each name."""
    blocks = _BLOCK.findall(page)
    return [
        Load(f"{name}: {load.title}", load.points)
        for name, block in zip(OUTPUTS, blocks, strict=True)
        for load in loads_of_report(block)
    ]


def loads_of_report(text: str) -> list[Load]:
    """Return the loads of a report of `goloop compare` that have ratios of requests a second."""
    loads: list[Load] = []
    title, at = "", None
    for line in text.splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if not line.startswith(" "):
            title, at = line, None
        elif cells[0] == "loop":
            at = cells.index(COLUMN) if COLUMN in cells else None
            if at is not None:
                loads.append(Load(title, []))
        elif at is not None and at < len(cells) and (found := _RATIO.fullmatch(cells[at])):
            ratio, low, high = (None if each is None else float(each) for each in found.groups())
            assert ratio is not None
            loads[-1].points.append(Point(cells[0], ratio, low, high))
    return loads


def loads_of_json(data: dict[str, Any]) -> list[Load]:
    """Return the loads of a file of `goloop compare --json` that are at full load."""
    return [
        Load(
            f"{load['connections']} connection{'s' * (load['connections'] != 1)}, full load",
            [
                Point(each["loop"], each["ratio"], each["low"], each["high"])
                for each in load["comparisons"]
                if (each["reference"], each["quantity"]) == (REFERENCE, "rate")
                and each["ratio"] is not None
            ],
        )
        for load in data["loads"]
        if load["connections"] and load["rate"] is None
    ]


def svg(loads: Sequence[Load]) -> str:
    """Return the picture; ValueError if no loop has a ratio to asyncio's."""
    ends = [
        end
        for load in loads
        for point in load.points
        for end in (point.ratio, point.low, point.high)
        if end is not None
    ]
    if not ends:
        raise ValueError(f"there are no ratios of requests a second to {REFERENCE}'s")
    marks = _marks(min(*ends, 1 - SAME), max(*ends, 1 + SAME))
    first, last = marks[0], marks[-1]

    def place(ratio: float) -> float:
        """Return the x coordinate of a ratio."""
        return LEFT + (RIGHT - LEFT) * (ratio - first) / (last - first)

    parts: list[str] = []
    y = TOP
    for load in loads:
        parts.append(_text(8, y + 14, load.title, "row"))
        y += HEAD
        parts += _band(place, y, y + ROW * len(load.points))
        for point in load.points:
            parts += _point(point, place, y)
            y += ROW
        y += GAP
    axis = [_text(place(mark), y + 16, f"{mark:.1f}", "mark") for mark in marks]
    axis += [
        _text(place(1) - 10, y + 32, "← slower", "side end"),
        _text(place(1) + 10, y + 32, "faster than asyncio →", "side"),
        f'<rect x="8" y="{y + 41}" width="12" height="11" class="band"/>',
        _text(26, y + 51, f"no difference: within ± {SAME:.0%} of asyncio", "side"),
    ]
    return _framed([*parts, *axis], y + 62)


def _marks(least: float, greatest: float) -> list[float]:
    """Return the marks of an axis for ratios between these two."""
    for step in STEPS:
        first, last = math.floor(least / step), math.ceil(greatest / step)
        if last - first <= MARKS:
            break
    return [round(step * i, 1) for i in range(first, last + 1)]


def _band(place: Any, top: int, bottom: int) -> list[str]:
    """Return the band of ratios that count as no difference, and the line of asyncio."""
    left, middle, right = (place(1 + each) for each in (-SAME, 0, SAME))
    return [
        f'<rect x="{left:.1f}" y="{top}" width="{right - left:.1f}" height="{bottom - top}" '
        f'class="band"/>',
        f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{top}" y2="{bottom}" class="one"/>',
    ]


def _point(point: Point, place: Any, y: int) -> list[str]:
    """Return a loop's name, line, point and numbers, in a row that begins at y."""
    middle = y + ROW / 2
    paint = f"var(--{_colour(point.loop)}, {COLOURS[_colour(point.loop)][0]})"
    ours = " ours" * (point.loop == "goloop")
    numbers = f"{point.ratio:.2f}"
    parts = [_text(LEFT - 8, middle + 4, point.loop, f"name{ours}")]
    if point.low is not None and point.high is not None:
        numbers += f" ({point.low:.2f}–{point.high:.2f})"
        left, right = place(point.low), place(point.high)
        ends = f"M{left:.1f},{middle - 5:g}v10M{right:.1f},{middle - 5:g}v10"
        parts.append(
            f'<path d="M{left:.1f},{middle:g}H{right:.1f}{ends}" class="interval" '
            f'stroke="{paint}"/>'
        )
    return [
        *parts,
        f'<circle cx="{place(point.ratio):.1f}" cy="{middle:g}" r="3.5" fill="{paint}"/>',
        _text(RIGHT + 12, middle + 4, numbers, f"figure{ours}"),
    ]


def _colour(loop: str) -> str:
    """Return the name of a loop's colour; loops that benchmarks.plot does not know share one."""
    return loop if loop in COLOURS else "asyncio"


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:g}" class="{kind}">{escape(words, quote=False)}</text>'


def _framed(parts: Sequence[str], height: int) -> str:
    """Return the whole file, with the colours of the reader's scheme; light is the default."""
    names = [name for name in COLOURS if any(f"--{name}," in each for each in parts)]
    light, dark = (
        " ".join(f"--{name}: {COLOURS[name][at]};" for name in [*names, "paper", "ink"])
        for at in (0, 1)
    )
    style = (
        f":root {{ {light} }} @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }} "
        "text { font: 11.5px system-ui, sans-serif; fill: var(--ink, #24292f); } "
        ".title { font-size: 14px; font-weight: 600; } .row { font-size: 12px; font-weight: 600; } "
        ".name, .end { text-anchor: end; } .ours { font-weight: 700; } "
        ".mark { text-anchor: middle; } .side, .mark { font-size: 10.5px; } "
        ".interval { stroke-width: 1.5; fill: none; } "
        ".band { fill: var(--ink, #24292f); opacity: .13; } "
        ".one { stroke: var(--ink, #24292f); stroke-dasharray: 2 3; opacity: .6; }"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" role="img" aria-label="Requests a second of each loop, divided by '
            f"asyncio's, with 95 % intervals\">",
            f"<style>{style}</style>",
            f'<rect width="{WIDTH}" height="{height}" fill="var(--paper, #ffffff)"/>',
            _text(8, 22, "Requests a second ÷ asyncio's, with 95 % intervals", "title"),
            *parts,
            "</svg>\n",
        ]
    )


def main() -> None:
    """Draw the picture of the page, or of a file with results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare_plot", description=__doc__)
    parser.add_argument("results", nargs="?", type=Path, help="file of goloop compare --json")
    parser.add_argument("-o", "--output", type=Path, help="file to write, an SVG")
    given = parser.parse_args()
    if given.results is None:
        loads, image = loads_of_page(PAGE.read_text()), given.output or IMAGE
    else:
        loads = loads_of_json(json.loads(given.results.read_text()))
        image = given.output or given.results.with_suffix(".svg")
    image.write_text(svg(loads))
    print(f"{image} is written")


if __name__ == "__main__":
    main()
