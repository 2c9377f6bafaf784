"""The picture of docs/compare.md: `python -m benchmarks.compare_plot` writes it to docs/img.

It is drawn from the two outputs on the page, so that the page and its picture have one source.  A
loop's point is its ratio to asyncio's requests a second, and the line through it is the 95 %
interval.  Intervals within the grey band count as no difference.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.svg import COLOURS, paint, picture, text
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
STYLE = (
    ".row { font-size: 12px; font-weight: 600; } "
    ".name, .end { text-anchor: end; } .ours { font-weight: 700; } "
    ".mark { text-anchor: middle; } .side, .mark { font-size: 10.5px; } "
    ".interval { stroke-width: 1.5; fill: none; } "
    f".band {{ fill: {paint('ink')}; opacity: .13; }} "
    f".one {{ stroke: {paint('ink')}; stroke-dasharray: 2 3; opacity: .6; }}"
)

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


def loads_of_report(report: str) -> list[Load]:
    """Return the loads of a report of `goloop compare` that have ratios of requests a second."""
    loads: list[Load] = []
    title, at = "", None
    for line in report.splitlines():
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
        parts.append(text(8, y + 14, load.title, "row"))
        y += HEAD
        parts += _band(place, y, y + ROW * len(load.points))
        for point in load.points:
            parts += _point(point, place, y)
            y += ROW
        y += GAP
    axis = [text(place(mark), y + 16, f"{mark:.1f}", "mark") for mark in marks]
    axis += [
        text(place(1) - 10, y + 32, "← slower", "side end"),
        text(place(1) + 10, y + 32, "faster than asyncio →", "side"),
        f'<rect x="8" y="{y + 41}" width="12" height="11" class="band"/>',
        text(26, y + 51, f"no difference: within ± {SAME:.0%} of asyncio", "side"),
    ]
    title = text(8, 22, "Requests a second ÷ asyncio's, with 95 % intervals", "title")
    label = "Requests a second of each loop, divided by asyncio's, with 95 % intervals"
    return picture([title, *parts, *axis], WIDTH, y + 62, label, STYLE)


def _marks(least: float, greatest: float) -> list[float]:
    """Return the marks of an axis for ratios between these two."""
    for step in STEPS:
        first, last = math.floor(least / step), math.ceil(greatest / step)
        if last - first <= MARKS:
            break
    return [round(step * i, 1) for i in range(first, last + 1)]


def _band(place: Callable[[float], float], top: int, bottom: int) -> list[str]:
    """Return the band of ratios that count as no difference, and the line of asyncio."""
    left, middle, right = (place(1 + each) for each in (-SAME, 0, SAME))
    return [
        f'<rect x="{left:.1f}" y="{top}" width="{right - left:.1f}" height="{bottom - top}" '
        f'class="band"/>',
        f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{top}" y2="{bottom}" class="one"/>',
    ]


def _point(point: Point, place: Callable[[float], float], y: float) -> list[str]:
    """Return a loop's name, line, point and numbers, in a row that begins at y."""
    middle = y + ROW / 2
    # Loops without a colour share one.
    colour = paint(point.loop if point.loop in COLOURS else "asyncio")
    ours = " ours" * (point.loop == "goloop")
    numbers = f"{point.ratio:.2f}"
    parts = [text(LEFT - 8, middle + 4, point.loop, f"name{ours}")]
    if point.low is not None and point.high is not None:
        numbers += f" ({point.low:.2f}–{point.high:.2f})"
        left, right = place(point.low), place(point.high)
        ends = f"M{left:.1f},{middle - 5:g}v10M{right:.1f},{middle - 5:g}v10"
        parts.append(
            f'<path d="M{left:.1f},{middle:g}H{right:.1f}{ends}" class="interval" '
            f'stroke="{colour}"/>'
        )
    return [
        *parts,
        f'<circle cx="{place(point.ratio):.1f}" cy="{middle:g}" r="3.5" fill="{colour}"/>',
        text(RIGHT + 12, middle + 4, numbers, f"figure{ours}"),
    ]


if __name__ == "__main__":
    IMAGE.write_text(svg(loads_of_page(PAGE.read_text())))
