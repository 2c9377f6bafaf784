"""The C lint itself, on snippets with and without each bug, and on the extension."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

sys.path.append(str(ROOT / "tools"))

import lint_c  # noqa: E402
import lint_flow  # noqa: E402


def rules_broken(code: str) -> list[str]:
    return [finding.rule for finding in lint_c.lint("snippet.c", code)]


BAD = {
    "return-singleton": [
        "static PyObject *f(PyObject *m) { return Py_None; }",
        "static PyObject *f(int m) { if (m) { return (PyObject *)Py_True; } Py_RETURN_NONE; }",
        # The reference was taken to another object.
        "static PyObject *f(PyObject *m) { Py_INCREF(m); return Py_None; }",
    ],
    "borrowed-across-call": [
        """static PyObject *f(PyObject *list) {
            PyObject *item = PyList_GetItem(list, 0);
            PyObject *r = PyObject_CallNoArgs(list);
            Py_XDECREF(r);
            return Py_NewRef(item);
        }""",
        # A destructor is Python code, too.
        """static int f(PyObject *d, PyObject *key, PyObject *old) {
            PyObject *value = PyDict_GetItemWithError(d, key);
            if (value == NULL) { return -1; }
            Py_DECREF(old);
            return use(value);
        }""",
        """static void f(PyObject *list) {
            for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
                PyObject *item = PyList_GET_ITEM(list, i);
                if (PyObject_IsTrue(item) > 0) { use(item); }
            }
        }""",
    ],
    "decref-field": [
        "static void f(Loop *self) { Py_DECREF(self->task); self->task = NULL; }",
        "static int f_clear(Loop *self) { Py_XDECREF(self->a.b); return 0; }",
    ],
    "paired-fields": [
        "static void f(Future *f) { Py_CLEAR(f->callback0); f->context0 = NULL; }",
        "static void f(Future *f, PyObject *e) { Py_XSETREF(f->exception, e); }",
    ],
    "gc-new-untracked": [
        """static PyObject *f(PyTypeObject *t) {
            Foo *o = PyObject_GC_New(Foo, t);
            return (PyObject *)o;
        }""",
    ],
    "traverse-type": [
        """static int foo_traverse(Foo *self, visitproc visit, void *arg) {
            Py_VISIT(self->x);
            return 0;
        }
        static PyType_Slot slots[] = {{Py_tp_traverse, foo_traverse}, {0, NULL}};""",
    ],
    "dealloc-type": [
        """static void foo_dealloc(Foo *self) { Py_CLEAR(self->x); Py_TYPE(self)->tp_free(self); }
        static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)foo_dealloc}, {0, NULL}};""",
    ],
    "dealloc-untrack": [
        """static int foo_traverse(Foo *self, visitproc visit, void *arg) {
            Py_VISIT(Py_TYPE(self));
            return 0;
        }
        static void foo_dealloc(Foo *self) {
            PyTypeObject *type = Py_TYPE(self);
            Py_CLEAR(self->x);
            type->tp_free(self);
            Py_DECREF(type);
        }
        static PyType_Slot slots[] = {{Py_tp_dealloc, foo_dealloc}, {Py_tp_traverse, foo_traverse}};
        static PyType_Spec spec = {.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC};""",
    ],
    "python-without-gil": [
        "static void f(void) { Py_BEGIN_ALLOW_THREADS PyErr_SetNone(0); Py_END_ALLOW_THREADS }",
        """static int f(void) {
            Py_BEGIN_ALLOW_THREADS
            if (g()) return 1;
            Py_END_ALLOW_THREADS
            return 0;
        }""",
    ],
    "module-add-object": [
        'static int f(PyObject *m, PyObject *o) { return PyModule_AddObject(m, "o", o); }',
    ],
    "asks-again": [
        'static PyObject *f(PyObject *sslobj) { return PyObject_CallMethod(sslobj, "read", 0); }',
        "static PyObject *f(T *t) { return PyObject_CallMethodNoArgs(t->inner, G.s_read); }",
    ],
    "thread-states": [
        "static PyThreadState *f(PyThreadState *ts) { return PyThreadState_Next(ts); }",
    ],
}

GOOD = {
    "return-singleton": [
        "static PyObject *f(PyObject *m) { Py_INCREF(Py_None); return Py_None; }",
        "static PyObject *f(PyObject *m) { return Py_NewRef(Py_None); }",
        "static PyObject *f(PyObject *m) { /* return Py_None; */ Py_RETURN_NONE; }",
        "static PyObject *lent(Foo *s) { if (s->x == NULL) { return Py_None; } return s->x; }",
    ],
    "borrowed-across-call": [
        """static PyObject *f(PyObject *list) {
            PyObject *item = PyList_GetItem(list, 0);
            Py_XINCREF(item);
            Py_XDECREF(PyObject_CallNoArgs(list));
            return item;
        }""",
        # The call is on a path that does not come back.
        """static int f(PyObject *d, PyObject *key, PyObject *old) {
            PyObject *value = PyDict_GetItemWithError(d, key);
            if (value == NULL) { Py_DECREF(old); return -1; }
            return use(value);
        }""",
        # Nothing of it is used once Python ran.
        """static PyObject *f(PyObject *list) {
            PyObject *item = PyList_GetItem(list, 0);
            if (item == NULL) { return NULL; }
            return PyObject_CallNoArgs(item);
        }""",
        # A member of the same name is another thing.
        """static int f(PyObject *list, Foo *self) {
            PyObject *item = PyList_GetItem(list, 0);
            int r = PyObject_IsTrue(item);
            return r + self->item;
        }""",
    ],
    "decref-field": [
        "static void f(Loop *self) { Py_CLEAR(self->task); PyObject *t = self->b; Py_DECREF(t); }",
        "static void foo_dealloc(Foo *self) { Py_XDECREF(self->x); }",
        "static void f(Chunk c) { Py_XDECREF(c.owner); }",
        # A reason stands beside it.
        """static void f(Loop *self) {
            /* lint: allow decref-field: the object was made above and nobody has it */
            Py_DECREF(self->task);
        }""",
    ],
    "paired-fields": [
        """static void f(Future *f) {
            PyObject *callback = f->callback0, *context = f->context0;
            f->callback0 = f->context0 = NULL;
            Py_XDECREF(callback);
            Py_XDECREF(context);
        }""",
        "static int future_clear(Future *f) { Py_CLEAR(f->callback0); return 0; }",
        "static void f(Future *f) { Py_CLEAR(f->callbacks); }",
    ],
    "gc-new-untracked": [
        """static PyObject *f(PyTypeObject *t) {
            Foo *o = PyObject_GC_New(Foo, t);
            PyObject_GC_Track(o);
            return (PyObject *)o;
        }""",
    ],
    "traverse-type": [
        """static int foo_traverse(Foo *self, visitproc visit, void *arg) {
            Py_VISIT(Py_TYPE(self));
            return 0;
        }
        static PyType_Slot slots[] = {{Py_tp_traverse, foo_traverse}, {0, NULL}};""",
        """static int bar_traverse(Foo *self, visitproc visit, void *arg) {
            Py_VISIT(self->x);
            return foo_traverse(self, visit, arg);
        }
        static PyType_Slot slots[] = {{Py_tp_traverse, bar_traverse}, {0, NULL}};""",
    ],
    "dealloc-type": [
        """static void foo_dealloc(Foo *self) {
            PyTypeObject *tp = Py_TYPE(self);
            tp->tp_free(self);
            Py_DECREF(tp);
        }
        static PyType_Slot slots[] = {{Py_tp_dealloc, foo_dealloc}, {0, NULL}};""",
    ],
    "dealloc-untrack": [
        """static int foo_traverse(Foo *self, visitproc visit, void *arg) {
            Py_VISIT(Py_TYPE(self));
            return 0;
        }
        static void foo_dealloc(Foo *self) { PyObject_GC_UnTrack(self); Py_DECREF(Py_TYPE(self)); }
        static PyType_Slot slots[] = {{Py_tp_dealloc, foo_dealloc}, {Py_tp_traverse, foo_traverse}};
        static PyType_Spec spec = {.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC};""",
    ],
    "python-without-gil": [
        """static void f(void) {
            Py_BEGIN_ALLOW_THREADS
            read(0, 0, 0);
            Py_BLOCK_THREADS
            Py_UNBLOCK_THREADS
            Py_END_ALLOW_THREADS
        }""",
    ],
    "module-add-object": [
        'static int f(PyObject *m, PyObject *o) { return PyModule_AddObjectRef(m, "o", o); }',
    ],
    "asks-again": [
        'static PyObject *f(PyObject *t) { return PyObject_CallMethod(t, "_raise", NULL); }',
    ],
    "thread-states": [
        "static PyThreadState *f(void) { return PyThreadState_Get(); }",
    ],
}

assert BAD.keys() == GOOD.keys() == lint_c.RULES.keys()


@pytest.mark.parametrize(("rule", "code"), [(r, c) for r, codes in BAD.items() for c in codes])
def test_a_bug_is_found(rule: str, code: str) -> None:
    assert rules_broken(code) == [rule]


@pytest.mark.parametrize(("rule", "code"), [(r, c) for r, codes in GOOD.items() for c in codes])
def test_right_code_passes(rule: str, code: str) -> None:
    assert rules_broken(code) == []


def test_an_exemption_needs_a_reason() -> None:
    code = "void f(Loop *self) {\n/* lint: allow decref-field: */\nPy_DECREF(self->task);\n}"
    assert rules_broken(code) == ["decref-field"]


def test_an_exemption_is_for_one_rule() -> None:
    code = "void f(Loop *self) {\n/* lint: allow gc-new-untracked: no */\nPy_DECREF(self->t);\n}"
    assert rules_broken(code) == ["decref-field"]


def test_lines_are_counted_past_comments_and_macros() -> None:
    code = """/* two
 lines { */
#define X { \\
    (
void f(void) {
    char *s = "}";

    Py_DECREF(a->b);
}
"""
    assert [finding.line for finding in lint_c.lint("snippet.c", code)] == [8]


# ---- convert, check, commit: all files together ------------------------------------------

CHECKED = "static int gl_loop_check_usable(Loop *l) { return l->closed ? -1 : 0; }\n"
CHECK = "if (gl_loop_check_usable(loop) < 0) { return NULL; }"


def function(*lines: str, before: str = "") -> str:
    """One that checks, does this, and returns None."""
    head = f"{before}\nstatic PyObject *f(Loop *loop, PyObject *o) {{\n{CHECK}\n"
    return CHECKED + head + "\n".join(lines) + "\nPy_RETURN_NONE;\n}"


TWICE = """
    static double number(PyObject *o) { return PyFloat_AsDouble(o); }
    static double twice(PyObject *o) { return 2 * number(o); }"""
COMMIT_BAD = {
    "a conversion behind the check": function(
        "double d = PyFloat_AsDouble(o);", "gl_submit(loop, d);"
    ),
    "by way of another function": function(
        "double d = twice(o);", "loop->go->watch_set(loop->reactor, d);", before=TWICE
    ),
    "in the function that commits": function(
        "place(loop, o);",
        before="""
        static void place(Loop *loop, PyObject *o) {
            PyObject_Repr(o);
            loop->shared->next_deadline = 1;
        }""",
    ),
    "a lock that lets other threads in": function(
        "Py_BEGIN_ALLOW_THREADS", "Py_END_ALLOW_THREADS", "gl_submit(loop, 1);"
    ),
    "in one of two branches": function(
        "if (o != NULL) { PyObject_IsTrue(o); }", "gl_submit(loop, 1);"
    ),
    "against its mark": "static GL_NO_PYTHON int f(PyObject *o) { return PyObject_IsTrue(o); }",
}
COMMIT_GOOD = {
    "converted, then checked": CHECKED
    + f"""
        static PyObject *f(Loop *loop, PyObject *o) {{
            double d = PyFloat_AsDouble(o);
            {CHECK}
            gl_submit(loop, d);
            Py_RETURN_NONE;
        }}""",
    "checked again": function("double d = PyFloat_AsDouble(o);", CHECK, "gl_submit(loop, d);"),
    "on a way that leaves": function(
        "if (o == NULL) { Py_DECREF(loop); return NULL; }",
        "if (o == (PyObject *)loop) { return PyObject_Repr(o); }",
        "gl_submit(loop, 1);",
    ),
    "in the other branch": function(
        "if (o != NULL) { PyObject_IsTrue(o); }", "else { gl_submit(loop, 1); }"
    ),
    "behind the commit": function("gl_submit(loop, 1);", "return PyObject_Repr(o);"),
    "released by a callee that fails": function(
        "if (make(o) == NULL) { return NULL; }",
        "gl_submit(loop, 1);",
        before="""
        static PyObject *make(PyObject *o) {
            if (o->bad) { Py_DECREF(o); return NULL; }
            return o;
        }""",
    ),
    "with a reason": function(
        "/* lint: allow check-commit: o is exactly an int */",
        "long n = PyLong_AsLong(o);",
        "gl_submit(loop, n);",
    ),
    "with a reason for the whole function": function(
        "PyObject_Repr(o);",
        "gl_submit(loop, 1);",
        before="/* lint: allow check-commit: the loop runs */",
    ),
    "by a callee that has a reason": function(
        "drop(o);",
        "gl_submit(loop, 1);",
        before="""
        static void drop(PyObject *o) {
            Py_DECREF(o); /* lint: allow check-commit: exact bytes */
        }""",
    ),
    "a function of Go's that has a namesake": function(
        "loop->go->watch_close(1);",
        "gl_submit(loop, 1);",
        before="static void watch_close(PyObject *o) { PyObject_Repr(o); }",
    ),
    "on the ready queue, which looks by itself": function(
        "PyObject_Repr(o);", "gl_ready_push(loop, o);"
    ),
    "as its mark says": "static GL_NO_PYTHON int f(Loop *l) { return l->closed; }",
}


@pytest.mark.parametrize("code", COMMIT_BAD.values(), ids=COMMIT_BAD)
def test_python_between_check_and_commit_is_found(code: str) -> None:
    findings = lint_c.lint_tree({"a.c": code})
    assert {finding.rule for finding in findings} == {"check-commit"}


@pytest.mark.parametrize("code", COMMIT_GOOD.values(), ids=COMMIT_GOOD)
def test_code_without_python_between_check_and_commit_passes(code: str) -> None:
    assert lint_c.lint_tree({"a.c": code}) == []


def test_callees_are_found_in_other_files() -> None:
    caller = COMMIT_BAD["by way of another function"].replace(TWICE, "")
    (finding,) = lint_c.lint_tree({"a.c": caller, "b.c": TWICE})
    assert finding.path == "a.c"
    assert "f: twice > number > PyFloat_AsDouble runs Python" in finding.text
    assert "watch_set" in finding.text


def test_allocations_count_when_asked_for() -> None:
    code = function("loop->made = PyTuple_New(1);", "gl_submit(loop, 1);")
    assert lint_c.lint_tree({"a.c": code}) == []
    assert len(lint_c.lint_tree({"a.c": code}, collector=True)) == 1


@pytest.mark.parametrize(
    "path",
    sorted((ROOT / "pybridge").rglob("*.[ch]")),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_every_file_of_the_extension_passes(path: Path) -> None:
    findings = lint_c.lint(str(path.relative_to(ROOT)), path.read_text())
    assert not findings, "\n".join(map(str, findings))


def test_the_extension_passes_the_rules_over_all_files() -> None:
    """The rules that look at all files at once."""
    files = sorted((ROOT / "pybridge" / "core").rglob("*.[ch]"))
    findings = lint_c.lint_tree({str(path.relative_to(ROOT)): path.read_text() for path in files})
    assert not findings, "\n".join(map(str, findings))
    # The marks are there: the rule would be empty without them.
    assert sum(path.read_text().count("\nGL_NO_PYTHON ") for path in files) > 5


# ---- an exception that is set, a mutex that is held -----------------------------------------

EXCEPTION_BAD = {
    "behind a failure that was not looked at": """
        static int f(PyObject *o) {
            int r = PyObject_IsTrue(o);
            PyObject_Repr(o);
            return r;
        }""",
    "on the way that a failure takes": """
        static int f(PyObject *o) {
            if (PyObject_SetAttr(o, o, o) < 0) {
                PyObject_Repr(o);
                return -1;
            }
            return 0;
        }""",
    "where some way sets it": """
        static int f(PyObject *o, int good) {
            int r = 0;
            if (!good) {
                PyErr_SetNone(o);
                r = -1;
            }
            PyObject_Repr(o);
            return r;
        }""",
    "behind a loop": """
        static int run(PyObject *o) { return PyObject_IsTrue(o); }
        static int end(PyObject *o) { return PyObject_SetAttr(o, o, o); }
        static PyObject *f(PyObject *o) {
            int r;
            do {
                r = run(o);
            } while (r == 0);
            if (o->blocked && end(o) < 0)
                r = -1;
            if (r < 0)
                return NULL;
            Py_RETURN_NONE;
        }""",
    "by way of another function": """
        static void tell(PyObject *o) { Py_XDECREF(PyObject_Repr(o)); }
        static int f(PyObject *o) {
            PyObject *r = PyObject_GetAttr(o, o);
            tell(o);
            return r ? 0 : -1;
        }""",
    "behind a label": """
        static int f(PyObject *o) {
            if (PyObject_SetAttr(o, o, o) < 0)
                goto fail;
            return 0;
        fail:
            PyObject_Repr(o);
            return -1;
        }""",
    "of two that are made the first has failed": """
        static PyObject *f(PyObject *o) {
            PyObject *a = PyObject_GetAttr(o, o), *b = PyObject_GetAttr(o, a);
            return a && b ? PyObject_Call(a, b, NULL) : NULL;
        }""",
    "at the end of an object": """
        static void foo_finalize(PyObject *self) { Py_XDECREF(PyObject_Repr(self)); }
        static PyType_Slot slots[] = {{Py_tp_finalize, foo_finalize}, {0, NULL}};""",
}
EXCEPTION_GOOD = {
    "taken before, and restored": """
        static int f(PyObject *o) {
            int r = PyObject_IsTrue(o);
            PyObject *exc = gl_take_exception();
            PyObject_Repr(o);
            gl_restore_exception(exc);
            return r;
        }""",
    "by a callee that takes it": """
        static void tell(PyObject *o) {
            PyObject *exc = gl_take_exception();
            Py_XDECREF(PyObject_Repr(o));
            gl_restore_exception(exc);
        }
        static int f(PyObject *o) {
            int r = PyObject_IsTrue(o);
            tell(o);
            return r;
        }""",
    "only where nothing has failed": """
        static int f(PyObject *o) {
            int r = PyObject_SetAttr(o, o, o);
            if (r == 0 && o->more)
                r = PyObject_SetAttr(o, o, o);
            PyObject *a = r == 0 ? PyObject_GetAttr(o, o) : NULL, *b = a ? PyObject_Repr(a) : NULL;
            return b == NULL || PyObject_IsTrue(b) < 0 ? -1 : 0;
        }""",
    "cleared": """
        static int f(PyObject *o) {
            PyObject *r = PyObject_GetAttr(o, o);
            if (r == NULL) {
                PyErr_Clear();
                r = PyObject_Repr(o);
            }
            return r ? 0 : -1;
        }""",
    "behind a call that clears what it meets": """
        static int number(PyObject *o) {
            PyObject *r = PyObject_GetAttr(o, o);
            PyErr_Clear();
            return r ? 1 : -1;
        }
        static int f(PyObject *o) {
            int n = number(o);
            Py_XDECREF(PyObject_Repr(o));
            return n;
        }""",
    "with a reason": """
        static int f(PyObject *o) {
            int r = PyObject_IsTrue(o);
            /* lint: allow exception-set: o is a bool */
            PyObject_Repr(o);
            return r;
        }""",
}
MUTEX_BAD = {
    "a call": """
        static void f(PyObject *o) {
            pthread_mutex_lock(&m);
            PyObject_Repr(o);
            pthread_mutex_unlock(&m);
        }""",
    "a release, by way of another function": """
        static void drop(PyObject *o) { Py_DECREF(o); }
        static void f(PyObject *o) {
            GL_LOCK(tasks_mutex);
            drop(o);
            GL_UNLOCK(tasks_mutex);
        }""",
    "the GIL is given up": """
        static void f(PyObject *o) {
            pthread_mutex_lock(&o->mutex);
            Py_BEGIN_ALLOW_THREADS
            Py_END_ALLOW_THREADS
            pthread_mutex_unlock(&o->mutex);
        }""",
    "behind an early end": """
        static int f(PyObject *o) {
            pthread_mutex_lock(&m);
            if (o->shut) {
                pthread_mutex_unlock(&m);
                return -1;
            }
            PyObject_Repr(o);
            pthread_mutex_unlock(&m);
            return 0;
        }""",
    "a write that waits": """
        static void say(const char *text) { write(2, text, 1); }
        static void f(void) {
            pthread_mutex_lock(&m);
            say("x");
            pthread_mutex_unlock(&m);
        }""",
}
MUTEX_GOOD = {
    "behind it": """
        static void f(PyObject *o) {
            pthread_mutex_lock(&m);
            o->n++;
            pthread_mutex_unlock(&m);
            PyObject_Repr(o);
        }""",
    "on a way that has let it go": """
        static PyObject *f(PyObject *o) {
            GL_LOCK(tasks_mutex);
            if (o->shut) {
                GL_UNLOCK(tasks_mutex);
                return PyObject_Repr(o);
            }
            o->n++;
            GL_UNLOCK(tasks_mutex);
            return NULL;
        }""",
    "a wait that lets it go": """
        static void f(void) {
            pthread_mutex_lock(&m);
            while (!ready)
                pthread_cond_wait(&changed, &m);
            pthread_mutex_unlock(&m);
        }""",
    "with a reason, in the callee": """
        static void wake(int fd) {
            write(fd, "x", 1); /* lint: allow python-under-mutex: an eventfd does not block */
        }
        static void f(int fd) {
            pthread_mutex_lock(&m);
            wake(fd);
            pthread_mutex_unlock(&m);
        }""",
}
FLOW_BAD = {"exception-set": EXCEPTION_BAD, "python-under-mutex": MUTEX_BAD}
FLOW_GOOD = {"exception-set": EXCEPTION_GOOD, "python-under-mutex": MUTEX_GOOD}

assert FLOW_BAD.keys() == FLOW_GOOD.keys() == lint_flow.RULES.keys()


@pytest.mark.parametrize(("rule", "what"), [(r, w) for r in FLOW_BAD for w in FLOW_BAD[r]])
def test_python_amid_an_exception_or_a_mutex_is_found(rule: str, what: str) -> None:
    findings = lint_flow.lint_tree({"a.c": FLOW_BAD[rule][what]})
    assert {finding.rule for finding in findings} == {rule}


@pytest.mark.parametrize(("rule", "what"), [(r, w) for r in FLOW_GOOD for w in FLOW_GOOD[r]])
def test_python_where_nothing_is_set_or_held_passes(rule: str, what: str) -> None:
    assert lint_flow.lint_tree({"a.c": FLOW_GOOD[rule][what]}) == []


@pytest.mark.parametrize("room", ["core", "golib"])
def test_the_extension_and_the_library_pass_the_rules_of_ways(room: str) -> None:
    files = sorted((ROOT / "pybridge" / room).rglob("*.[ch]"))
    findings = lint_flow.lint_tree(
        {str(path.relative_to(ROOT)): path.read_text() for path in files}
    )
    assert not findings, "\n".join(map(str, findings))
