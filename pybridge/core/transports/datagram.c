/*
 * datagram.c: the life of a datagram transport: made, started, closing, lost; and
 * the finalizer of one that nobody closed.  datagram.h draws it.
 *
 * As in asyncio, the call of connection_made, the start of receiving and
 * connection_lost are scheduled, each in its own place of the order.
 */
#include "transports/datagram.h"

#include <errno.h>

GL_PRIVATE int
datagram_call_soon(gl_datagram *d, PyObject *name, PyObject *arg)
{
    PyObject *method = PyObject_GetAttr((PyObject *)d, name);
    if (method == NULL)
        return -1;
    /* Whatever ran since the caller looked may have ended the transport. */
    int rc = d->loop != NULL ? gl_call_soon(d->loop, method, arg, d->context) : 0;
    Py_DECREF(method);
    return rc;
}

/* ---- the reactor ------------------------------------------------------------- */

GL_PRIVATE bool
datagram_reading_wanted(gl_datagram *d)
{
    return d->started && !d->paused && !d->closing && d->held == NULL;
}

/* Makes the registration; 0 or an errno. */
GL_NO_PYTHON static int
datagram_register(gl_datagram *d, int fd, uint32_t want)
{
    gl_loop *loop = d->loop;
    uint32_t id = 0, gen = 0;
    int32_t rc = loop->go->datagram_open(loop->reactor, fd, gl_lease_word(&d->lease), want, &id,
                                         &gen);
    if (rc < 0)
        return -rc;
    if (gl_reg_set(loop, id, gen, GL_REG_DATAGRAM, (PyObject *)d, fd) < 0) {
        PyErr_Clear();
        loop->go->datagram_close(loop->reactor, id, gen, 0);
        return ENOMEM;
    }
    d->id = id;
    d->gen = gen;
    d->want = want;
    d->open = true;
    return 0;
}

static int
datagram_open(gl_datagram *d, uint32_t want)
{
    if (gl_loop_check_usable(d->loop) < 0)
        return -1;
    int fd = gl_lease_fd(&d->lease);
    if (fd < 0)
        return gl_set_oserror(EBADF);
    gl_watch left;
    gl_watch_release(d->loop, fd, &left);
    int err = datagram_register(d, fd, want);
    gl_watch_drop(&left);
    return err != 0 ? gl_set_oserror(err) : 0;
}

GL_PRIVATE int
datagram_sync(gl_datagram *d)
{
    gl_loop *loop = d->loop;
    if (loop == NULL || d->conn_lost)
        return 0;
    uint32_t want = (datagram_reading_wanted(d) ? GL_READABLE : 0) | (d->blocked ? GL_WRITABLE : 0);
    if (d->open ? want == d->want : want == 0)
        return 0;
    if (loop->in_turn) {
        if (d->sync_scheduled)
            return 0;
        if (datagram_call_soon(d, G.s__sync, NULL) < 0)
            return -1;
        d->sync_scheduled = true;
        gl_wake(loop);
        return 0;
    }
    if (!d->open)
        return datagram_open(d, want);
    if (gl_loop_check_usable(loop) < 0)
        return -1;
    int32_t rc = loop->go->datagram_set(loop->reactor, d->id, d->gen, want);
    if (rc < 0)
        return gl_set_oserror(-rc);
    d->want = want;
    return 0;
}

GL_PRIVATE PyObject *
datagram_sync_method(gl_datagram *d, PyObject *Py_UNUSED(ignored))
{
    d->sync_scheduled = false;
    if (datagram_sync(d) < 0 && datagram_fatal_current(d, "Fatal error on transport") < 0)
        return NULL;
    Py_RETURN_NONE;
}

static void
datagram_leave(gl_datagram *d)
{
    gl_loop *loop = d->loop;
    PyObject *owner = NULL;
    bool foreign = gl_loop_is_foreign(loop);
    /* From another thread's call during a turn: datagram_lost comes here again. */
    if (d->open && (foreign || !loop->in_turn)) {
        d->open = false;
        d->want = 0;
        if (!foreign && loop->go != NULL)
            loop->go->datagram_close(loop->reactor, d->id, d->gen, 0);
        owner = gl_reg_take(loop, d->id, d->gen);
    }
    datagram_drop_queue(d); /* addresses may be anybody's objects */
    Py_CLEAR(d->held);
    Py_XDECREF(owner);
}

GL_PRIVATE void
datagram_orphan(PyObject *owner)
{
    gl_datagram *d = (gl_datagram *)owner;
    if (!d->open)
        return;
    d->open = false;
    d->want = 0;
    if (d->loop != NULL && d->loop->go != NULL && !gl_loop_is_foreign(d->loop))
        d->loop->go->datagram_close(d->loop->reactor, d->id, d->gen, 0);
}

/* ---- birth ---------------------------------------------------------------------- */

GL_PRIVATE PyObject *
datagram_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    gl_datagram *d = (gl_datagram *)type->tp_alloc(type, 0);
    if (d == NULL)
        return NULL;
    d->lease = GL_NO_LEASE;
    d->fd_shown = -1;
    d->closing = true;
    d->conn_lost = 1;
    d->high_water = Py_NewRef(G.high_default);
    d->low_water = Py_NewRef(G.low_default);
    d->slot_protocol_paused = Py_NewRef(Py_False);
    d->slot_loop = Py_NewRef(Py_None);
    d->peers = d->peers_inline;
    return (PyObject *)d;
}

/* Clears the note of who uses the fd, if it is still this transport's. */
static void
datagram_forget_fd(gl_datagram *d)
{
    if (d->loop != NULL)
        gl_fd_forget_transport(d->loop, d->fd_shown, (PyObject *)d);
}

GL_PRIVATE bool
datagram_blocks_number(PyObject *transport)
{
    gl_datagram *d = (gl_datagram *)transport;
    return !d->closing && gl_lease_fd(&d->lease) >= 0;
}

/* What the constructor was given, converted. */
typedef struct {
    PyObject *loop, *sock, *protocol, *address, *waiter, *extra; /* borrowed */
    PyObject *entries;            /* owned: `extra`, or a dict */
    gl_lease lease;
    int family, connected, fixed;
} datagram_arguments;

/* Everything that may run Python. */
static int
datagram_convert(datagram_arguments *a)
{
    gl_loop *loop = (gl_loop *)a->loop;
    long family;
    if (gl_loop_check_usable(loop) < 0 || gl_lease_take(&a->lease, a->sock, true) < 0)
        return -1;
    a->entries = a->extra == Py_None ? PyDict_New() : Py_NewRef(a->extra);
    if (a->entries == NULL || gl_fd_ensure_no_transport(loop, a->lease.number, NULL) < 0 ||
        note_names(a->sock, a->entries, NULL) < 0 ||
        gl_socket_attribute(a->sock, G.s_family, &family) < 0)
        return -1;
    a->family = (int)family;
    PyObject *peer = PyObject_GetItem(a->entries, G.s_peername);
    a->connected = peer ? PyObject_IsTrue(peer) : -1;
    Py_XDECREF(peer);
    a->fixed = PyObject_IsTrue(a->address);
    return a->connected < 0 || a->fixed < 0 ? -1 : 0;
}

/* Schedules the first calls of the protocol. */
static int
datagram_begin(gl_datagram *d, PyObject *waiter)
{
    if (gl_fd_set_transport(d->loop, d->fd_shown, GL_REG_DATAGRAM, (PyObject *)d) < 0)
        return -1;
    PyObject *made = PyObject_GetAttr(d->protocol, G.s_connection_made);
    int rc = made ? 0 : -1;
    if (made != NULL && d->loop != NULL)
        rc = gl_call_soon(d->loop, made, (PyObject *)d, d->context);
    Py_XDECREF(made);
    return rc < 0 ? -1 : datagram_call_soon(d, G.s__start, waiter);
}

static int
datagram_begin_with(gl_datagram *d, datagram_arguments *a)
{
    gl_loop *loop = (gl_loop *)a->loop;
    PyObject *context = PyContext_CopyCurrent();
    if (context == NULL)
        return -1;
    if (d->fd_shown >= 0)
        PyErr_SetString(PyExc_RuntimeError, "the transport has a socket already");
    if (d->fd_shown >= 0 || gl_loop_check_usable(loop) < 0 ||
        gl_fd_ensure_no_transport(loop, a->lease.number, NULL) < 0 ||
        gl_lease_nonblocking(&a->lease) < 0) {
        Py_DECREF(context);
        return -1;
    }
    PyObject *before[3] = {d->extra, d->address, d->slot_loop};
    d->lease = a->lease;
    a->lease = GL_NO_LEASE;
    d->fd_shown = d->lease.number;
    d->extra = Py_NewRef(a->entries);
    d->address = Py_NewRef(a->address);
    d->family = a->family;
    d->connected = a->connected;
    d->fixed = a->fixed;
    d->context = context;
    d->loop = (gl_loop *)Py_NewRef(loop);
    d->slot_loop = Py_NewRef(loop);
    d->protocol = Py_NewRef(a->protocol);
    d->closing = false;
    d->conn_lost = 0;
    for (int i = 0; i < 3; i++)
        Py_XDECREF(before[i]);
    if (datagram_begin(d, a->waiter) == 0)
        return 0;
    PyObject *exc = gl_take_exception();
    d->closing = true;
    d->conn_lost = 1;
    datagram_forget_fd(d);
    gl_lease_return(&d->lease); /* the socket stays its owner's */
    Py_CLEAR(d->protocol);
    Py_CLEAR(d->loop);
    gl_restore_exception(exc);
    return -1;
}

GL_PRIVATE int
datagram_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"loop", "sock", "protocol", "address", "waiter", "extra", NULL};
    datagram_arguments a = {
        .address = Py_None, .waiter = Py_None, .extra = Py_None, .lease = GL_NO_LEASE};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|OOO:DatagramTransport", names,
                                     G.loop_type, &a.loop, &a.sock, &a.protocol, &a.address,
                                     &a.waiter, &a.extra))
        return -1;
    int rc = datagram_convert(&a);
    if (rc == 0)
        rc = datagram_begin_with((gl_datagram *)self, &a);
    gl_lease_return(&a.lease);
    Py_XDECREF(a.entries);
    return rc;
}

GL_PRIVATE PyObject *
datagram_start_method(gl_datagram *d, PyObject *waiter)
{
    if (!d->started) {
        d->started = true;
        if (datagram_sync(d) < 0 && datagram_fatal_current(d, "Fatal error on transport") < 0)
            return NULL;
    }
    if (waiter != Py_None && stream_wake_waiter(waiter) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- closing ------------------------------------------------------------------------ */

/* connection_lost is scheduled, and nothing is received or sent until then. */
static int
datagram_end(gl_datagram *d, PyObject *exc)
{
    d->closing = true;
    d->conn_lost++;
    datagram_leave(d);
    return datagram_call_soon(d, G.s__call_connection_lost, exc);
}

GL_PRIVATE int
datagram_force_close(gl_datagram *d, PyObject *exc)
{
    if (d->conn_lost || d->loop == NULL)
        return 0;
    if (gl_loop_is_foreign(d->loop))
        return gl_loop_check_usable(d->loop);
    return datagram_end(d, exc);
}

GL_PRIVATE int
datagram_close(gl_datagram *d)
{
    if (d->closing || d->loop == NULL)
        return 0;
    if (gl_loop_is_foreign(d->loop))
        return gl_loop_check_usable(d->loop);
    if (d->parcel_count == 0)
        return datagram_end(d, Py_None);
    d->closing = true;
    return datagram_sync(d); /* receives no more; connection_lost comes with the last one */
}

GL_PRIVATE int
datagram_fatal_error(gl_datagram *d, PyObject *exc, const char *message)
{
    if (d->loop == NULL)
        return 0;
    bool quiet = PyObject_TypeCheck(exc, (PyTypeObject *)PyExc_OSError);
    if (gl_report_fatal(d->loop, quiet, message, exc, (PyObject *)d, d->protocol) < 0)
        return -1;
    return datagram_force_close(d, exc);
}

GL_PRIVATE int
datagram_fatal_current(gl_datagram *d, const char *message)
{
    if (PyErr_ExceptionMatches(PyExc_SystemExit) ||
        PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
        return -1;
    PyObject *exc = gl_take_exception();
    int rc = datagram_fatal_error(d, exc, message);
    Py_DECREF(exc);
    return rc;
}

GL_PRIVATE int
datagram_tell_error(gl_datagram *d, PyObject *exc)
{
    PyObject *protocol = Py_XNewRef(d->protocol), *r = NULL;
    if (protocol != NULL && exc != NULL)
        r = PyObject_CallMethodOneArg(protocol, G.s_error_received, exc);
    int rc = exc == NULL || (protocol != NULL && r == NULL) ? -1 : 0;
    Py_XDECREF(r);
    Py_XDECREF(protocol);
    Py_XDECREF(exc);
    return rc;
}

static int
datagram_close_fd(gl_datagram *d)
{
    datagram_forget_fd(d);
    return gl_lease_close(&d->lease);
}

GL_PRIVATE int
datagram_lost(gl_datagram *d, PyObject *exc)
{
    if (d->loop == NULL)
        return 0;
    if (gl_loop_is_foreign(d->loop))
        return gl_loop_check_usable(d->loop);
    d->closing = true;
    if (!d->conn_lost)
        d->conn_lost = 1;
    PyObject *protocol = Py_XNewRef(d->protocol), *error = NULL;
    if (protocol != NULL) {
        PyObject *r = PyObject_CallMethodOneArg(protocol, G.s_connection_lost, exc);
        if (r == NULL)
            error = gl_take_exception();
        Py_XDECREF(r);
        Py_DECREF(protocol);
    }
    if (d->loop != NULL) /* else the protocol called _call_connection_lost again */
        datagram_leave(d);
    if (d->loop != NULL && d->open) { /* another thread's call: Go is at work on the descriptor */
        Py_CLEAR(d->protocol);
        if (datagram_call_soon(d, G.s__call_connection_lost, Py_None) < 0)
            Py_XSETREF(error, gl_take_exception());
    } else if (d->loop != NULL) {
        if (datagram_close_fd(d) < 0)
            Py_XSETREF(error, gl_take_exception());
        Py_CLEAR(d->protocol);
        Py_XSETREF(d->slot_loop, Py_NewRef(Py_None));
        Py_CLEAR(d->loop);
    }
    if (error == NULL)
        return 0;
    gl_restore_exception(error);
    return -1;
}

/* ---- the end ---------------------------------------------------------------------------- */

GL_PRIVATE void
datagram_finalize(PyObject *self)
{
    gl_datagram *d = (gl_datagram *)self;
    if (d->lease.number < 0)
        return;
    PyObject *saved = PyErr_Occurred() ? gl_take_exception() : NULL;
    if (!d->warned) {
        d->warned = true;
        if (PyErr_ResourceWarning(self, 1, "unclosed transport %R", self) < 0)
            PyErr_WriteUnraisable(self);
    }
    d->closing = true;
    if (!d->conn_lost)
        d->conn_lost = 1;
    if (d->loop != NULL)
        datagram_leave(d);
    if (datagram_close_fd(d) < 0)
        PyErr_WriteUnraisable(self);
    if (saved != NULL)
        gl_restore_exception(saved);
}

GL_PRIVATE int
datagram_traverse(PyObject *self, visitproc visit, void *arg)
{
    gl_datagram *d = (gl_datagram *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(d->extra);
    Py_VISIT(d->high_water);
    Py_VISIT(d->slot_loop);
    Py_VISIT(d->low_water);
    Py_VISIT(d->slot_protocol_paused);
    Py_VISIT(d->dict);
    Py_VISIT(d->loop);
    Py_VISIT(d->protocol);
    Py_VISIT(d->lease.owner);
    Py_VISIT(d->lease.backing);
    Py_VISIT(d->address);
    Py_VISIT(d->context);
    Py_VISIT(d->held);
    for (uint32_t i = 0; i < d->parcel_count; i++)
        Py_VISIT(d->parcel[(d->parcel_head + i) & d->parcel_mask].addr);
    return 0; /* target and the peers' objects hold strings and numbers only */
}

GL_PRIVATE int
datagram_clear(PyObject *self)
{
    gl_datagram *d = (gl_datagram *)self;
    /* The reactor looks into the lease's owner as long as it knows the transport. */
    if (d->open && d->loop != NULL)
        datagram_leave(d);
    if (!d->open)
        gl_lease_return(&d->lease);
    Py_CLEAR(d->extra);
    Py_CLEAR(d->high_water);
    Py_CLEAR(d->slot_loop);
    Py_CLEAR(d->low_water);
    Py_CLEAR(d->slot_protocol_paused);
    Py_CLEAR(d->dict);
    Py_CLEAR(d->protocol);
    Py_CLEAR(d->address);
    Py_CLEAR(d->context);
    Py_CLEAR(d->held);
    datagram_drop_queue(d);
    if (!d->open) { /* an open one needs its loop to leave the reactor */
        datagram_forget_fd(d);
        Py_CLEAR(d->loop);
    }
    return 0;
}

GL_PRIVATE void
datagram_dealloc(PyObject *self)
{
    gl_datagram *d = (gl_datagram *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (PyObject_CallFinalizerFromDealloc(self) < 0)
        return; /* resurrected */
    PyObject_GC_UnTrack(self);
    datagram_forget_fd(d); /* before a weak reference's callback looks for who has the number */
    if (d->weakrefs != NULL)
        PyObject_ClearWeakRefs(self);
    d->open = false;
    datagram_clear(self);
    Py_CLEAR(d->target);
    datagram_forget_peers(d);
    type->tp_free(self);
    Py_DECREF(type);
}
