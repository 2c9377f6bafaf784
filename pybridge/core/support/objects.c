/*
 * objects.c: helpers for types, calls of methods, and arrays that grow.
 */
#include "support/support.h"

GL_PRIVATE int
gl_type_add(PyTypeObject *type, const char *name, PyObject *value)
{
    if (value == NULL)
        return -1;
    /* Not by setattr(), which cannot set the attribute `__dict__` of a class. */
    int rc = PyDict_SetItemString(type->tp_dict, name, value);
    PyType_Modified(type);
    Py_DECREF(value);
    return rc;
}

GL_PRIVATE int
gl_type_add_methods(PyTypeObject *type, PyMethodDef *methods)
{
    for (; methods->ml_name != NULL; methods++)
        if (gl_type_add(type, methods->ml_name, PyDescr_NewMethod(type, methods)) < 0)
            return -1;
    return 0;
}

GL_PRIVATE int
gl_type_make(PyTypeObject **type, PyObject *module, PyType_Spec *spec, PyObject *base)
{
    *type = (PyTypeObject *)PyType_FromSpecWithBases(spec, base);
    if (*type == NULL)
        return -1;
    return PyModule_AddType(module, *type);
}

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

GL_PRIVATE bool
gl_grow_slow(void *array, uint32_t *cap, uint32_t len, size_t size, uint32_t first)
{
    void *old, *p = NULL;
    uint64_t more = *cap ? *cap : first;
    memcpy(&old, array, sizeof(old));
    while (more <= len)
        more *= 2;
    if (more <= UINT32_MAX)
        p = PyMem_RawRealloc(old, (size_t)more * size);
    if (p == NULL)
        return false;
    memset((char *)p + *cap * size, 0, ((size_t)more - *cap) * size);
    memcpy(array, &p, sizeof(p));
    *cap = (uint32_t)more;
    return true;
}
