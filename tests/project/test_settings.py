"""docs/settings.md lists the environment variables that the source reads: all, and no others."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "settings.md"

PRODUCT = ["goloop", "pybridge", "netloop", "transports", "timers", "build_backend", "setup.py"]
TOOLS = ["tools", "benchmarks", "Makefile"]

# Variables that Python, Go and the C library read themselves; this source does not name them.
OTHERS = "Read by Python and Go"

SUFFIXES = (".py", ".c", ".h", ".go")

IN_C = re.compile(r'\bgetenv\("(\w+)"\)')
IN_GO = re.compile(r'\bos\.(?:Getenv|LookupEnv)\("(\w+)"\)')
IN_MAKE = re.compile(r"^(\w+) \?=", re.MULTILINE)


class Reads(ast.NodeVisitor):
    """The variables that a Python module reads.

    Counted are os.environ[...], .get(...) and .setdefault(...), `in`, and os.getenv(...), on
    os.environ and on a copy of it made by dict(os.environ), with a literal for a name; and
    calls with a literal of a function that looks up the name in its first argument.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.names: set[str] = set()
        self._copies = {
            target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and ast.unparse(node.value) == "dict(os.environ)"
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        self._readers = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and node.args.args
            for asked in map(self._asked, ast.walk(node))
            if isinstance(asked, ast.Name) and asked.id == node.args.args[0].arg
        }
        self.visit(tree)

    def _is_environ(self, node: ast.expr) -> bool:
        text = ast.unparse(node)
        return text in ("os.environ", "_os.environ", "environ") or text in self._copies

    def _asked(self, node: ast.AST) -> ast.expr | None:
        """Return the argument with the name, if this node reads a variable."""
        match node:
            case ast.Subscript(value=value, slice=asked, ctx=ast.Load()):
                return asked if self._is_environ(value) else None
            case ast.Compare(left=asked, ops=[ast.In() | ast.NotIn()], comparators=[where]):
                return asked if self._is_environ(where) else None
            case ast.Call(func=ast.Attribute(attr="get" | "setdefault", value=value)):
                return node.args[0] if self._is_environ(value) else None
            case ast.Call(func=ast.Attribute(attr="getenv")):
                return node.args[0]
        return None

    def generic_visit(self, node: ast.AST) -> None:
        asked = self._asked(node)
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in self._readers:
            asked = node.args[0]
        if isinstance(asked, ast.Constant) and isinstance(asked.value, str):
            self.names.add(asked.value)
        super().generic_visit(node)


def names_in(path: Path) -> set[str]:
    text = path.read_text()
    match path.suffix:
        case ".py":
            return Reads(ast.parse(text)).names
        case ".c" | ".h":
            return set(IN_C.findall(text))
        case ".go":
            return set(IN_GO.findall(text))
    return set(IN_MAKE.findall(text))


def files(*places: str) -> Iterator[Path]:
    for place in places:
        path = ROOT / place
        if path.is_file():
            yield path
        else:
            yield from (each for each in path.rglob("*.*") if each.suffix in SUFFIXES)


def read_by_the_source() -> dict[str, set[str]]:
    """name -> the files that read it; of the tests only goloop's own variables."""
    found = defaultdict(set)
    for path in files(*PRODUCT, *TOOLS):
        for name in names_in(path):
            found[name].add(str(path.relative_to(ROOT)))
    for path in files("tests"):
        for name in names_in(path):
            if name.startswith("GOLOOP_") and path != Path(__file__):
                found[name].add(str(path.relative_to(ROOT)))
    return found


def listed() -> dict[str, str]:
    """name -> the heading of the table of variables that lists it."""
    found: dict[str, str] = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        if "\n| variable |" in text:
            for row in re.findall(r"^\| (`.*?) \| ", text, re.MULTILINE):
                for name in re.findall(r"`([A-Z][A-Z_]+)(?:=[^`]*)?`", row):
                    assert name not in found, f"{name} is listed twice"
                    found[name] = heading
    return found


def test_settings_page_lists_all_variables_of_the_source() -> None:
    read = read_by_the_source()
    page = {name for name, heading in listed().items() if heading != OTHERS}
    assert {name: sorted(read[name]) for name in set(read) - page} == {}, "not on the page"
    assert sorted(page - set(read)) == [], "on the page, and nothing reads it"


def test_variables_of_other_programs_are_not_read() -> None:
    others = {name for name, heading in listed().items() if heading == OTHERS}
    assert len(others) > 3
    assert others.isdisjoint(read_by_the_source())


def test_reads_are_found(tmp_path: Path) -> None:
    for name, text in (
        ("a.py", 'os.environ.get("A_B"); os.environ["C"] = "1"; other.get("D")'),
        ("a.c", 'const char *ring = getenv("A_B");'),
        ("a.go", 'os.Getenv("A_B")'),
        ("Makefile", "A_B ?= python3\n"),
    ):
        (tmp_path / name).write_text(text)
        assert names_in(tmp_path / name) == {"A_B"}
