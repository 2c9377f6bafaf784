/*
 * names.c: the strings and the objects of other modules that the extension
 * needs, looked up once at import.
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
#define X(n)                                                                                       \
    if ((G.s_##n = PyUnicode_InternFromString(#n)) == NULL)                                        \
        return -1;
    GL_STRINGS(X)
#undef X
    if ((G.empty_tuple = PyTuple_New(0)) == NULL ||
        (G.kw_loop = PyTuple_Pack(1, G.s_loop)) == NULL ||
        (G.kw_context = PyTuple_Pack(1, G.s_context)) == NULL)
        return -1;
#define IMPORT(field, module, attr)                                                                \
    if ((G.field = gl_import_attr(module, attr)) == NULL)                                          \
        return -1;
    IMPORT(asyncio_Handle, "asyncio", "Handle")
    IMPORT(asyncio_TimerHandle, "asyncio", "TimerHandle")
    IMPORT(asyncio_BufferedProtocol, "asyncio", "BufferedProtocol")
    IMPORT(asyncio_Protocol, "asyncio", "Protocol")
    IMPORT(asyncio_Future, "asyncio", "Future")
    IMPORT(asyncio_CancelledError, "asyncio", "CancelledError")
    IMPORT(asyncio_InvalidStateError, "asyncio", "InvalidStateError")
    IMPORT(allocate_lock, "_thread", "allocate_lock")
    IMPORT(caller_stack, "goloop._internal.loop.debugging", "caller_stack")
    IMPORT(stack_summary, "goloop._internal.loop.debugging", "stack_summary")
    IMPORT(refuse_call, "goloop._internal.loop.naming", "refuse")
    IMPORT(fd_number, "goloop._internal.loop.naming", "fd_number")
    IMPORT(logger, "asyncio.log", "logger")
    IMPORT(log_debug, "goloop._internal.loop.debugging", "log")
    IMPORT(socket_socket, "socket", "socket")
#undef IMPORT
    PyObject *handle = G.asyncio_Handle, *timer = G.asyncio_TimerHandle;
    if ((G.Handle_run = PyObject_GetAttrString(handle, "_run")) == NULL ||
        (G.Handle_cancel = PyObject_GetAttrString(handle, "cancel")) == NULL)
        return -1;
    return (G.TimerHandle_cancel = PyObject_GetAttrString(timer, "cancel")) != NULL ? 0 : -1;
}
