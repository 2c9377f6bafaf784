/*
 * args.c: arguments by name, and the errors of wrong arguments.
 *
 * CPython itself writes the error message of a wrong call, for asyncio's own method: see
 * goloop/_internal/loop/arg_errors.py.  So the message is the one of the running version.
 */
#include "support/args.h"

/* Returns the name of the parameter at index `i` as an interned str, borrowed. */
static inline PyObject *
param_name(const gl_params *p, int i)
{
    return *(PyObject **)((char *)&G + p->name[i]);
}

/* Stores the argument `given` in `value` at the index of the parameter `key`.  False, without an
 * exception, for an unknown name or a parameter that has an argument already. */
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

/* Raises the TypeError of asyncio's own method for a wrong call; returns -1.  The traceback does
 * not contain the frames that composed the message. */
static int
args_wrong(const gl_params *p, PyObject *self, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwnames)
{
    PyObject *names = kwnames ? kwnames : G.empty_tuple;
    PyObject *given = PyTuple_New(nargs + PyTuple_GET_SIZE(names));
    for (Py_ssize_t i = 0; given != NULL && i < PyTuple_GET_SIZE(given); i++)
        PyTuple_SET_ITEM(given, i, Py_NewRef(args[i]));
    if (given != NULL) /* the call raises */
        Py_XDECREF(PyObject_CallFunction(G.refuse_call, "sOOO", p->function, self, given, names));
    Py_XDECREF(given);
    PyObject *exc = gl_take_exception();
    if (exc != NULL)
        (void)PyException_SetTraceback(exc, Py_None);
    gl_restore_exception(exc);
    return -1;
}

GL_PRIVATE int
gl_args_named(const gl_params *p, void *self, PyObject *const *args, Py_ssize_t nargs,
              PyObject *kwnames, PyObject **value)
{
    Py_ssize_t names = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    bool good = nargs <= p->positional || p->rest;
    for (int i = 0; i < p->count; i++) {
        value[i] = NULL;
        if (i < p->positional && i < nargs)
            value[i] = args[i];
    }
    for (Py_ssize_t i = 0; i < names && good; i++)
        good = args_place(p, PyTuple_GET_ITEM(kwnames, i), args[nargs + i], value);
    for (int i = 0; i < p->required && good; i++)
        good = value[i] != NULL;
    if (!good)
        return args_wrong(p, self, args, nargs, kwnames);
    return 0;
}

/* ---- descriptors --------------------------------------------------------------------------- */

GL_PRIVATE bool
gl_fd_number(PyObject *o, long *fd)
{
    int beyond = 0;
    PyObject *fd_object;
    if (PyLong_Check(o))
        fd_object = Py_NewRef(o);
    else
        fd_object = PyObject_CallOneArg(G.fd_number, o);
    if (fd_object == NULL)
        return false;
    *fd = PyLong_AsLongAndOverflow(fd_object, &beyond);
    Py_DECREF(fd_object);
    if (beyond > 0)
        *fd = LONG_MAX;
    else if (beyond < 0)
        *fd = LONG_MIN;
    return *fd != -1 || !PyErr_Occurred();
}

GL_PRIVATE int
gl_fd_from_object(PyObject *o)
{
    /* CPython's own conversion handles a number that exceeds an int, and a bool, for which some
     * versions warn. */
    long fd;
    if (!gl_fd_number(o, &fd))
        return -1;
    if (fd < 0) {
        PyErr_Format(PyExc_ValueError, "Invalid file descriptor: %ld", fd);
        return -1;
    }
    if (fd > INT_MAX || (fd <= 1 && PyBool_Check(o))) {
        PyObject *fd_object = PyBool_Check(o) ? Py_NewRef(o) : PyLong_FromLong(fd);
        if (fd_object == NULL)
            return -1;
        fd = PyObject_AsFileDescriptor(fd_object);
        Py_DECREF(fd_object);
    }
    return (int)fd;
}
