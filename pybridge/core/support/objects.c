/*
 * objects.c: what is done to objects and to memory in many places.
 */
#include "support/support.h"

GL_PRIVATE int
gl_type_add(PyTypeObject *type, const char *name, PyObject *value)
{
    /* Not by setattr(), for which a class's `__dict__` is the class's own. */
    int rc = value ? PyDict_SetItemString(type->tp_dict, name, value) : -1;
    PyType_Modified(type);
    Py_XDECREF(value);
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
    return *type ? PyModule_AddType(module, *type) : -1;
}

GL_PRIVATE int
gl_call_method(PyObject *o, PyObject *name, PyObject *arg)
{
    return gl_drop_result(arg ? PyObject_CallMethodOneArg(o, name, arg)
                              : PyObject_CallMethodNoArgs(o, name));
}

GL_PRIVATE PyObject *
gl_call_python(PyObject *o, PyObject *name, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames)
{
    PyObject *method = PyObject_GetAttr(o, name);
    PyObject *r = method ? PyObject_Vectorcall(method, args, (size_t)nargs, kwnames) : NULL;
    Py_XDECREF(method);
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
