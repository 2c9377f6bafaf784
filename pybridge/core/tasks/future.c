/*
 * future.c: goloop.Future, a subclass of _asyncio.Future that works on its fields.
 *
 * Methods that only read (result, exception, done, repr, ...) are inherited.  The callbacks, and
 * the methods that add and remove them, are in future_callbacks.c.
 *
 * States: pending -> finished (result or exception) or cancelled.
 *
 *     future_finish, future_fail, future_set_cancelled
 *       future_schedule_callbacks
 *         schedule_first_callback   the waiting Task, or the first callback
 *         gl_schedule_on_any_loop   the other callbacks
 *
 * Functions that can run foreign code (a call_soon, a destructor) move the fields out of the
 * struct or take references before they do so, and read the struct again afterwards.
 */
#include "tasks/private.h"

/* Returns 0 if the future is pending, or -1 with InvalidStateError (RuntimeError without a
 * loop). */
static int
ensure_pending(gl_future *f)
{
    if (future_ensure_initialized(f) < 0)
        return -1;
    if (f->state == GL_PENDING)
        return 0;
    PyErr_SetString(G.asyncio_InvalidStateError, "invalid state");
    return -1;
}

/* ---- becoming done -------------------------------------------------------------- */

GL_PRIVATE_INLINE int
future_finish(gl_future *f, PyObject *result)
{
    if (ensure_pending(f) < 0)
        return -1;
    f->state = GL_FINISHED;
    Py_XSETREF(f->result, Py_NewRef(result));
    return future_schedule_callbacks(f);
}

GL_PRIVATE int
future_fail(gl_future *f, PyObject *exc)
{
    if (ensure_pending(f) < 0)
        return -1;
    /* asyncio's method instantiates a class, and rejects or wraps a StopIteration; releases
     * differ. */
    if (!PyExceptionInstance_Check(exc) || PyErr_GivenExceptionMatches(exc, PyExc_StopIteration))
        return gl_drop_result(
            PyObject_CallFunctionObjArgs(G.asyncio.Future_set_exception, (PyObject *)f, exc, NULL));
    f->state = GL_FINISHED;
    PyObject *before = f->exception;
    PyObject *tb_before = f->exception_tb;
    f->exception_tb = PyException_GetTraceback(exc);
    f->exception = Py_NewRef(exc);
    Py_XDECREF(before);
    Py_XDECREF(tb_before);
    if (future_schedule_callbacks(f) < 0)
        return -1;
    if (f->exception != NULL) /* a call_soon() may have initialised the future again */
        f->log_tb = 1;
    return 0;
}

GL_PRIVATE int
future_set_cancelled(gl_future *f, PyObject *msg)
{
    f->log_tb = 0;
    if (f->state != GL_PENDING)
        return 0;
    f->state = GL_CANCELLED;
    Py_XSETREF(f->cancel_msg, Py_XNewRef(msg));
    if (future_schedule_callbacks(f) < 0)
        return -1;
    return 1;
}

GL_PRIVATE PyObject *
future_take_cancelled_error(gl_future *f)
{
    PyObject *exc = f->cancelled_exc;
    if (exc != NULL) {
        f->cancelled_exc = NULL;
        return exc;
    }
    PyObject *msg = f->cancel_msg;
    if (msg == NULL || msg == Py_None)
        return PyObject_CallNoArgs(G.asyncio_CancelledError);
    Py_INCREF(msg);
    exc = PyObject_CallOneArg(G.asyncio_CancelledError, msg);
    Py_DECREF(msg);
    return exc;
}

GL_PRIVATE int
future_exception_to_throw(gl_future *f, PyObject **exc)
{
    *exc = NULL;
    if (f->state == GL_FINISHED) {
        f->log_tb = 0;
        if (f->exception == NULL)
            return 0;
        PyObject *tb = f->exception_tb;
        f->exception_tb = NULL;
        *exc = Py_NewRef(f->exception);
        int r = PyException_SetTraceback(*exc, tb ? tb : Py_None);
        Py_XDECREF(tb);
        if (r == 0)
            return 1;
        Py_CLEAR(*exc);
    } else if (f->state == GL_CANCELLED) {
        PyObject *cancelled = future_take_cancelled_error(f);
        if (cancelled != NULL) {
            /* Set and cleared again, so that it gets the __context__ of a raise statement. */
            PyErr_SetObject((PyObject *)Py_TYPE(cancelled), cancelled);
            Py_DECREF(cancelled);
        }
    } else {
        PyErr_SetString(G.asyncio_InvalidStateError, "Result is not set.");
    }
    *exc = gl_take_exception();
    if (*exc == NULL)
        return 0;
    return 1;
}

/* ---- methods ----------------------------------------------------------------------- */

/* Future.set_result(result) */
static PyObject *
future_set_result(PyObject *self, PyObject *result)
{
    return gl_none_or_null(future_finish((gl_future *)self, result));
}

/* Future.set_exception(exception) */
static PyObject *
future_set_exception(PyObject *self, PyObject *exc)
{
    return gl_none_or_null(future_fail((gl_future *)self, exc));
}

/* Future.cancel(msg=None): True if the future was pending.  NULL with RuntimeError if the future is
 * not initialised; for wrong arguments asyncio's method raises the error. */
static PyObject *
future_cancel(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    /* asyncio's method works on the same fields and raises the error for wrong arguments. */
    if (nargs > 1 || kwnames != NULL)
        return gl_call_unbound(G.asyncio.Future_cancel, self, args, nargs, kwnames);
    if (future_ensure_initialized((gl_future *)self) < 0)
        return NULL;
    int r = future_set_cancelled((gl_future *)self, nargs ? args[0] : Py_None);
    return gl_bool_or_null(r);
}

/* ---- the type ------------------------------------------------------------------------------- */

GL_PRIVATE int
future_init_base(PyObject *self, PyObject *args, PyObject *kwds)
{
#ifdef GL_FREE_THREADED
    /* A method that another thread calls at the same time reads the loop without a reference.  So a
     * loop that __init__() replaces is never released. */
    PyObject *before = Py_XNewRef(((gl_future *)self)->loop);
    GL_GUARD(gl_as_loop(before));
    if (gl_tasks_native() && PyObject_TypeCheck(self, G.task_type))
        task_unregister((gl_task *)self);
    int rc = G.asyncio.Future->tp_init(self, args, kwds);
    if (before == ((gl_future *)self)->loop)
        Py_XDECREF(before);
    return rc;
#else
    return G.asyncio.Future->tp_init(self, args, kwds);
#endif
}

GL_PRIVATE int
future_traverse(PyObject *self, visitproc visit, void *arg)
{
    gl_future *f = (gl_future *)self;
    Py_VISIT(Py_TYPE(self));
#define VISIT(field) Py_VISIT(f->field);
    GL_FUTURE_OBJECTS(VISIT)
#undef VISIT
#if GL_LAYOUT_OWN_DICT
    return 0;
#else
    return PyObject_VisitManagedDict(self, visit, arg);
#endif
}

GL_PRIVATE int
future_clear(PyObject *self)
{
    gl_future *f = (gl_future *)self;
#define CLEAR(field) Py_CLEAR(f->field);
    GL_FUTURE_OBJECTS(CLEAR)
#undef CLEAR
#if GL_LAYOUT_AWAITED_BY
    f->awaited_by_is_set = 0;
#endif
#if !GL_LAYOUT_OWN_DICT
    PyObject_ClearManagedDict(self);
#endif
    return 0;
}

/* Clears and frees a future, without the trashcan; for gl_dealloc_nested(). */
static void
future_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_ClearWeakRefs(self);
    (void)future_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

/* tp_dealloc of Future.  Calls the finalizer only if it has an exception to report; it may
 * resurrect the future. */
static void
future_dealloc(PyObject *self) /* lint: allow dealloc-type: future_free() releases it */
{
    PyTypeObject *type = Py_TYPE(self);
    /* The finalizer reports an exception that was never retrieved.  For a subclass in Python,
     * subtype_dealloc() has called it. */
    if (type == G.future_type && ((gl_future *)self)->log_tb &&
        PyObject_CallFinalizerFromDealloc(self) < 0)
        return; /* resurrected */
    PyObject_GC_UnTrack(self);
    gl_dealloc_nested(self, future_dealloc, future_free);
}

static PyMethodDef future_methods[] = {
    GL_CALLBACK_METHODS,
    {"set_result", future_set_result, METH_O,
     PyDoc_STR("set_result($self, result, /)\n--\n\nMark the future done with a result.")},
    {"set_exception", future_set_exception, METH_O,
     PyDoc_STR("set_exception($self, exception, /)\n--\n\n"
               "Mark the future done with an exception.")},
    {"cancel", GL_FASTKW(future_cancel),
     PyDoc_STR("cancel($self, /, msg=None)\n--\n\n"
               "Cancel the future; return False if it was done already.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot future_slots[] = {
    {Py_tp_doc, PyDoc_STR("Future(*, loop=None)\n--\n\n"
                          "The future result of an operation; an asyncio.Future.")},
#ifdef GL_FREE_THREADED
    {Py_tp_init, future_init_base},
#endif
    {Py_tp_traverse, future_traverse},
    {Py_tp_clear, future_clear},
    {Py_tp_dealloc, future_dealloc},
    {Py_tp_methods, future_methods},
    {Py_tp_getset, future_getset},
    {Py_tp_iter, future_iter_new},
    {Py_am_await, future_iter_new},
    {0, NULL},
};

GL_PRIVATE PyType_Spec future_spec = {
    .name = "goloop.Future",
    .basicsize = sizeof(gl_future),
    .flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = future_slots,
};
