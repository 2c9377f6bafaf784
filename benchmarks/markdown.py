"""Figures and tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from goloop.operations.compare.measuring.text import three_digits


def short(value: float) -> str:
    """Write a number with three significant digits and k or M: 183412 -> '183k'."""
    if value == 0:
        return "0"
    for limit, suffix in ((1e6, "M"), (1e3, "k")):
        # 999,500 and more would round to "1000k".
        if abs(value) >= limit * 0.9995:
            return three_digits(value / limit) + suffix
    return three_digits(value)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a Markdown table: the first column left, the others right aligned."""
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"a row of {len(row)} cells under {len(header)} headings: {row}")
    widths = [max(3, *map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = ["-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    lines = []
    for cells in (header, rule, *rows):
        padded = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        lines.append(f"| {' | '.join([cells[0].ljust(widths[0]), *padded])} |")
    return "\n".join(lines)
