/*
 * handle_views.c: the types of handles, and their attributes, as asyncio's are and as Python may
 * write them.
 *
 * Those that C keeps in another form (arguments without a tuple, a context that is not made yet,
 * the stack of debug mode) are made when asked for.  Without a GIL asyncio's slots are guarded
 * attributes of ours, for they would be read without the loop's lock.
 */
#include "queue/private.h"

/* ---- debug mode's stack ------------------------------------------------------------ */

static PyObject *
handle_get_source_traceback(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject **slot = &((gl_handle_head *)self)->source_traceback;
    PyObject *stack = *slot;
    if (stack == NULL)
        Py_RETURN_NONE;
    if (!PyTuple_CheckExact(stack) || PyTuple_GET_SIZE(stack) == 0 ||
        PyTuple_GET_ITEM(stack, 0) != G.stack_summary)
        return Py_NewRef(stack);
    Py_INCREF(stack);
    PyObject *summary = PyObject_CallOneArg(G.stack_summary, stack);
    if (summary != NULL && *slot == stack) {
        *slot = Py_NewRef(summary);
        Py_DECREF(stack);
    }
    Py_DECREF(stack);
    return summary;
}

static int
handle_set_source_traceback(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    PyObject *before = ((gl_handle_head *)self)->source_traceback;
    ((gl_handle_head *)self)->source_traceback = Py_XNewRef(value);
    Py_XDECREF(before);
    return 0;
}

/* ---- attributes that are made when asked for --------------------------------------------- */

GL_PRIVATE PyObject *
handle_get_args(PyObject *self, void *Py_UNUSED(closure))
{
    gl_handle_args *inl = handle_inline(self);
    int n = inl->nargs;
    if (n < 0) {
        PyObject *args = ((gl_handle_head *)self)->args;
        if (args == NULL)
            PyErr_SetString(PyExc_AttributeError, "'Handle' object has no attribute '_args'");
        return Py_XNewRef(args);
    }
    PyObject *arg[GL_INLINE_ARGS]; /* making the tuple may run the collector */
    for (int i = 0; i < n; i++)
        arg[i] = Py_NewRef(inl->arg[i]);
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; i < n; i++) {
        if (tuple)
            PyTuple_SET_ITEM(tuple, i, arg[i]);
        else
            Py_DECREF(arg[i]);
    }
    return tuple;
}

static PyObject *
handle_get_context(PyObject *self, void *Py_UNUSED(closure))
{
    if (handle_make_context(self) < 0)
        return NULL;
    PyObject *context = ((gl_handle_head *)self)->context;
    if (context == NULL)
        PyErr_SetString(PyExc_AttributeError, "'Handle' object has no attribute '_context'");
    return Py_XNewRef(context);
}

static int
handle_set_context(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    gl_handle_args *inl = handle_inline(self);
    PyObject *before = ((gl_handle_head *)self)->context;
    bool there = before != NULL || inl->context_due;
    inl->context_due = false;
    inl->context_ours = false;
    ((gl_handle_head *)self)->context = Py_XNewRef(value);
    Py_XDECREF(before);
    if (value != NULL || there)
        return 0;
    PyErr_SetString(PyExc_AttributeError, "'Handle' object has no attribute '_context'");
    return -1;
}

static int
handle_set_args(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    handle_replace_call(self, Py_XNewRef(((gl_handle_head *)self)->callback), Py_XNewRef(value));
    return 0;
}

static PyObject *
timer_get_scheduled(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((gl_timer_handle *)self)->timer != GL_NO_TIMER);
}

/* ---- the tables ------------------------------------------------------------------- */

#define VIEWS                                                                                      \
    {"_args", handle_get_args, handle_set_args,                                                    \
     PyDoc_STR("The arguments, a tuple; None once cancelled."), NULL},                             \
        {"_context", handle_get_context, handle_set_context,                                       \
         PyDoc_STR("What the callback runs in."), NULL},                                           \
    {                                                                                              \
        "_source_traceback", handle_get_source_traceback, handle_set_source_traceback,             \
            PyDoc_STR("In debug mode the stack of whoever scheduled it."), NULL                    \
    }

static PyGetSetDef handle_attributes[] = {
    VIEWS,
    {NULL, NULL, NULL, NULL, NULL},
};

static PyGetSetDef timer_handle_attributes[] = {
    VIEWS,
    {"_scheduled", timer_get_scheduled, NULL, PyDoc_STR("Is it armed?  Not writable."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* One of asyncio's slots, which reads as None until something is stored. */
static PyMemberDef members[] = {
    {"_repr", T_OBJECT, offsetof(gl_handle_head, repr), 0,
     PyDoc_STR("In debug mode what repr() said before it was cancelled.")},
    {NULL, 0, 0, 0, NULL},
};

/* ---- the types, whose heads are laid out as asyncio's ------------------------------- */

static int
make_type(PyTypeObject **type, PyObject *module, const char *name, size_t size, const char *doc,
          PyGetSetDef *getset, PyObject *base)
{
    PyType_Slot slots[] = {
        {Py_tp_doc, (void *)doc},        {Py_tp_traverse, handle_traverse},
        {Py_tp_clear, handle_clear},     {Py_tp_dealloc, handle_dealloc},
        {Py_tp_methods, handle_methods}, {Py_tp_members, members},
        {Py_tp_getset, getset},          {0, NULL},
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
                       handle_attributes, base) < 0
                 ? -1
                 : GL_GUARD_TYPE(G.threadsafe_handle_type, gl_threadsafe_handle, inl.home, NULL,
                                 GL_GUARD_CALLS);
    Py_DECREF(base);
    return rc;
}

static int
check_handle_layout(void)
{
    PyObject *handle = G.asyncio_Handle;
    PyObject *timer = G.asyncio_TimerHandle;
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
                ((PyTypeObject *)timer)->tp_basicsize == (Py_ssize_t)offsetof(gl_timer_handle, inl);
    for (size_t i = 0; good && i < Py_ARRAY_LENGTH(slots); i++)
        good = gl_slot_offset(slots[i].cls, slots[i].name) == (Py_ssize_t)slots[i].offset;
    if (good)
        return 0;
    PyErr_SetString(PyExc_ImportError,
                    "goloop: asyncio.Handle of this Python has another layout than goloop was "
                    "written for; use a released CPython from 3.11 on, not a debug build");
    return -1;
}

static int
guard_handles(void)
{
    int rc = 0;
#ifdef GL_FREE_THREADED
    PyTypeObject *handle = (PyTypeObject *)G.asyncio_Handle;
    PyTypeObject *timer = (PyTypeObject *)G.asyncio_TimerHandle;
    const Py_ssize_t home = offsetof(gl_handle, inl.home);
    const Py_ssize_t timer_home = offsetof(gl_timer_handle, inl.home);
    rc = gl_guard_type(G.handle_type, home, NULL, GL_GUARD_CALLS) < 0 ||
                 gl_guard_type(G.timer_handle_type, timer_home, NULL, GL_GUARD_CALLS) < 0 ||
                 gl_guard_inherited(G.handle_type, handle, home) < 0 ||
                 gl_guard_inherited(G.timer_handle_type, handle, timer_home) < 0 ||
                 gl_guard_inherited(G.timer_handle_type, timer, timer_home) < 0
             ? -1
             : 0;
#endif
    return rc;
}

GL_PRIVATE int
gl_handle_init_types(PyObject *module)
{
    if (check_handle_layout() < 0 ||
        make_type(&G.handle_type, module, "goloop._core.Handle", sizeof(gl_handle),
                  "What call_soon returns; an asyncio.Handle.", handle_attributes,
                  G.asyncio_Handle) < 0 ||
        make_type(&G.timer_handle_type, module, "goloop._core.TimerHandle", sizeof(gl_timer_handle),
                  "What call_later and call_at return; an asyncio.TimerHandle.",
                  timer_handle_attributes, G.asyncio_TimerHandle) < 0 ||
        guard_handles() < 0)
        return -1;
    return threadsafe_handle_init_type(module);
}
