/*
 * handle.c: Handle, TimerHandle and ThreadSafeHandle.
 *
 * They subclass asyncio's classes and keep callback, context, loop and so on in asyncio's
 * own slots, so that asyncio's Python methods (repr, get_context, when, the comparisons,
 * even _run called unbound) serve unchanged.  Python can write these slots, and delete
 * what is in them.  So C looks at them before each use: a handle that is not as C has
 * filled it is `odd`, and asyncio's own _run and cancel are called for it, which meet
 * what asyncio would have met.  What C has to rely on (inline arguments, a timer's id and
 * deadline) lies behind the slots, out of Python's reach.
 *
 * Up to GL_INLINE_ARGS arguments are kept without a tuple; `_args` makes one when
 * somebody looks.
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
 * loop dropped with work in its queue is collected.  A handle that somebody kept may be
 * in a cycle, and is tracked before it can be garbage: after it ran, when the loop stops
 * with it in the queue, or at once where the loop does not run (push_handle in loop.c).
 */
#include "state/private.h"

static inline gl_handle_args *
handle_inline(PyObject *h)
{
    if (Py_TYPE(h) == G.handle_type)
        return &((gl_handle *)h)->inl;
    return Py_TYPE(h) == G.timer_handle_type ? &((gl_timer_handle *)h)->inl
                                              : &((gl_threadsafe_handle *)h)->inl;
}

GL_PRIVATE_INLINE bool
gl_is_handle(PyObject *o)
{
    return Py_TYPE(o) == G.handle_type || Py_TYPE(o) == G.timer_handle_type ||
           Py_TYPE(o) == G.threadsafe_handle_type;
}

GL_PRIVATE_INLINE bool
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

/* Fills what all kinds share.  `h` is fresh or from the free list: all fields are NULL. */
static inline int
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
    }
    return 0;
}

/* An empty handle, untracked; see the head. */
static inline PyObject *
handle_alloc(PyTypeObject *type, gl_pool *pool)
{
    PyObject *h;
    if (pool->len) {
        h = pool->item[--pool->len];
        Py_INCREF(type);
        _Py_NewReference(h);
    } else {
        /* lint: allow gc-new-untracked: tracked later, and only if it is kept */
        h = PyObject_GC_New(PyObject, type);
        if (h == NULL)
            return NULL;
        memset(h + 1, 0, (size_t)type->tp_basicsize - sizeof *h);
    }
    return h;
}

static inline void
handle_release(PyObject *h, gl_pool *pool)
{
    if (pool->len < GL_POOL_MAX)
        pool->item[pool->len++] = h; /* all fields but nargs are NULL */
    else
        Py_TYPE(h)->tp_free(h);
}

/* A filled handle of one of the types; untracked. */
static inline PyObject *
handle_make(PyTypeObject *type, gl_pool *pool, gl_loop *loop, PyObject *callback,
            PyObject *const *args, Py_ssize_t nargs, PyObject *context)
{
    PyObject *h = handle_alloc(type, pool);
    if (h != NULL && handle_fill(loop, h, handle_inline(h), callback, args, nargs, context) < 0)
        Py_CLEAR(h);
    return h;
}

GL_PRIVATE PyObject *
gl_handle_new(gl_loop *loop, PyObject *callback, PyObject *const *args, Py_ssize_t nargs,
              PyObject *context)
{
    return handle_make(G.handle_type, &G.handle_pool, loop, callback, args, nargs, context);
}

GL_PRIVATE PyObject *
gl_threadsafe_handle_new(gl_loop *loop, PyObject *callback, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *context)
{
    if (G.threadsafe_handle_type == NULL)
        return gl_handle_new(loop, callback, args, nargs, context);
    return handle_make(G.threadsafe_handle_type, &G.threadsafe_pool, loop, callback, args, nargs,
                       context);
}

GL_PRIVATE PyObject *
gl_timer_handle_new(gl_loop *loop, PyObject *when, int64_t deadline, PyObject *callback,
                    PyObject *const *args, Py_ssize_t nargs, PyObject *context)
{
    PyObject *h = handle_make(G.timer_handle_type, &G.timer_pool, loop, callback, args, nargs,
                              context);
    if (h == NULL)
        return NULL;
    gl_timer_handle *timer = (gl_timer_handle *)h;
    timer->timer = GL_NO_TIMER;
    timer->deadline = deadline;
    timer->when = Py_NewRef(when);
    PyObject_GC_Track(h);
    return h;
}

GL_PRIVATE_INLINE bool
handle_has_weakrefs(PyObject *h)
{
    return *(PyObject **)((char *)h + Py_TYPE(h)->tp_weaklistoffset) != NULL;
}

GL_PRIVATE int
handle_traverse(PyObject *self, visitproc visit, void *arg)
{
    gl_handle_head *h = (gl_handle_head *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(h->args);
    Py_VISIT(h->callback);
    Py_VISIT(h->cancelled);
    Py_VISIT(h->context);
    Py_VISIT(h->loop);
    Py_VISIT(h->repr);
    Py_VISIT(h->source_traceback);
    gl_handle_args *inl = handle_inline(self);
    for (int i = 0; i < inl->nargs; i++)
        Py_VISIT(inl->arg[i]);
    if (Py_TYPE(self) == G.timer_handle_type) {
        Py_VISIT(((gl_timer_handle *)self)->scheduled);
        Py_VISIT(((gl_timer_handle *)self)->when);
    } else if (Py_TYPE(self) == G.threadsafe_handle_type) {
        Py_VISIT(((gl_threadsafe_handle *)self)->lock);
    }
    return 0;
}

/* Puts other objects (owned, or NULL) in the place of callback and arguments. */
static inline void
handle_replace_call(PyObject *self, PyObject *callback, PyObject *args)
{
    gl_handle_head *h = (gl_handle_head *)self;
    gl_handle_args *inl = handle_inline(self);
    PyObject *old_callback = h->callback, *old_args = h->args;
    PyObject *inline_args[GL_INLINE_ARGS];
    int n = inl->nargs;
    h->callback = callback;
    h->args = args;
    inl->nargs = -1;
    for (int i = 0; i < n; i++) {
        inline_args[i] = inl->arg[i];
        inl->arg[i] = NULL;
    }
    Py_XDECREF(old_callback);
    Py_XDECREF(old_args);
    for (int i = 0; i < n; i++)
        Py_DECREF(inline_args[i]);
}

static int
handle_clear(PyObject *self)
{
    gl_handle_head *h = (gl_handle_head *)self;
    handle_replace_call(self, NULL, NULL);
    Py_CLEAR(h->context);
    Py_CLEAR(h->loop);
    Py_CLEAR(h->source_traceback);
    Py_CLEAR(h->cancelled);
    Py_CLEAR(h->repr);
    if (Py_TYPE(self) == G.timer_handle_type) {
        Py_CLEAR(((gl_timer_handle *)self)->scheduled);
        Py_CLEAR(((gl_timer_handle *)self)->when);
    } else if (Py_TYPE(self) == G.threadsafe_handle_type) {
        Py_CLEAR(((gl_threadsafe_handle *)self)->lock);
    }
    return 0;
}

static void
handle_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (handle_has_weakrefs(self))
        PyObject_ClearWeakRefs(self);
    (void)handle_clear(self);
    handle_release(self, type == G.handle_type         ? &G.handle_pool
                         : type == G.timer_handle_type ? &G.timer_pool
                                                        : &G.threadsafe_pool);
    Py_DECREF(type);
}

static void
handle_dealloc(PyObject *self) /* lint: allow dealloc-type: handle_free() releases it */
{
    PyObject_GC_UnTrack(self);
    gl_dealloc_nested(self, handle_dealloc, handle_free);
}

/* ---- attributes ------------------------------------------------------------------- */

static PyObject *
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

static int
handle_set_args(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    handle_replace_call(self, Py_XNewRef(((gl_handle_head *)self)->callback),
                        Py_XNewRef(value));
    return 0;
}

/* Two of asyncio's slots, which read as None until something is stored. */
static PyObject *
handle_get_slot(PyObject *self, void *offset)
{
    PyObject *value = *(PyObject **)((char *)self + (intptr_t)offset);
    return Py_NewRef(value ? value : Py_None);
}

static int
handle_set_slot(PyObject *self, PyObject *value, void *offset)
{
    PyObject **slot = (PyObject **)((char *)self + (intptr_t)offset);
    Py_XSETREF(*slot, Py_XNewRef(value));
    return 0;
}

static PyObject *
timer_get_scheduled(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((gl_timer_handle *)self)->timer != GL_NO_TIMER);
}

/* ---- cancelling and running ----------------------------------------------------- */

/* Does a slot of a handle on `loop` hold what C would not have put there? */
static inline bool
handle_is_odd(gl_loop *loop, PyObject *self, gl_handle_args *inl)
{
    gl_handle_head *h = (gl_handle_head *)self;
    return h->callback == NULL || h->cancelled != Py_False || h->loop != (PyObject *)loop ||
           h->context == NULL || !PyContext_CheckExact(h->context) ||
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

GL_PRIVATE PyObject *
gl_handle_cancel(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    gl_handle_head *h = (gl_handle_head *)self;
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
    PyObject *cancelled = ((gl_handle_head *)self)->cancelled;
    if (cancelled == NULL)
        PyErr_SetString(PyExc_AttributeError, "'Handle' object has no attribute '_cancelled'");
    return Py_XNewRef(cancelled);
}

GL_PRIVATE_INLINE void
gl_handle_track(PyObject *h)
{
    if (!PyObject_GC_IsTracked(h))
        PyObject_GC_Track(h);
}

GL_PRIVATE int
gl_handle_report(gl_loop *loop, PyObject *self)
{
    if (PyErr_ExceptionMatches(PyExc_SystemExit) ||
        PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
        return -1;
    PyObject *exc = gl_take_exception();
    PyObject *message = NULL, *source = NULL, *kwargs = NULL, *pos = NULL;
    PyObject *callback = PyObject_GetAttr(self, G.s__callback);
    PyObject *args = callback ? handle_get_args(self, NULL) : NULL;
    PyObject *stack = Py_XNewRef(((gl_handle_head *)self)->source_traceback);
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
    result = gl_report(loop, message, exc, G.s_handle, self, NULL, NULL, stack);
done:
    Py_XDECREF(message);
    Py_XDECREF(source);
    Py_XDECREF(kwargs);
    Py_XDECREF(pos);
    Py_XDECREF(stack);
    Py_XDECREF(args);
    Py_XDECREF(callback);
    Py_XDECREF(exc);
    return result;
}

/* As asyncio's loop would do it. */
static int
handle_call_odd(PyObject *self)
{
    PyObject *r = handle_cancelled(self, NULL);
    int cancelled = r ? PyObject_IsTrue(r) : -1;
    Py_XDECREF(r);
    if (cancelled)
        return cancelled < 0 ? -1 : 0;
    r = PyObject_CallOneArg(G.Handle_run, self);
    Py_XDECREF(r);
    return r ? 0 : -1;
}

static int
handle_call(gl_loop *loop, PyObject *self)
{
    gl_handle_head *h = (gl_handle_head *)self;
    gl_handle_args *inl = handle_inline(self);
    if (handle_is_odd(loop, self, inl))
        return handle_call_odd(self);
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
    return gl_handle_report(loop, self);
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
    if (gl_handle_is_cancelled((PyObject *)h))
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
                                                                    : gl_handle_cancel(self, ignored);
}

static PyObject *
threadsafe_cancelled(PyObject *self, PyObject *ignored)
{
    return handle_wait_for_others((gl_threadsafe_handle *)self) < 0
               ? NULL
               : handle_cancelled(self, ignored);
}

GL_PRIVATE int
handle_run(gl_loop *loop, PyObject *self)
{
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
    bool odd = loop == NULL || handle_is_odd(loop, self, handle_inline(self));
    if (odd && Py_TYPE(self) != G.threadsafe_handle_type)
        return PyObject_CallOneArg(G.Handle_run, self);
    Py_XINCREF(loop);
    int r = odd ? handle_call_odd(self) : handle_run(loop, self);
    Py_XDECREF(loop);
    if (r < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef handle_methods[] = {
    {"cancel", gl_handle_cancel, METH_NOARGS,
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

#define HANDLE_VIEWS                                                                          \
    {"_args", handle_get_args, handle_set_args,                                               \
     PyDoc_STR("The arguments, a tuple; None once cancelled."), NULL},                        \
    {"_repr", handle_get_slot, handle_set_slot,                                               \
     PyDoc_STR("In debug mode what repr() said before it was cancelled."),                    \
     (void *)offsetof(gl_handle_head, repr)},                                                 \
    {"_source_traceback", handle_get_slot, handle_set_slot,                                   \
     PyDoc_STR("In debug mode the stack of whoever scheduled it."),                           \
     (void *)offsetof(gl_handle_head, source_traceback)}

static PyGetSetDef handle_getset[] = {
    HANDLE_VIEWS,
    {NULL, NULL, NULL, NULL, NULL},
};

static PyGetSetDef timer_handle_getset[] = {
    HANDLE_VIEWS,
    {"_scheduled", timer_get_scheduled, NULL, PyDoc_STR("Is it armed?  Not writable."), NULL},
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
    {Py_tp_getset, timer_handle_getset},
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
    PyObject *base = gl_import_attr("asyncio.events", "_ThreadSafeHandle");
    if (base == NULL) {
        PyErr_Clear();
        return 0;
    }
    int rc = 0;
    if (PyType_Check(base) &&
        ((PyTypeObject *)base)->tp_basicsize == (Py_ssize_t)offsetof(gl_threadsafe_handle, inl) &&
        gl_slot_offset(base, "_lock") == offsetof(gl_threadsafe_handle, lock)) {
        PyObject *type = PyType_FromSpecWithBases(&threadsafe_handle_spec, base);
        G.threadsafe_handle_type = (PyTypeObject *)type;
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
gl_handle_init_types(PyObject *module)
{
    if (check_handle_layout() < 0)
        return -1;
    G.handle_type = (PyTypeObject *)PyType_FromSpecWithBases(&handle_spec, G.asyncio_Handle);
    if (G.handle_type == NULL || PyModule_AddType(module, G.handle_type) < 0)
        return -1;
    G.timer_handle_type =
        (PyTypeObject *)PyType_FromSpecWithBases(&timer_handle_spec, G.asyncio_TimerHandle);
    if (G.timer_handle_type == NULL || PyModule_AddType(module, G.timer_handle_type) < 0)
        return -1;
    return threadsafe_handle_init_type(module);
}
