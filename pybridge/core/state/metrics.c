/*
 * metrics.c: what a loop has done, in figures.
 *
 * The figures stand in the shared block (gl_metrics), where Go counts too, and in the loop
 * (gl_counts).  They are written by whoever is at work and read by any thread with the GIL: a
 * snapshot stops nobody, and may have one event in one figure that is not yet in another.
 * goloop/_internal/metering.py makes a Metrics of the dict.
 *
 * Compiled with GL_NO_METRICS, as Go's half with the tag `nometrics`, nothing is timed; the
 * benchmark of what that costs compares the two.
 */
#include "state/private.h"

GL_PRIVATE_INLINE void
gl_histogram_add(gl_histogram *h, int64_t value)
{
#ifndef GL_NO_METRICS
    uint64_t v = value > 0 ? (uint64_t)value : 0;
    unsigned i = (unsigned)v;
    if (v >= 4) {
        unsigned e = 63u - (unsigned)__builtin_clzll(v);
        i = ((e - 1) << 2) | (unsigned)((v >> (e - 2)) & 3);
        i = i < GL_BUCKETS ? i : GL_BUCKETS - 1;
    }
    h->count++;
    h->sum += v;
    h->most = v > h->most ? v : h->most;
    h->bucket[i]++;
#else
    (void)h;
    (void)value;
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

/* ---- the ready queue's probe ------------------------------------------------------- */

GL_PRIVATE void
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

/* ---- the snapshot ------------------------------------------------------------------------- */

typedef struct {
    unsigned long long streams, unsent;
} stream_sums;

static int
add_stream(gl_fd *f, visitproc Py_UNUSED(visit), void *arg)
{
    stream_sums *sums = arg;
    if (f->transport != NULL && f->kind == GL_REG_STREAM) {
        sums->streams++;
        sums->unsent += G.reg_ops[GL_REG_STREAM]->queued(f->transport);
    }
    return 0;
}

static unsigned long long
threadsafe_calls(const gl_loop *loop)
{
#ifdef GL_FREE_THREADED
    return GL_READ(loop->inbox.posts);
#else
    return loop->counts.threadsafe_calls;
#endif
}

/* A figure of the snapshot: a number, or a histogram. */
typedef struct {
    const char *name;
    unsigned long long number;
    const gl_histogram *histogram; /* or NULL; given as it lies in memory, empty ones as b"" */
} figure;

static PyObject *
figures_dict(const figure *all, size_t n)
{
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < n; i++) {
        const gl_histogram *h = all[i].histogram;
        PyObject *value = h ? PyBytes_FromStringAndSize((const char *)h, h->count ? sizeof *h : 0)
                            : PyLong_FromUnsignedLongLong(all[i].number);
        if (value == NULL || PyDict_SetItemString(dict, all[i].name, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

/* Copies all that it tells before it makes the first object: whatever makes one may run the
 * collector, or wait without the loop's lock, and another thread closes the loop. */
static PyObject *
loop__metrics(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    const gl_shared *sh = self->shared;
    if (sh == NULL)
        return PyDict_New();
    stream_sums sums = {0, 0};
    (void)fds_each(&self->fds, add_stream, NULL, &sums);
    const gl_metrics m = sh->metrics;
    const gl_counts *c = &self->counts;
    int64_t since = sh->blocked_since;
    uint64_t blocked = since != self->blocked_seen ? (uint64_t)(gl_monotonic_ns() - since) : 0;
    const figure figures[] = {
        {"iteration_time", 0, &m.iteration_time},
        {"poll_time", 0, &m.poll_time},
        {"events_per_turn", 0, &m.events_per_turn},
        {"ready_wait", 0, &m.ready_wait},
        {"timer_lateness", 0, &m.timer_lateness},
        {"dns_time", 0, &m.dns_time},
        {"time_busy", m.iteration_time.sum, NULL},
        {"time_idle", m.poll_time.sum, NULL},
        {"turns", sh->turns, NULL},
        {"bytes_received", m.bytes_received, NULL},
        {"bytes_sent", m.bytes_sent, NULL},
        {"reads", m.reads, NULL},
        {"writes", m.writes, NULL},
        {"late_writes", sh->late_writes, NULL},
        {"connections_accepted", sh->accepts, NULL},
        {"loops", 1, NULL},
        {"iterations", self->iterations, NULL},
        {"ready", self->ready.count, NULL},
        {"ready_max", c->ready_max, NULL},
        {"timers", self->timers.armed, NULL},
        {"timers_max", self->timers.armed_max, NULL},
        {"threadsafe_calls", threadsafe_calls(self), NULL},
        {"unhandled_exceptions", c->unhandled_exceptions, NULL},
        {"write_buffer_bytes", sums.unsent, NULL},
        {"connections_open", sums.streams, NULL},
        {"connections_refused", c->refused, NULL},
        {"accept_failures", c->accept_failures, NULL},
        {"tls_handshakes", c->tls_handshakes, NULL},
        {"tls_handshake_failures", c->tls_handshake_failures, NULL},
        {"dns_lookups", m.dns_time.count, NULL},
        {"children", c->children, NULL},
        {"children_started", c->children_started, NULL},
        {"blocked_spells", sh->blocked_spells, NULL},
        {"time_blocked", c->blocked_ns + blocked, NULL},
        {"blocked_for", blocked, NULL},
    };
    return figures_dict(figures, Py_ARRAY_LENGTH(figures));
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

/* _note_lookup(ns): a name was looked up, which took so long. */
static PyObject *
loop__note_lookup(gl_loop *self, PyObject *ns)
{
    long long took = PyLong_AsLongLong(ns);
    if (took == -1 && PyErr_Occurred())
        return NULL;
    if (self->shared)
        gl_histogram_add(&self->shared->metrics.dns_time, took);
    Py_RETURN_NONE;
}

static PyMethodDef metrics_table[] = {
    {"_metrics", GL_NOARGS(loop__metrics), NULL},
    {"_note_lookup", GL_ONEARG(loop__note_lookup), NULL},
    {"_registered", GL_NOARGS(loop__registered), NULL},
    {NULL, NULL, 0, NULL},
};
GL_PRIVATE PyMethodDef *const gl_metrics_methods = metrics_table;

static PyMethodDef metrics_functions[] = {
    {"_open_loops", GL_NOARGS(open_loops),
     PyDoc_STR("The loops of this process that are open.")},
    {NULL, NULL, 0, NULL},
};

GL_PRIVATE int
gl_metrics_init(PyObject *module)
{
    return PyModule_AddFunctions(module, metrics_functions);
}
