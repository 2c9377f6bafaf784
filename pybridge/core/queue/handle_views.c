/*
 * handle_views.c: the types of handles, and their attributes, which Python reads and writes like
 * those of asyncio's handles.
 *
 * Attributes that C stores in another form (arguments without a tuple, a context that is not
 * created yet, the stack of debug mode) are converted when they are read.  In a build without the
 * GIL guarded attributes replace asyncio's slots, which Python would read without the loop's lock.
 */
#include "queue/private.h"

/* ---- debug mode's stack ------------------------------------------------------------ */

/* Getter of `_source_traceback`: a traceback.StackSummary, None, or the object that a program has
 * stored.  The recorded stack is converted at the first read. */
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

/* Setter of `_source_traceback`: stores any object; deletion stores NULL, which reads as None. */
static int
handle_set_source_traceback(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    PyObject *before = ((gl_handle_head *)self)->source_traceback;
    ((gl_handle_head *)self)->source_traceback = Py_XNewRef(value);
    Py_XDECREF(before);
    return 0;
}

/* ---- attributes that are converted when they are read ------------------------------------ */

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
    PyObject *arg[GL_INLINE_ARGS]; /* creating the tuple may run the garbage collector */
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

/* Getter of `_context`; creates the empty context that is due.  NULL with AttributeError if Python
 * has deleted it, or with MemoryError. */
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

/* Setter of `_context`: stores any object.  Deletion (NULL) raises AttributeError if there is
 * none. */
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

/* Setter of `_args`: replaces the inline arguments by any object; NULL deletes the attribute. */
static int
handle_set_args(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    handle_replace_call(self, Py_XNewRef(((gl_handle_head *)self)->callback), Py_XNewRef(value));
    return 0;
}

/* Getter of TimerHandle._scheduled: True while the timer is armed. */
static PyObject *
timer_get_scheduled(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((gl_timer_handle *)self)->timer != GL_NO_TIMER);
}

/* ---- the tables ------------------------------------------------------------------- */

/* The attributes of all types of handles. */
#define VIEWS                                                                                      \
    {"_args", handle_get_args, handle_set_args,                                                    \
     PyDoc_STR("The arguments, a tuple; None once cancelled."), NULL},                             \
        {"_context", handle_get_context, handle_set_context,                                       \
         PyDoc_STR("The context in which the callback runs."), NULL},                              \
    {                                                                                              \
        "_source_traceback", handle_get_source_traceback, handle_set_source_traceback,             \
            PyDoc_STR("In debug mode the stack of the call that scheduled it."), NULL              \
    }

static PyGetSetDef handle_attributes[] = {
    VIEWS,
    {NULL, NULL, NULL, NULL, NULL},
};

static PyGetSetDef timer_handle_attributes[] = {
    VIEWS,
    {"_scheduled", timer_get_scheduled, NULL,
     PyDoc_STR("True while the timer is armed.  Not writable."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* An asyncio slot that reads as None until a value is stored. */
static PyMemberDef members[] = {
    {"_repr", T_OBJECT, offsetof(gl_handle_head, repr), 0,
     PyDoc_STR("In debug mode the result of repr() before the handle was cancelled.")},
    {NULL, 0, 0, 0, NULL},
};

/* ---- the types, with asyncio's layout at their heads -------------------------------- */

/* The differences between the three types of handles. */
typedef struct {
    const char *name;
    const char *doc;
    size_t size;
    PyGetSetDef *getset;
} handle_type_spec;

/* Creates a type of handles with asyncio's class as its base, and adds it to the module. */
static int
make_type(PyTypeObject **type, PyObject *module, const handle_type_spec *handle, PyObject *base)
{
    PyType_Slot slots[] = {
        {Py_tp_doc, (void *)handle->doc}, {Py_tp_traverse, handle_traverse},
        {Py_tp_clear, handle_clear},      {Py_tp_dealloc, handle_dealloc},
        {Py_tp_methods, handle_methods},  {Py_tp_members, members},
        {Py_tp_getset, handle->getset},   {0, NULL},
    };
    PyType_Spec spec = {
        .name = handle->name,
        .basicsize = (int)handle->size,
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return gl_type_make(type, module, &spec, base);
}

static const handle_type_spec handle_spec = {
    .name = "goloop._core.Handle",
    .doc = "The result of call_soon; an asyncio.Handle.",
    .size = sizeof(gl_handle),
    .getset = handle_attributes,
};
static const handle_type_spec timer_handle_spec = {
    .name = "goloop._core.TimerHandle",
    .doc = "The result of call_later and call_at; an asyncio.TimerHandle.",
    .size = sizeof(gl_timer_handle),
    .getset = timer_handle_attributes,
};
static const handle_type_spec threadsafe_handle_spec = {
    .name = "goloop._core.ThreadSafeHandle",
    .doc = "The result of call_soon_threadsafe; an asyncio.events._ThreadSafeHandle.",
    .size = sizeof(gl_threadsafe_handle),
    .getset = handle_attributes,
};

/* Creates the type ThreadSafeHandle.  Creates none, which is not an error, if asyncio does not have
 * the class, or has one with an unknown layout. */
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
        rc = make_type(&G.threadsafe_handle_type, module, &threadsafe_handle_spec, base);
    if (rc == 0 && G.threadsafe_handle_type != NULL)
        rc = GL_GUARD_TYPE(G.threadsafe_handle_type, gl_threadsafe_handle, inl.owner_loop, NULL,
                           GL_GUARD_CALLS);
    Py_DECREF(base);
    return rc;
}

/* Compares the slots of asyncio's classes with gl_handle_head and gl_timer_handle.  -1 with
 * ImportError if they differ. */
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
                    "goloop does not know the layout of this Python's asyncio.Handle; use a "
                    "released CPython from 3.11 on, not a debug build");
    return -1;
}

/* Lets the methods and attributes of handles take the loop's lock, in a build without the GIL. */
static int
guard_handles(void)
{
#ifdef GL_FREE_THREADED
    PyTypeObject *handle = (PyTypeObject *)G.asyncio_Handle;
    PyTypeObject *timer = (PyTypeObject *)G.asyncio_TimerHandle;
    const Py_ssize_t loop_offset = offsetof(gl_handle, inl.owner_loop);
    const Py_ssize_t timer_loop_offset = offsetof(gl_timer_handle, inl.owner_loop);
    if (gl_guard_type(G.handle_type, loop_offset, NULL, GL_GUARD_CALLS) < 0 ||
        gl_guard_type(G.timer_handle_type, timer_loop_offset, NULL, GL_GUARD_CALLS) < 0 ||
        gl_guard_inherited(G.handle_type, handle, loop_offset) < 0 ||
        gl_guard_inherited(G.timer_handle_type, handle, timer_loop_offset) < 0 ||
        gl_guard_inherited(G.timer_handle_type, timer, timer_loop_offset) < 0)
        return -1;
#endif
    return 0;
}

GL_PRIVATE int
gl_handle_init_types(PyObject *module)
{
    if (check_handle_layout() < 0 ||
        make_type(&G.handle_type, module, &handle_spec, G.asyncio_Handle) < 0 ||
        make_type(&G.timer_handle_type, module, &timer_handle_spec, G.asyncio_TimerHandle) < 0 ||
        guard_handles() < 0)
        return -1;
    return threadsafe_handle_init_type(module);
}
