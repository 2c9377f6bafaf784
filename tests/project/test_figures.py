"""The pages' figures, versions and names of files: each agrees with its source, and with itself."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

import ended
import pytest

import environments
import goloop
from benchmarks import __main__ as benchmarks_command

PROGRAMS = Path(__file__).with_name("programs")

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(DOCS.rglob("*.md")),
    *(ROOT / folder / "README.md" for folder in ("benchmarks", "tests")),
    *sorted((ROOT / "examples").rglob("*.md")),
]

pytestmark = pytest.mark.goloop_only("about pages of goloop's")


def words(path: str, pattern: str) -> str:
    """Return the text of a pattern's group in a file; the pattern must match once."""
    text = re.sub(r"\s+", " ", (ROOT / path).read_text())
    [found] = re.findall(pattern, text)
    return str(found)


# ---- names of files ---------------------------------------------------------------------

# Names that look like files of the repository, and the reason why they are none.
ELSEWHERE = {
    "a build makes it": {
        ".venv-3.x/bin/python", ".venv-3.13/bin/python", ".venv-go/bin/go", "build/asan",
        "build/embed", "build/site", "goloop/libgoloop.so.1", ".dist-info/sboms/goloop.cdx.json",
        "goloop.cdx.json", "goloop-compare.svg", "report.md",
    },
    "the page has it, or it is the reader's": {
        "hello.py", "plain.py", "server.py", "manage.py", "kernel.json", "nofile.py",
        "app.py", "requirements.txt",
    },
    "CPython has it": {"Python.h", "_ssl.c", "_asynciomodule.c", "base_events.py"},
    "asyncssh has it": {"test_connection.py"},
    "a pattern": {
        "docs/performance-NAME.json", "..._linux_test.go", "NAME_scenarios.py", "test_NAME.py",
    },
    "no file": {"io/3", "requests/s", "CPU/request"},
}  # fmt: skip
# Packages of Go, and Go's own files, begin so.
GO = ("golang.org/", "github.com/", "go.nhat.io/", "x/sys/", "sync/", "runtime/")
NAMED = re.compile(r"[\w./-]+\.(?:py|go|c|h|md|sh|toml|yml|json|svg|txt)|[\w.-]+(?:/[\w.-]+)+/?")


def files() -> set[str]:
    """The paths of the repository's files and folders."""
    skipped = re.compile(r"build|dist|__pycache__|\.git|\.venv.*|\.?\w+_cache|.*\.egg-info|vendor")
    found = set()
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [each for each in folders if not skipped.fullmatch(each)]
        here = os.path.relpath(folder, ROOT)
        found.update(os.path.normpath(os.path.join(here, each)) for each in [*folders, *names])
    return found


def absent(text: str, known: set[str]) -> list[str]:
    """The files that a page names within a line, as `path` or `path/`, and that do not exist.

    A path may also be relative to any folder of the repository.
    """
    ends = {path[at:] for path in known for at in (0, *(m.end() for m in re.finditer("/", path)))}
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)
    named = [name for name in re.findall(r"`([^`\n]+)`", text) if NAMED.fullmatch(name)]
    allowed = set[str]().union(*ELSEWHERE.values())
    return [
        name
        for name in named
        if name.rstrip("/") not in ends and name not in allowed and not name.startswith(GO)
    ]


def test_named_files_exist() -> None:
    known = files()
    assert {"goloop/guest/qt.py", "pybridge/core"} <= known
    missing = {
        str(page.relative_to(ROOT)): found
        for page in PAGES
        if (found := absent(page.read_text(), known))
    }
    assert missing == {}


def test_an_absent_file_is_found() -> None:
    text = "`goloop/tls.py` `tls.py` `core/` `goloop/no.py` `no/such` `goloop.run` `hello.py`\n"
    known = {"goloop/tls.py", "pybridge/core", "pybridge"}
    assert absent(text + "```\n`no.py`\n```\n", known) == ["goloop/no.py", "no/such"]


# ---- figures ----------------------------------------------------------------------------


def test_the_first_loop_costs_the_same_on_each_page() -> None:
    tables = "docs/performance-tables.md"
    milliseconds = float(words(tables, r"interpreter up to first loop, ms \| +[\d.]+ \(\+([\d.]+)"))
    mebibytes = float(words(tables, r"first loop, KiB \| +[\d.]+k \(\+([\d.]+)k\)")) * 1000 / 1024
    cost = f"{milliseconds:.1f} ms, {mebibytes:.1f} MiB"
    assert words("docs/from-uvloop.md", r"first loop runs \|[^|]*\| (.*?) more than") == cost
    assert words("docs/faq.md", r"some (\d+ MiB and \d+ ms) for a process's first loop") == (
        f"{mebibytes:.0f} MiB and {milliseconds:.0f} ms"
    )
    resident = words("docs/troubleshooting.md", r"`RES` is some (\d+) MiB higher")
    assert resident == f"{mebibytes:.0f}"


def tables(path: str) -> list[list[dict[str, str]]]:
    """The tables of a page: for each row its cells by the names of the columns."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", (ROOT / path).read_text(), re.MULTILINE):
        rows = [[cell.strip() for cell in row[1:-2].split("|")] for row in table.splitlines(True)]
        found.append([dict(zip(rows[0], row, strict=False)) for row in rows[2:]])
    return found


def test_rates_of_databases_are_those_of_the_tables() -> None:
    measured = {
        row["case"]: row
        for table in reversed(tables("docs/performance-tables.md"))
        for row in table
        if {"case", "goloop/s"} <= row.keys()
    }
    [shown] = [table for table in tables("docs/frameworks/databases.md") if "goloop/s" in table[0]]
    assert len(shown) == 8
    for row in shown:
        assert row.items() <= measured[row["case"]].items()


def test_durations_are_the_same_on_each_page(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        benchmarks_command.main(["--help"])
    told = re.sub(r"\s+", " ", capsys.readouterr().out)
    [quick] = re.findall(r"compare goloop, asyncio and uvloop in (\w+ \w+)", told)
    assert words("benchmarks/README.md", r"benchmarks quick # (.*?):") == quick
    assert words("docs/benchmarks.md", r"benchmarks quick # (.*?):") == quick
    assert words("docs/from-uvloop.md", r"on your machine in (.*?);") == quick
    test = words("CONTRIBUTING.md", r"make test Go's tests, and the tests of behaviour: (.*?) make")
    assert words("README.md", r"tests of behaviour: (\w+ \w+)") == test
    assert words("tests/README.md", r"goloop's loop, in (\w+ \w+)\.") == test


def test_the_size_of_go_is_the_one_that_make_prints() -> None:
    assert words("README.md", r"and Go \((.*?)\) if there is none") == environments.GO_SIZE


def test_versions_are_those_of_the_changelog() -> None:
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert goloop.__version__.startswith(versions[0])
    supported = words("SECURITY.md", r"\| (\d+\.\d+)\.x \| yes \|")
    assert versions[0].startswith(supported + ".")
    shown = {
        (path.name, version)
        for path in (DOCS / "img").glob("*.svg")
        for version in re.findall(r"goloop (\d[\w.]*)", path.read_text())
    }
    assert len(shown) > 1
    assert [each for each in sorted(shown) if each[1] not in versions] == []


# ---- doctor's sample --------------------------------------------------------------------


@pytest.mark.skipif(
    sys.version_info < (3, 12) or None in map(importlib.util.find_spec, ("uvicorn", "uvloop")),
    reason="the sample is of Python 3.12 or newer with uvicorn and uvloop",
)
def test_the_sample_of_doctor_is_its_output(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text((PROGRAMS / "figures_app.py").read_text())
    page = (DOCS / "commands.md").read_text()
    [sample] = re.findall(r"^(loops of `-m uvicorn.*?)```", page, re.DOTALL | re.MULTILINE)
    [arguments] = re.findall(r"loops of `(.*?)`", sample)
    done = ended.python("-m", "goloop", "doctor", *arguments.split(), cwd=tmp_path, apart=True)
    report = done.stdout.split("\n\n")

    def same(text: str) -> str:
        """The text without numbers, and with `...` for the folder of the packages."""
        return re.sub(r"\d+", "0", re.sub(r"at \S*/site-packages", "at .../site-packages", text))

    assert same(sample.strip()) in map(same, map(str.strip, report)), done.stdout + done.stderr
