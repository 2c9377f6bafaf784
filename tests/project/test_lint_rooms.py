"""The lint for rooms: each rule fires on a small tree, and its table is the extension's."""

from __future__ import annotations

from pathlib import Path

import pytest

import lint_rooms

ROOT = Path(__file__).resolve().parents[2]

# A tree that breaks no rule: two rooms, of which the lower one uses the upper.
CLEAN = {
    "abi.h": "typedef struct gl_table { int (*state_open)(int fd); } gl_table;\n",
    "golib/resolve.c": '#include "resolve.h"\n#include "../abi.h"\n',
    "core/linkage.h": "#define GL_PRIVATE static\n",
    "core/runtime/runtime.h": '#include "linkage.h"\n#include "runtime/parts.h"\n',
    "core/runtime/parts.h": "GL_PRIVATE int gl_open_again(int fd);\n",
    "core/runtime/check.c": '#include "runtime/runtime.h"\n#include "golib/resolve.h"\n',
    "core/state/state.h": '#include "runtime/runtime.h"\n',
    "core/state/state.c": '#include "state/state.h"\n',
    "core/module.c": '#include "runtime/check.c"\n#include "state/state.c"\n',
}


@pytest.mark.parametrize(
    ("path", "line", "words"),
    [
        ("core/runtime/check.c", '#include "state/state.h"', "a room below"),
        ("core/state/state.c", '#include "runtime/parts.h"', "the public header is runtime"),
        ("core/runtime/check.c", '#include "private.h"', "not the header of a room"),
        ("core/state/state.c", '#include "state/more.c"', "by module.c alone"),
        ("golib/resolve.c", '#include "state/state.h"', "the extension's"),
        ("core/stray.h", "", "in no room"),
        ("core/attic/attic.h", "", "is not a room"),
        ("core/watch/watch.c", "", "has no watch/watch.h"),
        ("core/state/more.c", "\n" * lint_rooms.FILE_LINES, "the most of a file"),
    ],
)
def test_a_rule_finds_its_fault(path: str, line: str, words: str) -> None:
    assert lint_rooms.lint(CLEAN) == []
    tree = CLEAN | {path: f"{CLEAN.get(path, '')}{line}\n"}
    (finding,) = lint_rooms.lint(tree)
    assert finding.path == path
    assert words in finding.text


def test_the_table_is_of_the_extensions_rooms() -> None:
    """A rule that reads no file finds nothing."""
    paths = set(lint_rooms.read(ROOT / "pybridge"))
    assert {lint_rooms.room_of(path) for path in paths} == {"", "module.c", *lint_rooms.ROOMS}
    # The size limits hold for the library's C, too.
    root = ROOT / "pybridge"
    every = {str(path.relative_to(root)) for path in root.rglob("*.[ch]")}
    assert {path for path in every if "/testdata/" not in path} == paths
