/*
 * ready.c: the ready queue, a FIFO of owned references in a circular buffer that grows by
 * doubling; and what wakes the loop for it.
 *
 * An entry is a Handle or a Task.  One iteration of the loop runs just
 * the entries that were there when it began; what they append waits for the next.
 * Guarded by the GIL: any thread may push (call_soon_threadsafe).
 */
#include "queue/private.h"

#define GL_READY_INITIAL 256

/* ---- waking --------------------------------------------------------------- */

/* Makes a blocked turn return; any thread that has the GIL, which orders what it is woken for.
 * One write at most until the turn has seen it. */
GL_PRIVATE void
gl_wake(gl_loop *loop)
{
    gl_shared *sh = loop->shared;
    /* A fork in another thread while we slept leaves `sleeping` set in the child, where
     * the fd's number may mean something else by now. */
    if (sh == NULL || !GL_READ(loop->sleeping) || gl_loop_is_foreign(loop))
        return;
    uint32_t idle = 0;
    if (!__atomic_compare_exchange_n(&sh->wake_pending, &idle, 1u, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
        return;
    (void)gl_wake_up(sh);
}

/* Moves the entries into a buffer of `capacity` (a power of two, large enough). */
static int
ready_resize(gl_ready *q, size_t capacity)
{
    gl_entry *slot = PyMem_Calloc(capacity, sizeof(*slot));
    if (slot == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < q->count; i++)
        slot[(q->head + i) & (capacity - 1)] = q->slot[(q->head + i) & (q->capacity - 1)];
    PyMem_Free(q->slot);
    q->slot = slot;
    q->capacity = capacity;
    return 0;
}

GL_PRIVATE int
gl_ready_init(gl_ready *q)
{
    q->until = q->block = 1;
    return ready_resize(q, GL_READY_INITIAL);
}

/* The queue is full, or it is closed: whoever pushes has checked the loop, and then
 * something ran (a collection, say) that closed it. */
static int
ready_grow(gl_ready *q)
{
    if (q->slot == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "Event loop is closed");
        return -1;
    }
    return ready_resize(q, q->capacity * 2);
}

/* ---- the sample -------------------------------------------------------------------------
 *
 * Arrivals, which are entries that are pushed and due timers, are counted off in blocks.  One of
 * each block, drawn by lot, is measured and stands for all of it: so each arrival is measured with
 * a chance of 1 / block, whatever the loop does, and the histogram of the waits is unbiased.  A
 * block is one arrival while there is a budget, a measurement for each 32 us and GL_SAMPLES at
 * most; as that runs out blocks double. */
#define GL_SAMPLES 128

/* This arrival is the block's, and the next one's is drawn.  How many it stands for. */
static uint32_t
ready_draw(gl_ready *q)
{
    gl_wake((gl_loop *)((char *)q - offsetof(gl_loop, ready))); /* a guest's host may have pushed */
    uint32_t stands_for = q->block;
    q->budget -= q->budget > 0;
    q->block = 1u << (q->budget < GL_SAMPLES / 2 ? (GL_SAMPLES / 2 - q->budget) / 4 : 0);
    q->lot = q->lot * 6364136223846793005u + 1442695040888963407u;
    uint32_t place = (uint32_t)(q->lot >> 40) & (q->block - 1);
    q->until = q->behind + place + 1;
    q->behind = q->block - place - 1;
    return stands_for;
}

GL_PRIVATE_INLINE uint32_t
gl_ready_sample_weight(gl_ready *q)
{
    return --q->until ? 0 : ready_draw(q);
}

GL_PRIVATE void
gl_ready_polled(gl_ready *q, int64_t now)
{
    int64_t more = (now - q->refilled) >> 15;
    q->refilled += more << 15;
    q->budget = Py_MIN(q->budget + more, GL_SAMPLES);
    if (q->block > 1 && q->budget >= GL_SAMPLES / 2)
        q->until = q->block = 1,
        q->behind = 0; /* what has come of it had its chance of 1 / block */
}

/* ---- the queue ----------------------------------------------------------------------- */

GL_PRIVATE_INLINE int
gl_ready_push(gl_ready *q, PyObject *entry, int64_t since)
{
    if (q->count == q->capacity && ready_grow(q) < 0)
        return -1;
    uint32_t n = gl_ready_sample_weight(q);
    uint64_t sample = n ? (uint64_t)(since ? since : gl_monotonic_ns()) << 5 | __builtin_ctz(n) : 0;
    q->slot[(q->head + q->count++) & (q->capacity - 1)] = (gl_entry){entry, sample};
    return 0;
}

GL_PRIVATE_INLINE gl_entry
gl_ready_pop(gl_ready *q)
{
    gl_entry entry = q->slot[q->head & (q->capacity - 1)];
    GL_WRITE(q->head, q->head + 1); /* the monitor reads it */
    q->count--;
    return entry;
}

GL_PRIVATE_INLINE void
gl_ready_trim(gl_ready *q)
{
    if (q->count == 0 && q->capacity > 64 * GL_READY_INITIAL) {
        if (ready_resize(q, GL_READY_INITIAL) < 0)
            PyErr_Clear(); /* the larger buffer goes on serving */
    }
}

GL_PRIVATE int
gl_ready_traverse(gl_ready *q, visitproc visit, void *arg)
{
    for (size_t i = 0; i < q->count; i++) {
        PyObject *entry = q->slot[(q->head + i) & (q->capacity - 1)].object;
        if (gl_is_handle(entry) && Py_REFCNT(entry) == 1 && !PyObject_GC_IsTracked(entry)) {
            /* Nobody else has it: what it refers to is as good as ours. */
            int r = handle_traverse(entry, visit, arg);
            if (r)
                return r;
        } else {
            Py_VISIT(entry);
        }
    }
    return 0;
}

GL_PRIVATE_INLINE void
gl_ready_untrack_last(gl_ready *q)
{
#ifdef GL_FREE_THREADED
    return; /* all are tracked */
#endif
    if (q->count == 0)
        return;
    PyObject *entry = q->slot[(q->head + q->count - 1) & (q->capacity - 1)].object;
    if (Py_REFCNT(entry) == 1 && gl_is_handle(entry) && !handle_has_weakrefs(entry))
        PyObject_GC_UnTrack(entry);
}

GL_PRIVATE void
gl_ready_track_kept(gl_ready *q)
{
    for (size_t i = 0; i < q->count; i++) {
        PyObject *entry = q->slot[(q->head + i) & (q->capacity - 1)].object;
        if (gl_is_handle(entry) && (Py_REFCNT(entry) > 1 || handle_has_weakrefs(entry)))
            gl_handle_track(entry);
    }
}

GL_PRIVATE void
gl_ready_close(gl_ready *q)
{
    gl_ready old = *q;
    memset(q, 0, sizeof(*q));
    while (old.count) {
        PyObject *entry = gl_ready_pop(&old).object;
        if (gl_is_handle(entry) && Py_REFCNT(entry) > 1)
            gl_handle_track(entry); /* somebody keeps it, perhaps in a cycle */
        Py_DECREF(entry);
    }
    PyMem_Free(old.slot);
}
