"""The table of proof in README.md and docs/index.md, and its records."""

from __future__ import annotations

import datetime
import json
import platform
import re
from pathlib import Path

import pytest

import blocks
import proof

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", proof.PAGES)
def test_pages_have_the_table_of_the_records(page: str) -> None:
    text = (ROOT / page).read_text()
    assert blocks.replaced(text, proof.BEGIN, proof.END, proof.table(page)) == text


def test_the_page_of_suites_has_the_numbers_of_the_records() -> None:
    """A row's numbers of tests passed and expected to fail are the sums over its suites."""
    page = (ROOT / "docs/compatibility.md").read_text()
    rows = re.findall(
        r"^\|.*`python tests/external/(\S+?)(?:_suite)?\.py ?(.*)` \|(.*)\|", page, re.M
    )
    suites = proof.read()["suites"]
    shown = {name: cells for program, names, cells in rows for name in names.split() or [program]}
    assert shown.keys() == suites.keys()
    for _program, names, cells in rows:
        some = [suites[name] for name in names.split() or ["anyio"]]
        asyncio, ours = cells.split(" | ", 1)
        numbers = re.findall(r"(\d+)(?: and (\d+))? (?:passed|expected to fail)", asyncio)
        tests = sum(int(number) for pair in numbers for number in pair if number)
        assert tests == sum(suite["tests"] for suite in some), names
        different = sum(suite["different"] for suite in some)
        failed = re.search(r"(\d+) passed, (\d+) failed", ours)
        assert (failed and failed.groups()) == (
            (f"{tests - different}", f"{different}") if different else None
        ), names


def test_the_records_of_this_cpython_are_those_of_its_tests() -> None:
    """Only the counts are compared; tests/conformance checks the outcome of each test."""
    version = platform.python_version()
    recorded = proof.read()["cpython"].get(version)
    if recorded is None:
        pytest.skip(f"no record of CPython {version}: python tools/proof.py --cpython")
    assert proof.count_cpython() == recorded


def test_recorded_reports_are_those_of_the_tests() -> None:
    """tests/what_works has the outcomes, in each run of the tests."""
    texts = [path.read_text() for path in proof.WHAT_WORKS.glob("test_*_reports.py")]
    marked = [
        each
        for text in texts
        for each in re.findall(r"^@pytest.mark.report\(\"(.+)\"\)$", text, re.M)
    ]
    assert len(marked) == len(set(marked))
    assert not proof.rows_reports() & set(marked), "a program of the page has this report, too"
    assert proof.recorded_reports() == proof.rows_reports() | set(marked), (
        "python tools/proof.py --reports"
    )


def test_every_test_of_a_report_has_its_number() -> None:
    for path in proof.WHAT_WORKS.glob("test_*_reports.py"):
        text = path.read_text()
        assert len(re.findall(r"^(?:async )?def test_", text, re.M)) == text.count("mark.report(")


def test_programs_are_counted_in_their_page() -> None:
    number, asyncio, uvloop = proof.programs()
    files = {path.name for path in proof.WHAT_WORKS.glob("*.py")}
    assert number == len({name for name in files if not name.startswith("test_")} - {"showing.py"})
    assert 0 < asyncio < number
    assert 0 < uvloop < number


def test_a_suite_with_an_unexpected_outcome_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "RECORDS", tmp_path / "proof.json")
    proof.record_suite("b", "1.0", 20, 1, good=True)
    proof.record_suite("a", "2.0", 10, 0, ["redis 7.0"], good=True)
    with pytest.raises(SystemExit, match="not recorded"):
        proof.record_suite("b", "1.1", 30, 2, good=False)
    records = json.loads((tmp_path / "proof.json").read_text())
    for suite in records["suites"].values():
        assert datetime.date.fromisoformat(suite.pop("date")) > datetime.date(2026, 1, 1)
        assert suite.pop("python") == platform.python_version()
    assert list(records["suites"].items()) == [
        ("a", {"version": "2.0", "tests": 10, "different": 0, "servers": ["redis 7.0"]}),
        ("b", {"version": "1.0", "tests": 20, "different": 1}),
    ]
    assert records["cpython"] == {}


def test_suites_are_summed_up_with_their_days_and_servers() -> None:
    one = {"date": "2026-11-28", "tests": 1000, "different": 2, "servers": ["redis 7.0"]}
    two = {"date": "2026-11-27", "tests": 400, "different": 0, "servers": ["nats 2.9", "redis 7.0"]}
    assert (
        proof.passed_tests({"a": one, "b": two}) == "1,398 of the 1,400 tests that pass on asyncio"
    )
    assert proof.dates({"a": one, "b": two}) == "2026-11-27 to 2026-11-28"
    assert proof.dates({"a": one}) == "2026-11-28"
    assert proof.servers({"a": one, "b": two}) == "nats 2.9, redis 7.0"
