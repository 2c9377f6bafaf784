/*
 * future.c: goloop.Future, a subclass of _asyncio.Future that works on its fields.
 *
 * Methods that only read (result, exception, done, repr, ...) are inherited.  The methods
 * that store and schedule callbacks are replaced, because of a representation that CPython
 * does not know: a single waiting Task is stored as `callback0` itself, with None as its
 * context,
 *
 *     callback0 = the Task      context0 = None
 *
 * and is pushed to the loop's ready queue when the future is done.  Programs that read the
 * callbacks get the callable that asyncio would have stored (wakeup.c).
 *
 * States: pending -> finished (result or exception) or cancelled.
 *
 *     future_finish, future_fail, future_set_cancelled
 *       future_schedule_callbacks
 *         schedule_first_callback   the waiting Task, or the first callback
 *         gl_schedule_on_any_loop   the other callbacks
 *
 * Functions that can run foreign code (a comparison, a call_soon, a destructor) move the
 * fields out of the struct or take references before they do so, and read the struct again
 * afterwards.
 */
#include "tasks/private.h"

/* Returns true if this callback, with its context, is a waiting Task that is stored as itself. */
static inline bool
is_waiting_task(PyObject *callback, PyObject *context)
{
    return context == Py_None && gl_is_task(callback);
}

/* Calls unbound(self, *args, **kwargs); `args` and `kwnames` are those of a vectorcall. */
GL_PRIVATE PyObject *
call_unbound(PyObject *unbound, PyObject *self, PyObject *const *args, Py_ssize_t nargs,
             PyObject *kwnames)
{
    Py_ssize_t n = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    PyObject **all = PyMem_Malloc((size_t)(n + 1) * sizeof(PyObject *));
    if (all == NULL)
        return PyErr_NoMemory();
    all[0] = self;
    for (Py_ssize_t i = 0; i < n; i++)
        all[i + 1] = args[i];
    PyObject *r = PyObject_Vectorcall(unbound, all, (size_t)nargs + 1, kwnames);
    PyMem_Free(all);
    return r;
}

/* Returns 0 if the future has a loop, or -1 with RuntimeError. */
GL_PRIVATE_INLINE int
future_ensure_initialized(gl_future *f)
{
    if (f->loop != NULL)
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "Future object is not initialized.");
    return -1;
}

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

/* ---- callbacks -------------------------------------------------------------------- */

/* Creates the callable that wakes the task; it has a reference to the task. */
GL_PRIVATE PyObject *
wakeup_callable(gl_task *task)
{
    return PyCFunction_New(G.task_wakeup, (PyObject *)task);
}

/* Creates the wakeup callable of a task, and sets *context to the task's context; both are owned.
 * *context is NULL if the callable is NULL, and, without an exception, for a task whose __init__()
 * has not run. */
GL_PRIVATE PyObject *
gl_wakeup_with_context(PyObject *task, PyObject **context)
{
    *context = Py_XNewRef(((gl_task *)task)->context);
    PyObject *wakeup = wakeup_callable((gl_task *)task);
    if (wakeup == NULL)
        Py_CLEAR(*context);
    return wakeup;
}

/* Schedules the first callback of a future that is done: pushes a waiting Task to the ready queue,
 * or calls call_soon().  Steals both references, also if it fails. */
static int
schedule_first_callback(gl_future *f, PyObject *callback, PyObject *context)
{
    int r;
    if (is_waiting_task(callback, context)) {
        gl_task *task = (gl_task *)callback;
        gl_loop *loop = gl_native_loop(f->loop);
        Py_DECREF(context);
        if (loop && task->fut_waiter == (PyObject *)f) {
            r = gl_ready_add(loop, callback);
            if (r < 0)
                Py_DECREF(callback);
            return r;
        }
        callback = gl_wakeup_with_context((PyObject *)task, &context);
        Py_DECREF(task);
        if (context == NULL)
            return gl_drop_result(callback);
    }
    r = gl_schedule_on_any_loop(f->loop, callback, (PyObject *)f, context);
    Py_DECREF(callback);
    Py_DECREF(context);
    return r;
}

/* Returns the pair (callback, context) at index i, a new reference; NULL with RuntimeError for
 * another object.  The list can contain other objects, since asyncio's `_callbacks`, called
 * unbound, returns this list itself. */
static PyObject *
callback_pair(PyObject *list, Py_ssize_t i)
{
    PyObject *pair = PyList_GET_ITEM(list, i);
    if (PyTuple_CheckExact(pair) && PyTuple_GET_SIZE(pair) == 2)
        return Py_NewRef(pair);
    PyErr_Format(PyExc_RuntimeError,
                 "a future's list of callbacks must contain pairs (callback, context), got %.200s",
                 Py_TYPE(pair)->tp_name);
    return NULL;
}

/* Schedules all callbacks of a future that has just become done. */
static int
future_schedule_callbacks(gl_future *f)
{
    if (Py_TYPE(f) != G.future_type && PyObject_TypeCheck((PyObject *)f, G.task_type))
        task_unregister((gl_task *)f);
    PyObject *callback = f->callback0;
    if (callback != NULL) {
        PyObject *context = f->context0;
        f->callback0 = NULL;
        f->context0 = NULL;
        if (schedule_first_callback(f, callback, context) < 0) {
            Py_CLEAR(f->callbacks); /* asyncio drops all callbacks in this case */
            return -1;
        }
    }
    PyObject *list = f->callbacks;
    if (list == NULL)
        return 0;
    f->callbacks = NULL;
    int r = 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(list); i++) {
        PyObject *pair = callback_pair(list, i);
        r = -1;
        if (pair != NULL)
            r = gl_schedule_on_any_loop(f->loop, PyTuple_GET_ITEM(pair, 0), (PyObject *)f,
                                        PyTuple_GET_ITEM(pair, 1));
        Py_XDECREF(pair);
    }
    Py_DECREF(list);
    return r;
}

/* Adds the callback `fn`, called with the future in `context`; schedules it at once if the future
 * is done.  Takes references of its own. */
GL_PRIVATE int
future_add_callback(gl_future *f, PyObject *fn, PyObject *context)
{
    if (f->loop == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "uninitialized Future object");
        return -1;
    }
    if (f->state != GL_PENDING)
        return gl_schedule_on_any_loop(f->loop, fn, (PyObject *)f, context);
    /* A Task that a program adds as a callback is not a waiting task, so callback0 must not be
     * used for it. */
    if (f->callbacks == NULL && f->callback0 == NULL && !gl_is_task(fn)) {
        f->callback0 = Py_NewRef(fn);
        f->context0 = Py_NewRef(context);
        return 0;
    }
    PyObject *pair = PyTuple_Pack(2, fn, context);
    if (pair == NULL)
        return -1;
    int r = -1;
    PyObject *list = NULL;
    if (f->callbacks == NULL)
        list = PyList_New(0);
    if (f->callbacks == NULL) { /* checked again: PyList_New() can run the collector */
        f->callbacks = list;
        list = NULL;
    }
    if (f->callbacks != NULL)
        r = PyList_Append(f->callbacks, pair);
    Py_XDECREF(list);
    Py_DECREF(pair);
    return r;
}

/* Future.add_done_callback(fn, *, context=None), also of Task. */
GL_PRIVATE PyObject *
future_method_add_done_callback(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                PyObject *kwnames)
{
    Py_ssize_t n = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    if (nargs != 1 || n > 1 ||
        (n == 1 &&
         PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), "context") != 0)) {
        /* asyncio's method raises the error for wrong arguments. */
        return call_unbound(G.asyncio.Future_add_done_callback, self, args, nargs, kwnames);
    }
    PyObject *context = n ? Py_NewRef(args[1]) : PyContext_CopyCurrent();
    if (context == NULL)
        return NULL;
    int r = future_add_callback((gl_future *)self, args[0], context);
    Py_DECREF(context);
    return gl_none_or_null(r);
}

/* Returns the first callback, which exists, as asyncio would have stored it, and sets *context to
 * its context or NULL; both are new references. */
static PyObject *
first_callback(gl_future *f, PyObject **context)
{
    if (is_waiting_task(f->callback0, f->context0))
        return gl_wakeup_with_context(f->callback0, context);
    *context = Py_XNewRef(f->context0);
    return Py_NewRef(f->callback0);
}

/* Removes the first callback if it equals `fn`.  Returns 1: removed, 0: not equal, or there is
 * none, -1: the comparison raised.  The comparison runs Python. */
static int
remove_first_callback(gl_future *f, PyObject *fn)
{
    if (f->callback0 == NULL)
        return 0;
    PyObject *context;
    PyObject *callback = first_callback(f, &context);
    Py_XDECREF(context);
    if (callback == NULL)
        return -1;
    int same = PyObject_RichCompareBool(callback, fn, Py_EQ);
    Py_DECREF(callback);
    if (same <= 0)
        return same;
    /* Both fields are cleared first, since the callback's destructor may add another callback. */
    callback = f->callback0;
    context = f->context0;
    f->callback0 = NULL;
    f->context0 = NULL;
    Py_XDECREF(callback);
    Py_XDECREF(context);
    return 1;
}

/* Future.remove_done_callback(fn), also of Task: returns the number of removed callbacks as an
 * int. */
GL_PRIVATE PyObject *
future_method_remove_done_callback(PyObject *self, PyObject *fn)
{
    gl_future *f = (gl_future *)self;
    if (future_ensure_initialized(f) < 0)
        return NULL;
    Py_ssize_t removed = remove_first_callback(f, fn);
    if (removed < 0)
        return NULL;
    if (f->callbacks == NULL)
        return PyLong_FromSsize_t(removed);
    /* A comparison can change the list, drop it or replace it. */
    PyObject *list = Py_NewRef(f->callbacks);
    PyObject *kept = PyList_New(0);
    Py_ssize_t before = PyList_GET_SIZE(list);
    PyObject *answer = NULL;
    if (kept == NULL)
        goto done;
    for (Py_ssize_t i = 0; f->callbacks == list && i < PyList_GET_SIZE(list); i++) {
        PyObject *pair = callback_pair(list, i);
        if (pair == NULL)
            goto done;
        int same = PyObject_RichCompareBool(PyTuple_GET_ITEM(pair, 0), fn, Py_EQ);
        if (same == 0)
            same = PyList_Append(kept, pair);
        Py_DECREF(pair);
        if (same < 0)
            goto done;
    }
    if (f->callbacks != list) {
        /* The list was dropped or replaced: none of its callbacks will be called. */
        answer = PyLong_FromSsize_t(before + removed);
        goto done;
    }
    Py_ssize_t now = PyList_GET_SIZE(list);
    Py_ssize_t left = PyList_GET_SIZE(kept);
    if (left == 0)
        Py_CLEAR(f->callbacks);
    else if (left != now && PyList_SetSlice(list, 0, now, kept) < 0)
        goto done;
    answer = PyLong_FromSsize_t(now - left + removed);
done:
    Py_XDECREF(kept);
    Py_XDECREF(list);
    return answer;
}

/* Getter of `_callbacks`: a new list of pairs (callback, context), or None without callbacks.  A
 * waiting Task appears as its wakeup callable. */
static PyObject *
future_get_callbacks(PyObject *self, void *Py_UNUSED(closure))
{
    gl_future *f = (gl_future *)self;
    if (future_ensure_initialized(f) < 0)
        return NULL;
    if (f->callback0 == NULL && (f->callbacks == NULL || PyList_GET_SIZE(f->callbacks) == 0))
        Py_RETURN_NONE;
    PyObject *list = PyList_New(0);
    if (list && f->callback0) {
        PyObject *context;
        PyObject *callback = first_callback(f, &context);
        PyObject *second = context ? context : Py_None;
        PyObject *pair = NULL;
        if (callback != NULL)
            pair = PyTuple_Pack(2, callback, second);
        if (pair == NULL || PyList_Append(list, pair) < 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
        Py_XDECREF(callback);
        Py_XDECREF(context);
    }
    for (Py_ssize_t i = 0; list && f->callbacks && i < PyList_GET_SIZE(f->callbacks); i++)
        if (PyList_Append(list, PyList_GET_ITEM(f->callbacks, i)) < 0)
            Py_CLEAR(list);
    return list;
}

/* ---- becoming done -------------------------------------------------------------- */

/* Stores the result of a pending future and schedules its callbacks.  -1 with InvalidStateError if
 * it is done. */
GL_PRIVATE_INLINE int
future_finish(gl_future *f, PyObject *result)
{
    if (ensure_pending(f) < 0)
        return -1;
    f->state = GL_FINISHED;
    Py_XSETREF(f->result, Py_NewRef(result));
    return future_schedule_callbacks(f);
}

/* Stores the exception of a pending future and schedules its callbacks.  `exc` may be a class.  -1
 * with InvalidStateError if the future is done. */
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

/* Cancels a pending future and schedules its callbacks.  Returns 1: cancelled now, 0: done before,
 * -1: error.  `msg` (may be NULL) becomes the argument of the CancelledError. */
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

/* Returns the CancelledError of a cancelled future as a new reference: the exception that was
 * stored, which it consumes, or a new one with the cancel message. */
GL_PRIVATE PyObject *
future_cancelled_error(gl_future *f)
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

/* Reads the outcome of a future for a task that awaited it.  Returns 1 with the exception to throw
 * in *exc (owned), or 0 if there is none; InvalidStateError for a pending future.  Marks the
 * exception as retrieved. */
GL_PRIVATE int
future_outcome(gl_future *f, PyObject **exc)
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
        PyObject *cancelled = future_cancelled_error(f);
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

/* Future.cancel(msg=None): True if the future was pending. */
static PyObject *
future_cancel(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    /* asyncio's method works on the same fields and raises the error for wrong arguments. */
    if (nargs > 1 || kwnames != NULL)
        return call_unbound(G.asyncio.Future_cancel, self, args, nargs, kwnames);
    if (future_ensure_initialized((gl_future *)self) < 0)
        return NULL;
    int r = future_set_cancelled((gl_future *)self, nargs ? args[0] : Py_None);
    return gl_bool_or_null(r);
}

/* ---- the type ------------------------------------------------------------------------------- */

/* Calls asyncio.Future.__init__(); the tp_init of Future without the GIL, and a part of Task's. */
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

/* Frees a future without the trashcan; for gl_dealloc_nested(). */
static void
future_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_ClearWeakRefs(self);
    (void)future_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

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

GL_PRIVATE PyGetSetDef future_getset[2] = {
    {"_callbacks", future_get_callbacks, NULL,
     PyDoc_STR("The callbacks as a list of (callback, context), or None."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
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
