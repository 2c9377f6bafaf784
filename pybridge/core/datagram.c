/*
 * datagram.c: the life of a datagram transport: made, started, closing, lost; and
 * the finalizer of one that nobody closed.  datagram.h draws it.
 *
 * As in asyncio, the call of connection_made, the start of receiving and
 * connection_lost are scheduled, each in its own place of the order.
 */
#include "datagram.h"

static int
datagram_call_soon(gl_datagram *d, PyObject *name, PyObject *arg)
{
    PyObject *method = PyObject_GetAttr((PyObject *)d, name);
    if (method == NULL)
        return -1;
    int rc = gl_call_soon(d->loop, method, arg, d->context);
    Py_DECREF(method);
    return rc;
}

/* ---- the reactor ------------------------------------------------------------- */

static bool
datagram_reading_wanted(gl_datagram *d)
{
    return d->started && !d->paused && !d->closing && d->held == NULL;
}

static int
datagram_open(gl_datagram *d, uint32_t want)
{
    gl_loop *loop = d->loop;
    if (gl_loop_check_usable(loop) < 0 || gl_fd_release_watch(loop, d->fd) < 0)
        return -1;
    uint32_t id = 0, gen = 0;
    int32_t rc = loop->go->datagram_open(loop->reactor, d->fd, want, &id, &gen);
    if (rc < 0)
        return gl_set_oserror(-rc);
    if (gl_reg_set(loop, id, gen, GL_REG_DATAGRAM, (PyObject *)d, d->fd) < 0) {
        loop->go->datagram_close(loop->reactor, id, gen, 0);
        return -1;
    }
    d->id = id;
    d->gen = gen;
    d->want = want;
    d->open = true;
    return 0;
}

static int
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
        return 0;
    }
    if (!d->open)
        return datagram_open(d, want);
    int32_t rc = loop->go->datagram_set(loop->reactor, d->id, d->gen, want);
    if (rc < 0)
        return gl_set_oserror(-rc);
    d->want = want;
    return 0;
}

static PyObject *
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
    datagram_drop_queue(d);
    Py_CLEAR(d->held); /* bytes, addresses and exceptions of ours: no Python runs */
    if (!d->open)
        return;
    bool foreign = gl_loop_is_foreign(loop);
    if (loop->in_turn && !foreign)
        return; /* a stranger's thread; datagram_lost comes here again */
    d->open = false;
    d->want = 0;
    if (!foreign && loop->go != NULL)
        loop->go->datagram_close(loop->reactor, d->id, d->gen, 0);
    gl_reg_clear(loop, d->id, d->gen);
}

static void
gl_datagram_orphan(PyObject *owner)
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

/* The empty state, in which every method does nothing. */
static PyObject *
datagram_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    gl_datagram *d = (gl_datagram *)type->tp_alloc(type, 0);
    if (d == NULL)
        return NULL;
    d->fd = d->fd_shown = -1;
    d->closing = true;
    d->conn_lost = 1;
    d->high_water = Py_NewRef(gl_stream_globals.high_default);
    d->low_water = Py_NewRef(gl_stream_globals.low_default);
    d->slot_protocol_paused = Py_NewRef(Py_False);
    d->slot_loop = Py_NewRef(Py_None);
    d->peers = d->peers_inline;
    return (PyObject *)d;
}

/* Clears the note of who uses the fd, if it is still this transport's. */
static void
datagram_forget_fd(gl_datagram *d)
{
    gl_loop *loop = d->loop;
    if (loop != NULL && d->fd_shown >= 0 && d->fd_shown < loop->fds_cap &&
        loop->fds[d->fd_shown].transport == (PyObject *)d)
        gl_fd_set_transport(loop, d->fd_shown, NULL);
}

/* The names of the socket, and what follows from them for sending. */
static int
datagram_learn(gl_datagram *d, PyObject *sock, PyObject *address)
{
    long family;
    if (gl_note_names(sock, d->extra) < 0 || socket_number(sock, G.s_family, &family) < 0)
        return -1;
    d->family = (int)family;
    PyObject *peer = PyObject_GetItem(d->extra, G.s_peername);
    int connected = peer ? PyObject_IsTrue(peer) : -1;
    Py_XDECREF(peer);
    int fixed = PyObject_IsTrue(address);
    if (connected < 0 || fixed < 0)
        return -1;
    d->connected = connected;
    d->fixed = fixed;
    return 0;
}

/* Schedules the first calls of the protocol. */
static int
datagram_begin(gl_datagram *d, gl_loop *loop, PyObject *protocol, PyObject *waiter)
{
    if ((d->context = PyContext_CopyCurrent()) == NULL)
        return -1;
    d->loop = (gl_loop *)Py_NewRef(loop);
    Py_XSETREF(d->slot_loop, Py_NewRef(loop));
    d->protocol = Py_NewRef(protocol);
    d->closing = false;
    d->conn_lost = 0;
    gl_fd_set_transport(loop, d->fd, (PyObject *)d);
    PyObject *made = PyObject_GetAttr(protocol, G.s_connection_made);
    int rc = made ? gl_call_soon(loop, made, (PyObject *)d, d->context) : -1;
    Py_XDECREF(made);
    return rc < 0 ? -1 : datagram_call_soon(d, G.s__start, waiter);
}

static int
datagram_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"loop", "sock", "protocol", "address", "waiter", "extra", NULL};
    gl_datagram *d = (gl_datagram *)self;
    PyObject *loop, *sock, *protocol;
    PyObject *address = Py_None, *waiter = Py_None, *extra = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|OOO:DatagramTransport", names,
                                     gl_loop_type, &loop, &sock, &protocol, &address, &waiter,
                                     &extra))
        return -1;
    if (d->fd_shown >= 0) {
        PyErr_SetString(PyExc_RuntimeError, "the transport has a socket already");
        return -1;
    }
    if (gl_loop_check_usable((gl_loop *)loop) < 0)
        return -1;
    int fd = gl_fd_from_object(sock);
    if (fd < 0 || gl_fd_ensure_no_transport((gl_loop *)loop, fd) < 0 ||
        stream_make_nonblocking(fd) < 0)
        return -1;
    extra = extra == Py_None ? PyDict_New() : Py_NewRef(extra);
    if (extra == NULL)
        return -1;
    Py_XSETREF(d->extra, extra);
    Py_XSETREF(d->address, Py_NewRef(address));
    if (datagram_learn(d, sock, address) < 0)
        return -1;
    d->sock = Py_NewRef(sock);
    d->fd = d->fd_shown = fd;
    if (datagram_begin(d, (gl_loop *)loop, protocol, waiter) == 0)
        return 0;
    /* The socket stays its owner's. */
    PyObject *exc = gl_take_exception();
    d->closing = true;
    d->conn_lost = 1;
    datagram_forget_fd(d);
    d->fd = -1;
    Py_CLEAR(d->sock);
    Py_CLEAR(d->protocol);
    Py_CLEAR(d->loop);
    gl_restore_exception(exc);
    return -1;
}

/* Runs behind connection_made, in the same iteration: receiving starts, and who
 * waits for the transport is told. */
static PyObject *
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

static int
datagram_force_close(gl_datagram *d, PyObject *exc)
{
    if (d->conn_lost || d->loop == NULL)
        return 0;
    if (gl_loop_is_foreign(d->loop))
        return gl_loop_check_usable(d->loop);
    return datagram_end(d, exc);
}

static int
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

static int
datagram_fatal_error(gl_datagram *d, PyObject *exc, const char *message)
{
    if (d->loop == NULL)
        return 0;
    bool quiet = PyObject_TypeCheck(exc, (PyTypeObject *)PyExc_OSError);
    if (gl_report_fatal(d->loop, quiet, message, exc, (PyObject *)d, d->protocol) < 0)
        return -1;
    return datagram_force_close(d, exc);
}

static int
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

static int
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
    PyObject *sock = d->sock;
    d->sock = NULL;
    d->fd = -1;
    PyObject *r = sock ? PyObject_CallMethodNoArgs(sock, G.s_close) : Py_NewRef(Py_None);
    Py_XDECREF(sock);
    Py_XDECREF(r);
    return r == NULL ? -1 : 0;
}

static int
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
    if (d->loop != NULL) { /* else the protocol called _call_connection_lost again */
        datagram_leave(d);
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

/* __del__: the last reference goes while the socket is open. A registered transport
 * is kept alive by the loop, so this one either never started, or its loop was
 * closed or is garbage itself. */
static void
datagram_finalize(PyObject *self)
{
    gl_datagram *d = (gl_datagram *)self;
    if (d->sock == NULL)
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

static int
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
    Py_VISIT(d->sock);
    Py_VISIT(d->address);
    Py_VISIT(d->context);
    Py_VISIT(d->held);
    for (uint32_t i = 0; i < d->parcel_count; i++)
        Py_VISIT(d->parcel[(d->parcel_head + i) & d->parcel_mask].addr);
    return 0; /* target and the peers' objects hold strings and numbers only */
}

static int
datagram_clear(PyObject *self)
{
    gl_datagram *d = (gl_datagram *)self;
    Py_CLEAR(d->extra);
    Py_CLEAR(d->high_water);
    Py_CLEAR(d->slot_loop);
    Py_CLEAR(d->low_water);
    Py_CLEAR(d->slot_protocol_paused);
    Py_CLEAR(d->dict);
    Py_CLEAR(d->protocol);
    Py_CLEAR(d->sock);
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

static void
datagram_dealloc(PyObject *self)
{
    gl_datagram *d = (gl_datagram *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (PyObject_CallFinalizerFromDealloc(self) < 0)
        return; /* resurrected */
    PyObject_GC_UnTrack(self);
    if (d->weakrefs != NULL)
        PyObject_ClearWeakRefs(self);
    datagram_forget_fd(d);
    d->open = false;
    datagram_clear(self);
    Py_CLEAR(d->target);
    datagram_forget_peers(d);
    type->tp_free(self);
    Py_DECREF(type);
}
