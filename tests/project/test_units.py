"""The check that compiles each C file alone, on small trees that lean on each other."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("setuptools", reason="it knows the extension's flags")

ROOT = Path(__file__).resolve().parents[2]

sys.path.append(str(ROOT / "tools"))

import units  # noqa: E402

CLEAN = {
    "linkage.h": """
        #pragma once
        #ifdef GL_AMALGAMATION
        #define GL_PRIVATE static
        #else
        #define GL_PRIVATE
        #endif
    """,
    "state/state.h": """
        #pragma once
        #include "linkage.h"
        #include <stdint.h>
        typedef struct gl_loop { int fd; } gl_loop;
        GL_PRIVATE int32_t gl_loop_fd(gl_loop *loop);
    """,
    "state/state.c": """
        #include "state/state.h"
        #include <Python.h>
        static int its_own(int fd) { return fd + 1; }
        GL_PRIVATE int32_t
        gl_loop_fd(gl_loop *loop)
        {
            return Py_IsInitialized() ? its_own(loop->fd) : -1;
        }
    """,
    # Also what module.c sees of Python.h.
    "loop/loop.h": """
        #pragma once
        #include <Python.h>
        #include "state/state.h"
        GL_PRIVATE int gl_loop_run(gl_loop *loop);
    """,
    "loop/run.c": """
        #include "loop/loop.h"
        GL_PRIVATE int gl_loop_run(gl_loop *loop) { return gl_loop_fd(loop); }
    """,
    "module.c": """
#define GL_AMALGAMATION
#include "state/state.c"
#include "loop/run.c"
PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) { return gl_loop_run(0) ? NULL : Py_None; }
    """,
}


def check(tmp_path: Path, **changed: str) -> list[str]:
    """What is wrong with the tree where some files are others; `state_c` is state/state.c."""
    names = {"state_c": "state/state.c", "state_h": "state/state.h", "run_c": "loop/run.c"}
    tree = CLEAN | {names.get(name, name): text for name, text in changed.items()}
    for path, text in tree.items():
        (tmp_path / "core" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "core" / path).write_text(text)
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    (tmp_path / "out").mkdir()
    found: list[str] = units.Units(tmp_path / "core", tmp_path / "out").check()
    return found


def test_files_that_stand_alone(tmp_path: Path) -> None:
    assert check(tmp_path) == []
    assert (tmp_path / "out" / "core.so").exists()


def test_a_file_that_leans_on_what_stands_before_it(tmp_path: Path) -> None:
    text = CLEAN["loop/run.c"].replace("gl_loop_fd(loop)", "its_own(loop->fd)")
    (wrong,) = check(tmp_path, run_c=text)
    assert "its_own" in wrong
    assert wrong.endswith("loop/run.c does not compile alone")


def test_a_header_that_leans_on_its_includers(tmp_path: Path) -> None:
    text = CLEAN["state/state.h"].replace("#include <stdint.h>", "")
    source = CLEAN["state/state.c"].replace("#include", "#include <stdint.h>\n#include", 1)
    wrong = check(tmp_path, state_h=text, state_c=source)
    assert "state/state.h does not compile alone" in [line.split("\n")[-1] for line in wrong]


def test_a_header_without_a_guard(tmp_path: Path) -> None:
    wrong = check(tmp_path, state_h=CLEAN["state/state.h"].replace("#pragma once", ""))
    assert "state/state.h does not compile alone" in [line.split("\n")[-1] for line in wrong]


def test_a_module_that_leans_on_the_files_it_includes(tmp_path: Path) -> None:
    text = CLEAN["module.c"].replace("gl_loop_run(0)", "its_own(0)")
    (wrong,) = check(tmp_path, **{"module.c": text})
    assert wrong.endswith("module.c does not compile alone")
    # The place is that in the file itself.
    assert f"{tmp_path}/core/module.c:6:" in wrong


def test_a_function_that_no_header_declares(tmp_path: Path) -> None:
    text = CLEAN["loop/run.c"] + "GL_PRIVATE int gl_more(void) { return 1; }"
    (wrong,) = check(tmp_path, run_c=text)
    assert "missing-prototypes" in wrong


def test_a_definition_that_differs_from_its_declaration(tmp_path: Path) -> None:
    text = CLEAN["state/state.c"].replace("gl_loop *loop", "gl_loop *loop, int more")
    (wrong,) = check(tmp_path, state_c=text)
    assert "conflicting types" in wrong


def test_a_declaration_without_a_definition(tmp_path: Path) -> None:
    header = CLEAN["state/state.h"] + "GL_PRIVATE int later(void);"
    text = CLEAN["loop/run.c"].replace("gl_loop_fd(loop)", "later()")
    wrong = check(tmp_path, state_h=header, run_c=text)
    assert wrong == ["later is declared and used, and no file defines it"]


def test_two_definitions_of_a_name(tmp_path: Path) -> None:
    (wrong,) = check(tmp_path, **{"loop/again.c": CLEAN["loop/run.c"]})
    assert "gl_loop_run" in wrong
    assert wrong.endswith("the files do not link")


# ---- what the symbols show --------------------------------------------------------


def with_line(path: str, line: str) -> str:
    return f"{CLEAN[path]}\n{line}\n"


def exported(name: str) -> dict[str, str]:
    """state/state.c has a function of this name, and loop/run.c calls it."""
    own = "static int its_own(int fd) { return fd + 1; }"
    return {
        "state_c": CLEAN["state/state.c"].replace(
            own, f"{own}\nGL_PRIVATE int {name}(int fd) {{ return its_own(fd); }}"
        ),
        "run_c": CLEAN["loop/run.c"].replace("gl_loop_fd(loop)", f"{name}(loop->fd)"),
    }


def test_files_that_call_each_other_in_a_circle(tmp_path: Path) -> None:
    header = CLEAN["loop/loop.h"] + "GL_PRIVATE int begin(int n); GL_PRIVATE int go(int n);"
    header += "GL_PRIVATE int end(int n);\n"
    files = {"loop/loop.h": header}
    for name, called in (("begin", "go"), ("go", "end"), ("end", "begin")):
        text = f"GL_PRIVATE int {name}(int n) {{ return {called}(n); }}"
        files[f"loop/{name}.c"] = f'#include "loop/loop.h"\n{text}'
    (wrong,) = check(tmp_path, **files)
    assert wrong == "circle: loop/begin.c, loop/end.c, loop/go.c call each other"
    files["loop/go.c"] = files["loop/go.c"].replace("end(n)", "begin(n)")
    assert check(tmp_path, **files) == []  # two may


def test_a_function_that_leaves_its_room_without_its_prefix(tmp_path: Path) -> None:
    header = with_line("state/state.h", "GL_PRIVATE int check(int fd);")
    (wrong,) = check(tmp_path, state_h=header, **exported("check"))
    assert wrong == "state/state.c:5: names: check is used in loop: it wants gl_ before it"


def test_a_function_that_leaves_its_room_by_a_macro(tmp_path: Path) -> None:
    header = with_line("state/state.h", "GL_PRIVATE int check(int fd);")
    header += "#define GL_CHECK(fd) (check(fd))\n"
    run = CLEAN["loop/run.c"].replace("gl_loop_fd(loop)", "GL_CHECK(loop->fd)")
    (wrong,) = check(tmp_path, state_h=header, **{**exported("check"), "run_c": run})
    assert "check is used in loop" in wrong


def test_an_inline_function_that_leaves_its_room(tmp_path: Path) -> None:
    header = with_line("state/state.h", "static inline int twice(int n) { return 2 * n; }")
    assert check(tmp_path, state_h=header) == []
    run = CLEAN["loop/run.c"].replace("gl_loop_fd(loop)", "twice(loop->fd)")
    (wrong,) = check(tmp_path, state_h=header, run_c=run)
    assert wrong.startswith("state/state.h:")
    assert wrong.endswith("names: twice is used in loop: it wants gl_ before it")


def test_a_function_that_leaves_its_room_by_a_private_header(tmp_path: Path) -> None:
    files = {
        "state/private.h": '#pragma once\n#include "linkage.h"\nGL_PRIVATE int gl_check(int fd);'
    }
    for name, text in exported("gl_check").items():
        files[name] = f'#include "state/private.h"\n{text}'
    (wrong,) = check(tmp_path, **files)
    assert wrong.endswith("names: gl_check is used in loop, and not in state/state.h")
    files["state_h"] = with_line("state/state.h", '#include "state/private.h"')
    assert check(tmp_path, **files) == []


@pytest.mark.parametrize(
    "line",
    [
        "__attribute__((used)) static int gl_own(int fd) { return fd; }",
        "GL_PRIVATE int *gl_own(int *fd);\nGL_PRIVATE int *gl_own(int *fd) { return fd; }",
        "__attribute__((used)) static const int gl_own[] = {1, 2};",
        "#define MADE(x) static int x(void) { return 1; }\n__attribute__((used)) MADE(gl_own)",
    ],
)
def test_a_prefix_on_what_stays_in_its_room(tmp_path: Path, line: str) -> None:
    (wrong,) = check(tmp_path, state_c=with_line("state/state.c", line))
    assert wrong.endswith("names: gl_own does not leave state: it wants no gl_")


MUTABLE = {
    "a": "static int a;",
    "b": "static int b = 3;",
    "c": "static int *c;",
    "d": "extern struct state { int x; } d;\nstruct state d;",
    "e": "static struct { int x; } e = {1};",
    "f": 'static const char *f[] = {"x"};',
    "g": "static PyTypeObject *g;",
    "h": "static void (*h)(void);",
    "i": "static _Atomic(int *) i;",
    "calls": "int j(void);\nint j(void) { static int calls; return ++calls; }",
    "last": "void *k(void);\nvoid *k(void) { static const char *last = 0; return &last; }",
    "n": "/* lint: allow mutable-static: */\nstatic int n;",
}
CONSTANT = {
    "a": "static const int a[2] = {1, 2};",
    "b": "static const struct { int x; } b = {1};",
    "c": 'static const char *const c[] = {"x"};',
    "d": "static int f(void) { return 0; }\nstatic int (*const d)(void) = f;",
    "e": "static PyType_Slot e[] = {{0, 0}};",
    "g": "static PyModuleDef_Slot g[] = {{0, 0}};",
    "": (
        "extern int elsewhere;\n"
        'void *k(void);\nvoid *k(void) { static char *kwlist[] = {"loop", 0}; return kwlist; }\n'
        "int *l(void);\nint *l(void) { static _Thread_local int depth; return &depth; }"
    ),
    "n": "/* lint: allow mutable-static: set once, at import */\nstatic int n;",
}


def with_lines(lines: dict[str, str]) -> str:
    """state/state.c with these definitions, all of them used."""
    uses = ", ".join(f"&{name}" for name in lines if len(name) == 1)
    used = f"__attribute__((used)) static const void *const uses[] = {{{uses}}};"
    return "\n".join([CLEAN["state/state.c"], *lines.values(), used])


def test_static_objects_that_can_change(tmp_path: Path) -> None:
    assert check(tmp_path, state_c=with_lines(CONSTANT)) == []
    wrong = check(tmp_path, state_c=with_lines(MUTABLE))
    rule = r"state/state\.c:\d+: mutable-static: (\w+) can change at run time"
    assert sorted(re.findall(rule, "\n".join(wrong))) == sorted(MUTABLE)
    assert len(wrong) == len(MUTABLE)


def test_the_status_tells_of_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(tmp_path)
    command = [str(tmp_path / "core")]
    assert units.main(command) == 0
    assert capsys.readouterr().out == f"{len(CLEAN)} files, 0 failures\n"
    (tmp_path / "core" / "loop" / "run.c").write_text("oops")
    assert units.main(command) == 1
    assert "loop/run.c does not compile alone\n" in capsys.readouterr().out
    (tmp_path / "empty").mkdir()
    assert units.main([str(tmp_path / "empty")]) == 1
