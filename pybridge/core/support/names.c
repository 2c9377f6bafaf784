/*
 * names.c: makes the strings and imports the objects of callbacks.h, once, when goloop._core is
 * imported.
 */
#include "support/support.h"

/* lint: allow mutable-static: the module's state, and the module is loaded once */
GL_PRIVATE struct gl_globals G; /* lint: allow names: it stands in nearly every line */

GL_PRIVATE PyObject *
gl_import_attr(const char *module, const char *attr)
{
    PyObject *mod = PyImport_ImportModule(module);
    if (mod == NULL)
        return NULL;
    PyObject *value = PyObject_GetAttrString(mod, attr);
    Py_DECREF(mod);
    return value;
}

GL_PRIVATE Py_ssize_t
gl_slot_offset(PyObject *cls, const char *name)
{
    PyObject *d = PyObject_GetAttrString(cls, name);
    if (d == NULL) {
        PyErr_Clear();
        return -1;
    }
    Py_ssize_t offset = -1;
    if (Py_TYPE(d) == &PyMemberDescr_Type)
        offset = ((PyMemberDescrObject *)d)->d_member->offset;
    Py_DECREF(d);
    return offset;
}

GL_PRIVATE int
gl_names_init(PyObject *Py_UNUSED(module))
{
#define X(name, ...)                                                                               \
    G.s_##name = PyUnicode_InternFromString(#name);                                                \
    if (G.s_##name == NULL)                                                                        \
        return -1;
    GL_METHODS(X)
    GL_WORDS(X)
#undef X
#define X(field, module, attribute)                                                                \
    G.field = gl_import_attr(module, attribute);                                                   \
    if (G.field == NULL)                                                                           \
        return -1;
    GL_IMPORTS(X)
#undef X
    G.empty_tuple = PyTuple_New(0);
    G.kw_loop = PyTuple_Pack(1, G.s_loop);
    G.kw_context = PyTuple_Pack(1, G.s_context);
    if (G.empty_tuple == NULL || G.kw_loop == NULL || G.kw_context == NULL)
        return -1;
    G.asyncio_create_task = PyObject_GetAttrString(G.asyncio_BaseEventLoop, "create_task");
    if (G.asyncio_create_task == NULL)
        return -1;
    G.Handle_run = PyObject_GetAttr(G.asyncio_Handle, G.s__run);
    if (G.Handle_run == NULL)
        return -1;
    G.Handle_cancel = PyObject_GetAttr(G.asyncio_Handle, G.s_cancel);
    if (G.Handle_cancel == NULL)
        return -1;
    G.TimerHandle_cancel = PyObject_GetAttr(G.asyncio_TimerHandle, G.s_cancel);
    if (G.TimerHandle_cancel == NULL)
        return -1;
    return 0;
}
