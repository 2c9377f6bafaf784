"""The lints of C: each rule fires on a snippet with its bug, and accepts the right code."""

from __future__ import annotations

from pathlib import Path

import pytest

import lint_c
import lint_flow
import lint_style

ROOT = Path(__file__).resolve().parents[2]

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

assert RULES.keys() == lint_c.RULES.keys() | lint_style.RULES.keys()


def rules_broken(code: str) -> list[str]:
    findings = [*lint_c.lint("snippet.c", code), *lint_c.lint("snippet.c", code, lint_style.RULES)]
    return [finding.rule for finding in findings]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_finds_its_bug_and_accepts_right_code(rule: str) -> None:
    wrong, right = RULES[rule]
    assert rules_broken(wrong) == [rule]
    assert rules_broken(right) == []


def test_an_exemption_needs_its_rule_and_a_reason() -> None:
    code = "void f(Loop *self) {\n/* lint: allow %s */\nPy_DECREF(self->task);\n}"
    assert rules_broken(code % "decref-field:") == ["decref-field"]
    assert rules_broken(code % "gc-new-untracked: no other rule") == ["decref-field"]
    assert rules_broken(code % "decref-field: the object was made above") == []


def test_lines_are_counted_past_comments_and_macros() -> None:
    code = '/* two\n lines { */\n#define X { \\\n    (\nvoid f(void) {\n    char *s = "}";\n\n'
    code += "    Py_DECREF(a->b);\n}\n"
    assert [finding.line for finding in lint_c.lint("snippet.c", code)] == [8]


# ---- rules over all files: convert, check, commit; exceptions; mutexes -----------------------

CHECKED = "static int gl_loop_check_usable(Loop *l) { return l->closed ? -1 : 0; }\n"
CHECK = "if (gl_loop_check_usable(loop) < 0) { return NULL; }"
TWICE = """
    static double number(PyObject *o) { return PyFloat_AsDouble(o); }
    static double twice(PyObject *o) { return 2 * number(o); }"""


def checked(*lines: str) -> str:
    """A function that checks the loop, and then runs these lines."""
    body = "\n".join(lines)
    return (
        f"{CHECKED}static PyObject *f(Loop *loop, PyObject *o) {{\n{CHECK}\n{body}\nreturn o;\n}}"
    )


WRONG = {
    "check-commit": [
        TWICE + checked("double d = twice(o);", "loop->go->watch_set(loop->reactor, d);"),
        checked("Py_BEGIN_ALLOW_THREADS", "Py_END_ALLOW_THREADS", "gl_submit(loop, 1);"),
        checked("if (o != NULL) { PyObject_IsTrue(o); }", "gl_submit(loop, 1);"),
        "static GL_NO_PYTHON int f(PyObject *o) { return PyObject_IsTrue(o); }",
    ],
    "exception-set": [
        "static int f(PyObject *o) { int r = PyObject_IsTrue(o); PyObject_Repr(o); return r; }",
        """static int f(PyObject *o) {
            if (PyObject_SetAttr(o, o, o) < 0)
                goto fail;
            return 0;
        fail:
            PyObject_Repr(o);
            return -1;
        }""",
        """static void foo_finalize(PyObject *self) { Py_XDECREF(PyObject_Repr(self)); }
        static PyType_Slot slots[] = {{Py_tp_finalize, foo_finalize}, {0, NULL}};""",
    ],
    "python-under-mutex": [
        """static void drop(PyObject *o) { Py_DECREF(o); }
        static void f(PyObject *o) { GL_LOCK(tasks_mutex); drop(o); GL_UNLOCK(tasks_mutex); }""",
        """static int f(PyObject *o) {
            pthread_mutex_lock(&m);
            if (o->shut) {
                pthread_mutex_unlock(&m);
                return -1;
            }
            PyObject_Repr(o);
            pthread_mutex_unlock(&m);
            return 0;
        }""",
        """static void f(void) {
            pthread_mutex_lock(&m);
            write(2, "x", 1);
            pthread_mutex_unlock(&m);
        }""",
    ],
}
RIGHT = {
    "check-commit": [
        checked("double d = PyFloat_AsDouble(o);", CHECK, "gl_submit(loop, d);"),
        checked("if (o == NULL) { Py_DECREF(loop); return NULL; }", "gl_submit(loop, 1);"),
        checked("if (o) { PyObject_IsTrue(o); }", "else { gl_submit(loop, 1); }"),
        checked("/* lint: allow check-commit: an int */", "PyLong_AsLong(o);", "gl_submit(loop);"),
        checked("loop->made = PyTuple_New(1);", "gl_submit(loop, 1);"),
    ],
    "exception-set": [
        """static int f(PyObject *o) {
            int r = PyObject_IsTrue(o);
            PyObject *exc = gl_take_exception();
            PyObject_Repr(o);
            gl_restore_exception(exc);
            return r;
        }""",
        """static int f(PyObject *o) {
            int r = PyObject_SetAttr(o, o, o);
            if (r == 0 && o->more)
                r = PyObject_SetAttr(o, o, o);
            return r;
        }""",
    ],
    "python-under-mutex": [
        """static PyObject *f(PyObject *o) {
            GL_LOCK(tasks_mutex);
            if (o->shut) {
                GL_UNLOCK(tasks_mutex);
                return PyObject_Repr(o);
            }
            GL_UNLOCK(tasks_mutex);
            return NULL;
        }""",
    ],
}


def tree_rules_broken(code: str) -> set[str]:
    rules = {**lint_c.TREE_RULES, **lint_flow.RULES}
    return {finding.rule for finding in lint_c.lint_tree({"a.c": code}, rules)}


@pytest.mark.parametrize("rule", WRONG)
def test_a_rule_over_all_files_finds_its_bug(rule: str) -> None:
    for code in WRONG[rule]:
        assert tree_rules_broken(code) == {rule}, code
    for code in RIGHT[rule]:
        assert tree_rules_broken(code) == set(), code


def test_callees_are_found_in_other_files_and_named() -> None:
    caller = checked("double d = twice(o);", "gl_submit(loop, d);")
    (finding,) = lint_c.lint_tree({"a.c": caller, "b.c": TWICE})
    assert finding.path == "a.c"
    assert "f: twice > number > PyFloat_AsDouble runs Python" in finding.text


def test_a_function_is_documented_once() -> None:
    comment = "/* Opens it. */\n"
    declaration = "GL_PRIVATE int gl_open(int fd,\n                       int flags);\n"
    definition = "GL_PRIVATE int\ngl_open(int fd, int flags)\n{\n    /* A reason. */\n}\n"

    def faults(header: str, file: str) -> list[tuple[str, str]]:
        texts = {"a.h": header, "a.c": file}
        findings = lint_c.lint_tree(texts, lint_style.TREE_RULES)
        return [(finding.path, finding.rule) for finding in findings]

    assert faults(comment + declaration, definition) == []
    assert faults(comment + declaration, comment + definition) == [("a.c", "function-comment")]
    assert faults(declaration, definition) == [("a.h", "function-comment")]
    static = definition.replace("GL_PRIVATE", "static")
    assert faults("", "static int gl_open(int, int);\n" + comment + static) == []
    assert faults("", comment + "static int gl_open(int, int);\n" + static) == [
        ("a.c", "function-comment")
    ]


def test_default_paths_contain_the_c_files() -> None:
    """Without paths a lint checks all files of the extension."""
    assert len(lint_c.read(lint_c.LINTED)) > 100


def test_functions_of_the_extension_are_marked() -> None:
    """The mark GL_NO_PYTHON is in use: without it the rule would check nothing."""
    files = (ROOT / "pybridge" / "core").rglob("*.[ch]")
    assert sum(path.read_text().count("\nGL_NO_PYTHON ") for path in files) > 5
