/*
 * handle_run.c: running a handle's callback, and cancelling it.
 *
 * call_soon_threadsafe returns a ThreadSafeHandle (CPython 3.14 has asyncio._ThreadSafeHandle, with
 * a lock): cancel() and cancelled() called in another thread wait for the end of a running
 * callback.  The GIL guards the fields.  Only a thread that has to wait creates a Python lock, so a
 * ThreadSafeHandle costs as much as any other handle.
 */
#include "queue/private.h"

/* ---- waiting for a callback that runs in another thread ----------------------- */

/* Creates the lock, already acquired, for which other threads wait until the callback has returned.
 * Creates none, which is not an error, if the callback has returned meanwhile or another thread has
 * created the lock. */
static int
done_lock_create(gl_threadsafe_handle *h)
{
    PyObject *lock = PyObject_CallNoArgs(G.allocate_lock);
    if (lock == NULL || gl_drop_result(PyObject_CallMethod(lock, GL_METHOD(acquire), NULL)) < 0) {
        Py_XDECREF(lock);
        return -1;
    }
    /* Checked again: other threads may have run during a garbage collection. */
    if (h->done_lock == NULL && h->running != 0) {
        h->done_lock = lock;
        return 0;
    }
    Py_DECREF(lock);
    return 0;
}

/* Waits, without the GIL, until no other thread runs the callback of a ThreadSafeHandle; returns 0,
 * at once for other handles.  -1 with the exception of a signal handler, or with MemoryError. */
static int
handle_wait_for_others(PyObject *self)
{
    gl_threadsafe_handle *h = (gl_threadsafe_handle *)self;
    if (Py_TYPE(self) != G.threadsafe_handle_type)
        return 0;
    while (h->running != 0 && h->running != PyThread_get_thread_ident()) {
        if (h->done_lock == NULL && done_lock_create(h) < 0)
            return -1;
        PyObject *lock = Py_XNewRef(h->done_lock);
        if (lock == NULL)
            continue;
        int r = gl_drop_result(PyObject_CallMethod(lock, GL_METHOD(acquire), NULL));
        if (r == 0) /* for the next waiting thread */
            r = gl_drop_result(PyObject_CallMethod(lock, GL_METHOD(release), NULL));
        Py_DECREF(lock);
        if (r < 0)
            return -1;
    }
    return 0;
}

/* ---- cancelling and running --------------------------------------------------------- */

/* Returns true if handle_call() cannot run the handle by its fast path: the handle was cancelled,
 * belongs to another loop, or a program has stored an unexpected value in `_callback`, `_args`,
 * `_cancelled` or `_context`.  Sets no exception. */
static inline bool
handle_needs_generic_run(gl_loop *loop, PyObject *self, gl_handle_args *inl)
{
    gl_handle_head *h = (gl_handle_head *)self;
    bool has_context = inl->context_due;
    if (h->context != NULL)
        has_context = PyContext_CheckExact(h->context);
    return h->callback == NULL || h->cancelled != Py_False || h->loop != (PyObject *)loop ||
           !has_context || (inl->nargs < 0 && (h->args == NULL || !PyTuple_CheckExact(h->args)));
}

/* Returns the handle's `_loop`, borrowed; NULL, without an exception, if it is not a goloop
 * loop. */
static inline gl_loop *
handle_loop(PyObject *self)
{
    PyObject *loop = ((gl_handle_head *)self)->loop;
    if (Py_TYPE(self) == G.timer_handle_type) {
        gl_timer_handle *timer = (gl_timer_handle *)self;
        if (timer->timer != GL_NO_TIMER && loop == (PyObject *)timer->armed_by)
            return timer->armed_by; /* without the type check */
    }
    if (loop == NULL || !gl_loop_check(loop))
        return NULL;
    return (gl_loop *)loop;
}

/* Returns true if a program has replaced any method of asyncio's handle classes. */
static inline bool
handle_methods_replaced(void)
{
    return (gl_replaced_methods(GL_RULE_HANDLE, G.rule[GL_RULE_HANDLE].type) |
            gl_replaced_methods(GL_RULE_TIMER_HANDLE, G.rule[GL_RULE_TIMER_HANDLE].type)) != 0;
}

/* Calls super().name(): a method of asyncio's class, or its replacement by a program, which calls
 * the original.  For a ThreadSafeHandle the class above its own type is called, since C does the
 * locking itself.  Returns the result. */
static PyObject *
handle_call_super(PyObject *self, PyObject *name)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject *above = (PyObject *)(type == G.threadsafe_handle_type ? type->tp_base : type);
    PyObject *theirs = PyObject_CallFunctionObjArgs((PyObject *)&PySuper_Type, above, self, NULL);
    PyObject *r = theirs ? PyObject_CallMethodNoArgs(theirs, name) : NULL;
    Py_XDECREF(theirs);
    return r;
}

GL_PRIVATE PyObject *
gl_handle_cancel(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    gl_handle_head *h = (gl_handle_head *)self;
    if (handle_wait_for_others(self) < 0)
        return NULL;
    if (handle_methods_replaced())
        return handle_call_super(self, G.s_cancel);
    if (h->cancelled == Py_True)
        Py_RETURN_NONE;
    bool is_timer = Py_TYPE(self) == G.timer_handle_type;
    gl_loop *loop = handle_loop(self);
    if (loop == NULL || h->cancelled != Py_False) {
        if (is_timer)
            return PyObject_CallOneArg(G.TimerHandle_cancel, self);
        return PyObject_CallOneArg(G.Handle_cancel, self);
    }
    Py_SETREF(h->cancelled, Py_NewRef(Py_True));
    bool debug = loop->debug;
    if (is_timer)
        timers_cancel((gl_timer_handle *)self);
    if (debug) {
        /* Keep a representation that still names the callback. */
        PyObject *repr = PyObject_Repr(self);
        if (repr == NULL)
            return NULL;
        Py_XSETREF(h->repr, repr);
    }
    handle_replace_call(self, Py_NewRef(Py_None), Py_NewRef(Py_None));
    Py_RETURN_NONE;
}

/* handle.cancelled(): returns the value of `_cancelled`, or calls the method of asyncio's class if
 * a program has replaced methods of those classes.  Waits while another thread runs the callback of
 * a ThreadSafeHandle.  NULL with AttributeError if the slot is empty, or with another exception. */
static PyObject *
handle_cancelled(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    if (handle_wait_for_others(self) < 0)
        return NULL;
    if (handle_methods_replaced())
        return handle_call_super(self, G.s_cancelled);
    PyObject *cancelled = ((gl_handle_head *)self)->cancelled;
    if (cancelled == NULL)
        PyErr_SetString(PyExc_AttributeError, "'Handle' object has no attribute '_cancelled'");
    return Py_XNewRef(cancelled);
}

GL_PRIVATE int
gl_handle_report(gl_loop *loop, PyObject *self)
{
    if (gl_is_exit_exception())
        return -1;
    PyObject *exc = gl_take_exception();
    int r = gl_drop_result(
        PyObject_CallMethodObjArgs((PyObject *)loop, G.s__callback_failed, self, exc, NULL));
    Py_DECREF(exc);
    return r;
}

/* Runs a handle by asyncio's own _run(), unless it is cancelled. */
static int
handle_run_generic(PyObject *self)
{
    int cancelled = gl_take_bool(handle_cancelled(self, NULL));
    if (cancelled < 0)
        return -1;
    if (cancelled)
        return 0;
    return gl_drop_result(PyObject_CallOneArg(G.Handle_run, self));
}

/* Calls the callback in the handle's context, and reports its exception.  If
 * handle_needs_generic_run() is true, does the work of handle_run_generic() instead.  The caller
 * keeps the handle alive.  -1 if an exception ends the run of the loop. */
static int
handle_call(gl_loop *loop, PyObject *self)
{
    gl_handle_head *h = (gl_handle_head *)self;
    gl_handle_args *inl = handle_inline(self);
    if (handle_needs_generic_run(loop, self, inl))
        return handle_run_generic(self);
    if (handle_make_context(self) < 0)
        return gl_handle_report(loop, self);
    /* A cancel() in the callback drops the handle's own references. */
    PyObject *context = Py_NewRef(h->context);
    PyObject *callback = Py_NewRef(h->callback);
    PyObject *result;
    if (PyContext_Enter(context) < 0) {
        result = NULL;
    } else {
        if (inl->nargs >= 0) {
            PyObject *args[1 + GL_INLINE_ARGS];
            int n = inl->nargs;
            for (int i = 0; i < n; i++)
                args[1 + i] = Py_NewRef(inl->arg[i]);
            result = PyObject_Vectorcall(callback, args + 1,
                                         (size_t)n | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
            for (int i = 0; i < n; i++)
                Py_DECREF(args[1 + i]);
        } else {
            PyObject *args = Py_NewRef(h->args);
            result = PyObject_Call(callback, args, NULL);
            Py_DECREF(args);
        }
        if (result != NULL)
            gl_context_exit(context);
        else
            gl_context_exit_keep_error(context);
    }
    Py_DECREF(callback);
    Py_DECREF(context);
    if (inl->context_ours && Py_REFCNT(self) == 1)
        handle_recycle_context(self);
    if (result != NULL) {
        Py_DECREF(result);
        return 0;
    }
    return gl_handle_report(loop, self);
}

/* Waits until no other thread runs the callback of a ThreadSafeHandle, and runs the callback unless
 * the handle was cancelled.  Then the threads that wait in cancel() or cancelled() continue.  -1 if
 * an exception ends the run of the loop. */
static int
threadsafe_handle_call(gl_loop *loop, gl_threadsafe_handle *h)
{
    if (handle_wait_for_others((PyObject *)h) < 0)
        return -1;
    if (gl_handle_is_cancelled((PyObject *)h))
        return 0;
    unsigned long outer = h->running; /* the callback may call _run() itself */
    h->running = PyThread_get_thread_ident();
    int rc = handle_call(loop, (PyObject *)h);
    h->running = outer;
    if (outer == 0 && h->done_lock != NULL) {
        PyObject *lock = h->done_lock;
        PyObject *exc = gl_take_exception();
        h->done_lock = NULL;
        if (gl_drop_result(PyObject_CallMethod(lock, GL_METHOD(release), NULL)) < 0)
            PyErr_Clear(); /* impossible: the lock is acquired */
        Py_DECREF(lock);
        gl_restore_exception(exc);
    }
    return rc;
}

/* ---- asyncio.Handle._run replaced ---------------------------------------------------- */

/* Calls a program's replacement of asyncio.Handle._run, which calls the original, and reports its
 * exception.  -1 if an exception ends the run of the loop. */
static int
handle_call_hooked(gl_loop *loop, PyObject *self)
{
    if (handle_make_context(self) < 0 || gl_drop_result(handle_call_super(self, G.s__run)) < 0)
        return gl_handle_report(loop, self);
    return 0;
}

GL_PRIVATE int
handle_run(gl_loop *loop, PyObject *self)
{
    if (gl_handles_are_hooked())
        return handle_call_hooked(loop, self);
    if (Py_TYPE(self) == G.threadsafe_handle_type)
        return threadsafe_handle_call(loop, (gl_threadsafe_handle *)self);
    return handle_call(loop, self);
}

/* handle._run(), called by programs: runs the callback and returns None.  A cancelled handle is not
 * run.  Calls asyncio's method for a handle that handle_call() cannot run. */
static PyObject *
handle_run_method(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    gl_loop *loop = handle_loop(self);
    if (gl_handle_is_cancelled(self) && ((gl_handle_head *)self)->callback == Py_None)
        Py_RETURN_NONE;
    if (loop == NULL || handle_needs_generic_run(loop, self, handle_inline(self))) {
        if (Py_TYPE(self) != G.threadsafe_handle_type)
            return PyObject_CallOneArg(G.Handle_run, self);
        return gl_none_or_null(handle_run_generic(self));
    }
    Py_INCREF(loop);
    int r = handle_run(loop, self);
    Py_DECREF(loop);
    return gl_none_or_null(r);
}

GL_TAKES_NONE(cancel_checked, gl_handle_cancel, "cancel")
GL_TAKES_NONE(cancelled_checked, handle_cancelled, "cancelled")

GL_PRIVATE PyMethodDef handle_methods[] = {
    {"cancel", GL_FASTKW(cancel_checked),
     PyDoc_STR("cancel($self)\n--\n\nCancel the callback; it will not be run.  No effect after it "
               "ran.  If another thread is running a callback of call_soon_threadsafe(), wait for "
               "its end.")},
    {"cancelled", GL_FASTKW(cancelled_checked),
     PyDoc_STR("cancelled($self)\n--\n\nReturn True if the callback was cancelled.  Waits as "
               "cancel() does.")},
    {"_run", handle_run_method, METH_NOARGS, PyDoc_STR("Run the callback in its context.")},
    {NULL, NULL, 0, NULL},
};
