/*
 * args.c: arguments by name, and wrong ones.
 *
 * What is wrong with a call is left to CPython to say, of asyncio's own method: see
 * goloop/_internal/loop/naming.py.  So the words are those of the running version.
 */
#include "support/args.h"

static inline PyObject *
param_name(const gl_params *p, int i)
{
    return *(PyObject **)((char *)&G + p->name[i]);
}

/* Raises the error of a wrong call; -1.  Its traceback has none of the frames that looked for the
 * words. */
static int
args_wrong(const gl_params *p, PyObject *self, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwargs)
{
    PyObject *given = PyTuple_New(nargs);
    for (Py_ssize_t i = 0; i < nargs && given != NULL; i++)
        PyTuple_SET_ITEM(given, i, Py_NewRef(args[i]));
    PyObject *r = given ? PyObject_CallFunction(G.refuse_call, "sOOO", p->function, self, given,
                                                kwargs)
                        : NULL;
    Py_XDECREF(r); /* never an object: it raises */
    Py_XDECREF(given);
    PyObject *exc = gl_take_exception();
    if (exc != NULL)
        (void)PyException_SetTraceback(exc, Py_None);
    gl_restore_exception(exc);
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

/* ---- descriptors --------------------------------------------------------------------------- */

GL_PRIVATE bool
gl_fd_number(PyObject *o, long *fd)
{
    int beyond = 0;
    if (PyLong_Check(o)) {
        *fd = PyLong_AsLongAndOverflow(o, &beyond);
    } else {
        PyObject *n = PyObject_CallMethodNoArgs(o, G.s_fileno);
        PyObject *i = n ? PyNumber_Long(n) : NULL;
        Py_XDECREF(n);
        if (i == NULL) {
            if (PyErr_ExceptionMatches(PyExc_AttributeError) ||
                PyErr_ExceptionMatches(PyExc_TypeError) ||
                PyErr_ExceptionMatches(PyExc_ValueError)) {
                PyErr_Clear();
                PyErr_Format(PyExc_ValueError, "Invalid file object: %R", o);
            }
            return false;
        }
        *fd = PyLong_AsLongAndOverflow(i, &beyond);
        Py_DECREF(i);
    }
    if (beyond != 0)
        *fd = beyond > 0 ? LONG_MAX : LONG_MIN;
    return *fd != -1 || !PyErr_Occurred();
}

/* Of a number that is too large, and of a bool, the poller's own conversion speaks. */
GL_PRIVATE int
gl_fd_from_object(PyObject *o)
{
    long fd;
    if (!gl_fd_number(o, &fd))
        return -1;
    if (fd < 0) {
        PyErr_Format(PyExc_ValueError, "Invalid file descriptor: %ld", fd);
        return -1;
    }
    if (fd > INT_MAX || (fd <= 1 && PyBool_Check(o))) {
        PyObject *number = PyBool_Check(o) ? Py_NewRef(o) : PyLong_FromLong(fd);
        fd = number ? PyObject_AsFileDescriptor(number) : -1;
        Py_XDECREF(number);
    }
    return (int)fd;
}
