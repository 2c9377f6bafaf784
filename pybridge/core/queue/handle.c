/*
 * handle.c: the objects Handle, TimerHandle and ThreadSafeHandle; handle_run.c runs them.
 *
 * The types derive from asyncio's classes and store callback, context, loop and so on in asyncio's
 * own slots, so that asyncio's Python methods (repr, get_context, when, the comparisons, even an
 * unbound _run) work unchanged.  Python can write these slots and delete their values, so C
 * checks them before each use.  If a slot was modified, asyncio's own _run or cancel is called and
 * handles the values as in a handle of asyncio.  Values that C relies on (inline arguments, a
 * timer's id and deadline) are stored after the slots, out of Python's reach.
 *
 * Up to GL_INLINE_ARGS arguments are stored without a tuple; reading `_args` creates one.  An empty
 * context is created when it is needed (below).
 *
 * Life of a handle:
 *
 *     call_soon  ->  in the ready queue  ->  running  ->  done (references kept)
 *     call_at    ->  armed in timers.c   ->  running      until it is freed
 *                        |
 *     cancel() at any time: callback and arguments become None, the entry is skipped
 *
 * Only the loop creates handles.  They come from a free list, and the garbage collector does not
 * track a Handle as long as only the ready queue refers to it: most callers drop the handle at
 * once, and it lives for one iteration.  The loop's traverse visits the references of such a
 * handle as if they were the loop's own (ready.c), so that a loop dropped with entries in its
 * queue is collected.  A handle with other references may be in a cycle, and is tracked before it
 * can become garbage: after it ran, when the loop stops with it in the queue, or at once if the
 * loop does not run (push_handle in call_soon.c).
 */
#include "queue/private.h"

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

#ifdef GL_FREE_THREADED
/* ---- the references to the loop ---------------------------------------------------- */

/* Each Handle refers to its loop.  If a Handle is created in one thread and freed in another, both
 * threads would write the loop's reference count, one cache line, all the time.  While the loop
 * runs it therefore passes the references of freed Handles on to the next posted Handle: `returned`
 * counts them in the loop's thread, and gl_inbox_join() moves them to `credit`. */

GL_PRIVATE_INLINE bool
gl_inbox_take_references(gl_loop *loop, int n)
{
    int64_t left = GL_READ(loop->inbox.credit);
    while (left >= n)
        if (__atomic_compare_exchange_n(&loop->inbox.credit, &left, left - n, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return true;
    return false;
}

GL_PRIVATE void
gl_inbox_return_reference(gl_loop *loop)
{
    if (gl_loop_runs_here(loop))
        loop->returned++;
    else
        gl_decref_shared((PyObject *)loop, 1);
}

GL_PRIVATE void
gl_inbox_drop_spare_references(gl_loop *loop)
{
    int64_t spare = __atomic_exchange_n(&loop->inbox.credit, 0, __ATOMIC_RELAXED);
    int64_t returned = loop->returned;
    loop->returned = 0;
    gl_decref_shared((PyObject *)loop, spare + returned);
}

#endif

/* ---- the context -------------------------------------------------------------------
 *
 * A handle has a copy of the context in which it was scheduled.  A copy of an empty context, as in
 * most programs, is created only when the callback runs.  The last callback's context is reused
 * for it if the handle had the only reference and the context is still empty. */

/* Returns true if the current context has no variable set. */
static inline bool
context_is_empty(void)
{
    PyObject *current = PyThreadState_Get()->context;
    return current == NULL || PyObject_Size(current) == 0;
}

GL_PRIVATE int
handle_make_context(PyObject *self)
{
    gl_handle_args *inl = handle_inline(self);
    PyObject **slot = &((gl_handle_head *)self)->context;
    if (*slot != NULL) /* set through asyncio's own slot */
        inl->context_due = false;
    if (!inl->context_due)
        return 0;
#ifdef GL_FREE_THREADED
    PyObject *made = PyContext_New();
#else
    PyObject *made = G.spare_context;
    G.spare_context = NULL;
    if (made == NULL)
        made = PyContext_New();
#endif
    if (made == NULL)
        return -1;
    if (*slot != NULL) { /* code that the garbage collector ran has read the context */
        Py_DECREF(made);
        return 0;
    }
    inl->context_due = false;
    inl->context_ours = true;
    *slot = made;
    return 0;
}

GL_PRIVATE void
handle_recycle_context(PyObject *self)
{
    /* The loop runs, so the context of a handle is not garbage that the collector has cleared. */
    gl_handle_args *inl = handle_inline(self);
    PyObject *context = ((gl_handle_head *)self)->context;
#ifdef GL_FREE_THREADED
    return; /* several threads run loops, and G has one spare context */
#endif
    if (context == NULL || G.spare_context != NULL || Py_REFCNT(context) != 1 ||
        gl_has_weakrefs(context) || PyObject_Size(context) != 0)
        return;
    G.spare_context = context;
    ((gl_handle_head *)self)->context = NULL;
    inl->context_ours = false;
    inl->context_due = true; /* a finalizer of its references may read the context */
}

/* Fills in the fields that all types have, with references of their own.  `h` is new or from the
 * free list: all fields are NULL.  `inl` is handle_inline(h). */
static inline int
handle_fill(gl_loop *loop, PyObject *h, gl_handle_args *inl, const gl_call *call)
{
    gl_handle_head *head = (gl_handle_head *)h;
    PyObject *context = call->context;
    Py_ssize_t nargs = call->nargs;
#ifdef GL_FREE_THREADED
    inl->posted = gl_is_shared((PyObject *)loop);
    if (!inl->posted || !gl_inbox_take_references(loop, 2)) {
        Py_INCREF(loop);
        Py_INCREF(loop);
    }
    gl_owner_loop_set(&inl->owner_loop, (PyObject *)loop);
    head->loop = (PyObject *)loop;
#else
    head->loop = Py_NewRef((PyObject *)loop);
#endif
    inl->nargs = 0;
    inl->context_ours = false;
    bool is_copied = context == NULL || context == Py_None;
    inl->context_due = is_copied && context_is_empty();
    if (!inl->context_due) {
        head->context = is_copied ? PyContext_CopyCurrent() : Py_NewRef(context);
        if (head->context == NULL)
            return -1;
    }
    head->callback = Py_NewRef(call->callback);
    head->cancelled = Py_NewRef(Py_False);
    if (nargs <= GL_INLINE_ARGS) {
        for (Py_ssize_t i = 0; i < nargs; i++)
            inl->arg[i] = Py_NewRef(call->args[i]);
        inl->nargs = (int8_t)nargs;
    } else {
        head->args = PyTuple_New(nargs);
        if (head->args == NULL)
            return -1;
        for (Py_ssize_t i = 0; i < nargs; i++)
            PyTuple_SET_ITEM(head->args, i, Py_NewRef(call->args[i]));
        inl->nargs = -1;
    }
    if (GL_READ(loop->debug)) {
        head->source_traceback = PyObject_CallNoArgs(G.caller_stack); /* debugging.py */
        if (head->source_traceback == NULL)
            return -1;
    }
    return 0;
}

/* Clears `slot`, one of the handle's two references to its loop.  A posted handle's reference can
 * become a spare one. */
static inline void
handle_drop_loop(PyObject *h, PyObject **slot)
{
#ifdef GL_FREE_THREADED
    PyObject *loop = *slot;
    if (handle_inline(h)->posted && loop == (PyObject *)handle_inline(h)->owner_loop.loop) {
        *slot = NULL;
        gl_inbox_return_reference((gl_loop *)loop);
        return;
    }
#else
    (void)h;
#endif
    Py_CLEAR(*slot);
}

/* Returns the memory of a cleared handle to its pool, or frees it.  In a build without the GIL it
 * drops the handle's second reference to the loop first, and there is no pool. */
static inline void
handle_free_memory(PyObject *h, gl_pool *pool)
{
#ifdef GL_FREE_THREADED
    handle_drop_loop(h, (PyObject **)&handle_inline(h)->owner_loop.loop);
    /* without a pool: the allocator has one for each thread */
    Py_TYPE(h)->tp_free(h);
    return;
#endif
    if (pool->len < GL_MAX_POOL)
        pool->item[pool->len++] = h; /* all fields but nargs are NULL */
    else
        Py_TYPE(h)->tp_free(h);
}

/* Returns the free list of a type. */
static inline gl_pool *
pool_of(const PyTypeObject *type)
{
    if (type == G.handle_type)
        return &G.handle_pool;
    if (type == G.timer_handle_type)
        return &G.timer_pool;
    return &G.threadsafe_pool;
}

GL_PRIVATE PyObject *
gl_handle_new(PyTypeObject *type, gl_loop *loop, const gl_call *call)
{
    PyObject *h;
    gl_pool *pool = pool_of(type);
    if (pool->len) {
        h = pool->item[--pool->len];
        Py_INCREF(type);
        _Py_NewReference(h);
    } else {
        /* lint: allow gc-new-untracked: tracked later, and only if there are other references */
        h = PyObject_GC_New(PyObject, type);
        if (h == NULL)
            return NULL;
        memset(h + 1, 0, (size_t)type->tp_basicsize - sizeof *h);
    }
    if (handle_fill(loop, h, handle_inline(h), call) < 0)
        Py_CLEAR(h);
#ifdef GL_FREE_THREADED
    if (h != NULL)
        PyObject_GC_Track(h); /* tracking sets one bit in this build, so each handle is tracked */
#endif
    return h;
}

GL_PRIVATE_INLINE void
gl_handle_track(PyObject *h)
{
    if (!PyObject_GC_IsTracked(h))
        PyObject_GC_Track(h);
}

/* Returns the address of the slots after the head that only one type has, and sets their *count. */
static inline PyObject **
handle_further_slots(PyObject *self, int *count)
{
    PyTypeObject *type = Py_TYPE(self);
    *count = 0;
    if (type == G.timer_handle_type)
        *count = 2;
    else if (type == G.threadsafe_handle_type)
        *count = 1;
    return (PyObject **)((char *)self + sizeof(gl_handle_head)); /* scheduled, when; or lock */
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
    GL_OWNER_LOOP_VISIT(inl);
    int further;
    PyObject **slot = handle_further_slots(self, &further);
    for (int i = 0; i < further; i++)
        Py_VISIT(slot[i]);
    return 0;
}

GL_PRIVATE_INLINE void
handle_replace_call(PyObject *self, PyObject *callback, PyObject *args)
{
    gl_handle_head *h = (gl_handle_head *)self;
    gl_handle_args *inl = handle_inline(self);
    PyObject *old_callback = h->callback;
    PyObject *old_args = h->args;
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

GL_PRIVATE int
handle_clear(PyObject *self)
{
    gl_handle_head *h = (gl_handle_head *)self;
    handle_replace_call(self, NULL, NULL);
    handle_inline(self)->context_due = false;
    Py_CLEAR(h->context);
    handle_drop_loop(self, &h->loop);
    Py_CLEAR(h->source_traceback);
    Py_CLEAR(h->cancelled);
    Py_CLEAR(h->repr);
    if (Py_TYPE(self) != G.handle_type) {
        int further;
        PyObject **slot = handle_further_slots(self, &further);
        for (int i = 0; i < further; i++)
            Py_CLEAR(slot[i]);
    }
    return 0;
}

/* Frees a handle without the trashcan; for gl_dealloc_nested(). */
static void
handle_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (gl_has_weakrefs(self))
        PyObject_ClearWeakRefs(self);
    (void)handle_clear(self);
    handle_free_memory(self, pool_of(type));
    Py_DECREF(type);
}

GL_PRIVATE void
handle_dealloc(PyObject *self) /* lint: allow dealloc-type: handle_free() releases it */
{
    PyObject_GC_UnTrack(self);
    gl_dealloc_nested(self, handle_dealloc, handle_free);
}
