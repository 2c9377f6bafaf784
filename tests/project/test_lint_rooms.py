"""The lint for rooms on small trees, each with one broken rule, and on the extension."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

sys.path.append(str(ROOT / "tools"))

import lint_rooms  # noqa: E402

# A house that breaks no rule: two rooms, of which the lower one uses the upper.
CLEAN = {
    "abi.h": "typedef struct gl_table { int (*state_open)(int fd); } gl_table;\n",
    "golib/resolve.h": "int resolve_name(void);\n",
    "core/linkage.h": "#define GL_PRIVATE static\n",
    "core/runtime/runtime.h": """
        #include <stdint.h>
        #include "abi.h"
        #include "linkage.h"
        #include "runtime/parts.h"
    """,
    "core/runtime/parts.h": "GL_PRIVATE int gl_open_again(int fd);\n",
    "core/runtime/private.h": '#include "runtime/runtime.h"\n',
    "core/runtime/open.c": """
        #include "runtime/private.h"
        #include "golib/resolve.h"
        GL_PRIVATE int gl_open_again(int fd) { return fd; }
    """,
    "core/runtime/check.c": '#include "runtime/private.h"\n',
    "core/state/state.h": '#include "runtime/runtime.h"\n',
    "core/state/state.c": '#include "state/state.h"\n',
    "core/module.c": """
        #define GL_AMALGAMATION
        #include "runtime/open.c"
        #include "runtime/check.c"
        #include "state/state.c"
    """,
}


def broken(path: str, text: str) -> list[tuple[str, str]]:
    """The rule and the file of each finding after a file was replaced or added."""
    tree = CLEAN | {path: text}
    return [(finding.rule, finding.path) for finding in lint_rooms.lint(tree)]


def with_line(path: str, line: str) -> str:
    return f"{CLEAN[path]}\n{line}\n"


def test_a_clean_house_has_no_findings() -> None:
    assert lint_rooms.lint(CLEAN) == []


@pytest.mark.parametrize(
    ("path", "name", "words"),
    [
        ("core/runtime/check.c", "state/state.h", "a room below"),
        ("core/state/state.c", "runtime/private.h", "the door is runtime/runtime.h"),
        ("core/state/state.c", "runtime/parts.h", "the door is runtime/runtime.h"),
        ("core/module.c", "runtime/private.h", "the door is runtime/runtime.h"),
        ("core/runtime/check.c", "private.h", "no header of a room"),
        ("core/state/state.c", "elsewhere/x.h", "no header of a room"),
        ("core/state/state.c", "state/more.c", "by module.c alone"),
        ("core/linkage.h", "runtime/runtime.h", "a room below"),
    ],
)
def test_an_include_that_passes_by_a_door(path: str, name: str, words: str) -> None:
    tree = CLEAN | {path: with_line(path, f'#include "{name}"')}
    (finding,) = lint_rooms.lint(tree)
    assert (finding.rule, finding.path) == ("include", path)
    assert finding.line == tree[path].splitlines().index(f'#include "{name}"') + 1
    assert words in finding.text


def test_files_out_of_every_room() -> None:
    assert broken("core/stray.h", "int x(void);") == [("include", "core/stray.h")]
    assert broken("core/attic/attic.h", "int x(void);") == [("include", "core/attic/attic.h")]


def test_a_room_without_a_door() -> None:
    assert broken("core/watch/watch.c", "") == [("include", "core/watch/watch.c")]


def test_a_file_that_is_too_long() -> None:
    longest = "\n" * lint_rooms.FILE_LINES
    assert broken("core/state/more.c", longest) == []
    assert broken("core/state/more.c", longest + "\n") == [("size", "core/state/more.c")]


def test_a_function_that_is_too_long() -> None:
    most = lint_rooms.FUNCTION_LINES
    fits = "static void\nf(void)\n{" + "\n" * (most - 1) + "}\n"
    assert broken("core/state/more.c", fits) == []
    (finding,) = lint_rooms.lint(CLEAN | {"core/state/more.c": fits.replace("{", "{\n")})
    assert (finding.rule, finding.line) == ("size", 3)
    assert f"{most + 1} lines" in finding.text


def test_the_librarys_c_includes_no_room() -> None:
    own = '#include "resolve.h"\n#include "../abi.h"\n'
    assert broken("golib/resolve.c", own) == []
    wrong = own + '#include "state/state.h"\n'
    assert broken("golib/resolve.c", wrong) == [("include", "golib/resolve.c")]


def test_the_status_tells_of_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, text in CLEAN.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert lint_rooms.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{len(CLEAN)} files, 0 findings\n"
    (tmp_path / "core/state/more.c").write_text('#include "loop/loop.h"\n')
    assert lint_rooms.main([str(tmp_path)]) == 1
    said = capsys.readouterr().out.splitlines()
    where = f"{tmp_path}/core/state/more.c:1"
    assert said[0] == f"{where}: include: loop is a room below"
    assert lint_rooms.main([str(tmp_path / "nothing")]) == 1


def test_the_table_is_of_the_extensions_rooms() -> None:
    """A rule that looks at no file finds nothing."""
    tree = lint_rooms.house(lint_rooms.read(ROOT / "pybridge"))
    for room in lint_rooms.ROOMS:
        assert tree.room(room), room
    assert {file.room for file in tree.files.values()} <= {"", "module.c", *lint_rooms.ROOMS}
    # The size limits hold for the library's C, too.
    root = ROOT / "pybridge"
    every = {str(path.relative_to(root)) for path in root.rglob("*.[ch]")}
    assert {path for path in every if "/testdata/" not in path} == set(tree.files)


def test_the_extension_passes_by_no_door() -> None:
    tree = lint_rooms.house(lint_rooms.read(ROOT / "pybridge"))
    assert [(file.path, line, wrong) for file, line, wrong in lint_rooms.include(tree)] == []
