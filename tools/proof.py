"""Writes the table of proof in README.md and docs/index.md: other projects' tests on goloop.

    python tools/proof.py            writes the table from tests/external/proof.json
    python tools/proof.py --cpython  counts the bound tests of the running CPython first
    python tools/proof.py --reports  runs the tests of public bug reports on goloop first

Owns tests/external/proof.json, the recorded results of the last runs.  Its writers are this
program and, with --record, tests/external/suites.py and tests/external/anyio_suite.py.
tests/project/test_proof.py compares the pages with the records, and the records with the tests of
the running CPython.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import runpy
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import blocks

ROOT = Path(__file__).resolve().parents[1]
CONFORMANCE = ROOT / "tests" / "conformance"
WHAT_WORKS = ROOT / "tests" / "what_works"
# The tests of public bug reports, and those of the programs for the rows of a page.
REPORTS = (*sorted(WHAT_WORKS.glob("test_*_reports.py")), WHAT_WORKS / "test_what_works.py")
RECORDS = ROOT / "tests" / "external" / "proof.json"
BEGIN = "<!-- proof: written by python tools/proof.py -->"
END = "<!-- end of the proof -->"
# The pages with the table.
PAGES = ("README.md", "docs/index.md")


def read() -> dict[str, dict[str, Any]]:
    """Returns the records: "cpython" by version, "suites" and "reports" by project."""
    found: dict[str, dict[str, Any]] = json.loads(RECORDS.read_text())
    return found


def record(kind: str, name: str, values: dict[str, Any]) -> None:
    """Stores the results of one version or project, in the place of earlier ones."""
    records = read() if RECORDS.exists() else {"cpython": {}, "suites": {}}
    records.setdefault(kind, {})[name] = values
    records[kind] = dict(sorted(records[kind].items()))
    write(records)


def write(records: dict[str, dict[str, Any]]) -> None:
    """Writes the records; a list of numbers is on one line."""
    text = json.dumps(records, indent=1)
    text = re.sub(r"\[[\d,\s]+\]", lambda found: " ".join(found[0].split()), text)
    RECORDS.write_text(text + "\n")


def record_suite(
    project: str,
    version: str,
    tests: int,
    different: int,
    servers: Sequence[str] = (),
    *,
    good: bool,
) -> None:
    """Stores a project's suite whose outcomes were the expected ones; raises SystemExit if not.

    `tests` is the number of tests that pass on asyncio, `different` the number of those among
    them that goloop does not pass, by design; `servers` are the servers used, with versions.
    """
    if not good:
        raise SystemExit("not recorded: an outcome was not expected")
    values: dict[str, Any] = {"version": version, "python": platform.python_version()}
    values["date"] = f"{datetime.datetime.now(datetime.UTC).date()}"
    values |= {"tests": tests, "different": different}
    record("suites", project, {**values, "servers": list(servers)} if servers else values)


def count_cpython() -> dict[str, int]:
    """Counts CPython's tests that run on goloop's loop, and those with another expected outcome."""
    command = [sys.executable, str(CONFORMANCE / "run.py"), "--loop", "goloop", "--list"]
    ids = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    expected = runpy.run_path(str(CONFORMANCE / "expectations.py"))["active"]("goloop")
    entries = [each for each in expected if not each.everywhere]
    different = {test for test in ids if any(each.covers(test) for each in entries)}
    return {"tests": len(ids), "different": len(different)}


def rows_reports() -> set[str]:
    """Returns the reports that programs of tests/what_works name, as OWNER/NAME#NUMBER."""
    texts = [path.read_text() for path in WHAT_WORKS.glob("*.py")]
    return {each for text in texts for each in re.findall(r"^report: (\S+#\d+)$", text, re.M)}


def passed_reports() -> set[str]:
    """Runs the tests of public bug reports on goloop, and returns the reports.

    Raises SystemExit with pytest's output if a test fails or is skipped.
    """
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.xml")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            f"--junitxml={results}",
            *map(str, REPORTS),
        ]
        environ = {**os.environ, "GOLOOP_TEST_LOOP": "goloop"}
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
        if done.returncode or not results.exists():
            raise SystemExit(f"not recorded: a test failed\n{done.stdout[-3000:]}{done.stderr}")
        tests = xml.etree.ElementTree.parse(results).getroot()
    if tests.findall(".//skipped"):
        raise SystemExit("not recorded: a test was skipped")
    named = {each.attrib["value"] for each in tests.iterfind(".//property[@name='report']")}
    return named | rows_reports()


def record_reports(reports: set[str]) -> None:
    """Stores the public bug reports whose tests passed, in place of the earlier ones."""
    records = read()
    by_project: dict[str, list[int]] = {}
    for project, number in sorted(each.split("#") for each in reports):
        by_project.setdefault(project, []).append(int(number))
    records["reports"] = {project: sorted(numbers) for project, numbers in by_project.items()}
    write(records)


def recorded_reports() -> set[str]:
    """Returns the public bug reports of the records, as OWNER/NAME#NUMBER."""
    found = read()["reports"].items()
    return {f"{project}#{number}" for project, numbers in found for number in numbers}


def programs() -> tuple[int, int, int]:
    """Returns the number of programs of the page "What works here", and how many of them have
    another result than `right` on asyncio and on uvloop."""
    page = (ROOT / "docs" / "what-works-here.md").read_text()
    rows = re.findall(r"^\| \[.*\| ([^|]+) \| ([^|]+) \| right \|$", page, re.M)
    wrong = [sum(row[at] != "right" for row in rows) for at in (0, 1)]
    return len(rows), wrong[0], wrong[1]


def passed_tests(suites: dict[str, dict[str, Any]]) -> str:
    """Returns how many tests of some suites pass."""
    tests = sum(each["tests"] for each in suites.values())
    different = sum(each["different"] for each in suites.values())
    return f"{tests - different:,} of the {tests:,} tests that pass on asyncio"


def dates(suites: dict[str, dict[str, Any]]) -> str:
    """Returns the first and the last day on which one of some suites ran, in UTC."""
    days = {each["date"] for each in suites.values()}
    return " to ".join(sorted({min(days), max(days)}))


def servers(suites: dict[str, dict[str, Any]]) -> str:
    """Returns the servers of some suites, with their versions."""
    return ", ".join(sorted({server for each in suites.values() for server in each["servers"]}))


def table(page: str) -> str:
    """Returns the table of a page; its addresses are relative to the page."""
    records = read()
    newest = max(records["cpython"], key=lambda version: [int(n) for n in version.split(".")])
    oldest = min(records["cpython"], key=lambda version: [int(n) for n in version.split(".")])
    cpython = records["cpython"][newest]
    with_servers = {name: suite for name, suite in records["suites"].items() if "servers" in suite}
    others = {name: suite for name, suite in records["suites"].items() if "servers" not in suite}
    number, asyncio, uvloop = programs()
    reports = {project: len(numbers) for project, numbers in records["reports"].items()}
    by_count = sorted(reports, key=lambda project: (-reports[project], project))
    trackers = ", ".join(f"{reports[each]} of {each.rpartition('/')[2]}" for each in by_count)

    def link(words: str, path: str) -> str:
        return f"[{words}]({os.path.relpath(path, os.path.dirname(page))})"

    suites_program = link("`suites.py`", "tests/external/suites.py")
    anyio_program = link("`anyio_suite.py`", "tests/external/anyio_suite.py")
    rows = [
        (
            "CPython's own asyncio tests",
            f"{cpython['tests'] - cpython['different']} of {cpython['tests']} end as on asyncio "
            f"(CPython {newest}); {link('the rest', 'tests/conformance/expectations.py')} uses "
            "private names of asyncio's loops",
            f"every change, on CPython {oldest.rpartition('.')[0]} to {newest.rpartition('.')[0]}",
        ),
        (
            f"Test suites of {len(others)} projects: {', '.join(others)}",
            passed_tests(others),
            f"by hand, {dates(others)}: {suites_program}, {anyio_program}",
        ),
        (
            f"Test suites of {len(with_servers)} clients, against {servers(with_servers)}: "
            f"{', '.join(with_servers)}",
            passed_tests(with_servers),
            f"by hand, {dates(with_servers)}: {suites_program}",
        ),
        (
            link("Programs that fail on another loop", "docs/what-works-here.md"),
            f"{number} of {number} right; wrong on asyncio: {asyncio}, on uvloop: {uvloop}",
            "every change",
        ),
        (
            f"Programs of public bug reports: {trackers}",
            f"{sum(reports.values())} of {sum(reports.values())} right",
            f"every change: `pytest` on {link('`tests/what_works`', 'tests/what_works')}",
        ),
        (
            link("Random programs, simulated failures", "docs/testing.md"),
            "the same results as on asyncio",
            "every change",
        ),
        (
            "Race detector, AddressSanitizer, ThreadSanitizer, leak checks",
            "no report",
            "every change: `make check`",
        ),
    ]
    lines = ["| what runs on goloop | result | when |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def main() -> int:
    """Writes the pages."""
    if sys.argv[1:] == ["--cpython"]:
        record("cpython", platform.python_version(), count_cpython())
    elif sys.argv[1:] == ["--reports"]:
        record_reports(passed_reports())
    elif sys.argv[1:]:
        raise SystemExit(__doc__)
    for page in PAGES:
        path = ROOT / page
        path.write_text(blocks.replaced(path.read_text(), BEGIN, END, table(page)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
