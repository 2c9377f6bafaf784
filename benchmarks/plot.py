"""Draws the page's plots: ratios to uvloop, a group of bars for each case."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks import conditions, svg
from benchmarks.cases import Case
from benchmarks.svg import COLOURS
from benchmarks.tables import BASE, Chosen, Row, loops_in, measured

WIDTH, LEFT, RIGHT, TOP, BAR, GAP = 800, 330, 760, 90, 7, 8
# A longer bar is cut and labelled, because a loop that is eight times faster or slower
# would flatten all other bars.
CUT = 3.0
STYLE = (
    ".row { font-size: 11px; text-anchor: end; } .mark { font-size: 11px; text-anchor: middle; } "
    ".cut { font-size: 7px; } "
    f".one {{ stroke: {svg.paint(BASE)}; }}"
)


def draw(chosen: Chosen, directory: Path, tag: str) -> list[Path]:
    """Draw the plots of one Python's results; return the files.

    Network rows show throughput, the others uvloop's time divided by the loop's,
    so a longer bar is better in both.
    """
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, title, wanted in (
        ("network", "messages (or MiB, or children) per second, uvloop = 1", _network),
        ("operations", "operations of the loop, speed, uvloop = 1", _operations),
    ):
        rows = measured(chosen, wanted)
        if rows:
            path = directory / f"performance-{name}-{tag}.svg"
            path.write_text(_plot(rows, title))
            written.append(path)
    return written


def _network(case: Case) -> bool:
    # A plot of every row, or of each row twice, would be a metre long.
    network = case.kind in ("net", "client", "children") and case.pinning == "split"
    return network and not case.rare


def _operations(case: Case) -> bool:
    return case.kind == "micro" and case.target is None


def _plot(rows: Sequence[Row], title: str) -> str:
    loops = [name for name in [*loops_in(rows), "c-epoll"] if name in COLOURS and name != BASE]
    loops = [loop for loop in loops if any(row.speed(loop, BASE) for row in rows)]
    newest = max((row.run for row in rows), key=lambda run: run.date)
    parts = [
        svg.text(8, 20, title, "title"),
        svg.text(8, 38, f"CPython {newest.python}, {conditions.machine(newest)}", "note"),
        *svg.legend(loops, 8, 60, 100),
    ]
    y = TOP
    for row in rows:
        height = BAR * len(loops)
        parts.append(svg.text(LEFT - 8, y + height / 2 + 4, row.case.title, "row"))
        for index, loop in enumerate(loops):
            found = row.speed(loop, BASE)
            if found is not None:
                parts += _bar(y + BAR * index, loop, found.median)
        y += height + GAP
    for mark in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0):
        parts += [svg.text(_place(mark), at, f"{mark:.1f}", "mark") for at in (TOP - 10, y + 8)]
    one = f"{_place(1):.1f}"
    parts.append(f'<line x1="{one}" x2="{one}" y1="{TOP - 4}" y2="{y - 4}" class="one"/>')
    return svg.picture(parts, WIDTH, y + 16, f"Ratios to {BASE}: {title}", STYLE)


def _place(ratio: float) -> float:
    return LEFT + (RIGHT - LEFT) * ratio / CUT


def _bar(y: float, loop: str, speed: float) -> list[str]:
    """Draw a loop's bar, with its number if it is cut."""
    width = _place(min(speed, CUT)) - LEFT
    bar = svg.swatch(LEFT, y, width, BAR - 1, loop)
    return [bar, svg.text(RIGHT + 3, y + BAR - 1, f"{speed:.1f}", "cut")][: 1 + (speed > CUT)]
