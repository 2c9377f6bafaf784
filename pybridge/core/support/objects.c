/*
 * objects.c: helpers for types, and arrays that grow.
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

GL_PRIVATE bool
gl_grow_array(void *array, uint32_t *cap, uint32_t len, size_t size, uint32_t first)
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
