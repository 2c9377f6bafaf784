/*
 * handle_types.c: the types of handles, whose heads are laid out as asyncio's.
 */
#include "queue/private.h"

static int
make_type(PyTypeObject **type, PyObject *module, const char *name, size_t size, const char *doc,
          PyGetSetDef *getset, PyObject *base)
{
    PyType_Slot slots[] = {
        {Py_tp_doc, (void *)doc},           {Py_tp_traverse, handle_traverse},
        {Py_tp_clear, handle_clear},        {Py_tp_dealloc, handle_dealloc},
        {Py_tp_methods, handle_methods},    {Py_tp_members, handle_members},
        {Py_tp_getset, getset},             {0, NULL},
    };
    PyType_Spec spec = {
        .name = name,
        .basicsize = (int)size,
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return gl_type_make(type, module, &spec, base);
}

/* Where asyncio has no such class, or another than is known here, there is none. */
static int
threadsafe_handle_init_type(PyObject *module)
{
    PyObject *base = gl_import_attr("asyncio.events", "_ThreadSafeHandle");
    if (base == NULL) {
        PyErr_Clear();
        return 0;
    }
    int rc = 0;
    if (PyType_Check(base) &&
        ((PyTypeObject *)base)->tp_basicsize == (Py_ssize_t)offsetof(gl_threadsafe_handle, inl) &&
        gl_slot_offset(base, "_lock") == offsetof(gl_threadsafe_handle, lock))
        rc = make_type(&G.threadsafe_handle_type, module, "goloop._core.ThreadSafeHandle",
                       sizeof(gl_threadsafe_handle),
                       "What call_soon_threadsafe returns; an asyncio.events._ThreadSafeHandle.",
                       handle_getset, base) < 0
                 ? -1
                 : GL_GUARD_TYPE(G.threadsafe_handle_type, gl_threadsafe_handle, inl.home, NULL,
                                 GL_GUARD_CALLS);
    Py_DECREF(base);
    return rc;
}

static int
check_handle_layout(void)
{
    PyObject *handle = G.asyncio_Handle, *timer = G.asyncio_TimerHandle;
    const struct {
        PyObject *cls;
        const char *name;
        size_t offset;
    } slots[] = {
        {handle, "_args", offsetof(gl_handle_head, args)},
        {handle, "_callback", offsetof(gl_handle_head, callback)},
        {handle, "_cancelled", offsetof(gl_handle_head, cancelled)},
        {handle, "_context", offsetof(gl_handle_head, context)},
        {handle, "_loop", offsetof(gl_handle_head, loop)},
        {handle, "_repr", offsetof(gl_handle_head, repr)},
        {handle, "_source_traceback", offsetof(gl_handle_head, source_traceback)},
        {timer, "_scheduled", offsetof(gl_timer_handle, scheduled)},
        {timer, "_when", offsetof(gl_timer_handle, when)},
    };
    bool good = ((PyTypeObject *)handle)->tp_basicsize == (Py_ssize_t)sizeof(gl_handle_head) &&
                ((PyTypeObject *)timer)->tp_basicsize ==
                    (Py_ssize_t)offsetof(gl_timer_handle, inl);
    for (size_t i = 0; good && i < Py_ARRAY_LENGTH(slots); i++)
        good = gl_slot_offset(slots[i].cls, slots[i].name) == (Py_ssize_t)slots[i].offset;
    if (good)
        return 0;
    PyErr_SetString(PyExc_ImportError,
                    "goloop: asyncio.Handle of this Python has another layout than goloop was "
                    "written for; use a released CPython 3.11 to 3.14, not a debug or "
                    "free-threaded build");
    return -1;
}

GL_PRIVATE int
gl_handle_init_types(PyObject *module)
{
    if (check_handle_layout() < 0 ||
        make_type(&G.handle_type, module, "goloop._core.Handle", sizeof(gl_handle),
                  "What call_soon returns; an asyncio.Handle.", handle_getset,
                  G.asyncio_Handle) < 0 ||
        make_type(&G.timer_handle_type, module, "goloop._core.TimerHandle",
                  sizeof(gl_timer_handle),
                  "What call_later and call_at return; an asyncio.TimerHandle.",
                  timer_handle_getset, G.asyncio_TimerHandle) < 0 ||
        GL_GUARD_TYPE(G.handle_type, gl_handle, inl.home, NULL, GL_GUARD_CALLS) < 0 ||
        GL_GUARD_TYPE(G.timer_handle_type, gl_timer_handle, inl.home, NULL, GL_GUARD_CALLS) < 0)
        return -1;
    return threadsafe_handle_init_type(module);
}
