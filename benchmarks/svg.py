"""Pictures as SVG, with text elements and two sets of colours: the reader's scheme chooses."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

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
# Programs that no loop can reach, with their names in pictures: they are drawn as outlines.
LIMITS = {"c-epoll": "limit (plain C)"}


def paint(name: str) -> str:
    """Return a colour; a program without support for CSS variables shows the light one."""
    return f"var(--{name}, {COLOURS[name][0]})"


def text(x: float, y: float, words: str, kind: str) -> str:
    """Return a text element of a class."""
    return f'<text x="{x:.1f}" y="{y:g}" class="{kind}">{escape(words, quote=False)}</text>'


def swatch(x: float, y: float, width: float, height: float, name: str) -> str:
    """Return a filled rectangle in a loop's colour, or an outline for the limit."""
    shape = f'<rect x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{height:g}"'
    if name in LIMITS:
        return f'{shape} fill="none" stroke="{paint(name)}"/>'
    return f'{shape} fill="{paint(name)}"/>'


def legend(names: Sequence[str], x: float, y: float, step: float) -> list[str]:
    """Return a line of names with their colours, `step` apart; `y` is the baseline of the text."""
    parts = []
    for number, name in enumerate(names):
        left = x + number * step
        parts.append(swatch(left, y - 9.5, 10, 10, name))
        parts.append(text(left + 14, y, LIMITS.get(name, name), "key"))
    return parts


def picture(parts: Sequence[str], width: int, height: int, label: str, style: str) -> str:
    """Return the whole file, with the colours of the parts; `label` describes the picture."""
    used = [name for name in COLOURS if any(f"--{name}," in part for part in parts)]
    names = [*dict.fromkeys([*used, "paper", "ink"])]
    light, dark = (" ".join(f"--{name}: {COLOURS[name][at]};" for name in names) for at in (0, 1))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" role="img" aria-label="{label}">',
            f"<style>:root {{ {light} }} @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} "
            f"}} text {{ font: 11.5px system-ui, sans-serif; fill: {paint('ink')}; }} "
            f".title {{ font-size: 14px; font-weight: 600; }} .note, .key {{ font-size: 11px; }} "
            f"{style}</style>",
            f'<rect width="{width}" height="{height}" fill="{paint("paper")}"/>',
            *parts,
            "</svg>\n",
        ]
    )
