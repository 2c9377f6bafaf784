"""A trace as a picture: `python tools/trace_picture.py TRACE.json[.gz] FILE.svg`.

What a time line of Perfetto shows of one loop around its longest step or callback: what it did with
its polls, its iterations, and the steps and callbacks in them.  For tools/story_pictures.py.

The picture brings its own background, so that it reads alike on light and dark pages.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

Event = dict[str, Any]

WIDE, MARGIN, ROW, SIZE = 880, 14, 24, 12
# Of a character.
CELL = 7.2
BACKGROUND, FOREGROUND, DIM, EDGE = "#1d2230", "#d7dce8", "#8a93a8", "#3b4358"
FILLINGS = ["#3d6a8f", "#8f5f3d", "#4f7f52", "#7a4f86", "#86793d", "#8a4250"]


def steps() -> Iterator[float]:
    """Round distances of the marks of time, in microseconds."""
    step = 1.0
    while True:
        yield from (step, 2 * step, 5 * step)
        step *= 10


def read(path: Path) -> list[Event]:
    """The events of a file of `goloop trace`."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    events: list[Event] = json.loads(data)["traceEvents"]
    return events


def svg(events: list[Event], title: str, before: float = 0.25, after: float = 0.5) -> str:
    """The longest step or callback, and its loop for so much of its length before and after."""
    slices = [each for each in events if each["ph"] == "X"]
    work = [each for each in slices if each["cat"] not in ("loop", "gc")]
    longest = max(work, key=lambda each: float(each["dur"]))
    begins = longest["ts"] - before * longest["dur"]
    ends = longest["ts"] + (1 + after) * longest["dur"]
    scale = (WIDE - 2 * MARGIN) / (ends - begins)
    high = 2 * MARGIN + 5.2 * ROW
    made = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {high:g}" width="{WIDE}" '
        f'height="{high:g}" font-size="{SIZE}" font-family="ui-monospace, '
        "'SF Mono', 'Cascadia Mono', 'DejaVu Sans Mono', Menlo, Consolas, monospace\">",
        f"<title>{escape(title)}</title>",
        f'<rect x=".5" y=".5" width="{WIDE - 1}" height="{high - 1:g}" rx="9" '
        f'fill="{BACKGROUND}" stroke="{EDGE}"/>',
    ]

    def text(x: float, y: float, words: str, colour: str) -> None:
        made.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}">{escape(words)}</text>')

    def bar(event: Event, row: float, colour: str) -> None:
        left = max(event["ts"], begins)
        right = min(event["ts"] + event["dur"], ends)
        x, width = MARGIN + (left - begins) * scale, max(0.7, (right - left) * scale)
        y = MARGIN + row * ROW
        told = f"{event['name']}: {event['dur'] / 1000:.3f} ms"
        made.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{ROW - 3}" '
            f'fill="{colour}"><title>{escape(told)}</title></rect>'
        )
        words = f"{event['name']} {event['dur'] / 1000:.0f} ms"
        if width > 8 + CELL * len(words):
            text(x + 4, y + ROW - 9, words, FOREGROUND)

    tick = next(step for step in steps() if (ends - begins) / step <= 8)
    at = 0.0
    while begins + at <= ends:
        x = MARGIN + at * scale
        made.append(f'<path d="M{x:.1f} {MARGIN + ROW}V{MARGIN + 4.1 * ROW:.1f}" stroke="{EDGE}"/>')
        text(x, MARGIN + ROW * 0.7, f"{at / 1000:g} ms", DIM)
        at += tick
    names = sorted({each["name"] for each in work} - {longest["name"]})
    names.insert(0, longest["name"])
    for each in slices:
        if each["tid"] != longest["tid"] or each["ts"] > ends or each["ts"] + each["dur"] < begins:
            continue
        if each["cat"] == "loop":
            bar(each, 1.1 if each["name"] != "iteration" else 2.1, "#2f374b")
        elif each["cat"] != "gc":
            bar(each, 3.1, FILLINGS[names.index(each["name"]) % len(FILLINGS)])
    about = longest["args"]
    words = f"{longest['name']}: {longest['dur'] / 1000:.1f} ms"
    if about.get("task"):
        words += f", task {about['task']}"
    if about.get("file"):
        words += f", {Path(about['file']).name}:{about['line']}"
    text(MARGIN, high - MARGIN - 3, words, FOREGROUND)
    made.append("</svg>\n")
    return "\n".join(made)


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(svg(read(source), f"goloop trace: {source.name}"))
