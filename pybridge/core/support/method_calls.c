/*
 * method_calls.c: calls of methods by name, and of unbound methods.
 */
#include "support/support.h"

GL_PRIVATE int
gl_call_method(PyObject *o, PyObject *name, PyObject *arg)
{
    if (arg == NULL)
        return gl_drop_result(PyObject_CallMethodNoArgs(o, name));
    return gl_drop_result(PyObject_CallMethodOneArg(o, name, arg));
}

GL_PRIVATE PyObject *
gl_call_python(PyObject *o, PyObject *name, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames)
{
    PyObject *method = PyObject_GetAttr(o, name);
    if (method == NULL)
        return NULL;
    PyObject *r = PyObject_Vectorcall(method, args, (size_t)nargs, kwnames);
    Py_DECREF(method);
    return r;
}

GL_PRIVATE PyObject *
gl_call_unbound(PyObject *unbound, PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                PyObject *kwnames)
{
    Py_ssize_t n = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    PyObject **all = PyMem_Malloc((size_t)(n + 1) * sizeof(PyObject *));
    if (all == NULL)
        return PyErr_NoMemory();
    all[0] = self;
    for (Py_ssize_t i = 0; i < n; i++)
        all[i + 1] = args[i];
    PyObject *r = PyObject_Vectorcall(unbound, all, (size_t)nargs + 1, kwnames);
    PyMem_Free(all);
    return r;
}
