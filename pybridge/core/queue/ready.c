/*
 * ready.c: the ready queue, a FIFO of owned references in a circular buffer that grows by
 * doubling.
 *
 * An entry is a Handle or a Task.  One iteration of the loop runs just
 * the entries that were there when it began; what they append waits for the next.
 * Guarded by the GIL: any thread may push (call_soon_threadsafe).
 */
#include "queue/private.h"

#define GL_READY_INITIAL 256

GL_PRIVATE int
gl_ready_init(gl_ready *q)
{
    q->slot = PyMem_Calloc(GL_READY_INITIAL, sizeof(PyObject *));
    if (q->slot == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    q->capacity = GL_READY_INITIAL;
    q->head = q->count = 0;
    return 0;
}

/* Moves the entries into a buffer of `capacity` (a power of two, large enough). */
static int
ready_resize(gl_ready *q, size_t capacity)
{
    PyObject **slot = PyMem_Calloc(capacity, sizeof(PyObject *));
    if (slot == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < q->count; i++)
        slot[i] = q->slot[(q->head + i) & (q->capacity - 1)];
    PyMem_Free(q->slot);
    q->slot = slot;
    q->capacity = capacity;
    q->head = 0;
    return 0;
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

/* ---- the ready queue's probe ------------------------------------------------------- */

/* The entry was pushed whose wait is measured. */
static void
ready_probe_pushed(gl_ready *q)
{
    q->probed_at = gl_monotonic_ns();
    q->probed = q->popped + q->count;
}

GL_PRIVATE void
gl_ready_probe_runs(gl_loop *loop)
{
    gl_histogram_add(&loop->shared->metrics.ready_wait,
                     gl_monotonic_ns() - loop->ready.probed_at);
    loop->ready.probed_at = GL_PROBE_NONE;
}

/* ---- the queue ----------------------------------------------------------------------- */

GL_PRIVATE_INLINE int
gl_ready_push(gl_ready *q, PyObject *entry)
{
    if (q->count == q->capacity && ready_grow(q) < 0)
        return -1;
    q->slot[(q->head + q->count) & (q->capacity - 1)] = entry;
    q->count++;
    if (q->probed_at == GL_PROBE_NEXT)
        ready_probe_pushed(q);
    return 0;
}

GL_PRIVATE_INLINE PyObject *
gl_ready_pop(gl_ready *q)
{
    PyObject *entry = q->slot[q->head];
    q->slot[q->head] = NULL;
    q->head = (q->head + 1) & (q->capacity - 1);
    q->count--;
    q->popped++;
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
        PyObject *entry = q->slot[(q->head + i) & (q->capacity - 1)];
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
    PyObject *entry = q->slot[(q->head + q->count - 1) & (q->capacity - 1)];
    if (Py_REFCNT(entry) == 1 && gl_is_handle(entry) && !handle_has_weakrefs(entry))
        PyObject_GC_UnTrack(entry);
}

GL_PRIVATE void
gl_ready_track_kept(gl_ready *q)
{
    for (size_t i = 0; i < q->count; i++) {
        PyObject *entry = q->slot[(q->head + i) & (q->capacity - 1)];
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
        PyObject *entry = gl_ready_pop(&old);
        if (gl_is_handle(entry) && Py_REFCNT(entry) > 1)
            gl_handle_track(entry); /* somebody keeps it, perhaps in a cycle */
        Py_DECREF(entry);
    }
    PyMem_Free(old.slot);
}
