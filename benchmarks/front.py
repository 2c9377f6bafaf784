"""The front page's results: a headline with a picture, and a table, for README and the site's home.

The text between two comments is generated and replaced as a whole.  All results are of one Python:
the newest of the usual builds that has all rows of the table.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape
from pathlib import Path

from benchmarks import conditions
from benchmarks.cases import BY_NAME, CASES, Case
from benchmarks.loops import CEILINGS, LOOPS
from benchmarks.plot import COLOURS
from benchmarks.results import Run
from benchmarks.stats import claim, paired_ratio, ratio_of, short
from benchmarks.tables import BASE, CONTROL, LEVEL, OURS, Chosen, figure, qualities

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

    `images` and `pages` are the prefixes of the addresses of pictures and pages.  Raises ValueError
    unless each of the four comments is there once, and in order.
    """
    text = _replaced(text, HEADLINE, headline(chosen, images, pages))
    return _replaced(text, FIGURES, block(chosen, pages))


def _replaced(text: str, comments: tuple[str, str], inner: str) -> str:
    before, begin, rest = text.partition(comments[0])
    _old, end, after = rest.partition(comments[1])
    if not begin or not end or begin in rest or end in after:
        raise ValueError(f"the page does not have the two comments {comments}")
    return "".join([before, begin, "\n\n", inner, "\n\n", end, after])


def headline(chosen: dict[str, Chosen], images: str, pages: str) -> str:
    """Return the first block: the picture, one figure with its interval, and the machine."""
    found = chosen_run(chosen)
    if found is None:
        return NOTHING.format(pages)
    _version, runs = found
    run, case = runs[FIRST], BY_NAME[FIRST]
    rate = figure(run, case, OURS)
    words = (
        f"With aiohttp and 100 connections, goloop serves {rate.median if rate else 0:,.0f} "
        f"requests per second on one core: {_claimed(run, case, BASE)} times uvloop's. "
        f"{_losses(runs, pages)} "
        f"CPython {run.python} on {_machine(runs)}."
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
        f"| {words} | {number} | {' | '.join(_cells(runs[name], BY_NAME[name]))} |"
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
    measures = [
        (case, key, more)
        for case in CASES
        if case.name in runs and case.target is None
        for _words, key, more in qualities(case)
    ]
    count = sum(_best(runs[case.name], case, key, more=more) for case, key, more in measures)
    return (
        f"Another loop is better by more than {LEVEL:.0%} in {count} of {len(measures)} measured "
        f"values ([where]({pages}performance.md#where-other-loops-are-faster))."
    )


def _best(run: Run, case: Case, key: str, *, more: bool) -> bool:
    """Return true if another loop is certainly ahead of goloop."""
    for loop in run.samples.get(case.name, {}):
        ends = [run.figures(case.name, name, key) for name in (loop, OURS)]
        found = ratio_of(*(ends if more else ends[::-1]))
        certain = found is not None and found.low > 1 and found.median > 1 + LEVEL
        if certain and _is_rival(loop):
            return True
    return False


def _is_rival(loop: str) -> bool:
    variants = {each.name for each in LOOPS if each.variant_of}
    return loop != OURS and loop not in CEILINGS and loop not in variants


def _cells(run: Run, case: Case) -> list[str]:
    value = figure(run, case, OURS)
    unit = "/s" if case.higher_is_better else " " + case.unit
    cells = ["–" if value is None else short(value.median) + unit]
    cells += [_claimed(run, case, CONTROL), _claimed(run, case, BASE)]
    best = _best_rival(run, case)
    cells.append("–" if best is None else f"{_claimed(run, case, best)}, {best}")
    cost = "–"
    if case.higher_is_better:
        ratio = paired_ratio(*(run.figures(case.name, each, "server_us") for each in (OURS, BASE)))
        cost = "–" if ratio is None else f"{ratio:.2f}"
    return [*cells, cost]


def _best_rival(run: Run, case: Case) -> str | None:
    """Return the fastest loop beside goloop and uvloop."""
    found = {
        loop: _speed(run, case, OURS, loop)
        for loop in run.samples.get(case.name, {})
        if _is_rival(loop) and loop != BASE
    }
    known = {loop: speed for loop, speed in found.items() if speed is not None}
    return min(known, key=lambda loop: known[loop], default=None)


def _claimed(run: Run, case: Case, theirs: str) -> str:
    first, second = (OURS, theirs) if case.higher_is_better else (theirs, OURS)
    ends = (run.figures(case.name, first, case.key), run.figures(case.name, second, case.key))
    return claim(*ends, sign="")


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
    parts.append(_text(8, y, f"Requests per second, uvloop = 1 (CPython {version})", "title"))
    for words, name in PICTURE:
        y += 26
        parts.append(_text(8, y, words, "row"))
        y += 5
        for loop in SHOWN:
            speed = 1.0 if loop == BASE else _speed(runs[name], BY_NAME[name], loop, BASE)
            if speed is not None:
                parts += _bar(y, loop, speed)
                y += BAR + GAP
    line = LEFT + (RIGHT - LEFT) / CUT
    parts.append(f'<line x1="{line:g}" x2="{line:g}" y1="34" y2="{y}" class="one"/>')
    return _framed(parts, y + 10)


def _bar(y: int, loop: str, speed: float) -> Sequence[str]:
    length = (RIGHT - LEFT) * min(speed, CUT) / CUT
    value = "» " * (speed > CUT) + f"{speed:.2f}"
    middle = y + BAR - 3
    return [
        _text(LEFT - 6, middle, loop, "name ours" if loop == OURS else "name"),
        f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="1.5" '
        f'fill="var(--{loop}, {COLOURS[loop][0]})"/>',
        _text(LEFT + length + 5, middle, value, "figure ours" if loop == OURS else "figure"),
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
            f'width="{WIDTH}" role="img" aria-label="Speed of four loops, uvloop = 1">',
            f"<style>{style}</style>",
            f'<rect width="{WIDTH}" height="{height}" fill="var(--paper, #ffffff)"/>',
            *parts,
            "</svg>\n",
        ]
    )
