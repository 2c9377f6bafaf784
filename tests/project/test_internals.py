"""The contributors' pages: the files that they name exist, and the functions of Follow one call."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INTERNALS = ROOT / "docs" / "internals"
# Records of decisions are dated, and name the files of their day.
PAGES = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "docs" / "architecture.md",
    ROOT / "docs" / "tasks.md",
    *sorted(INTERNALS.glob("*.md")),
]

# The folders from which a page names a file.
FOLDERS = [ROOT, ROOT / "pybridge", ROOT / "pybridge" / "core"]

STATION = re.compile(r"^\d+\. `([\w./]+):(\w+)`", re.MULTILINE)

# The definition of a function, by the ending of its file.
DEFINITIONS = {
    ".c": r"^(?:[\w *]+[ *])?{}\([^;]*$",
    ".go": r"^func (?:\([^)]*\) )?{}\(",
    ".py": r"^ *(?:async )?def {}\(",
}


def stations() -> list[tuple[str, str]]:
    """Each file and function of the page Follow one call."""
    return sorted(set(STATION.findall((INTERNALS / "follow-one-call.md").read_text())))


def defines(path: Path, function: str) -> bool:
    pattern = DEFINITIONS[path.suffix].format(re.escape(function))
    return re.search(pattern, path.read_text(), re.MULTILINE) is not None


@pytest.mark.parametrize(("name", "function"), stations())
def test_functions_of_follow_one_call_exist(name: str, function: str) -> None:
    assert defines(ROOT / name, function)


def test_follow_one_call_has_five_trips() -> None:
    text = (INTERNALS / "follow-one-call.md").read_text()
    assert len(re.findall(r"^## ", text, re.MULTILINE)) == 5
    assert len(STATION.findall(text)) > 40


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"`((?:\w+/)+[\w.-]+\.(?:c|h|go|py|md))`", page.read_text())
    missing = [name for name in named if not any((each / name).exists() for each in FOLDERS)]
    assert missing == []


def test_every_decision_is_in_the_index_and_has_its_parts() -> None:
    folder = INTERNALS / "decisions"
    records = sorted(path.name for path in folder.glob("[0-9]*.md"))
    index = (folder / "index.md").read_text()
    assert re.findall(r"^\| \[\d+\]\((\S+)\)", index, re.M) == records
    # A missing number was folded into another record, and the index says so.
    [folded] = re.findall(r"^Folded into another record: (.*?)\n\n", index, re.M | re.DOTALL)
    pairs = re.findall(r"((?:\d{4}(?:, | and )?)+) into\s+(\d{4})", folded)
    gone = {number for numbers, _ in pairs for number in re.findall(r"\d{4}", numbers)}
    kept = {name[:4] for name in records}
    assert {into for _, into in pairs} <= kept
    assert sorted(int(number) for number in [*gone, *kept]) == list(range(1, len(gone | kept) + 1))
    for name in records:
        text = (folder / name).read_text()
        for part in ("Question", "Figures", "Decision", "Consequence"):
            assert f"**{part}.**" in text, (name, part)
        assert re.search(r"^2\d\d\d-\d\d-\d\d, ", text, re.MULTILINE), name
