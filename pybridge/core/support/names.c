/*
 * names.c: the strings and the objects of other modules that the extension
 * needs, looked up once at import, and the check that asyncio.Handle has the
 * layout that core.h assumes.
 */
#include "support/support.h"

GL_PRIVATE struct gl_globals G;

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

static int
check_handle_layout(void)
{
    static const struct {
        const char *name;
        Py_ssize_t offset;
    } slots[] = {
        {"_args", offsetof(gl_handle_head, args)},
        {"_callback", offsetof(gl_handle_head, callback)},
        {"_cancelled", offsetof(gl_handle_head, cancelled)},
        {"_context", offsetof(gl_handle_head, context)},
        {"_loop", offsetof(gl_handle_head, loop)},
        {"_repr", offsetof(gl_handle_head, repr)},
        {"_source_traceback", offsetof(gl_handle_head, source_traceback)},
    };
    bool good = ((PyTypeObject *)G.asyncio_Handle)->tp_basicsize ==
                    (Py_ssize_t)sizeof(gl_handle_head) &&
                ((PyTypeObject *)G.asyncio_TimerHandle)->tp_basicsize ==
                    (Py_ssize_t)offsetof(gl_timer_handle, inl);
    for (size_t i = 0; good && i < Py_ARRAY_LENGTH(slots); i++)
        good = gl_slot_offset(G.asyncio_Handle, slots[i].name) == slots[i].offset;
    good = good &&
           gl_slot_offset(G.asyncio_TimerHandle, "_scheduled") ==
               offsetof(gl_timer_handle, scheduled) &&
           gl_slot_offset(G.asyncio_TimerHandle, "_when") ==
               offsetof(gl_timer_handle, when);
    if (!good) {
        PyErr_SetString(PyExc_ImportError,
                        "goloop: asyncio.Handle of this Python has another layout than "
                        "goloop was written for; use a released CPython 3.11 to 3.14, "
                        "not a debug or free-threaded build");
        return -1;
    }
    return 0;
}

GL_PRIVATE int
gl_names_init(void)
{
#define X(n)                                                                   \
    if ((G.s_##n = PyUnicode_InternFromString(#n)) == NULL)                    \
        return -1;
    GL_STRINGS(X)
#undef X
    if ((G.empty_tuple = PyTuple_New(0)) == NULL ||
        (G.kw_loop = PyTuple_Pack(1, G.s_loop)) == NULL ||
        (G.kw_context = PyTuple_Pack(1, G.s_context)) == NULL)
        return -1;
#define IMPORT(field, module, attr)                                            \
    if ((G.field = gl_import_attr(module, attr)) == NULL)                         \
        return -1;
    IMPORT(asyncio_Handle, "asyncio", "Handle")
    IMPORT(asyncio_TimerHandle, "asyncio", "TimerHandle")
    IMPORT(asyncio_Transport, "asyncio", "Transport")
    IMPORT(asyncio_BufferedProtocol, "asyncio", "BufferedProtocol")
    IMPORT(asyncio_Future, "asyncio", "Future")
    IMPORT(asyncio_CancelledError, "asyncio", "CancelledError")
    IMPORT(asyncio_InvalidStateError, "asyncio", "InvalidStateError")
    IMPORT(TransportSocket, "asyncio.trsock", "TransportSocket")
    IMPORT(extract_stack, "asyncio.format_helpers", "extract_stack")
    IMPORT(format_callback_source, "asyncio.format_helpers", "_format_callback_source")
    IMPORT(format_handle, "asyncio.base_events", "_format_handle")
    IMPORT(logger, "asyncio.log", "logger")
    IMPORT(socket_socket, "socket", "socket")
    IMPORT(gaierror, "socket", "gaierror")
    IMPORT(AddressFamily, "socket", "AddressFamily")
    IMPORT(SocketKind, "socket", "SocketKind")
#undef IMPORT
    /* Since 3.13 (and late 3.12) the formatter takes debug=. */
    PyObject *kwdefaults = PyObject_GetAttrString(G.format_callback_source, "__kwdefaults__");
    if (kwdefaults == NULL)
        return -1;
    G.format_takes_debug =
        PyDict_Check(kwdefaults) && PyDict_GetItemString(kwdefaults, "debug") != NULL;
    Py_DECREF(kwdefaults);
    if (check_handle_layout() < 0)
        return -1;
    G.Handle_run = PyObject_GetAttrString(G.asyncio_Handle, "_run");
    G.Handle_cancel = PyObject_GetAttrString(G.asyncio_Handle, "cancel");
    G.TimerHandle_cancel = PyObject_GetAttrString(G.asyncio_TimerHandle, "cancel");
    return G.Handle_run && G.Handle_cancel && G.TimerHandle_cancel ? 0 : -1;
}
