/*
 * ready.c: the ready queue, a ring of owned references that grows by doubling.
 *
 * An entry is a Handle (or, later, a Task).  One iteration of the loop runs just
 * the entries that were there when it began; what they append waits for the next.
 * Guarded by the GIL: any thread may push (call_soon_threadsafe).
 */
#include "core.h"

#define GL_READY_INITIAL 256

static inline bool gl_is_handle(PyObject *o);
static inline void gl_handle_track(PyObject *h);
static int handle_traverse(PyObject *self, visitproc visit, void *arg);

static int
gl_ready_init(gl_ready *q)
{
    q->slot = PyMem_Calloc(GL_READY_INITIAL, sizeof(PyObject *));
    if (q->slot == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    q->mask = GL_READY_INITIAL - 1;
    q->head = q->count = 0;
    return 0;
}

/* Moves the entries into a ring of `capacity` (a power of two, large enough). */
static int
ready_resize(gl_ready *q, size_t capacity)
{
    PyObject **slot = PyMem_Calloc(capacity, sizeof(PyObject *));
    if (slot == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < q->count; i++)
        slot[i] = q->slot[(q->head + i) & q->mask];
    PyMem_Free(q->slot);
    q->slot = slot;
    q->mask = capacity - 1;
    q->head = 0;
    return 0;
}

/* Appends; takes over the reference in case of success. */
static inline int
gl_ready_push(gl_ready *q, PyObject *entry)
{
    if (q->count > q->mask && ready_resize(q, (q->mask + 1) * 2) < 0)
        return -1;
    q->slot[(q->head + q->count) & q->mask] = entry;
    q->count++;
    return 0;
}

/* Takes the oldest entry; the caller owns the reference.  count must not be 0. */
static inline PyObject *
gl_ready_pop(gl_ready *q)
{
    PyObject *entry = q->slot[q->head];
    q->slot[q->head] = NULL;
    q->head = (q->head + 1) & q->mask;
    q->count--;
    return entry;
}

/* Gives back the memory of a burst once the ring is empty. */
static inline void
gl_ready_trim(gl_ready *q)
{
    if (q->count == 0 && q->mask + 1 > 64 * GL_READY_INITIAL) {
        if (ready_resize(q, GL_READY_INITIAL) < 0)
            PyErr_Clear(); /* the larger ring goes on serving */
    }
}

static int
gl_ready_traverse(gl_ready *q, visitproc visit, void *arg)
{
    for (size_t i = 0; i < q->count; i++) {
        PyObject *entry = q->slot[(q->head + i) & q->mask];
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

/* Drops all entries; what their destructors push is dropped as well. */
static void
gl_ready_clear(gl_ready *q)
{
    while (q->count) {
        PyObject *entry = gl_ready_pop(q);
        if (gl_is_handle(entry) && Py_REFCNT(entry) > 1)
            gl_handle_track(entry); /* somebody keeps it, perhaps in a cycle */
        Py_DECREF(entry);
    }
}

static void
gl_ready_free(gl_ready *q)
{
    gl_ready_clear(q);
    PyMem_Free(q->slot);
    q->slot = NULL;
    q->mask = 0;
}
