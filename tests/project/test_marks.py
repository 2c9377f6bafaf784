"""Tests that fork say so, by their name or by the mark `forks`.

AddressSanitizer's allocator doesn't survive every fork, so the check `asan` leaves
such tests out (`-k "not fork"`); one that it does not recognise hangs now and then.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
FORK = "os.fork" + "("
# A C library of its own, which `asan` leaves out as a whole.
ELSEWHERE = TESTS / "native"

FILES = [
    path
    for path in sorted(TESTS.rglob("test_*.py"))
    if ELSEWHERE not in path.parents and FORK in path.read_text()
]


def forking_tests(source: str) -> dict[str, bool]:
    """The tests that fork, by themselves or by a program or helper of their module.

    Each with whether `-k "not fork"` would leave it out.
    """
    defined: dict[str, ast.stmt] = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign):
            names = [each.id for each in statement.targets if isinstance(each, ast.Name)]
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [statement.name]
        else:
            continue
        defined |= dict.fromkeys(names, statement)
    forking = {
        name
        for name, statement in defined.items()
        if FORK in (ast.get_source_segment(source, statement) or "")
    }
    while True:
        users = {
            name
            for name, statement in defined.items()
            if any(isinstance(n, ast.Name) and n.id in forking for n in ast.walk(statement))
        }
        if users <= forking:
            break
        forking |= users
    tests = {name: defined[name] for name in forking if name.lower().startswith("test")}
    return {
        name: "fork" in name
        or any(
            ast.unparse(mark) == "pytest.mark.forks"
            for mark in getattr(statement, "decorator_list", [])
        )
        for name, statement in tests.items()
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_forking_tests_have_the_mark(path: Path) -> None:
    silent = [name for name, said in forking_tests(path.read_text()).items() if not said]
    assert silent == [], "mark them with @pytest.mark.forks"
