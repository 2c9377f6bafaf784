"""The lints: each rule finds its sample, and accepts the right code beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

import checks
import environments
import lint_c
import lint_flow
import lint_prose
import lint_rooms
import lint_style

ROOT = Path(__file__).resolve().parents[2]

# ---- lint_c.py, lint_flow.py, lint_style.py ----------------------------------------------------

# A snippet with the bug, and the same without it.
RULES = {
    "return-singleton": (
        "static PyObject *f(PyObject *m) { Py_INCREF(m); return Py_None; }",
        "static PyObject *f(PyObject *m) { Py_INCREF(Py_None); return Py_None; }",
    ),
    "borrowed-across-call": (
        # A destructor is Python code, too.
        """static int f(PyObject *d, PyObject *key, PyObject *old) {
            PyObject *value = PyDict_GetItemWithError(d, key);
            if (value == NULL) { return -1; }
            Py_DECREF(old);
            return use(value);
        }""",
        # The call is on a path that returns.
        """static int f(PyObject *d, PyObject *key, PyObject *old) {
            PyObject *value = PyDict_GetItemWithError(d, key);
            if (value == NULL) { Py_DECREF(old); return -1; }
            return use(value);
        }""",
    ),
    "decref-field": (
        "static void f(Loop *self) { Py_DECREF(self->task); self->task = NULL; }",
        "static void foo_dealloc(Foo *self) { Py_XDECREF(self->x); }",
    ),
    "paired-fields": (
        "static void f(Future *f) { Py_CLEAR(f->callback0); f->context0 = NULL; }",
        "static int future_clear(Future *f) { Py_CLEAR(f->callback0); return 0; }",
    ),
    "gc-new-untracked": (
        "static Foo *f(PyTypeObject *t) { Foo *o = PyObject_GC_New(Foo, t); return o; }",
        """static Foo *f(PyTypeObject *t) {
            Foo *o = PyObject_GC_New(Foo, t);
            PyObject_GC_Track(o);
            return o;
        }""",
    ),
    "traverse-type": (
        """static int foo_traverse(Foo *self, visitproc visit, void *arg) {
            Py_VISIT(self->x);
            return 0;
        }
        static PyType_Slot slots[] = {{Py_tp_traverse, foo_traverse}, {0, NULL}};""",
        """static int foo_traverse(Foo *self, visitproc visit, void *arg) {
            Py_VISIT(Py_TYPE(self));
            return 0;
        }
        static PyType_Slot slots[] = {{Py_tp_traverse, foo_traverse}, {0, NULL}};""",
    ),
    "dealloc-type": (
        """static void foo_dealloc(Foo *self) { Py_TYPE(self)->tp_free(self); }
        static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)foo_dealloc}, {0, NULL}};""",
        """static void foo_dealloc(Foo *self) {
            PyTypeObject *tp = Py_TYPE(self);
            tp->tp_free(self);
            Py_DECREF(tp);
        }
        static PyType_Slot slots[] = {{Py_tp_dealloc, foo_dealloc}, {0, NULL}};""",
    ),
    "dealloc-untrack": (
        """static int foo_traverse(Foo *self) { Py_VISIT(Py_TYPE(self)); return 0; }
        static void foo_dealloc(Foo *self) { Py_DECREF(Py_TYPE(self)); }
        static PyType_Slot slots[] = {{Py_tp_dealloc, foo_dealloc}, {Py_tp_traverse, foo_traverse}};
        static PyType_Spec spec = {.flags = Py_TPFLAGS_HAVE_GC};""",
        """static int foo_traverse(Foo *self) { Py_VISIT(Py_TYPE(self)); return 0; }
        static void foo_dealloc(Foo *self) { PyObject_GC_UnTrack(self); Py_DECREF(Py_TYPE(self)); }
        static PyType_Slot slots[] = {{Py_tp_dealloc, foo_dealloc}, {Py_tp_traverse, foo_traverse}};
        static PyType_Spec spec = {.flags = Py_TPFLAGS_HAVE_GC};""",
    ),
    "python-without-gil": (
        "static void f(void) { Py_BEGIN_ALLOW_THREADS PyErr_SetNone(0); Py_END_ALLOW_THREADS }",
        "static void f(void) { Py_BEGIN_ALLOW_THREADS read(0, 0, 0); Py_END_ALLOW_THREADS }",
    ),
    "module-add-object": (
        'static int f(PyObject *m, PyObject *o) { return PyModule_AddObject(m, "o", o); }',
        'static int f(PyObject *m, PyObject *o) { return PyModule_AddObjectRef(m, "o", o); }',
    ),
    "asks-again": (
        'static PyObject *f(PyObject *sslobj) { return PyObject_CallMethod(sslobj, "read", 0); }',
        'static PyObject *f(PyObject *t) { return PyObject_CallMethod(t, "_raise", NULL); }',
    ),
    "thread-states": (
        "static PyThreadState *f(PyThreadState *ts) { return PyThreadState_Next(ts); }",
        "static PyThreadState *f(void) { return PyThreadState_Get(); }",
    ),
    "line-length": ("/* " + "x" * 96 + " */", "/* " + "x" * 94 + " */"),
    "nested-conditional": (
        "static int f(int a) { return a < 0 ? -1 : a > 0 ? 1 : 0; }",
        "static int f(int a) { return a < 0 ? -1 : 1; }",
    ),
    "joined-initialisers": (
        "static int f(int a) { int b = a, c = 2; return b + c; }",
        "static int f(int a) { int b = g(a, 1), c; for (int i = 0, j = 1;;) { } return b + c; }",
    ),
    "comma-statement": (
        "static PyObject *f(int n) { return n < 0 ? (errno = -n, NULL) : Py_NewRef(Py_None); }",
        "static int f(int n) { int a[] = {1, 2}, b; g(a, (T){1, 2}, (int)n); return h(n, b); }",
    ),
    "assignment-in-condition": (
        "static int f(int n) { while ((n = g()) > 0) { } return n; }",
        "static int f(int n) { while (n >= 0 && n != 1) { n = g(); } return n; }",
    ),
    "boolean-arithmetic": (
        "static void f(Q *q) { q->budget -= q->budget > 0; }",
        "static void f(Q *q) { if (q->budget > 0) q->budget -= 1; }",
    ),
    "exception-formula": (
        "/* Creates the type.  -1 with\n * an exception. */",
        "/* Creates the type.  -1 with TypeError, or with an exception that ends the run. */",
    ),
}


CHECKED = "static int gl_loop_check_usable(Loop *l) { return l->closed ? -1 : 0; }\n"
CHECK = "if (gl_loop_check_usable(loop) < 0) { return NULL; }"


def checked(*lines: str) -> str:
    """A function that checks the loop, and then runs these lines."""
    body = "\n".join(lines)
    return (
        f"{CHECKED}static PyObject *f(Loop *loop, PyObject *o) {{\n{CHECK}\n{body}\nreturn o;\n}}"
    )


# Samples of the rules that read all files.
TREE_RULES = {
    "check-commit": (
        """static double number(PyObject *o) { return PyFloat_AsDouble(o); }"""
        + checked("double d = number(o);", "loop->go->watch_set(loop->reactor, d);"),
        checked("double d = PyFloat_AsDouble(o);", CHECK, "gl_submit(loop, d);"),
    ),
    "exception-set": (
        """static int f(PyObject *o) {
            if (PyObject_SetAttr(o, o, o) < 0)
                goto fail;
            return 0;
        fail:
            PyObject_Repr(o);
            return -1;
        }""",
        """static int f(PyObject *o) {
            int r = PyObject_SetAttr(o, o, o);
            if (r == 0 && o->more)
                r = PyObject_SetAttr(o, o, o);
            PyObject *exc = gl_take_exception();
            PyObject_Repr(o);
            gl_restore_exception(exc);
            return r;
        }""",
    ),
    "python-under-mutex": (
        """static void drop(PyObject *o) { Py_DECREF(o); }
        static void f(PyObject *o) { GL_LOCK(tasks_mutex); drop(o); GL_UNLOCK(tasks_mutex); }""",
        """static PyObject *f(PyObject *o) {
            GL_LOCK(tasks_mutex);
            if (o->shut) {
                GL_UNLOCK(tasks_mutex);
                return PyObject_Repr(o);
            }
            GL_UNLOCK(tasks_mutex);
            return NULL;
        }""",
    ),
    "function-comment": (
        "GL_PRIVATE int gl_open(int fd);\n",
        "/* Opens it. */\nGL_PRIVATE int gl_open(int fd);\n",
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_finds_its_bug_and_accepts_right_code(rule: str) -> None:
    every = {**lint_c.RULES, **lint_style.RULES}
    assert RULES.keys() == every.keys()
    broken = [[each.rule for each in lint_c.lint("a.c", code, every)] for code in RULES[rule]]
    assert broken == [[rule], []]


@pytest.mark.parametrize("rule", TREE_RULES)
def test_a_rule_over_all_files_finds_its_bug_and_accepts_right_code(rule: str) -> None:
    every = {**lint_c.TREE_RULES, **lint_flow.RULES, **lint_style.TREE_RULES}
    assert TREE_RULES.keys() == every.keys()
    rules = lint_style.TREE_RULES if rule == "function-comment" else every
    found = [lint_c.lint_tree({"a.h": code}, rules) for code in TREE_RULES[rule]]
    broken = [{each.rule for each in some} - ({"function-comment"} - {rule}) for some in found]
    assert broken == [{rule}, set()]


def test_an_exemption_needs_its_rule_and_a_reason() -> None:
    code = "void f(Loop *self) {\n/* lint: allow %s */\nPy_DECREF(self->task);\n}"
    for mark, findings in (("decref-field: made above", 0), ("decref-field:", 1), ("x: y", 1)):
        assert len(lint_c.lint("a.c", code % mark)) == findings


def test_default_paths_contain_the_c_files() -> None:
    assert len(lint_c.read(lint_c.LINTED)) > 100
    assert [path for path in lint_prose.LINTED if not (ROOT / path).exists()] == []


# ---- lint_prose.py -----------------------------------------------------------------------------

# A text of each kind of file, and the lines that break a rule.
PROSE = {
    "c.c": ('/* What waits. */\nchar *s = "/* it */"; /* Its end,\n * amid */\n', [1, 2, 3]),
    "go.go": ("// Pending writes are\n// those of a stream.\nx := 1 // one of two\n", [3]),
    "named.go": (
        "// A stream is one.\ntype stream int\n\n// Sends.\n\nfunc send() {}\n\n"
        "// sends\nfunc send() {}\n//go:noinline\nfunc f() {}\n"
        "// key returns it.\n//\n//export c_key\nfunc (a *x) unixKey() {}\n// Two at once.\n"
        "func TestTwo() {}\n// a and b are limits.\nconst b, a = 1, 2\n",
        [8, 12],
    ),
    "py.py": ('"""Reads."""\nx = "# it"  # nobody\n# Reads what\n# it has.\n\n# This.\n', [2, 6]),
    "page.md": ("It is behind a proxy.\n\n```\nwhatever\n```\nThe length is that of `x`.\n", [6]),
    "allowed.c": ("/* It is so. prose: allow (quoted) */\n/* Whatever. prose: allow */\n", [2, 2]),
}


@pytest.mark.parametrize("name", PROSE)
def test_prose_that_breaks_a_rule_is_found(name: str, tmp_path: Path) -> None:
    text, lines = PROSE[name]
    path = tmp_path / name
    path.write_text(text)
    found = [int(line.removeprefix(f"{path}:").split(":")[0]) for line in lint_prose.findings(path)]
    assert sorted(found) == lines


# ---- lint_rooms.py -----------------------------------------------------------------------------

# A tree that breaks no rule: two rooms, of which the lower one uses the upper.
ROOMS = {
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
def test_a_fault_between_rooms_is_found(path: str, line: str, words: str) -> None:
    assert lint_rooms.lint(ROOMS) == []
    tree = ROOMS | {path: f"{ROOMS.get(path, '')}{line}\n"}
    (finding,) = lint_rooms.lint(tree)
    assert finding.path == path
    assert words in finding.text


def test_the_table_is_of_the_extensions_rooms() -> None:
    """A rule that reads no file finds nothing."""
    paths = lint_rooms.read(ROOT / "pybridge")
    assert {lint_rooms.room_of(path) for path in paths} == {"", "module.c", *lint_rooms.ROOMS}


# ---- units.py ----------------------------------------------------------------------------------

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
    units = pytest.importorskip("units", reason="setuptools knows the extension's flags")
    for path, text in (CLEAN | changed).items():
        (folder / "core" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "core" / path).write_text(text)
    (folder / "out").mkdir()
    found: list[str] = units.Units(folder / "core", folder / "out").check()
    return found


def test_clean_units_have_no_findings(tmp_path: Path) -> None:
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
CHANGES = "int *n(void);\nint *n(void) { static int x; return &x; }"
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
        (
            {"state/state.c": f"{STATE_C}{CHANGES}"},
            "mutable-static: x can change at run time",
        ),
    ],
)
def test_a_fault_of_units_is_found(changed: dict[str, str], finding: str, tmp_path: Path) -> None:
    wrong = check(tmp_path, changed)
    assert finding in "\n".join(wrong)


# ---- the outcome of a check ----------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["no qemu today", None])
def test_impossible_checks_are_skipped_and_failures_fail(
    reason: str | None, monkeypatch, capsys
) -> None:
    def check() -> bool:
        """A check."""
        if reason is not None:
            raise environments.Skipped(reason)
        return False

    monkeypatch.setattr(checks, "CHECKS", {"it": check})
    monkeypatch.setenv("CHECKS", "it")
    assert checks.check() is (reason is not None)
    last = capsys.readouterr().out.splitlines()[-1]
    outcome = "FAILED" if reason is None else f"skipped: {reason}"
    assert last == f"==> it: {outcome} (0 s)"
