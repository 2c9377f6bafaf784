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

/* Adds a number to the dict. */
static int
put(PyObject *dict, const char *name, unsigned long long value)
{
    PyObject *number = PyLong_FromUnsignedLongLong(value);
    int r = number ? PyDict_SetItemString(dict, name, number) : -1;
    Py_XDECREF(number);
    return r;
}

/* Adds a histogram as it lies in memory, or nothing but b"" where it is empty. */
static int
put_histogram(PyObject *dict, const char *name, const gl_histogram *h)
{
    PyObject *raw = PyBytes_FromStringAndSize((const char *)h, h->count ? sizeof *h : 0);
    int r = raw ? PyDict_SetItemString(dict, name, raw) : -1;
    Py_XDECREF(raw);
    return r;
}

static int
put_block(PyObject *dict, const gl_shared *sh)
{
    const gl_metrics *m = &sh->metrics;
    return put_histogram(dict, "iteration_time", &m->iteration_time) < 0 ||
                   put_histogram(dict, "poll_time", &m->poll_time) < 0 ||
                   put_histogram(dict, "events_per_turn", &m->events_per_turn) < 0 ||
                   put_histogram(dict, "ready_wait", &m->ready_wait) < 0 ||
                   put_histogram(dict, "timer_lateness", &m->timer_lateness) < 0 ||
                   put_histogram(dict, "dns_time", &m->dns_time) < 0 ||
                   put(dict, "time_busy", m->iteration_time.sum) < 0 ||
                   put(dict, "time_idle", m->poll_time.sum) < 0 ||
                   put(dict, "turns", sh->turns) < 0 ||
                   put(dict, "bytes_received", m->bytes_received) < 0 ||
                   put(dict, "bytes_sent", m->bytes_sent) < 0 ||
                   put(dict, "reads", m->reads) < 0 || put(dict, "writes", m->writes) < 0 ||
                   put(dict, "late_writes", sh->late_writes) < 0 ||
                   put(dict, "connections_accepted", sh->accepts) < 0
               ? -1
               : 0;
}

static int
put_blocks(PyObject *dict, const gl_loop *loop)
{
    const gl_shared *sh = loop->shared;
    int64_t since = sh->blocked_since;
    int64_t ns = since != loop->blocked_seen ? gl_monotonic_ns() - since : 0;
    return put(dict, "blocked_spells", sh->blocked_spells) < 0 ||
                   put(dict, "time_blocked", loop->counts.blocked_ns + (uint64_t)ns) < 0 ||
                   put(dict, "blocked_for", (uint64_t)ns) < 0
               ? -1
               : 0;
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

static int
put_loop(PyObject *dict, gl_loop *loop, const stream_sums *sums)
{
    const gl_counts *c = &loop->counts;
    Py_ssize_t asked = loop->resolving ? PyDict_GET_SIZE(loop->resolving) : 0;
    return put(dict, "loops", 1) < 0 || put(dict, "iterations", loop->iterations) < 0 ||
                   put(dict, "ready", loop->ready.count) < 0 ||
                   put(dict, "ready_max", c->ready_max) < 0 ||
                   put(dict, "timers", loop->timers.armed) < 0 ||
                   put(dict, "timers_max", loop->timers.armed_max) < 0 ||
                   put(dict, "threadsafe_calls", threadsafe_calls(loop)) < 0 ||
                   put(dict, "unhandled_exceptions", c->unhandled_exceptions) < 0 ||
                   put(dict, "write_buffer_bytes", sums->unsent) < 0 ||
                   put(dict, "connections_open", sums->streams) < 0 ||
                   put(dict, "connections_refused", c->refused) < 0 ||
                   put(dict, "accept_failures", c->accept_failures) < 0 ||
                   put(dict, "tls_handshakes", c->tls_handshakes) < 0 ||
                   put(dict, "tls_handshake_failures", c->tls_handshake_failures) < 0 ||
                   put(dict, "dns_lookups", loop->shared->metrics.dns_time.count) < 0 ||
                   put(dict, "dns_in_flight", (unsigned long long)asked) < 0 ||
                   put(dict, "children", c->children) < 0 ||
                   put(dict, "children_started", c->children_started) < 0
               ? -1
               : 0;
}

/* lint: allow check-commit: nothing here runs Python but the collector, which leaves a loop alone
 * that the caller has */
static PyObject *
loop__metrics(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *dict = PyDict_New();
    if (dict == NULL || self->shared == NULL)
        return dict;
    stream_sums sums = {0, 0};
    (void)fds_each(&self->fds, add_stream, NULL, &sums);
    if (put_block(dict, self->shared) < 0 || put_loop(dict, self, &sums) < 0 ||
        put_blocks(dict, self) < 0)
        Py_CLEAR(dict);
    return dict;
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

static PyMethodDef metrics_table[] = {
    {"_metrics", GL_NOARGS(loop__metrics), NULL},
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
