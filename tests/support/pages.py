"""README and the pages of docs/, with their fenced blocks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path, *kinds: str) -> list[str]:
    """The fenced blocks of these kinds; one within a list is indented."""
    found = re.findall(
        r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", page.read_text(), re.DOTALL | re.MULTILINE
    )
    return [
        re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)
        for indent, kind, text in found
        if kind in kinds
    ]
