"""The picture of `goloop compare`: ratios with their intervals, as SVG.

Its texts are text elements, and the reader's scheme chooses between light and dark colours.
"""

from __future__ import annotations

from html import escape

from .. import results
from ..loops import GOLOOP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..results import Comparison
    from ..rounds import Measurement

# Columns, in pixels: the loop's name ends here, the ratios are drawn between these, and the ratio
# in words begins here.
_NAME, _LEFT, _RIGHT, _WORDS = 110, 122, 430, 444
_WIDTH = 640
_HEAD, _TITLE, _LINE, _GAP = 34, 20, 20, 10
_STYLE = (
    ":root { --paper: #ffffff; --ink: #24292f; --ours: #0b7285; --loop: #868e96; } "
    "@media (prefers-color-scheme: dark) "
    "{ :root { --paper: #1e2129; --ink: #dee2e6; --ours: #3bc9db; --loop: #909aa4; } } "
    "text { font: 11.5px system-ui, sans-serif; fill: var(--ink, #24292f); } "
    ".title { font-size: 14px; font-weight: 600; } .row { font-weight: 600; } "
    ".name { text-anchor: end; } .interval { stroke-width: 1.5; fill: none; } "
    ".one { stroke: var(--ink, #24292f); stroke-dasharray: 2 3; opacity: .6; }"
)
_OURS, _OTHERS = "var(--ours, #0b7285)", "var(--loop, #868e96)"


def draw(found: Measurement) -> str | None:
    """Return the picture; None if no two loops were measured."""
    groups = list(_groups(found))
    if not groups:
        return None
    ratios = [each.ratio for _, rows in groups for each in rows if each.ratio is not None]
    ends = [1.0, *(r.low or r.median for r in ratios), *(r.high or r.median for r in ratios)]
    low, high = min(ends), max(ends)
    margin = 0.05 * (high - low) or 0.05
    scale = _Scale(low - margin, high + margin)
    reference = results.references(found)[0]
    parts = [_text(8, 22, f"Divided by {reference}'s, with 95 % intervals", "title")]
    y = _HEAD
    for title, rows in groups:
        parts.append(_text(8, y + 14, title, "row"))
        y += _TITLE
        x = scale.at(1)
        bottom = y + _LINE * len(rows)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{bottom}" class="one"/>')
        for each in rows:
            parts += _row(each, scale, y + _LINE // 2)
            y += _LINE
        y += _GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" width="{_WIDTH}" '
            'role="img" aria-label="Ratios of event loops, with 95 % intervals">',
            f"<style>{_STYLE}</style>",
            f'<rect width="{_WIDTH}" height="{y}" fill="var(--paper, #ffffff)"/>',
            *parts,
            "</svg>\n",
        ]
    )


class _Scale:
    """The position of ratios in the picture."""

    def __init__(self, low: float, high: float) -> None:
        """Map `low` to the left end and `high` to the right one."""
        self._low = low
        self._factor = (_RIGHT - _LEFT) / (high - low)

    def at(self, ratio: float) -> float:
        """Return the position of a ratio, in pixels."""
        return _LEFT + (ratio - self._low) * self._factor


def _groups(found: Measurement) -> Iterator[tuple[str, Sequence[Comparison]]]:
    """Yield a title and the ratios to the first reference, of each quantity with a verdict."""
    reference = results.references(found)[0]
    for scenario in found.scenarios:
        some = results.quantities(found, scenario)
        for quantity in (some[0], some[-1]):
            rows = [
                each
                for each in results.comparisons(found, scenario)
                if (each.reference, each.quantity) == (reference, quantity) and each.ratio
            ]
            if rows:
                better = "more" if quantity.more_is_better else "less"
                yield (
                    f"{results.title(found, scenario)}: {quantity.words}, {better} is better",
                    rows,
                )


def _row(each: Comparison, scale: _Scale, y: int) -> Iterator[str]:
    """Yield the elements of a ratio."""
    assert each.ratio is not None
    colour = _OURS if each.loop == GOLOOP.name else _OTHERS
    yield _text(_NAME, y + 4, each.loop, "name")
    if each.ratio.low is not None and each.ratio.high is not None:
        left, right = scale.at(each.ratio.low), scale.at(each.ratio.high)
        yield (
            f'<path d="M{left:.1f},{y}H{right:.1f}M{left:.1f},{y - 5}v10M{right:.1f},{y - 5}v10" '
            f'class="interval" stroke="{colour}"/>'
        )
    yield f'<circle cx="{scale.at(each.ratio.median):.1f}" cy="{y}" r="3.5" fill="{colour}"/>'
    yield _text(_WORDS, y + 4, each.shown(), "ratio")


def _text(x: int, y: int, words: str, kind: str) -> str:
    """Return a text element of a class."""
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(words, quote=False)}</text>'
