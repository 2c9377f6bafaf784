/*
 * args.c: arguments by name, and wrong ones.
 *
 * What is wrong with a call is left to CPython to say: a Python function of the same
 * parameters is made and called.  So the words are those of the running version.
 */
#include "support/args.h"

static inline PyObject *
param_name(const gl_params *p, int i)
{
    return *(PyObject **)((char *)&G + p->name[i]);
}

/* "def f(self, fd, callback, *args, context=None): pass" */
static PyObject *
params_source(const gl_params *p)
{
    PyObject *text = PyUnicode_FromString("def f(self");
    for (int i = 0; i <= p->count && text != NULL; i++) {
        if (i == p->positional && (p->rest || i < p->count))
            Py_SETREF(text, PyUnicode_FromFormat("%U, *%s", text, p->rest ? "args" : ""));
        if (i < p->count && text != NULL)
            Py_SETREF(text, PyUnicode_FromFormat("%U, %U%s", text, param_name(p, i),
                                                 i < p->required ? "" : "=None"));
    }
    if (text != NULL)
        Py_SETREF(text, PyUnicode_FromFormat("%U): pass", text));
    return text;
}

/* The Python function with these parameters and this name. */
static PyObject *
params_function(const gl_params *p)
{
    PyObject *text = params_source(p), *scope = PyDict_New(), *f = NULL;
    const char *source = text ? PyUnicode_AsUTF8(text) : NULL;
    PyObject *done = source && scope ? PyRun_String(source, Py_file_input, scope, scope) : NULL;
    PyObject *name = done ? PyUnicode_FromString(p->function) : NULL;
    if (name != NULL)
        f = Py_XNewRef(PyDict_GetItemString(scope, "f"));
    if (f != NULL && PyObject_SetAttrString(f, "__qualname__", name) < 0)
        Py_CLEAR(f);
    Py_XDECREF(name);
    Py_XDECREF(done);
    Py_XDECREF(scope);
    Py_XDECREF(text);
    return f;
}

/* Raises what is wrong with a call; -1. */
static int
args_wrong(const gl_params *p, PyObject *self, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwargs)
{
    PyObject *f = params_function(p), *given = f ? PyTuple_New(nargs + 1) : NULL;
    if (given != NULL) {
        PyTuple_SET_ITEM(given, 0, Py_NewRef(self));
        for (Py_ssize_t i = 0; i < nargs; i++)
            PyTuple_SET_ITEM(given, i + 1, Py_NewRef(args[i]));
        PyObject *r = PyObject_Call(f, given, kwargs);
        if (r != NULL) /* a name that is not the same each time it is compared */
            PyErr_Format(PyExc_TypeError, "%s() got wrong arguments", p->function);
        Py_XDECREF(r);
    }
    Py_XDECREF(given);
    Py_XDECREF(f);
    return -1;
}

/* Fills in the arguments by position; false where there are too many. */
static bool
args_begin(const gl_params *p, PyObject *const *args, Py_ssize_t nargs, PyObject **value)
{
    for (int i = 0; i < p->count; i++)
        value[i] = i < p->positional && i < nargs ? args[i] : NULL;
    return nargs <= p->positional || p->rest;
}

/* Fills in an argument by name; false where there is no such name, or its place is taken. */
static bool
args_place(const gl_params *p, PyObject *key, PyObject *given, PyObject **value)
{
    int i = 0;
    while (i < p->count && key != param_name(p, i))
        i++;
    if (i == p->count && PyUnicode_Check(key))
        for (i = 0; i < p->count && PyUnicode_Compare(key, param_name(p, i)) != 0; i++)
            ;
    if (i == p->count || value[i] != NULL)
        return false;
    value[i] = given;
    return true;
}

static bool
args_complete(const gl_params *p, PyObject *const *value)
{
    for (int i = 0; i < p->required; i++)
        if (value[i] == NULL)
            return false;
    return true;
}

GL_PRIVATE int
gl_args_named(const gl_params *p, void *self, PyObject *const *args, Py_ssize_t nargs,
              PyObject *kwnames, PyObject **value)
{
    Py_ssize_t names = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    bool good = args_begin(p, args, nargs, value);
    for (Py_ssize_t i = 0; i < names && good; i++)
        good = args_place(p, PyTuple_GET_ITEM(kwnames, i), args[nargs + i], value);
    if (good && args_complete(p, value))
        return 0;
    PyObject *kwargs = PyDict_New();
    for (Py_ssize_t i = 0; i < names && kwargs != NULL; i++)
        if (PyDict_SetItem(kwargs, PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) < 0)
            Py_CLEAR(kwargs);
    if (kwargs != NULL)
        args_wrong(p, self, args, nargs, kwargs);
    Py_XDECREF(kwargs);
    return -1;
}
