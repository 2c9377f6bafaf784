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
from dataclasses import replace
from pathlib import Path, PurePosixPath

import lint_c
from lint_c import Finding, Source, TreeHits

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


def room_of(path: str) -> str:
    """Returns the room of a file, MODULE for module.c, or "" for a file outside of all rooms."""
    parts = PurePosixPath(path).parts
    inside = parts[0] == CORE and (len(parts) > 2 or parts[1] == MODULE)
    return parts[1] if inside else ""


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

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


def include(files: dict[str, Source]) -> TreeHits:
    """A file may include headers of its own room, public headers of rooms above, and SHARED.

    Each room has a public header, `<room>/<room>.h`.  Include directives name a header with
    its room.  Only module.c, the amalgamation, includes .c files.
    """
    for path, source in files.items():
        room, name = room_of(path), path.removeprefix(f"{CORE}/")
        if name != path and not room and name not in SHARED:
            yield source, 0, f"{name} is in no room"
        elif room and room not in (*ROOMS, MODULE):
            yield source, 0, f"{room} is not a room: ROOMS has {', '.join(ROOMS)}"
        for found in INCLUDE.finditer(source.text):
            wrong = _include(path, found[1])
            if wrong is not None:
                yield source, found.start(), wrong
    for room in ROOMS:
        inside = [source for path, source in files.items() if room_of(path) == room]
        if inside and f"{CORE}/{room}/{room}.h" not in files:
            yield inside[0], 0, f"the room has no {room}/{room}.h"


def _include(path: str, name: str) -> str | None:
    own, room = room_of(path), PurePosixPath(name).parts[0]
    if path.startswith(GOLIB):  # the library includes headers of its own folder
        return f"{name} is the extension's" if room in ROOMS else None
    if name in SHARED or (name.endswith(".h") and room == "golib"):
        return None
    if room not in ROOMS or "/" not in name:
        return f"{name} is not the header of a room: write <room>/<header>.h"
    if own == MODULE:
        if name.endswith(".c"):
            return None
    elif name.endswith(".c"):
        return f"{name} is included by {MODULE} alone"
    elif own == room:
        return None
    elif own not in ROOMS or ROOMS.index(room) > ROOMS.index(own):
        return f"{room} is a room below"
    if name != f"{room}/{room}.h":
        return f"{name} is private to {room}: the public header is {room}/{room}.h"
    return None


def size(files: dict[str, Source]) -> TreeHits:
    """Files with more than FILE_LINES lines; lizard counts those of functions (checks.py)."""
    for source in files.values():
        lines = len(source.text.splitlines())
        if lines > FILE_LINES:
            yield source, 0, f"{lines} lines, and {FILE_LINES} are the most of a file"


RULES = {"include": include, "size": size}

# ---- running ----------------------------------------------------------------------------


def lint(texts: dict[str, str]) -> list[Finding]:
    """Returns the findings in the files of pybridge, from texts by path."""
    files = {path: lint_c.parse(path, text) for path, text in texts.items()}
    return lint_c.judged((rule, *hit) for rule, look in RULES.items() for hit in look(files))


def main(arguments: list[str]) -> int:
    """Lints a folder like pybridge; returns 1 if there is a finding."""
    pybridge = Path(arguments[0] if arguments else "pybridge")
    texts = read(pybridge)
    findings = [replace(each, path=f"{pybridge}/{each.path}") for each in lint(texts)]
    return lint_c.report(findings, len(texts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
