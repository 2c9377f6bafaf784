"""Draws the page's plots: ratios to uvloop, as SVG with text elements.

A plot has its own background and two sets of colours; like the site, it follows the reader's
preference for light or dark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cases import CASES, Case
from benchmarks.loops import LOOPS
from benchmarks.results import Run
from benchmarks.stats import paired_ratio

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Wanted = Callable[[Case], bool]
BASE = "uvloop"
# Colours on a light page, and on a dark one: the contrast with the page is at least 3:1.
COLOURS = {
    "goloop": ("#0b7285", "#3bc9db"),
    "asyncio": ("#868e96", "#909aa4"),
    "uvloop": ("#495057", "#ced4da"),
    "zuvloop": ("#e8590c", "#ff922b"),
    "blazio": ("#b08000", "#ffe066"),
    "rloop": ("#ae3ec9", "#da77f2"),
    "rsloop": ("#d6336c", "#f783ac"),
    "aiofastnet": ("#5c940d", "#a9e34b"),
    "c-epoll": ("#212529", "#f8f9fa"),
    "paper": ("#ffffff", "#1e2129"),
    "ink": ("#24292f", "#dee2e6"),
}
# A longer bar is cut and labelled, because a loop that is eight times faster or slower
# would flatten all other bars.
CUT = 3.0


def draw(chosen: dict[str, Run], directory: Path, tag: str) -> list[Path]:
    """Draw the plots of one Python's results; return the files.

    Network rows show throughput, the others uvloop's time divided by the loop's,
    so a longer bar is better in both.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ValueError("the plots need matplotlib: pip install matplotlib") from error
    matplotlib.use("svg")
    # Text stays text, and equal results give equal bytes.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "goloop"})
    ink = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    matplotlib.rcParams.update(dict.fromkeys(ink, _drawn("ink")))
    paper = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    matplotlib.rcParams.update(dict.fromkeys(paper, _drawn("paper")))
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, title, wanted in (
        ("network", "messages (or MiB, or children) per second, uvloop = 1", _network),
        ("operations", "operations of the loop, speed, uvloop = 1", _operations),
    ):
        cases = [case for case in CASES if case.name in chosen and wanted(case)]
        if cases:
            path = directory / f"performance-{name}-{tag}.svg"
            _figure(chosen, cases, title, path)
            written.append(path)
    return written


def _drawn(name: str) -> str:
    """Return a placeholder colour, which `_in_both_schemes` replaces."""
    return f"#c0ffe{list(COLOURS).index(name):x}"


def _in_both_schemes(svg: str) -> str:
    """Return the plot with two colours for each name, one for each scheme of the reader."""
    sets = ["", ""]
    for name, both in COLOURS.items():
        # A program without support for CSS variables shows the light colour.
        svg = svg.replace(_drawn(name), f"var(--{name}, {both[0]})")
        sets = [f"{known}--{name}: {one}; " for known, one in zip(sets, both, strict=True)]
    dark = f"@media (prefers-color-scheme: dark) {{ :root {{ {sets[1]}}} }}"
    style = f"<style>:root {{ {sets[0]}}} {dark}</style>"
    return svg.replace("<defs>", f"{style}\n <defs>", 1)


def _network(case: Case) -> bool:
    # A plot of the whole grid, or of each row twice, would be a metre long.
    network = case.kind in ("net", "client", "children") and case.pinning == "split"
    return network and not case.full


def _operations(case: Case) -> bool:
    return case.kind == "micro" and case.target is None


def _speed(run: Run, case: Case, loop: str) -> float | None:
    ours = run.figures(case.name, loop, case.key)
    base = run.figures(case.name, BASE, case.key)
    if case.higher_is_better:
        return paired_ratio(ours, base)
    return paired_ratio(base, ours)


def _figure(chosen: dict[str, Run], cases: Sequence[Case], title: str, path: Path) -> None:
    from matplotlib import pyplot

    names = [*(loop.name for loop in LOOPS), "c-epoll"]
    loops = [
        name
        for name in names
        if name in COLOURS
        and name != BASE
        and any(name in chosen[case.name].samples.get(case.name, {}) for case in cases)
    ]
    height = 0.8 / max(len(loops), 1)
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.11 * len(cases) * (len(loops) + 1)))
    for index, loop in enumerate(loops):
        _bars(axes, chosen, cases, loop, height, -0.4 + height * (index + 0.5))
    axes.axvline(1, color=_drawn(BASE), linewidth=1)
    axes.set_yticks(range(len(cases)), [case.title for case in cases], fontsize=8)
    axes.set_ylim(len(cases) - 0.5, -0.5)
    axes.set_xlim(0, CUT * 1.1)
    axes.set_title(title, fontsize=10)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.4, -0.03), ncols=7, frameon=False)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
    path.write_text(_in_both_schemes(path.read_text()))


def _bars(
    axes: Axes,
    chosen: dict[str, Run],
    cases: Sequence[Case],
    loop: str,
    height: float,
    offset: float,
) -> None:
    positions, widths = [], []
    for row, case in enumerate(cases):
        speed = _speed(chosen[case.name], case, loop)
        if speed is None:
            continue
        positions.append(row + offset)
        widths.append(min(speed, CUT))
        if speed > CUT:
            axes.text(CUT, row + offset, f" {speed:.1f}", fontsize=5, va="center")
    axes.barh(positions, widths, height * 0.9, label=loop, color=_drawn(loop))
