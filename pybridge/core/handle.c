/*
 * handle.c: Handle, TimerHandle and ThreadSafeHandle.
 *
 * Both subclass asyncio's and keep callback, context, loop and so on in asyncio's
 * own slots, so that asyncio's Python methods (repr, get_context, when, the
 * comparisons) serve unchanged.  Up to GL_INLINE_ARGS arguments are kept without
 * a tuple; `_args` makes one when somebody looks.
 *
 * Life of a handle:
 *
 *     call_soon  ->  in the ready queue  ->  running  ->  done (references kept)
 *     call_at    ->  armed in timers.c   ->  running      until it is freed
 *                        |
 *     cancel() at any time: callback and arguments become None, the entry is skipped
 *
 * A ThreadSafeHandle (CPython 3.14 has asyncio._ThreadSafeHandle, with a lock) is what
 * call_soon_threadsafe returns: cancel() and cancelled() of another thread wait until a
 * callback that is running has ended.  The GIL guards the fields; only who has to wait
 * makes a lock, so that a handle costs as much as any other.
 *
 * Handles are made only by the loop.  They come from a free list, and a Handle is
 * unknown to the garbage collector as long as only the ready queue has it: most are
 * dropped by the caller at once and live for one iteration.  The loop's traverse then
 * visits what such a handle holds as if it were the loop's own (ready.c), so that a
 * loop dropped with work in its queue is collected; a handle that somebody kept is
 * tracked before it runs, so that the cycle through its callback is.
 */
#include "core.h"

#define GL_HANDLE_FREELIST 2048

/* Freed handles of one type, to be used again. */
typedef struct {
    PyObject *item[GL_HANDLE_FREELIST];
    int len;
} gl_handle_pool;

static gl_handle_pool handle_pool, timer_pool, threadsafe_pool;

static void gl_timers_cancel(gl_loop *loop, gl_timer_handle *h);

static inline gl_handle_args *
handle_inline(PyObject *h)
{
    if (Py_TYPE(h) == gl_handle_type)
        return &((gl_handle *)h)->inl;
    return Py_TYPE(h) == gl_timer_handle_type ? &((gl_timer_handle *)h)->inl
                                              : &((gl_threadsafe_handle *)h)->inl;
}

/* True for the exact types that handle.c makes. */
static inline bool
gl_is_handle(PyObject *o)
{
    return Py_TYPE(o) == gl_handle_type || Py_TYPE(o) == gl_timer_handle_type ||
           Py_TYPE(o) == gl_threadsafe_handle_type;
}

static inline bool
gl_handle_is_cancelled(PyObject *h)
{
    return ((gl_handle_head *)h)->cancelled == Py_True;
}

/* The stack of whoever calls into the loop, for debug mode. */
static PyObject *
caller_stack(void)
{
    PyFrameObject *frame = PyEval_GetFrame(); /* borrowed */
    return PyObject_CallOneArg(G.extract_stack, frame ? (PyObject *)frame : Py_None);
}

/* Fills what both kinds share.  `h` is fresh or from the free list: all slots NULL. */
static int
handle_fill(gl_loop *loop, PyObject *h, gl_handle_args *inl, PyObject *callback,
            PyObject *const *args, Py_ssize_t nargs, PyObject *context)
{
    gl_handle_head *head = (gl_handle_head *)h;
    inl->nargs = 0;
    if (context == NULL || context == Py_None)
        head->context = PyContext_CopyCurrent();
    else
        head->context = Py_NewRef(context);
    if (head->context == NULL)
        return -1;
    head->callback = Py_NewRef(callback);
    head->loop = Py_NewRef((PyObject *)loop);
    head->cancelled = Py_NewRef(Py_False);
    if (nargs <= GL_INLINE_ARGS) {
        for (Py_ssize_t i = 0; i < nargs; i++)
            inl->arg[i] = Py_NewRef(args[i]);
        inl->nargs = (int8_t)nargs;
    } else {
        head->args = PyTuple_New(nargs);
        if (head->args == NULL)
            return -1;
        for (Py_ssize_t i = 0; i < nargs; i++)
            PyTuple_SET_ITEM(head->args, i, Py_NewRef(args[i]));
        inl->nargs = -1;
    }
    if (loop->debug) {
        head->source_traceback = caller_stack();
        if (head->source_traceback == NULL)
            return -1;
    } else {
        head->source_traceback = Py_NewRef(Py_None);
    }
    head->repr = Py_NewRef(Py_None);
    return 0;
}

/* An empty handle, untracked; see the head. */
static inline PyObject *
handle_alloc(PyTypeObject *type, gl_handle_pool *pool)
{
    PyObject *h;
    if (pool->len) {
        h = pool->item[--pool->len];
        Py_INCREF(type);
        _Py_NewReference(h);
    } else if ((h = type->tp_alloc(type, 0)) != NULL) {
        PyObject_GC_UnTrack(h);
    }
    return h;
}

static inline void
handle_release(PyObject *h, gl_handle_pool *pool)
{
    if (pool->len < GL_HANDLE_FREELIST)
        pool->item[pool->len++] = h;
    else
        Py_TYPE(h)->tp_free(h);
}

/* Untracked. */
static PyObject *
gl_handle_new(gl_loop *loop, PyObject *callback, PyObject *const *args,
              Py_ssize_t nargs, PyObject *context)
{
    gl_handle *h = (gl_handle *)handle_alloc(gl_handle_type, &handle_pool);
    if (h == NULL)
        return NULL;
    if (handle_fill(loop, (PyObject *)h, &h->inl, callback, args, nargs, context) < 0) {
        Py_DECREF(h);
        return NULL;
    }
    return (PyObject *)h;
}

/* The handle of call_soon_threadsafe; untracked too. */
static PyObject *
gl_threadsafe_handle_new(gl_loop *loop, PyObject *callback, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *context)
{
    PyTypeObject *type = gl_threadsafe_handle_type;
    if (type == NULL)
        return gl_handle_new(loop, callback, args, nargs, context);
    gl_threadsafe_handle *h = (gl_threadsafe_handle *)handle_alloc(type, &threadsafe_pool);
    if (h == NULL)
        return NULL;
    if (handle_fill(loop, (PyObject *)h, &h->inl, callback, args, nargs, context) < 0) {
        Py_DECREF(h);
        return NULL;
    }
    return (PyObject *)h;
}

static PyObject *
gl_timer_handle_new(gl_loop *loop, PyObject *when, int64_t deadline, PyObject *callback,
                    PyObject *const *args, Py_ssize_t nargs, PyObject *context)
{
    gl_timer_handle *h = (gl_timer_handle *)handle_alloc(gl_timer_handle_type, &timer_pool);
    if (h == NULL)
        return NULL;
    h->timer = GL_NO_TIMER;
    h->deadline = deadline;
    h->when = Py_NewRef(when);
    h->scheduled = Py_NewRef(Py_False);
    if (handle_fill(loop, (PyObject *)h, &h->inl, callback, args, nargs, context) < 0) {
        PyObject_GC_Track(h);
        Py_DECREF(h);
        return NULL;
    }
    PyObject_GC_Track(h);
    return (PyObject *)h;
}

static int
handle_traverse(PyObject *self, visitproc visit, void *arg)
{
    gl_handle_head *h = (gl_handle_head *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(h->args);
    Py_VISIT(h->callback);
    Py_VISIT(h->context);
    Py_VISIT(h->loop);
    Py_VISIT(h->source_traceback);
    gl_handle_args *inl = handle_inline(self);
    for (int i = 0; i < inl->nargs; i++)
        Py_VISIT(inl->arg[i]);
    return 0;
}

/* Drops callback and arguments; the slots become NULL. */
static void
handle_drop_call(PyObject *self)
{
    gl_handle_head *h = (gl_handle_head *)self;
    gl_handle_args *inl = handle_inline(self);
    PyObject *callback = h->callback, *args = h->args;
    PyObject *inline_args[GL_INLINE_ARGS];
    int n = inl->nargs;
    h->callback = h->args = NULL;
    inl->nargs = 0;
    for (int i = 0; i < n; i++) {
        inline_args[i] = inl->arg[i];
        inl->arg[i] = NULL;
    }
    Py_XDECREF(callback);
    Py_XDECREF(args);
    for (int i = 0; i < n; i++)
        Py_DECREF(inline_args[i]);
}

static int
handle_clear(PyObject *self)
{
    gl_handle_head *h = (gl_handle_head *)self;
    handle_drop_call(self);
    Py_CLEAR(h->context);
    Py_CLEAR(h->loop);
    Py_CLEAR(h->source_traceback);
    Py_CLEAR(h->cancelled);
    Py_CLEAR(h->repr);
    return 0;
}

static void
handle_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    PyObject_ClearWeakRefs(self);
    (void)handle_clear(self);
    gl_handle_pool *pool = &handle_pool;
    if (type == gl_threadsafe_handle_type) {
        Py_CLEAR(((gl_threadsafe_handle *)self)->lock);
        pool = &threadsafe_pool;
    } else if (type == gl_timer_handle_type) {
        gl_timer_handle *t = (gl_timer_handle *)self;
        Py_CLEAR(t->when);
        Py_CLEAR(t->scheduled);
        pool = &timer_pool;
    }
    handle_release(self, pool);
    Py_DECREF(type);
}

static PyObject *
handle_get_args(PyObject *self, void *Py_UNUSED(closure))
{
    gl_handle_head *h = (gl_handle_head *)self;
    gl_handle_args *inl = handle_inline(self);
    if (inl->nargs < 0 && h->args)
        return Py_NewRef(h->args);
    if (h->callback == NULL || h->callback == Py_None)
        Py_RETURN_NONE;
    PyObject *tuple = PyTuple_New(inl->nargs);
    if (tuple == NULL)
        return NULL;
    for (int i = 0; i < inl->nargs; i++)
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(inl->arg[i]));
    return tuple;
}

static PyObject *
handle_cancel(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    gl_handle_head *h = (gl_handle_head *)self;
    if (h->cancelled == Py_True)
        Py_RETURN_NONE;
    Py_SETREF(h->cancelled, Py_NewRef(Py_True));
    gl_loop *loop = (gl_loop *)h->loop;
    if (Py_TYPE(self) == gl_timer_handle_type && loop)
        gl_timers_cancel(loop, (gl_timer_handle *)self);
    if (loop && loop->debug) {
        /* Keep a representation that still names the callback. */
        PyObject *repr = PyObject_Repr(self);
        if (repr == NULL)
            return NULL;
        Py_XSETREF(h->repr, repr);
    }
    handle_drop_call(self);
    h->callback = Py_NewRef(Py_None);
    Py_RETURN_NONE;
}

static PyObject *
handle_cancelled(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(gl_handle_is_cancelled(self));
}

/* Makes a handle known to the garbage collector. */
static inline void
gl_handle_track(PyObject *h)
{
    if (!PyObject_GC_IsTracked(h))
        PyObject_GC_Track(h);
}

/* The context dict and the call of the exception handler, as asyncio.Handle._run
 * has them.  Takes the exception that is set. */
static int
handle_report(gl_loop *loop, PyObject *self)
{
    if (PyErr_ExceptionMatches(PyExc_SystemExit) ||
        PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
        return -1;
    gl_handle_head *h = (gl_handle_head *)self;
    PyObject *exc = gl_take_exception();
    PyObject *message = NULL, *source = NULL, *kwargs = NULL, *pos = NULL;
    PyObject *callback = h->callback ? Py_NewRef(h->callback) : Py_NewRef(Py_None);
    PyObject *args = handle_get_args(self, NULL);
    int result = -1;
    if (exc == NULL || args == NULL)
        goto done;
    pos = PyTuple_Pack(2, callback, args);
    if (pos == NULL)
        goto done;
    if (G.format_takes_debug) {
        kwargs = Py_BuildValue("{OO}", G.s_debug, loop->debug ? Py_True : Py_False);
        if (kwargs == NULL)
            goto done;
    }
    source = PyObject_Call(G.format_callback_source, pos, kwargs);
    if (source == NULL)
        goto done;
    message = PyUnicode_FromFormat("Exception in callback %U", source);
    if (message == NULL)
        goto done;
    result = gl_report(loop, message, exc, G.s_handle, self, NULL, NULL,
                       h->source_traceback);
done:
    Py_XDECREF(message);
    Py_XDECREF(source);
    Py_XDECREF(kwargs);
    Py_XDECREF(pos);
    Py_XDECREF(args);
    Py_DECREF(callback);
    Py_XDECREF(exc);
    return result;
}

static int
handle_call(gl_loop *loop, PyObject *self)
{
    gl_handle_head *h = (gl_handle_head *)self;
    gl_handle_args *inl = handle_inline(self);
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
            gl_context_leave(context);
        else
            gl_context_exit(context);
    }
    Py_DECREF(callback);
    Py_DECREF(context);
    if (result != NULL) {
        Py_DECREF(result);
        return 0;
    }
    return handle_report(loop, self);
}

/* ---- waiting for a callback that runs in another thread ----------------------- */

struct gl_handle_gate {
    PyThread_type_lock lock;  /* held while the callback runs */
    unsigned int users;       /* who waits, and the runner; guarded by the GIL */
};

static void
gate_leave(gl_handle_gate *gate)
{
    if (--gate->users == 0) {
        PyThread_free_lock(gate->lock);
        PyMem_Free(gate);
    }
}

static int
gate_make(gl_threadsafe_handle *h)
{
    gl_handle_gate *gate = PyMem_Malloc(sizeof *gate);
    if (gate == NULL || (gate->lock = PyThread_allocate_lock()) == NULL) {
        PyMem_Free(gate);
        PyErr_NoMemory();
        return -1;
    }
    PyThread_acquire_lock(gate->lock, NOWAIT_LOCK);
    gate->users = 1;
    h->gate = gate;
    return 0;
}

/* Returns when no other thread runs the callback. -1 where a signal's handler raised. */
static int
handle_wait_for_others(gl_threadsafe_handle *h)
{
    while (h->running != 0 && h->running != PyThread_get_thread_ident()) {
        if (h->gate == NULL && gate_make(h) < 0)
            return -1;
        gl_handle_gate *gate = h->gate;
        gate->users++;
        PyLockStatus status;
        Py_BEGIN_ALLOW_THREADS
        status = PyThread_acquire_lock_timed(gate->lock, -1, 1);
        if (status == PY_LOCK_ACQUIRED)
            PyThread_release_lock(gate->lock); /* for the next who waits */
        Py_END_ALLOW_THREADS
        gate_leave(gate);
        if (status == PY_LOCK_INTR && PyErr_CheckSignals() < 0)
            return -1;
    }
    return 0;
}

static int
handle_call_alone(gl_loop *loop, gl_threadsafe_handle *h)
{
    if (handle_wait_for_others(h) < 0)
        return -1;
    if (h->cancelled == Py_True)
        return 0;
    unsigned long outer = h->running; /* the callback may call _run() itself */
    h->running = PyThread_get_thread_ident();
    int rc = handle_call(loop, (PyObject *)h);
    h->running = outer;
    if (outer == 0 && h->gate != NULL) {
        gl_handle_gate *gate = h->gate;
        h->gate = NULL;
        PyThread_release_lock(gate->lock);
        gate_leave(gate);
    }
    return rc;
}

static PyObject *
threadsafe_cancel(PyObject *self, PyObject *ignored)
{
    return handle_wait_for_others((gl_threadsafe_handle *)self) < 0 ? NULL
                                                                    : handle_cancel(self, ignored);
}

static PyObject *
threadsafe_cancelled(PyObject *self, PyObject *ignored)
{
    return handle_wait_for_others((gl_threadsafe_handle *)self) < 0
               ? NULL
               : handle_cancelled(self, ignored);
}

/* Calls the callback in its context.  `self` must be kept alive by the caller.
 * -1 where SystemExit or KeyboardInterrupt has to leave the loop. */
static int
gl_handle_run(gl_loop *loop, PyObject *self)
{
    if (Py_TYPE(self) == gl_threadsafe_handle_type)
        return handle_call_alone(loop, (gl_threadsafe_handle *)self);
    return handle_call(loop, self);
}

static PyObject *
handle_run_method(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    gl_handle_head *h = (gl_handle_head *)self;
    if (h->cancelled == Py_True || h->loop == NULL)
        Py_RETURN_NONE;
    gl_loop *loop = (gl_loop *)Py_NewRef(h->loop);
    int r = gl_handle_run(loop, self);
    Py_DECREF(loop);
    if (r < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef handle_methods[] = {
    {"cancel", handle_cancel, METH_NOARGS,
     PyDoc_STR("Cancel the callback; it will not be run.  No effect after it ran.")},
    {"cancelled", handle_cancelled, METH_NOARGS,
     PyDoc_STR("Return True if the callback was cancelled.")},
    {"_run", handle_run_method, METH_NOARGS, PyDoc_STR("Run the callback in its context.")},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef threadsafe_handle_methods[] = {
    {"cancel", threadsafe_cancel, METH_NOARGS,
     PyDoc_STR("Cancel the callback.  Waits for one that another thread is running.")},
    {"cancelled", threadsafe_cancelled, METH_NOARGS,
     PyDoc_STR("Return True if the callback was cancelled.  Waits as cancel() does.")},
    {"_run", handle_run_method, METH_NOARGS, PyDoc_STR("Run the callback in its context.")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef handle_getset[] = {
    {"_args", handle_get_args, NULL, PyDoc_STR("The arguments, a tuple; None once cancelled."),
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot handle_slots[] = {
    {Py_tp_doc, PyDoc_STR("What call_soon returns; an asyncio.Handle.")},
    {Py_tp_traverse, handle_traverse},
    {Py_tp_clear, handle_clear},
    {Py_tp_dealloc, handle_dealloc},
    {Py_tp_methods, handle_methods},
    {Py_tp_getset, handle_getset},
    {0, NULL},
};

static PyType_Slot timer_handle_slots[] = {
    {Py_tp_doc, PyDoc_STR("What call_later and call_at return; an asyncio.TimerHandle.")},
    {Py_tp_traverse, handle_traverse},
    {Py_tp_clear, handle_clear},
    {Py_tp_dealloc, handle_dealloc},
    {Py_tp_methods, handle_methods},
    {Py_tp_getset, handle_getset},
    {0, NULL},
};

static PyType_Slot threadsafe_handle_slots[] = {
    {Py_tp_doc,
     PyDoc_STR("What call_soon_threadsafe returns; an asyncio.events._ThreadSafeHandle.")},
    {Py_tp_traverse, handle_traverse},
    {Py_tp_clear, handle_clear},
    {Py_tp_dealloc, handle_dealloc},
    {Py_tp_methods, threadsafe_handle_methods},
    {Py_tp_getset, handle_getset},
    {0, NULL},
};

static PyType_Spec threadsafe_handle_spec = {
    .name = "goloop._core.ThreadSafeHandle",
    .basicsize = sizeof(gl_threadsafe_handle),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = threadsafe_handle_slots,
};

/* Where asyncio has no such class, or another than is known here, there is none. */
static int
threadsafe_handle_init_type(PyObject *module)
{
    PyObject *base = import_attr("asyncio.events", "_ThreadSafeHandle");
    if (base == NULL) {
        PyErr_Clear();
        return 0;
    }
    int rc = 0;
    if (PyType_Check(base) &&
        ((PyTypeObject *)base)->tp_basicsize == (Py_ssize_t)offsetof(gl_threadsafe_handle, inl) &&
        slot_offset(base, "_lock") == offsetof(gl_threadsafe_handle, lock)) {
        PyObject *type = PyType_FromSpecWithBases(&threadsafe_handle_spec, base);
        gl_threadsafe_handle_type = (PyTypeObject *)type;
        rc = type ? PyModule_AddType(module, (PyTypeObject *)type) : -1;
    }
    Py_DECREF(base);
    return rc;
}

static PyType_Spec handle_spec = {
    .name = "goloop._core.Handle",
    .basicsize = sizeof(gl_handle),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = handle_slots,
};

static PyType_Spec timer_handle_spec = {
    .name = "goloop._core.TimerHandle",
    .basicsize = sizeof(gl_timer_handle),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = timer_handle_slots,
};

static int
gl_handle_init_types(PyObject *module)
{
    gl_handle_type = (PyTypeObject *)PyType_FromSpecWithBases(&handle_spec, G.asyncio_Handle);
    if (gl_handle_type == NULL || PyModule_AddType(module, gl_handle_type) < 0)
        return -1;
    gl_timer_handle_type =
        (PyTypeObject *)PyType_FromSpecWithBases(&timer_handle_spec, G.asyncio_TimerHandle);
    if (gl_timer_handle_type == NULL || PyModule_AddType(module, gl_timer_handle_type) < 0)
        return -1;
    return threadsafe_handle_init_type(module);
}
