/*
 * metrics.c: what a loop has done, in figures.
 *
 * The figures stand in the shared block (gl_metrics), where Go counts too, and in the loop
 * (gl_counts).  They are written by whoever is at work and read by any thread with the GIL: a
 * snapshot stops nobody, and may have one event in one figure that is not yet in another.
 * goloop/_internal/metrics/metrics.py makes a Metrics of the two blocks, whose bytes are all that a
 * snapshot takes.  A new figure is a field of either, and a row in metric_registry.py.
 *
 * Compiled with GL_NO_METRICS, as Go's half with the tag `nometrics`, no time is noted; the
 * benchmark of what that costs compares the two.
 */
#include "observe/observe.h"

GL_PRIVATE_INLINE void
gl_histogram_add(gl_histogram *h, int64_t value, uint64_t times)
{
#ifndef GL_NO_METRICS
    uint64_t v = value > 0 ? (uint64_t)value : 0;
    unsigned i = (unsigned)v;
    if (v >= 8) {
        unsigned e = 63u - (unsigned)__builtin_clzll(v);
        i = ((e - 2) << 3) | (unsigned)((v >> (e - 3)) & 7);
        i = i < GL_BUCKETS ? i : GL_BUCKETS - 1;
    }
    h->count += times;
    h->sum += v * times;
    h->most = v > h->most ? v : h->most;
    h->bucket[i] += times;
#else
    (void)h, (void)value, (void)times;
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
gl_count_sent(gl_loop *loop, ssize_t n)
{
    if (n > 0 && loop->shared != NULL) {
        loop->dirty = 1; /* it may have come to a socket of this loop's own */
        loop->shared->metrics.writes++;
        loop->shared->metrics.bytes_sent += (uint64_t)n;
    }
}

/* ---- the snapshot ------------------------------------------------------------------------- */

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

/* Copies all that it tells before it makes the object: whatever makes one may run the
 * collector, or wait without the loop's lock, and another thread closes the loop. */
static PyObject *
loop__counted(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    const gl_shared *sh = self->shared;
    if (sh == NULL)
        return PyBytes_FromStringAndSize(NULL, 0);
    int64_t busy = GL_READ(sh->busy), ran = sh->ran, now = gl_monotonic_ns();
    busy += busy < 0 ? now : 0;
    ran += ran < 0 ? now : 0;
    /* A poll may just have begun, which this clock does not know of: what was told stands. */
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
    all.metrics.ready_max = Py_MAX(all.metrics.ready_max, sh->ready_most);
    all.metrics.timers_max = Py_MAX(all.metrics.timers_max, sh->timers_most);
#ifdef GL_FREE_THREADED
    c->threadsafe_calls = GL_READ(self->inbox.posts);
#endif
    int64_t since = GL_READ(sh->blocked_since);
    c->blocked_for = since != self->blocked_seen ? (uint64_t)(gl_monotonic_ns() - since) : 0;
    c->time_blocked += c->blocked_for;
    return PyBytes_FromStringAndSize((const char *)&all, sizeof all);
}

/* The loops of this process that have a reactor; those of a parent are none. */
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

/* _registered(): transports and listeners that the reactor knows. */
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
