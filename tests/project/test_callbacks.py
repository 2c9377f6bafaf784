"""The tables of support/callbacks.h: every Python method that C calls, every object it imports."""

from __future__ import annotations

import importlib
import re
import sys
from functools import reduce
from pathlib import Path

import pytest

CORE = Path(__file__).resolve().parents[2] / "pybridge" / "core"
HEADER = CORE / "support" / "callbacks.h"
if not HEADER.exists():
    pytest.skip("pybridge/ belongs to the checkout", allow_module_level=True)


def rows(table: str) -> list[list[str]]:
    """The arguments of each X() of a table, without quotation marks."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    found = re.search(rf"#define {table}\(X\)((?:.*\\\n)*.*\n)", text)
    assert found is not None, table
    body = re.sub(r'"\s*"', "", found[1].replace("\\\n", "\n"))  # C joins strings, too
    return [
        [part.strip(' \n"') for part in re.findall(r'"[^"]*"|[^,"]+', row) if part.strip()]
        for row in re.findall(r'X\(((?:"[^"]*"|[^()"])*)\)', body)
    ]


def sources() -> str:
    return "\n".join(path.read_text() for path in sorted(CORE.rglob("*.c")))


def resolve(name: str) -> object:
    """The class of a dotted name."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[length:], module)
    raise AssertionError(f"{name} cannot be imported")


@pytest.mark.parametrize(("method", "owners", "when"), rows("GL_METHODS"))
def test_each_owner_has_the_method(method: str, owners: str, when: str) -> None:
    assert when
    for owner in owners.split(" | "):
        assert hasattr(resolve(owner), method), f"{owner} has no {method}"


@pytest.mark.parametrize("name", [row[0] for row in rows("GL_METHODS") + rows("GL_WORDS")])
def test_each_name_is_used(name: str) -> None:
    assert re.search(rf"\bs_{name}\b|\bGL_(?:METHOD|NAME)\({name}\)|\b{name}\)$",
                     sources(), re.M), f"{name} is used nowhere: delete its row"  # fmt: skip


@pytest.mark.parametrize(("field", "module", "attribute"), rows("GL_IMPORTS"))
def test_each_import_exists(field: str, module: str, attribute: str) -> None:
    assert hasattr(importlib.import_module(module), attribute)


ROOM_IMPORTS = [(module, attribute) for module, attribute, _ in rows("GL_ROOM_IMPORTS")]


@pytest.mark.parametrize(("module", "attribute"), ROOM_IMPORTS)
def test_each_import_of_a_room_exists(module: str, attribute: str) -> None:
    if attribute == "_ThreadSafeHandle" and sys.version_info < (3, 14):
        pytest.skip("CPython has it since 3.14")
    assert hasattr(importlib.import_module(module), attribute)


def test_no_source_calls_or_imports_by_an_unlisted_string() -> None:
    text = sources()
    assert re.findall(r'PyObject_CallMethod\((?![^";]*GL_METHOD)[^;]*', text) == []
    found = re.findall(r'gl_import_attr\("([\w.]+)", "(\w+)"\)', text)
    assert set(found) == set(ROOM_IMPORTS)
