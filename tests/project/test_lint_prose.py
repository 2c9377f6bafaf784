"""The lint of prose: openings and listed words in C, Go, Python and pages, and exemptions."""

from __future__ import annotations

from pathlib import Path

import pytest

import lint_prose

ROOT = Path(__file__).resolve().parents[2]

CASES = {
    "c.c": ('/* What waits. */\nchar *s = "/* it */"; /* Its end,\n * amid */\n', [1, 2, 3]),
    "go.go": ("// Pending writes are\n// those of a stream.\nx := 1 // one of two\n", [3]),
    "named.go": (
        "// A stream is one.\ntype stream int\n\n// Sends.\n\nfunc send() {}\n\n"
        "// sends\nfunc send() {}\n//go:noinline\nfunc f() {}\n"
        "// key returns it.\n//\n//export c_key\nfunc (a *x) unixKey() {}\n// Two at once.\n"
        "func TestTwo() {}\n// a and b are limits.\nconst b, a = 1, 2\n",
        [8, 12],
    ),
    "py.py": ('"""Reads."""\nx = "# it"  # nobody\n# Reads what\n# it has.\n\n# This.\n', [2, 6]),
    "page.md": ("It is behind a proxy.\n\n```\nwhatever\n```\nThe length is that of `x`.\n", [6]),
    "allowed.c": ("/* It is so. prose: allow (quoted) */\n/* Whatever. prose: allow */\n", [2, 2]),
}


@pytest.mark.parametrize("name", CASES)
def test_findings_have_their_lines(name: str, tmp_path: Path) -> None:
    text, lines = CASES[name]
    path = tmp_path / name
    path.write_text(text)
    found = [int(line.removeprefix(f"{path}:").split(":")[0]) for line in lint_prose.findings(path)]
    assert sorted(found) == lines


def test_linted_paths_exist() -> None:
    assert [path for path in lint_prose.LINTED if not (ROOT / path).exists()] == []
