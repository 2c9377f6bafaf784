"""The check that compiles each C file alone: each of its findings, on a small tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

units = pytest.importorskip("units", reason="setuptools knows the extension's flags")

LINKAGE = """
#pragma once
#ifdef GL_AMALGAMATION
#define GL_PRIVATE static
#else
#define GL_PRIVATE
#endif
"""
STATE_H = """
#pragma once
#include "linkage.h"
#include <stdint.h>
typedef struct gl_loop { int fd; } gl_loop;
GL_PRIVATE int32_t gl_loop_fd(gl_loop *loop);
"""
STATE_C = """
#include "state/state.h"
#include <Python.h>
static int its_own(int fd) { return fd + 1; }
GL_PRIVATE int32_t gl_loop_fd(gl_loop *loop) { return its_own(loop->fd); }
"""
LOOP_H = """
#pragma once
#include <Python.h>
#include "state/state.h"
GL_PRIVATE int gl_loop_run(gl_loop *loop);
"""
RUN_C = """
#include "loop/loop.h"
GL_PRIVATE int gl_loop_run(gl_loop *loop) { return gl_loop_fd(loop); }
"""
MODULE = """
#define GL_AMALGAMATION
#include "state/state.c"
#include "loop/run.c"
PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) { return gl_loop_run(0) ? NULL : Py_None; }
"""
CLEAN = {
    "linkage.h": LINKAGE,
    "state/state.h": STATE_H,
    "state/state.c": STATE_C,
    "loop/loop.h": LOOP_H,
    "loop/run.c": RUN_C,
    "module.c": MODULE,
}


def check(folder: Path, changed: dict[str, str]) -> list[str]:
    """Findings in the clean tree with some files changed or added."""
    for path, text in (CLEAN | changed).items():
        (folder / "core" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "core" / path).write_text(text)
    (folder / "out").mkdir()
    found: list[str] = units.Units(folder / "core", folder / "out").check()
    return found


def test_a_clean_tree_has_no_findings(tmp_path: Path) -> None:
    assert check(tmp_path, {}) == []
    assert (tmp_path / "out" / "core.so").exists()


CIRCLE = {
    f"loop/{name}.c": f"int {name}(int n);\nint {called}(int n);\n"
    f"int {name}(int n) {{ return {called}(n); }}"
    for name, called in (("begin", "go"), ("go", "end"), ("end", "begin"))
}
# state/state.c with a function that loop/run.c calls.
SHARED_C = STATE_C + "GL_PRIVATE int check(int fd) { return its_own(fd); }"
CALLS = RUN_C.replace("gl_loop_fd(loop)", "check(loop->fd)")
NOT_ALONE = "does not compile alone"


@pytest.mark.parametrize(
    ("changed", "finding"),
    [
        ({"loop/run.c": RUN_C.replace("gl_loop_fd(loop)", "its_own(0)")}, f"run.c {NOT_ALONE}"),
        ({"state/state.h": STATE_H.replace("#pragma once", "")}, f"state.h {NOT_ALONE}"),
        ({"module.c": MODULE.replace("gl_loop_run(0)", "its_own(0)")}, f"module.c {NOT_ALONE}"),
        ({"loop/run.c": f"{RUN_C}int gl_more(void) {{ return 1; }}"}, "missing-prototypes"),
        ({"state/state.c": STATE_C.replace("*loop)", "*loop, int n)")}, "conflicting types"),
        (
            {
                "state/state.h": f"{STATE_H}GL_PRIVATE int later(void);",
                "loop/run.c": RUN_C.replace("gl_loop_fd(loop)", "later()"),
            },
            "later is declared and used, and no file defines it",
        ),
        ({"loop/again.c": RUN_C}, "the files do not link"),
        (CIRCLE, "circle: loop/begin.c, loop/end.c, loop/go.c call each other"),
        (
            {
                "state/state.h": f"{STATE_H}GL_PRIVATE int check(int fd);",
                "state/state.c": SHARED_C,
                "loop/run.c": CALLS,
            },
            "names: check is used in loop: the name must begin with gl_",
        ),
        (
            {
                "state/private.h": f"{LINKAGE}GL_PRIVATE int gl_check(int fd);",
                "state/state.c": '#include "state/private.h"\n'
                + SHARED_C.replace("int check", "int gl_check"),
                "loop/run.c": '#include "state/private.h"\n' + CALLS.replace("check", "gl_check"),
            },
            "names: gl_check is used in loop: declare the function in state/state.h",
        ),
        (
            {"state/state.c": f"{STATE_C}__attribute__((used)) static const int gl_own[] = {{1}};"},
            "names: gl_own is used in state only: the name must not begin with gl_",
        ),
    ],
)
def test_a_fault_is_found(changed: dict[str, str], finding: str, tmp_path: Path) -> None:
    wrong = check(tmp_path, changed)
    assert finding in "\n".join(wrong)


MUTABLE = {
    "a": "static int a;",
    "d": "extern struct state { int x; } d;\nstruct state d;",
    "f": 'static const char *f[] = {"x"};',
    "g": "static PyTypeObject *g;",
    "calls": "int j(void);\nint j(void) { static int calls; return ++calls; }",
    "n": "/* lint: allow mutable-static: */\nstatic int n;",
}
CONSTANT = {
    "a": "static const int a[2] = {1, 2};",
    "c": 'static const char *const c[] = {"x"};',
    "e": "static PyType_Slot e[] = {{0, 0}};",
    "": "int *l(void);\nint *l(void) { static _Thread_local int depth; return &depth; }",
    "n": "/* lint: allow mutable-static: set once, at import */\nstatic int n;",
}


@pytest.mark.parametrize(("lines", "found"), [(CONSTANT, []), (MUTABLE, sorted(MUTABLE))])
def test_static_objects_that_change_are_found(
    lines: dict[str, str], found: list[str], tmp_path: Path
) -> None:
    uses = ", ".join(f"&{name}" for name in lines if len(name) == 1)
    used = f"__attribute__((used)) static const void *const uses[] = {{{uses}}};"
    wrong = check(tmp_path, {"state/state.c": "\n".join([STATE_C, *lines.values(), used])})
    rule = r"state/state\.c:\d+: mutable-static: (\w+) can change at run time"
    assert sorted(re.findall(rule, "\n".join(wrong))) == found
    assert len(wrong) == len(found)
