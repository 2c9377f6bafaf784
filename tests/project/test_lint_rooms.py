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
        typedef struct gl_stack { int depth; void (*drop)(void); } gl_stack;
        GL_PRIVATE int gl_open(int fd);
        #define GL_OPEN_TWICE(fd) (gl_open(fd) + gl_open_again(fd))
    """,
    "core/runtime/parts.h": "GL_PRIVATE int gl_open_again(int fd);\n",
    "core/runtime/private.h": """
        #include "runtime/runtime.h"
        GL_PRIVATE int check(int fd);
    """,
    "core/runtime/open.c": """
        #include "runtime/private.h"
        #include "golib/resolve.h"
        static const char *const names[] = {"a", "b"};
        static _Thread_local int depth;
        GL_PRIVATE int gl_open(int fd) { return check(fd) ? depth : 0; }
        GL_PRIVATE int gl_open_again(int fd) { return gl_open(fd); }
        static void drop(void) { }
        static gl_stack made(void) { return (gl_stack){.drop = drop}; }
        /* A function of Go's, not the one of the room below. */
        #define VISIT(call) (go->call)
        static int visit(const gl_table *go) { return VISIT(state_open(1)); }
    """,
    "core/runtime/check.c": """
        #include "runtime/private.h"
        GL_PRIVATE int check(int fd) { return fd >= 0; }
    """,
    "core/state/state.h": """
        #include "runtime/runtime.h"
        GL_PRIVATE int gl_state_new(void);
    """,
    "core/state/state.c": """
        #include "state/state.h"
        static PyMethodDef methods[] = {{0}};
        static int
        state_parse(PyObject *names)
        {
            static char *kwlist[] = {"loop", NULL};
            /* Words of this file, not the functions of another room. */
            int check = 0, made = 1;
            return use(kwlist, methods, check, made, names);
        }
        static int state_open(int fd) { return fd; }
        GL_PRIVATE int
        gl_state_new(void)
        {
            gl_stack s;
            s.drop();
            return GL_OPEN_TWICE(3) + state_parse(0);
        }
    """,
    "core/module.c": """
        #define GL_AMALGAMATION
        #include "runtime/open.c"
        #include "runtime/check.c"
        #include "state/state.c"
        int PyInit__core(void) { return gl_state_new(); }
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


def test_a_function_that_leaves_its_room_without_its_prefix() -> None:
    call = "GL_PRIVATE int gl_late(void) { return check(1); }"
    tree = CLEAN | {
        "core/state/late.c": call,
        "core/state/state.h": with_line("core/state/state.h", "GL_PRIVATE int gl_late(void);"),
    }
    (finding,) = lint_rooms.lint(tree)
    assert (finding.rule, finding.path) == ("names", "core/runtime/check.c")
    assert finding.text == "check is used in state: it wants gl_ before it"


def test_a_function_that_leaves_its_room_by_a_macro() -> None:
    header = CLEAN["core/runtime/runtime.h"].replace("gl_open_again(fd)", "check(fd)")
    assert broken("core/runtime/runtime.h", header) == [("names", "core/runtime/check.c")]


def test_a_pointer_to_a_function_of_another_room() -> None:
    tree = with_line("core/state/state.c", "static const gl_stack s = {1, drop};")
    assert broken("core/state/state.c", tree) == [("names", "core/runtime/open.c")]


def test_a_function_that_leaves_its_room_without_a_header() -> None:
    path = "core/runtime/parts.h"
    (finding,) = lint_rooms.lint(CLEAN | {path: ""})
    assert (finding.rule, finding.path) == ("names", "core/runtime/open.c")
    assert finding.text == "gl_open_again is used in state, and not in runtime/runtime.h"


def test_a_declaration_in_a_private_header_opens_no_door() -> None:
    private = with_line("core/runtime/private.h", "GL_PRIVATE int gl_open_again(int fd);")
    tree = CLEAN | {"core/runtime/parts.h": "", "core/runtime/private.h": private}
    assert [finding.rule for finding in lint_rooms.lint(tree)] == ["names"]


@pytest.mark.parametrize(
    "line",
    [
        "static int gl_own(int fd) { return fd; }",
        "GL_PRIVATE int *gl_own(int fd) { return 0; }",
        "static const int gl_own[] = {1, 2};",
        "DEFINED_BY_A_MACRO(1)\nstatic int gl_own(void) { return 1; }",
    ],
)
def test_a_prefix_on_what_stays_in_its_room(line: str) -> None:
    path = "core/runtime/check.c"
    (finding,) = lint_rooms.lint(CLEAN | {path: with_line(path, line)})
    assert finding.text == "gl_own does not leave runtime: it wants no gl_"


MUTABLE = [
    "static int count;",
    "static int count = 3, *more;",
    "GL_PRIVATE struct state { int x; } count;",
    "static struct { int x; } count = {1};",
    "static const char *names[] = {0};",
    "static PyTypeObject *type;",
    "static void (*hook)(void);",
    "static _Atomic(int *) shared;",
    "int exported;",
    "static int f(void) { static int calls; return ++calls; }",
    "static int f(void) { if (1) { static const char *last = 0; } return 0; }",
]
CONSTANT = [
    "static const int table[2] = {1, 2};",
    "static const struct { int x; } table = {1};",
    "static const char *const names[] = {0};",
    "static void (*const hook)(void) = f;",
    "static PyType_Slot slots[] = {{0, 0}};",
    "static _Thread_local int depth;",
    "extern int elsewhere;",
    "GL_PRIVATE_DATA int elsewhere;",
    "struct state { int x; };",
    "struct stat;",
    "enum { A, B };",
    "typedef int (*callback)(int);",
    '_Static_assert(sizeof(int) == 4, "");',
    "static int f(int statics);",
    'static int f(void) { static char *names[] = {"loop", 0}; return names[0] != 0; }',
    "/* lint: allow mutable-static: set once, at import */\nstatic int count;",
]


@pytest.mark.parametrize("line", MUTABLE)
def test_a_static_object_that_can_change(line: str) -> None:
    path = "core/state/state.c"
    found = broken(path, with_line(path, line))
    assert found
    assert set(found) == {("mutable-static", path)}


@pytest.mark.parametrize("line", CONSTANT)
def test_a_static_object_that_cannot_change(line: str) -> None:
    path = "core/state/state.c"
    assert broken(path, with_line(path, line)) == []


def test_a_reason_must_be_given() -> None:
    path = "core/state/state.c"
    line = "/* lint: allow mutable-static: */\nstatic int count;"
    assert broken(path, with_line(path, line)) == [("mutable-static", path)]


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


def test_a_product_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = sum(len(text.splitlines()) for text in CLEAN.values())
    monkeypatch.setattr(lint_rooms, "PRODUCT_LINES", lines)
    assert lint_rooms.lint(CLEAN) == []
    monkeypatch.setattr(lint_rooms, "PRODUCT_LINES", lines - 1)
    (finding,) = lint_rooms.lint(CLEAN)
    assert finding.rule == "size"
    assert f"has {lines} lines" in finding.text


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
    (tmp_path / "core/state/more.c").write_text("static int count;\n")
    (tmp_path / "golib/monitor.c").write_text('#include "monitor.h"\nstatic int count;\n')
    assert lint_rooms.main([str(tmp_path)]) == 1
    said = capsys.readouterr().out.splitlines()
    where = f"{tmp_path}/core/state/more.c:1"
    assert said[0] == f"{where}: mutable-static: count can change at run time"
    assert lint_rooms.main([str(tmp_path / "nothing")]) == 1


def test_the_table_is_of_the_extensions_rooms() -> None:
    """A rule that looks at no file finds nothing."""
    tree = lint_rooms.house(lint_rooms.read(ROOT / "pybridge"))
    for room in lint_rooms.ROOMS:
        assert tree.door(room), room
    assert {file.room for file in tree.files.values()} <= {"", "module.c", *lint_rooms.ROOMS}
    # The budget is of the library's C, too.
    every = {str(path.relative_to(ROOT / "pybridge")) for path in ROOT.rglob("pybridge/**/*.[ch]")}
    assert {path for path in every if "/testdata/" not in path} == set(tree.files)
    # The parser sees the definitions, and who uses them.
    used = [name for name, rooms in tree.used_in.items() if len(rooms) > 1]
    assert len(tree.used_in) > 500
    assert len(used) > 100


def test_the_extension_passes_by_no_door() -> None:
    tree = lint_rooms.house(lint_rooms.read(ROOT / "pybridge"))
    assert [(file.path, line, wrong) for file, line, wrong in lint_rooms.include(tree)] == []
