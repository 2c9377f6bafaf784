"""The source names no other range of Python versions than the package supports."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_extension_names_all_supported_versions() -> None:
    classifiers = re.findall(
        r'"Programming Language :: Python :: 3\.(\d+)"', (ROOT / "pyproject.toml").read_text()
    )
    newest = max(map(int, classifiers))
    files = [*ROOT.glob("pybridge/**/*.[ch]"), *ROOT.glob("goloop/**/*.py")]
    named = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in files
        for found in re.finditer(r"3\.11 to 3\.(\d+)", path.read_text())
        if int(found[1]) != newest
    ]
    assert files
    assert named == []
