"""The front page's results: one picture, six rows and the losses, for README and the site's home.

The text between two comments is generated and replaced as a whole.  All results are of one Python:
the newest of the usual builds that has all six rows.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from html import escape
from pathlib import Path

from benchmarks.cases import BY_NAME, CASES, Case
from benchmarks.loops import CEILINGS
from benchmarks.plot import COLOURS
from benchmarks.results import Run
from benchmarks.stats import Ratio, paired_ratio, ratio_of
from benchmarks.tables import BASE, CONTROL, LEVEL, OURS, Chosen, qualities

BEGIN = "<!-- figures: written by python -m benchmarks report -->"
END = "<!-- end of the figures -->"
IMAGE = "front.svg"
FAST = re.compile(
    r"\*\*Fast\.\*\* [\d.]+ times uvloop's requests per second with aiohttp, "
    r"[\d.]+ times with uvicorn \(CPython [\d.]+\)"
)

# Common uses, and the case that shows each.
ROWS: tuple[tuple[str, str], ...] = (
    ("HTTP, aiohttp", "aiohttp-x100"),
    ("HTTP, uvicorn", "uvicorn-x100"),
    ("TCP streams", "streams-1k-x100"),
    ("TLS", "tls-1k-x100"),
    ("UDP", "udp-512-x50"),
    ("Tasks", "create-task"),
)
SHOWN = (OURS, BASE, "zuvloop", CONTROL, "c-epoll")
WORDS = {"c-epoll": "raw C"}
# Results that do not measure the loop's speed, with the reason.
REMARKS = {("uvicorn-x100", CONTROL): "(waits for acknowledgements: Nagle)"}

WIDTH, LEFT, RIGHT, BAR, GAP = 400, 66, 340, 13, 3
CUT = 2.0  # a longer bar is cut, with » before its value


def chosen_run(chosen: dict[str, Chosen]) -> tuple[str, Chosen] | None:
    """Return the newest usual Python that has all rows, and its runs."""
    fitting = [
        tag
        for tag, runs in chosen.items()
        if not tag.endswith("t") and all(name in runs for _words, name in ROWS)
    ]
    newest = max(fitting, key=lambda tag: int(tag.removeprefix("cp3")), default=None)
    return None if newest is None else (f"3.{newest.removeprefix('cp3')}", chosen[newest])


def rewritten(text: str, chosen: dict[str, Chosen], images: str, pages: str) -> str:
    """Return a page's text with the block of these runs, and README's first sentence.

    `images` and `pages` are the prefixes of the addresses of pictures and pages.  Raises ValueError
    unless each of the two comments is there once, and in order.
    """
    before, begin, rest = text.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise ValueError("the page does not have the two comments around its results")
    written = "".join([before, BEGIN, "\n\n", block(chosen, images, pages), "\n\n", END, after])
    found = chosen_run(chosen)
    if found is None:
        return written
    version, runs = found
    gains = [_speed(runs[name], BY_NAME[name], OURS, BASE) for name in _web()]
    aiohttp, uvicorn = (f"{gain or 0:.2f}" for gain in gains)
    fast = (
        f"**Fast.** {aiohttp} times uvloop's requests per second with aiohttp, "
        f"{uvicorn} times with uvicorn (CPython {version})"
    )
    return FAST.sub(fast, written)


def _web() -> tuple[str, str]:
    return ROWS[0][1], ROWS[1][1]


def block(chosen: dict[str, Chosen], images: str, pages: str) -> str:
    """Return the text between the comments."""
    found = chosen_run(chosen)
    if found is None:
        return "Nothing of this has been measured yet."
    version, runs = found
    six = {runs[name].date: runs[name] for _words, name in ROWS}
    newest = six[max(six)]
    machine = f"{newest.machine['processor']}, {newest.machine['cores']} cores"
    base = newest.loops.get(BASE, {}).get("version", BASE)
    rows = [
        "| goloop's speed | ÷ uvloop | ÷ zuvloop | ÷ asyncio | CPU ÷ uvloop |",
        "|---|--:|--:|--:|--:|",
    ]
    rows += [f"| {words} | {' | '.join(_cells(runs[name], name))} |" for words, name in ROWS]
    method = (
        f"CPython {version} beside {base}, {machine}: 100 connections (UDP: 50); server and client "
        "each on one core; all loops measured in turns; median. Higher is better, for CPU lower. "
        f"[Method]({pages}benchmarks.md), [intervals]({pages}performance.md). † uvicorn on asyncio "
        "waits for TCP acknowledgements (Nagle's algorithm)."
    )
    alt = "Bars: goloop, uvloop, zuvloop, asyncio and raw C at six things that programs do"
    return "\n\n".join(
        [
            f"![{alt}]({images}{IMAGE})",
            "\n".join(rows),
            _wrapped(method),
            _wrapped(losses(runs, pages)),
        ]
    )


def losses(runs: Chosen, pages: str) -> str:
    """Count the rows that goloop loses for certain: the whole interval is on the other side."""
    count = sum(
        _best(runs[case.name], case, key, more=more) is not None
        for case in CASES
        if case.name in runs and case.target is None
        for _words, key, more in qualities(case)
    )
    where = f"[Where other loops are faster]({pages}performance.md#where-other-loops-are-faster)"
    if not count:
        return f"No other loop is ahead by more than its interval. {where} has the details."
    noun = "value" if count == 1 else "values"
    return f"Another loop is better in {count} measured {noun} (95 % sure): {where}."


def _best(run: Run, case: Case, key: str, *, more: bool) -> tuple[str, Ratio] | None:
    """Return the loop that is the furthest ahead of goloop, if one certainly is."""
    ahead = []
    for loop in run.samples.get(case.name, {}):
        ends = [run.figures(case.name, name, key) for name in (loop, OURS)]
        found = ratio_of(*(ends if more else ends[::-1]))
        certain = found is not None and found.low > 1 and found.median > 1 + LEVEL
        if found is not None and certain and loop not in (OURS, *CEILINGS):
            ahead.append((loop, found))
    return max(ahead, key=lambda entry: entry[1].median, default=None)


def _cells(run: Run, name: str) -> list[str]:
    case = BY_NAME[name]
    speeds = [_speed(run, case, OURS, theirs) for theirs in (BASE, "zuvloop", CONTROL)]
    cells = ["–" if speed is None else f"{speed:.2f}" for speed in speeds]
    if (name, CONTROL) in REMARKS:
        cells[2] = "†"
    cost = None
    if case.higher_is_better:
        costs = [run.figures(name, loop, "server_us") for loop in (OURS, BASE)]
        cost = paired_ratio(*costs)
    elif speeds[0]:
        cost = 1 / speeds[0]  # an operation is timed by its CPU
    return [*cells, "–" if cost is None else f"{cost:.2f}"]


def _speed(run: Run, case: Case, ours: str, theirs: str) -> float | None:
    ends = [run.figures(case.name, loop, case.key) for loop in (ours, theirs)]
    return paired_ratio(*(ends if case.higher_is_better else ends[::-1]))


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
    parts: list[str] = []
    y = 22
    parts.append(_text(8, y, f"Speed, uvloop = 1 (CPython {version})", "title"))
    for words, name in ROWS:
        y += 26
        parts.append(_text(8, y, words, "row"))
        y += 5
        for loop in SHOWN:
            speed = _speed(runs[name], BY_NAME[name], loop, BASE)
            if loop == BASE:
                speed = 1.0
            if speed is not None:
                parts += _bar(y, loop, speed, REMARKS.get((name, loop), ""))
                y += BAR + GAP
    line = LEFT + (RIGHT - LEFT) / CUT
    parts.append(f'<line x1="{line:g}" x2="{line:g}" y1="34" y2="{y}" class="one"/>')
    return _framed(parts, y + 10)


def _bar(y: int, loop: str, speed: float, remark: str) -> Sequence[str]:
    length = (RIGHT - LEFT) * min(speed, CUT) / CUT
    figure = "» " * (speed > CUT) + f"{speed:.2f}" + (f" {remark}" if remark else "")
    middle = y + BAR - 3
    return [
        _text(LEFT - 6, middle, WORDS.get(loop, loop), "name ours" if loop == OURS else "name"),
        f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="1.5" '
        f'fill="var(--{loop}, {COLOURS[loop][0]})"/>',
        _text(LEFT + length + 5, middle, figure, "figure ours" if loop == OURS else "figure"),
    ]


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y}" class="{kind}">{escape(words, quote=False)}</text>'


def _framed(parts: Sequence[str], height: int) -> str:
    """Return the whole file, with the colours of the reader's scheme; light is the default."""
    names = [*SHOWN, "paper", "ink"]
    light, dark = (" ".join(f"--{name}: {COLOURS[name][at]};" for name in names) for at in (0, 1))
    style = (
        f":root {{ {light} }} @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }} "
        "text { font: 11.5px system-ui, sans-serif; fill: var(--ink, #24292f); } "
        ".title { font-size: 14px; font-weight: 600; } .row { font-size: 13px; font-weight: 600; } "
        ".name { text-anchor: end; } .ours { font-weight: 700; } "
        ".one { stroke: var(--ink, #24292f); stroke-dasharray: 2 3; opacity: .5; }"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" role="img" aria-label="Speed of five loops, uvloop = 1">',
            f"<style>{style}</style>",
            f'<rect width="{WIDTH}" height="{height}" fill="var(--paper, #ffffff)"/>',
            *parts,
            "</svg>\n",
        ]
    )
