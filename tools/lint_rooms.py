"""A lint for the rooms of the C extension: `python tools/lint_rooms.py [PYBRIDGE]`.

The folders of pybridge/core are rooms.  Each has one public header, `<room>/<room>.h`.
A room may include the public headers of the rooms above it in ROOMS, and of none below.
So a reader of a room knows its possible callers.  units.py, which compiles the files,
checks the names that other rooms use and the objects at file scope.

A comment on the line or the line above exempts a rule: `lint: allow`, the rule's name
and the reason.  The table RULES at the end names the rules; their docstrings explain them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

import lint_c
from lint_c import Finding, Source

# ---- the house ------------------------------------------------------------------

CORE = "core"
GOLIB = "golib/"
# In order: a room may include the public headers of those above it.
ROOMS = (
    "runtime",
    "support",
    "state",
    "threads",
    "fds",
    "observe",
    "queue",
    "tasks",
    "watch",
    "transports",
    "streams",
    "listeners",
    "datagrams",
    "tls",
    "loop",
)
# Below all rooms; the one file that includes .c files.
MODULE = "module.c"
# Headers for every room: the API table and its structs, and the linkage of the files.
SHARED = ("abi.h", "abi_observers.h", "linkage.h")

FILE_LINES = 600

# ---- reading the tree ----------------------------------------------------------------


@dataclass(frozen=True)
class File:
    """A file of the tree; `room` is "" for a file outside of all rooms."""

    path: str  # from pybridge on
    room: str
    source: Source

    @property
    def name(self) -> str:
        """The path in include directives, relative to core."""
        return self.path.removeprefix(CORE + "/")

    @cached_property
    def includes(self) -> list[tuple[int, str]]:
        """The lines and names of all `#include "..."`."""
        shape = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
        text = self.source.text
        return [
            (text.count("\n", 0, found.start()) + 1, found[1]) for found in shape.finditer(text)
        ]


@dataclass(frozen=True)
class House:
    """All files."""

    files: dict[str, File]

    def room(self, name: str) -> list[File]:
        """Returns the files of a room."""
        return [file for file in self.files.values() if file.room == name]


def house(texts: dict[str, str]) -> House:
    """Returns the files of pybridge, from texts by path."""
    files = {}
    for path, text in texts.items():
        parts = PurePosixPath(path).parts
        room = ""
        if parts[0] == CORE:
            room = parts[1] if len(parts) > 2 or parts[1] == MODULE else ""
        files[path] = File(path, room, lint_c.parse(path, text))
    return House(files)


def read(pybridge: Path) -> dict[str, str]:
    """Returns the texts of the product's C files by path."""
    paths = [pybridge / "abi.h", pybridge / "abi_observers.h", *pybridge.glob("golib/*.[ch]")]
    paths += pybridge.rglob(f"{CORE}/**/*.[ch]")
    return {
        path.relative_to(pybridge).as_posix(): path.read_text()
        for path in sorted(set(paths))
        if path.exists()
    }


# ---- rules ------------------------------------------------------------------------------

Hits = Iterator[tuple[File, int, str]]  # files, lines and descriptions of the faults


def include(tree: House) -> Hits:
    """A file may include headers of its own room, public headers of rooms above, and SHARED.

    Each room has a public header, `<room>/<room>.h`.  Include directives name a header with
    its room.  Only module.c, the amalgamation, includes .c files.
    """
    for file in tree.files.values():
        if file.path.startswith(CORE + "/") and not file.room and file.name not in SHARED:
            yield file, 1, f"{file.name} is in no room"
        elif file.room and file.room not in (*ROOMS, MODULE):
            yield file, 1, f"{file.room} is not a room: ROOMS has {', '.join(ROOMS)}"
        for line, name in file.includes:
            wrong = _include(file, name)
            if wrong is not None:
                yield file, line, wrong
    for room in ROOMS:
        files = tree.room(room)
        if files and f"{CORE}/{room}/{room}.h" not in tree.files:
            yield files[0], 1, f"the room has no {room}/{room}.h"


def _include(file: File, name: str) -> str | None:
    room = PurePosixPath(name).parts[0]
    if file.path.startswith(GOLIB):  # the library includes headers of its own folder
        return f"{name} is the extension's" if room in ROOMS else None
    if name in SHARED or (name.endswith(".h") and room == "golib"):
        return None
    if room not in ROOMS or "/" not in name:
        return f"{name} is not the header of a room: write <room>/<header>.h"
    if file.room == MODULE:
        if name.endswith(".c"):
            return None
    elif name.endswith(".c"):
        return f"{name} is included by {MODULE} alone"
    elif file.room == room:
        return None
    elif file.room not in ROOMS or ROOMS.index(room) > ROOMS.index(file.room):
        return f"{room} is a room below"
    if name != f"{room}/{room}.h":
        return f"{name} is private to {room}: the public header is {room}/{room}.h"
    return None


def size(tree: House) -> Hits:
    """Files with more than FILE_LINES lines; lizard counts those of functions (checks.py)."""
    for file in tree.files.values():
        lines = len(file.source.text.splitlines())
        if lines > FILE_LINES:
            yield file, 1, f"{lines} lines, and {FILE_LINES} are the most of a file"


RULES: dict[str, Callable[[House], Hits]] = {
    "include": include,
    "size": size,
}

# ---- running ----------------------------------------------------------------------------


def lint(texts: dict[str, str]) -> list[Finding]:
    """Returns the findings in the files of pybridge, from texts by path."""
    tree = house(texts)
    findings = set()
    for rule, look in RULES.items():
        for file, line, what in look(tree):
            if not lint_c.allowed(file.source.text, line, rule):
                findings.add(Finding(file.path, line, rule, what))
    return sorted(findings, key=lambda finding: (finding.path, finding.line, finding.text))


def main(arguments: list[str]) -> int:
    """Lints a folder like pybridge; returns 1 if there is a finding."""
    pybridge = Path(arguments[0] if arguments else "pybridge")
    texts = read(pybridge)
    findings = lint(texts)
    for finding in findings:
        print(f"{pybridge}/{finding}")
    print(f"{len(texts)} files, {len(findings)} findings")
    return 1 if findings or not texts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
