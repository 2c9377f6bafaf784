/*
 * handle_views.c: the attributes of handles, as asyncio's are and as Python may write them.
 *
 * Those that C keeps in another form (arguments without a tuple, a context that is not made yet,
 * the stack of debug mode) are made when asked for.  Without a GIL all are attributes of ours, for
 * asyncio's slots would be read without the loop's lock.
 */
#include "queue/private.h"

/* ---- debug mode's stack ------------------------------------------------------------ */

static PyObject *
handle_get_source_traceback(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject **slot = &((gl_handle_head *)self)->source_traceback, *stack = *slot;
    if (stack == NULL)
        Py_RETURN_NONE;
    if (!PyTuple_CheckExact(stack) || PyTuple_GET_SIZE(stack) == 0 ||
        PyTuple_GET_ITEM(stack, 0) != G.extract_stack)
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
    inl->context_due = inl->context_ours = false;
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
    handle_replace_call(self, Py_XNewRef(((gl_handle_head *)self)->callback),
                        Py_XNewRef(value));
    return 0;
}

static PyObject *
timer_get_scheduled(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((gl_timer_handle *)self)->timer != GL_NO_TIMER);
}

/* ---- the tables ------------------------------------------------------------------- */

#ifdef GL_FREE_THREADED
/* asyncio's slots, which Python reads and writes without the loop's lock, are hidden behind these
 * (guard.c). */
enum slot { SLOT_CALLBACK, SLOT_CANCELLED, SLOT_LOOP, SLOT_WHEN };
static const struct {
    const char *name;
    size_t offset;
} slot_views[] = {
    {"_callback", offsetof(gl_handle_head, callback)},
    {"_cancelled", offsetof(gl_handle_head, cancelled)},
    {"_loop", offsetof(gl_handle_head, loop)},
    {"_when", offsetof(gl_timer_handle, when)},
};

static inline PyObject **
handle_slot(PyObject *self, void *slot)
{
    return (PyObject **)((char *)self + slot_views[(uintptr_t)slot].offset);
}

static void
handle_slot_missing(void *slot)
{
    PyErr_Format(PyExc_AttributeError, "'Handle' object has no attribute '%s'",
                 slot_views[(uintptr_t)slot].name);
}

static PyObject *
handle_get_slot(PyObject *self, void *slot)
{
    PyObject *value = *handle_slot(self, slot);
    if (value == NULL)
        handle_slot_missing(slot);
    return Py_XNewRef(value);
}

static int
handle_set_slot(PyObject *self, PyObject *value, void *slot)
{
    if (value == NULL && *handle_slot(self, slot) == NULL) {
        handle_slot_missing(slot);
        return -1;
    }
    Py_XSETREF(*handle_slot(self, slot), Py_XNewRef(value));
    return 0;
}
#define SLOT_VIEW(name, slot) {name, handle_get_slot, handle_set_slot, NULL, (void *)slot},
#define SLOT_VIEWS                                                                            \
    SLOT_VIEW("_callback", SLOT_CALLBACK)                                                     \
    SLOT_VIEW("_cancelled", SLOT_CANCELLED)                                                   \
    SLOT_VIEW("_loop", SLOT_LOOP)
#define TIMER_SLOT_VIEWS SLOT_VIEW("_when", SLOT_WHEN)
#else
#define SLOT_VIEWS
#define TIMER_SLOT_VIEWS
#endif

#define VIEWS                                                                             \
    {"_args", handle_get_args, handle_set_args,                                               \
     PyDoc_STR("The arguments, a tuple; None once cancelled."), NULL},                         \
    {"_context", handle_get_context, handle_set_context,                                      \
     PyDoc_STR("What the callback runs in."), NULL},                                          \
    {"_source_traceback", handle_get_source_traceback, handle_set_source_traceback,           \
     PyDoc_STR("In debug mode the stack of whoever scheduled it."), NULL}

static PyGetSetDef handle_attributes[] = {
    SLOT_VIEWS
    VIEWS,
    {NULL, NULL, NULL, NULL, NULL},
};

static PyGetSetDef timer_handle_attributes[] = {
    SLOT_VIEWS
    TIMER_SLOT_VIEWS
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

GL_PRIVATE PyGetSetDef *const handle_getset = handle_attributes;
GL_PRIVATE PyGetSetDef *const timer_handle_getset = timer_handle_attributes;
GL_PRIVATE PyMemberDef *const handle_members = members;
