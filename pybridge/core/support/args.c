/*
 * args.c: arguments by name, and wrong ones.
 *
 * What is wrong with a call is left to CPython to say, of asyncio's own method: see
 * goloop/_internal/naming.py.  So the words are those of the running version.
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
