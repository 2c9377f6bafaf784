"""The runs of each kind of test by `make test` and `make test-all`: KINDS of tools/dev.py."""

from __future__ import annotations

from pathlib import Path

import pytest

import dev

ROOT = Path(__file__).resolve().parents[2]

PATHS = {path: name for name, kind in dev.KINDS.items() for path in kind.paths}
COLUMNS = ("test", "default", "newest", "no GIL", "others")


def test_each_path_exists_and_is_of_one_kind() -> None:
    assert len(PATHS) == sum(len(kind.paths) for kind in dev.KINDS.values())
    missing = [path for path in [*PATHS, *dev.WITH_PROGRAMS] if not (ROOT / path).exists()]
    assert not missing


def test_each_kind_runs_on_the_default_python_or_the_newest() -> None:
    for kind in dev.KINDS.values():
        assert kind.where <= set(COLUMNS)
        assert kind.where & {"test", "default", "newest"}


@pytest.mark.parametrize("columns", [*((name,) for name in COLUMNS[2:]), ("test", "default")])
def test_kind_is_ignored_on_pythons_without_a_cross(columns: tuple[str, ...]) -> None:
    ignored = {
        path for path, name in PATHS.items() if not dev.KINDS[name].where.intersection(columns)
    }
    assert set(dev.chosen(*columns)) == {f"--ignore={path}" for path in ignored}


def test_default_python_runs_the_tests_that_make_test_omits() -> None:
    ignored = {word.removeprefix("--ignore=") for word in dev.chosen("test")}
    rest = {path for path in ignored if "newest" not in dev.KINDS[PATHS[path]].where}
    assert set(dev.chosen("default")) == rest | set(dev.WITH_PROGRAMS)


def test_the_readme_has_the_table() -> None:
    text = (ROOT / "tests" / "README.md").read_text()
    table = text.split("## Kinds of tests")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines()]
    crosses = {row[1]: row[3:8] for row in rows if len(row) == 9}
    for name, kind in dev.KINDS.items():
        assert crosses[name] == ["x" if each in kind.where else "" for each in COLUMNS], name
