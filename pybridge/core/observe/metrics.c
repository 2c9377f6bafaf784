/*
 * metrics.c: counters and histograms of a loop.
 *
 * The values are in the shared block (gl_metrics), where Go counts too, and in the loop
 * (gl_counts).  The working thread writes them and any thread with the GIL reads them.  A snapshot
 * stops no thread, so one of its values may include an event that another does not include yet.
 * A snapshot copies the bytes of both structs, and goloop/_internal/observe/metrics.py creates a
 * Metrics from them.  A new value needs a field in one of them and a row in metric_registry.py.
 *
 * With GL_NO_METRICS, and the tag `nometrics` for Go's half, no times are recorded; a benchmark
 * compares the two builds to measure the cost of metrics.
 */
#include "observe/observe.h"

GL_PRIVATE_INLINE void
gl_histogram_add(gl_histogram *h, int64_t value, uint64_t times)
{
#ifndef GL_NO_METRICS
    uint64_t v = (uint64_t)Py_MAX(value, 0);
    unsigned i = (unsigned)v;
    if (v >= 8) { /* eight buckets for each power of two: the exponent, then three bits */
        unsigned exponent = 63u - (unsigned)__builtin_clzll(v);
        i = ((exponent - 2) << 3) | (unsigned)((v >> (exponent - 3)) & 7);
        i = Py_MIN(i, GL_BUCKETS - 1);
    }
    h->count += times;
    h->sum += v * times;
    h->max = Py_MAX(h->max, v);
    h->bucket[i] += times;
#else
    (void)h;
    (void)value;
    (void)times;
#endif
}

GL_PRIVATE_INLINE void
gl_count_received(gl_loop *loop, ssize_t n)
{
    if (n > 0 && loop->shared != NULL) {
        loop->shared->metrics.reads++;
        loop->shared->metrics.bytes_received += (uint64_t)n;
    }
}

GL_PRIVATE_INLINE void
gl_note_sent(gl_loop *loop, ssize_t n)
{
    if (n > 0 && loop->shared != NULL) {
        loop->dirty = 1; /* a socket of the same loop may have received the bytes */
        loop->shared->metrics.writes++;
        loop->shared->metrics.bytes_sent += (uint64_t)n;
    }
}

/* ---- the snapshot ------------------------------------------------------------------------- */

/* Adds an open stream and its queued bytes to the sums of a gl_counts; for gl_fds_each().  Returns
 * 0. */
static int
add_stream(gl_fd *f, visitproc Py_UNUSED(visit), void *arg)
{
    gl_counts *sums = arg;
    if (f->transport != NULL && f->kind == GL_REG_STREAM) {
        sums->connections_open++;
        sums->write_buffer_bytes += G.reg_ops[GL_REG_STREAM]->queued_bytes(f->transport);
    }
    return 0;
}

/* _counted(): returns the bytes of a snapshot, gl_metrics and gl_counts, a new bytes object; empty
 * for a closed loop.  Updates the loop's time_busy and time_idle, which never decrease.  All values
 * are copied before the bytes object is created: the creation may run the collector or wait without
 * the loop's lock, and another thread may then close the loop. */
static PyObject *
loop__counted(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    const gl_shared *sh = self->shared;
    if (sh == NULL)
        return PyBytes_FromStringAndSize(NULL, 0);
    int64_t now = gl_monotonic_ns();
    int64_t busy = GL_READ(sh->busy);
    int64_t ran = sh->ran;
    if (busy < 0)
        busy += now;
    if (ran < 0)
        ran += now;
    /* A poll may have begun just now, so that a time would be less than in the last snapshot. */
    self->counts.time_busy = Py_MAX(self->counts.time_busy, (uint64_t)busy);
    self->counts.time_idle = Py_MAX(self->counts.time_idle, (uint64_t)Py_MAX(ran - busy, 0));
    struct {
        gl_metrics metrics;
        gl_counts counts;
    } all = {sh->metrics, self->counts};
    gl_counts *c = &all.counts;
    (void)gl_fds_each(&self->fds, add_stream, NULL, c);
    c->ready = self->ready.count;
    c->timers = self->timers.armed;
    all.metrics.ready_max = Py_MAX(all.metrics.ready_max, sh->max_ready);
    all.metrics.timers_max = Py_MAX(all.metrics.timers_max, sh->max_timers);
#ifdef GL_FREE_THREADED
    c->threadsafe_calls = GL_READ(self->inbox.posts);
#endif
    int64_t since = GL_READ(sh->blocked_since);
    uint64_t blocked_for = 0;
    if (since != self->blocked_seen)
        blocked_for = (uint64_t)(gl_monotonic_ns() - since);
    c->blocked_for = blocked_for;
    c->time_blocked += blocked_for;
    return PyBytes_FromStringAndSize((const char *)&all, sizeof all);
}

/* _open_loops(): returns a new list of the open loops of this process, without the loops inherited
 * from a parent.  Out of memory it may have fewer loops, or is NULL with MemoryError. */
static PyObject *
open_loops(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyObject *list = PyList_New(0);
    gl_loop_list all = gl_loops_all(false);
    for (uint32_t i = 0; list && i < all.len; i++)
        if (PyList_Append(list, (PyObject *)all.item[i]) < 0)
            Py_CLEAR(list);
    gl_loops_drop(&all);
    return list;
}

/* _registered(): returns a new list of the transports and listeners that are registered with the
 * reactor; NULL with MemoryError. */
static PyObject *
loop__registered(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *found = PyList_New(0);
    for (uint32_t i = 0; found && i < self->regs_cap; i++)
        if (self->regs[i].owner != NULL && PyList_Append(found, self->regs[i].owner) < 0)
            Py_CLEAR(found);
    return found;
}

static PyMethodDef metrics_table[] = {
    {"_counted", GL_NOARGS(loop__counted), NULL},
    {"_registered", GL_NOARGS(loop__registered), NULL},
    {NULL, NULL, 0, NULL},
};
GL_PRIVATE PyMethodDef *const gl_metrics_methods = metrics_table;

static PyMethodDef metrics_functions[] = {
    {"_open_loops", GL_NOARGS(open_loops), NULL},
    {NULL, NULL, 0, NULL},
};

GL_PRIVATE int
gl_metrics_init(PyObject *module)
{
    return PyModule_AddFunctions(module, metrics_functions);
}
