/*
 * handle_run.c: running a handle's callback, and cancelling it.
 *
 * A ThreadSafeHandle (CPython 3.14 has asyncio._ThreadSafeHandle, with a lock) is what
 * call_soon_threadsafe returns: cancel() and cancelled() of another thread wait until a
 * callback that is running has ended.  The GIL guards the fields; only a thread that has to wait
 * makes a lock of Python's, so that a handle costs as much as any other.
 */
#include "queue/private.h"

/* ---- waiting for a callback that runs in another thread ----------------------- */

/* The lock that others wait for while the callback runs; it is taken until that has ended. */
static int
gate_make(gl_threadsafe_handle *h)
{
    PyObject *gate = PyObject_CallNoArgs(G.allocate_lock);
    if (gate == NULL || gl_drop_result(PyObject_CallMethod(gate, GL_METHOD(acquire), NULL)) < 0) {
        Py_XDECREF(gate);
        return -1;
    }
    if (h->gate == NULL && h->running != 0) { /* still: the collector may have let others in */
        h->gate = gate;
        return 0;
    }
    Py_DECREF(gate);
    return 0;
}

/* Returns when no other thread runs the callback. -1 where a signal's handler raised. */
static int
handle_wait_for_others(PyObject *self)
{
    gl_threadsafe_handle *h = (gl_threadsafe_handle *)self;
    if (Py_TYPE(self) != G.threadsafe_handle_type)
        return 0;
    while (h->running != 0 && h->running != PyThread_get_thread_ident()) {
        if (h->gate == NULL && gate_make(h) < 0)
            return -1;
        PyObject *gate = Py_XNewRef(h->gate);
        int r = gate ? gl_drop_result(PyObject_CallMethod(gate, GL_METHOD(acquire), NULL)) : 0;
        if (gate != NULL && r == 0)
            r = gl_drop_result(
                PyObject_CallMethod(gate, GL_METHOD(release), NULL)); /* for the next waiter */
        Py_XDECREF(gate);
        if (r < 0)
            return -1;
    }
    return 0;
}

/* ---- cancelling and running --------------------------------------------------------- */

/* Does a slot of a handle on `loop` hold what C would not have put there? */
static inline bool
handle_was_modified(gl_loop *loop, PyObject *self, gl_handle_args *inl)
{
    gl_handle_head *h = (gl_handle_head *)self;
    return h->callback == NULL || h->cancelled != Py_False || h->loop != (PyObject *)loop ||
           !(h->context ? PyContext_CheckExact(h->context) : inl->context_due) ||
           (inl->nargs < 0 && (h->args == NULL || !PyTuple_CheckExact(h->args)));
}

/* The loop that `_loop` names, or NULL where that is no goloop loop. */
static inline gl_loop *
handle_loop(PyObject *self)
{
    PyObject *loop = ((gl_handle_head *)self)->loop;
    if (Py_TYPE(self) == G.timer_handle_type) {
        gl_timer_handle *timer = (gl_timer_handle *)self;
        if (timer->timer != GL_NO_TIMER && loop == (PyObject *)timer->armed_by)
            return timer->armed_by; /* for speed */
    }
    return loop != NULL && gl_loop_check(loop) ? (gl_loop *)loop : NULL;
}

/* Whether a program has replaced a method of asyncio's classes of handles, whatever it is. */
static inline bool
handles_changed(void)
{
    return (gl_replaced(GL_RULE_HANDLE, G.rule[GL_RULE_HANDLE].type) |
            gl_replaced(GL_RULE_TIMER_HANDLE, G.rule[GL_RULE_TIMER_HANDLE].type)) != 0;
}

/* Calls a method of asyncio's class, or what a program has put there, which calls the original:
 * super().name().  The lock of a ThreadSafeHandle is ours alone. */
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
    if (handles_changed())
        return handle_call_super(self, G.s_cancel);
    if (h->cancelled == Py_True)
        Py_RETURN_NONE;
    bool is_timer = Py_TYPE(self) == G.timer_handle_type;
    gl_loop *loop = handle_loop(self);
    if (loop == NULL || h->cancelled != Py_False)
        return PyObject_CallOneArg(is_timer ? G.TimerHandle_cancel : G.Handle_cancel, self);
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

static PyObject *
handle_cancelled(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    if (handle_wait_for_others(self) < 0)
        return NULL;
    if (handles_changed())
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

/* As asyncio's loop would do it. */
static int
handle_run_generic(PyObject *self)
{
    int cancelled = gl_take_bool(handle_cancelled(self, NULL));
    if (cancelled)
        return cancelled < 0 ? -1 : 0;
    return gl_drop_result(PyObject_CallOneArg(G.Handle_run, self));
}

static int
handle_call(gl_loop *loop, PyObject *self)
{
    gl_handle_head *h = (gl_handle_head *)self;
    gl_handle_args *inl = handle_inline(self);
    if (handle_was_modified(loop, self, inl))
        return handle_run_generic(self);
    if (handle_make_context(self) < 0)
        return gl_handle_report(loop, self);
    /* cancel() from within the callback drops these; hold them. */
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
        handle_spare_context(self);
    if (result != NULL) {
        Py_DECREF(result);
        return 0;
    }
    return gl_handle_report(loop, self);
}

static int
handle_call_alone(gl_loop *loop, gl_threadsafe_handle *h)
{
    if (handle_wait_for_others((PyObject *)h) < 0)
        return -1;
    if (gl_handle_is_cancelled((PyObject *)h))
        return 0;
    unsigned long outer = h->running; /* the callback may call _run() itself */
    h->running = PyThread_get_thread_ident();
    int rc = handle_call(loop, (PyObject *)h);
    h->running = outer;
    if (outer == 0 && h->gate != NULL) {
        PyObject *gate = h->gate;
        PyObject *exc = gl_take_exception();
        h->gate = NULL;
        if (gl_drop_result(PyObject_CallMethod(gate, GL_METHOD(release), NULL)) < 0)
            PyErr_Clear(); /* never: it is taken */
        Py_DECREF(gate);
        gl_restore_exception(exc);
    }
    return rc;
}

/* ---- asyncio.Handle._run replaced ---------------------------------------------------- */

/* Calls what a program has put in the place of asyncio.Handle._run; that calls the original. */
static int
handle_call_hooked(gl_loop *loop, PyObject *self)
{
    if (handle_make_context(self) < 0)
        return gl_handle_report(loop, self);
    return gl_drop_result(handle_call_super(self, G.s__run)) < 0 ? gl_handle_report(loop, self) : 0;
}

GL_PRIVATE int
handle_run(gl_loop *loop, PyObject *self)
{
    if (gl_handles_hooked())
        return handle_call_hooked(loop, self);
    if (Py_TYPE(self) == G.threadsafe_handle_type)
        return handle_call_alone(loop, (gl_threadsafe_handle *)self);
    return handle_call(loop, self);
}

static PyObject *
handle_run_method(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    gl_loop *loop = handle_loop(self);
    if (gl_handle_is_cancelled(self) && ((gl_handle_head *)self)->callback == Py_None)
        Py_RETURN_NONE;
    bool odd = loop == NULL || handle_was_modified(loop, self, handle_inline(self));
    if (odd && Py_TYPE(self) != G.threadsafe_handle_type)
        return PyObject_CallOneArg(G.Handle_run, self);
    Py_XINCREF(loop);
    int r = odd ? handle_run_generic(self) : handle_run(loop, self);
    Py_XDECREF(loop);
    return gl_none_or_null(r);
}

GL_TAKES_NONE(cancel_checked, gl_handle_cancel, "cancel")
GL_TAKES_NONE(cancelled_checked, handle_cancelled, "cancelled")

GL_PRIVATE PyMethodDef handle_methods[] = {
    {"cancel", GL_FASTKW(cancel_checked),
     PyDoc_STR("cancel($self)\n--\n\nCancel the callback; it will not be run.  No effect after it "
               "ran.  Waits for one "
               "of call_soon_threadsafe() that another thread is running.")},
    {"cancelled", GL_FASTKW(cancelled_checked),
     PyDoc_STR("cancelled($self)\n--\n\nReturn True if the callback was cancelled.  Waits as "
               "cancel() does.")},
    {"_run", handle_run_method, METH_NOARGS, PyDoc_STR("Run the callback in its context.")},
    {NULL, NULL, 0, NULL},
};
