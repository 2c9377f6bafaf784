/*
 * ready.c: the ready queue, a FIFO of owned references in a circular buffer that grows by
 * doubling; and the wake-up of a loop that polls.
 *
 * An entry is a Handle or a Task.  One iteration of the loop runs only the entries that the queue
 * had when the iteration began; entries that are appended meanwhile run in the next iteration.
 * Guarded by the GIL: any thread may push (call_soon_threadsafe).
 */
#include "queue/private.h"

/* The capacity of a new queue, a power of two. */
#define GL_READY_INITIAL 256

/* ---- wake-up -------------------------------------------------------------- */

GL_PRIVATE void
gl_wake(gl_loop *loop)
{
    gl_shared *sh = loop->shared;
    /* If another thread forked during the poll, `sleeping` is still set in the child, where the
     * fd's number may belong to another file. */
    if (sh == NULL || !GL_READ(loop->sleeping) || gl_loop_is_foreign(loop))
        return;
    uint32_t idle = 0;
    if (!__atomic_compare_exchange_n(&sh->wake_pending, &idle, 1u, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
        return;
    (void)gl_wake_up(sh);
}

/* Moves the entries into a new buffer of `capacity` entries, a power of two that is at least the
 * number of entries.  -1 with MemoryError, and the queue is unchanged. */
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
    q->countdown = 1;
    q->stride = 1;
    return ready_resize(q, GL_READY_INITIAL);
}

/* Doubles the buffer of a full queue.  -1 with MemoryError, or with RuntimeError for a closed
 * queue: the caller has checked the loop, but Python code that ran since then (a garbage
 * collection, for example) may have closed it. */
static int
ready_grow(gl_ready *q)
{
    if (q->slot == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "Event loop is closed");
        return -1;
    }
    return ready_resize(q, q->capacity * 2);
}

/* ---- arrivals ----------------------------------------------------------------------------
 *
 * Pushed entries and due timers arrive.  Arrivals are divided into strides.  One arrival of each
 * stride, drawn at random, is sampled: its waiting time is measured and represents the whole
 * stride.  Each arrival is therefore sampled with probability 1 / stride, independently of the
 * program, and the histogram of waiting times is unbiased.  The stride is 1 while there is a
 * budget, which grows by one sample every 32 us up to GL_SAMPLES; as the budget shrinks the stride
 * doubles.
 *
 * The same countdown finds the next sample and, in guest mode, the first push since a poll began,
 * which has to end the poll.  So any other arrival costs a decrement. */
#define GL_SAMPLES 128

/* Begins a stride of 1: the next arrival is sampled. */
static void
ready_reset_stride(gl_ready *q)
{
    q->countdown = 1;
    q->sample_countdown = 0;
    q->stride = 1;
    q->stride_rest = 0;
}

/* Spends a sample of the budget, begins the next stride and draws the position of its sample. */
static void
ready_next_stride(gl_ready *q)
{
    if (q->sample_budget > 0)
        q->sample_budget--;
    q->stride = 1;
    if (q->sample_budget < GL_SAMPLES / 2)
        q->stride <<= (GL_SAMPLES / 2 - q->sample_budget) / 4;
    q->rng = q->rng * 6364136223846793005u + 1442695040888963407u;
    uint32_t place = (uint32_t)(q->rng >> 40) & (q->stride - 1);
    q->countdown = q->stride_rest + place + 1;
    q->stride_rest = q->stride - place - 1;
}

/* Ends a poll of the loop, and begins the next stride if the arrival is the sample of its stride.
 * Returns the weight of the sample, or 0. */
static uint32_t
ready_countdown_ended(gl_ready *q)
{
    /* The host loop of a guest, or another thread, may have pushed while the reactor polls. */
    gl_wake((gl_loop *)((char *)q - offsetof(gl_loop, ready)));
    if (q->sample_countdown != 0) {
        q->countdown = q->sample_countdown - 1;
        q->sample_countdown = 0;
        if (q->countdown != 0)
            return 0;
    }
    uint32_t weight = q->stride;
    ready_next_stride(q);
    return weight;
}

GL_PRIVATE_INLINE uint32_t
gl_ready_count_arrival(gl_ready *q)
{
    q->countdown--;
    if (q->countdown != 0)
        return 0;
    return ready_countdown_ended(q);
}

GL_PRIVATE void
gl_ready_wake_at_next_push(gl_ready *q)
{
    if (q->sample_countdown != 0)
        return;
    q->sample_countdown = q->countdown;
    q->countdown = 1;
}

GL_PRIVATE void
gl_ready_refill_samples(gl_ready *q, int64_t now)
{
    int64_t more = (now - q->budget_time) >> 15;
    q->budget_time += more << 15;
    q->sample_budget = Py_MIN(q->sample_budget + more, GL_SAMPLES);
    /* The stride can be reset here without bias: its arrivals so far were sampled with
     * probability 1 / stride. */
    if (q->stride > 1 && q->sample_budget >= GL_SAMPLES / 2)
        ready_reset_stride(q);
}

/* ---- the queue ----------------------------------------------------------------------- */

GL_PRIVATE_INLINE int
gl_ready_push(gl_ready *q, PyObject *entry, int64_t since)
{
    if (q->count == q->capacity && ready_grow(q) < 0)
        return -1;
    uint64_t sample = 0;
    uint32_t weight = gl_ready_count_arrival(q);
    if (weight != 0)
        sample = gl_sample_pack(since != 0 ? since : gl_monotonic_ns(), weight);
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

/* Reverses the order of the entries from the one at `first` to that before `end`, counted from the
 * next entry. */
static void
ready_reverse(gl_ready *q, uint64_t first, uint64_t end)
{
    while (first + 1 < end) {
        gl_entry *a = &q->slot[(q->head + first++) & (q->capacity - 1)];
        gl_entry *b = &q->slot[(q->head + --end) & (q->capacity - 1)];
        gl_entry entry = *a;
        *a = *b;
        *b = entry;
    }
}

GL_PRIVATE void
gl_ready_move_to_end(gl_ready *q, uint64_t n)
{
    /* Rotates in place, because `head` counts the entries that were run. */
    ready_reverse(q, 0, n);
    ready_reverse(q, n, q->count);
    ready_reverse(q, 0, q->count);
}

GL_PRIVATE_INLINE void
gl_ready_trim(gl_ready *q)
{
    if (q->count == 0 && q->capacity > 64 * GL_READY_INITIAL) {
        if (ready_resize(q, GL_READY_INITIAL) < 0)
            PyErr_Clear(); /* the larger buffer stays in use */
    }
}

GL_PRIVATE int
gl_ready_traverse(gl_ready *q, visitproc visit, void *arg)
{
    for (size_t i = 0; i < q->count; i++) {
        PyObject *entry = q->slot[(q->head + i) & (q->capacity - 1)].object;
        if (gl_is_handle(entry) && Py_REFCNT(entry) == 1 && !PyObject_GC_IsTracked(entry)) {
            /* The queue has the only reference, so it visits the handle's references itself. */
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
    if (Py_REFCNT(entry) == 1 && gl_is_handle(entry) && !gl_has_weakrefs(entry))
        PyObject_GC_UnTrack(entry);
}

GL_PRIVATE void
gl_ready_track_kept(gl_ready *q)
{
    for (size_t i = 0; i < q->count; i++) {
        PyObject *entry = q->slot[(q->head + i) & (q->capacity - 1)].object;
        if (gl_is_handle(entry) && (Py_REFCNT(entry) > 1 || gl_has_weakrefs(entry)))
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
            gl_handle_track(entry); /* there are other references, perhaps in a cycle */
        Py_DECREF(entry);
    }
    PyMem_Free(old.slot);
}
