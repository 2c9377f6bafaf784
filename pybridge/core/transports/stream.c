/*
 * stream.c: the life of a stream transport: made, started, closing, lost; and the
 * finalizer of one that nobody closed.  stream.h draws it.
 *
 * What asyncio's transport does in an iteration of its own (the call of
 * connection_made, the start of reading, connection_lost) is scheduled here too,
 * in the same order, so that a program sees the same sequence of calls.
 */
#include "transports/stream.h"

#include <errno.h>

GL_PRIVATE_INLINE bool
stream_go_ready(gl_stream *s)
{
    gl_loop *loop = s->loop;
    return loop != NULL && loop->go != NULL && !gl_loop_is_elsewhere(loop) &&
           !gl_loop_is_foreign(loop);
}

GL_PRIVATE int
stream_check_usable(gl_stream *s)
{
    return s->loop != NULL ? gl_loop_check_usable(s->loop) : 0;
}

GL_PRIVATE int
stream_call_soon(gl_stream *s, PyObject *name, PyObject *arg)
{
    PyObject *method = PyObject_GetAttr((PyObject *)s, name);
    if (method == NULL)
        return -1;
    /* Whatever ran since the caller looked may have ended the stream. */
    int rc = s->loop != NULL ? gl_call_soon(s->loop, method, arg, s->context) : 0;
    Py_DECREF(method);
    return rc;
}

/* server._attach() or server._detach(), which take the transport since 3.13. */
static int
stream_tell_server(gl_stream *s, PyObject *server, PyObject *method)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *r = PyObject_CallMethodOneArg(server, method, (PyObject *)s);
#else
    (void)s;
    PyObject *r = PyObject_CallMethodNoArgs(server, method);
#endif
    Py_XDECREF(r);
    return r == NULL ? -1 : 0;
}

/* ---- the reactor ------------------------------------------------------------- */

/* Makes the registration; 0 or an errno. */
GL_NO_PYTHON static int
stream_register(gl_stream *s, int fd)
{
    gl_loop *loop = s->loop;
    uint32_t flags = s->kind == GL_KIND_WRITE_PIPE ? GL_OPEN_WATCH_END : 0, id = 0, gen = 0;
    s->io.want = stream_wants(s);
    s->io.owner = gl_lease_word(&s->lease);
    s->io.listed = 0;
    int32_t rc = loop->go->stream_open(loop->reactor, fd, &s->io, flags, &id, &gen);
    if (rc < 0)
        return -rc;
    if (gl_reg_set(loop, id, gen, GL_REG_STREAM, (PyObject *)s, fd) < 0) {
        PyErr_Clear();
        loop->go->stream_close(loop->reactor, id, gen, 0);
        return ENOMEM;
    }
    s->id = id;
    s->gen = gen;
    s->open = true;
    return 0;
}

GL_PRIVATE int
stream_open(gl_stream *s)
{
    gl_loop *loop = s->loop;
    if (gl_loop_check_usable(loop) < 0)
        return -1;
    if (s->kind && pipe_number_is_taken(s) && gl_lease_duplicate(&s->lease) < 0)
        return -1;
    int fd = gl_lease_fd(&s->lease);
    if (fd < 0)
        return gl_set_oserror(EBADF);
    gl_watch left;
    gl_watch_release(loop, fd, &left);
    int err = stream_register(s, fd);
    int rc = err == 0 ? stream_submit(s) : -1;
    PyObject *exc = err != 0 ? gl_oserror(err) : rc < 0 ? gl_take_exception() : NULL;
    gl_watch_drop(&left);
    if (exc != NULL)
        gl_restore_exception(exc);
    return rc;
}

GL_PRIVATE void
stream_leave(gl_stream *s)
{
    gl_loop *loop = s->loop;
    if (s->open) {
        bool foreign = gl_loop_is_foreign(loop);
        if (loop->in_turn && !foreign)
            return; /* another thread; stream_lost comes here again */
        s->open = false;
        if (!foreign && loop->go != NULL)
            loop->go->stream_close(loop->reactor, s->id, s->gen, 0);
        stream_drop_queue(s);
        gl_reg_clear(loop, s->id, s->gen);
        return;
    }
    stream_drop_queue(s);
}

GL_PRIVATE int
stream_sync(gl_stream *s)
{
    gl_loop *loop = s->loop;
    if (loop == NULL || s->conn_lost)
        return 0;
    if (loop->in_turn) {
        if (s->sync_scheduled)
            return 0;
        s->sync_scheduled = true;
        if (stream_call_soon(s, G.s__sync, NULL) < 0)
            return -1;
        gl_wake(loop);
        return 0;
    }
    if (!s->open)
        return 0; /* _start tells everything */
    return gl_loop_check_usable(loop) < 0 ? -1 : stream_submit(s);
}

GL_PRIVATE void
stream_orphan(PyObject *owner)
{
    gl_stream *s = (gl_stream *)owner;
    if (!s->open)
        return;
    s->open = false;
    if (s->loop != NULL && s->loop->go != NULL && !gl_loop_is_foreign(s->loop))
        s->loop->go->stream_close(s->loop->reactor, s->id, s->gen, 0);
    /* The queue is kept: asyncio's transport would still show its size. */
}

/* ---- birth ---------------------------------------------------------------------- */

GL_PRIVATE int
stream_set_protocol(gl_stream *s, PyObject *protocol)
{
    int buffered = PyObject_IsInstance(protocol, G.asyncio_BufferedProtocol);
    if (buffered < 0)
        return -1;
    s->buffered = buffered;
    s->receive = buffered && G.native_protocol != NULL &&
                         PyObject_TypeCheck(protocol, G.native_protocol)
                     ? G.native_receive
                     : NULL;
    Py_XSETREF(s->protocol, Py_NewRef(protocol));
    return 0;
}

/* The empty state, in which every method does nothing. */
static gl_stream *
stream_alloc(PyTypeObject *type)
{
    gl_stream *s = (gl_stream *)type->tp_alloc(type, 0);
    if (s == NULL)
        return NULL;
    s->lease = GL_NO_LEASE;
    s->fd_shown = -1;
    s->closing = true;
    s->conn_lost = 1;
    s->high = GL_HIGH_WATER;
    s->low = GL_HIGH_WATER / 4;
    s->high_water = Py_NewRef(G.high_default);
    s->low_water = Py_NewRef(G.low_default);
    stream_init_queue(s);
    return s;
}

GL_PRIVATE void
stream_forget_fd(gl_stream *s)
{
    if (s->loop != NULL)
        gl_fd_forget_transport(s->loop, s->fd_shown, (PyObject *)s);
}

GL_PRIVATE bool
stream_blocks_number(PyObject *transport)
{
    gl_stream *s = (gl_stream *)transport;
    return !s->closing && gl_lease_fd(&s->lease) >= 0;
}

/* The half of the constructor that both kinds of birth share.  The names and the lease
 * are in place. */
static int
stream_begin(gl_stream *s, gl_loop *loop, PyObject *protocol, PyObject *waiter,
             PyObject *server, PyObject *context, bool nodelay)
{
    bool attached = false;
    PyObject *made = NULL;
    if (stream_set_protocol(s, protocol) < 0)
        return -1;
    s->loop = (gl_loop *)Py_NewRef(loop);
    s->context = context ? Py_NewRef(context) : PyContext_CopyCurrent();
    if (s->context == NULL)
        goto failed;
    s->closing = false;
    s->conn_lost = 0;
    if (server != NULL && server != Py_None) {
        if (stream_tell_server(s, server, G.s__attach) < 0)
            goto failed;
        attached = true;
        s->server = Py_NewRef(server);
    }
    if (gl_loop_check_usable(loop) < 0 ||
        gl_fd_set_transport(loop, s->lease.number, GL_REG_STREAM, (PyObject *)s) < 0)
        goto failed;
    if (nodelay && gl_call_nodelay(&s->lease) < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        goto failed;
    }
    made = PyObject_GetAttr(protocol, G.s_connection_made);
    if (made == NULL)
        goto failed;
    if (s->loop != NULL && gl_call_soon(loop, made, (PyObject *)s, s->context) < 0)
        goto failed;
    Py_CLEAR(made);
    if (stream_call_soon(s, G.s__start, waiter ? waiter : Py_None) < 0)
        goto failed;
    return 0;

failed:;
    PyObject *exc = gl_take_exception();
    Py_XDECREF(made);
    s->closing = true;
    s->conn_lost = 1;
    stream_forget_fd(s);
    if (attached && stream_tell_server(s, server, G.s__detach) < 0)
        PyErr_WriteUnraisable(server);
    Py_CLEAR(s->server);
    Py_CLEAR(s->protocol);
    Py_CLEAR(s->loop);
    gl_restore_exception(exc);
    return -1;
}

GL_PRIVATE PyObject *
stream_accepted(gl_loop *loop, int fd, const gl_endpoints *ends, PyObject *protocol,
                PyObject *server, PyObject *context)
{
    gl_stream *s = stream_alloc(G.stream_type);
    if (s == NULL) {
        gl_call_close(fd);
        return NULL;
    }
    s->lease.number = s->fd_shown = fd;
    s->lazy_socket = s->lazy_peername = s->lazy_sockname = true;
    if (stream_note_raw(s, ends) < 0 ||
        stream_begin(s, loop, protocol, NULL, server, context, false) < 0) {
        /* A socket object that a hook of the server asked for owns the fd. */
        if (s->lease.owner == NULL)
            (void)gl_lease_close(&s->lease);
        Py_DECREF(s);
        return NULL;
    }
    return (PyObject *)s;
}

GL_PRIVATE PyObject *
stream_ask_name(PyObject *sock, PyObject *method)
{
    PyObject *name = PyObject_CallMethodNoArgs(sock, method);
    if (name == NULL && PyErr_ExceptionMatches(PyExc_OSError)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return name;
}

GL_PRIVATE PyObject *
transport_socket(PyObject *sock, PyObject *transport)
{
    if (transport == NULL)
        return PyObject_CallOneArg(G.TransportSocket, sock);
    if (G.TransportSocket_class == NULL &&
        (G.TransportSocket_class =
             gl_import_attr("goloop.transport_socket", "TransportSocket")) == NULL)
        return NULL;
    return PyObject_CallFunctionObjArgs(G.TransportSocket_class, sock, transport, NULL);
}

GL_PRIVATE int
note_names(PyObject *sock, PyObject *extra, PyObject *transport)
{
    PyObject *value = transport_socket(sock, transport);
    int rc = value ? PyObject_SetItem(extra, G.s_socket, value) : -1;
    Py_XDECREF(value);
    if (rc < 0)
        return -1;
    value = stream_ask_name(sock, G.s_getsockname);
    rc = value ? PyObject_SetItem(extra, G.s_sockname, value) : -1;
    Py_XDECREF(value);
    if (rc < 0)
        return -1;
    rc = PySequence_Contains(extra, G.s_peername);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    value = stream_ask_name(sock, G.s_getpeername);
    rc = value ? PyObject_SetItem(extra, G.s_peername, value) : -1;
    Py_XDECREF(value);
    return rc;
}

GL_PRIVATE PyObject *
stream_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    return (PyObject *)stream_alloc(type);
}

/* What the constructor was given, converted. */
typedef struct {
    PyObject *loop, *sock, *protocol, *waiter, *extra, *server, *context; /* borrowed */
    PyObject *entries;            /* owned: `extra`, or a dict */
    int exposed, nodelay;
    gl_lease lease;
} stream_arguments;

/* Everything that may run Python. */
static int
stream_convert(stream_arguments *a, PyObject *self)
{
    gl_loop *loop = (gl_loop *)a->loop;
    if (gl_loop_check_usable(loop) < 0 || gl_lease_take(&a->lease, a->sock, true) < 0)
        return -1;
    a->entries = a->extra == Py_None ? PyDict_New() : Py_NewRef(a->extra);
    if (a->entries == NULL || gl_fd_ensure_no_transport(loop, a->lease.number, NULL) < 0 ||
        note_names(a->sock, a->entries, self) < 0)
        return -1;
    a->nodelay = gl_socket_is_tcp(a->sock);
    return a->nodelay < 0 ? -1 : 0;
}

static int
stream_begin_with(gl_stream *s, stream_arguments *a)
{
    gl_loop *loop = (gl_loop *)a->loop;
    if (gl_loop_check_usable(loop) < 0 ||
        gl_fd_ensure_no_transport(loop, a->lease.number, NULL) < 0 ||
        gl_lease_nonblocking(&a->lease) < 0)
        return -1;
    if (s->fd_shown >= 0) {
        PyErr_SetString(PyExc_RuntimeError, "the transport has a socket already");
        return -1;
    }
    PyObject *before = s->extra;
    s->extra = Py_NewRef(a->entries);
    s->lease = a->lease;
    a->lease = GL_NO_LEASE;
    s->fd_shown = s->lease.number;
    s->exposed = a->exposed;
    Py_XDECREF(before);
    if (stream_begin(s, loop, a->protocol, a->waiter, a->server, a->context, a->nodelay) == 0)
        return 0;
    gl_lease_return(&s->lease); /* the socket stays its owner's */
    return -1;
}

GL_PRIVATE int
stream_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"loop",   "sock",    "protocol", "waiter", "extra",
                            "server", "context", "exposed",  NULL};
    stream_arguments a = {.waiter = Py_None, .extra = Py_None, .server = Py_None,
                          .context = Py_None, .lease = GL_NO_LEASE};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|OOOOp:StreamTransport", names,
                                     G.loop_type, &a.loop, &a.sock, &a.protocol, &a.waiter,
                                     &a.extra, &a.server, &a.context, &a.exposed))
        return -1;
    if (a.context == Py_None) {
        a.context = NULL;
    } else if (!PyContext_CheckExact(a.context)) {
        PyErr_Format(PyExc_TypeError, "context must be a contextvars.Context, not %.100s",
                     Py_TYPE(a.context)->tp_name);
        return -1;
    }
    int rc = stream_convert(&a, self);
    if (rc == 0)
        rc = stream_begin_with((gl_stream *)self, &a);
    gl_lease_return(&a.lease);
    Py_XDECREF(a.entries);
    return rc;
}

GL_PRIVATE int
stream_wake_waiter(PyObject *waiter)
{
    PyObject *r = PyObject_CallMethodNoArgs(waiter, G.s_cancelled);
    int cancelled = r ? PyObject_IsTrue(r) : -1;
    Py_XDECREF(r);
    if (cancelled != 0)
        return cancelled < 0 ? -1 : 0;
    r = PyObject_CallMethodOneArg(waiter, G.s_set_result, Py_None);
    Py_XDECREF(r);
    return r == NULL ? -1 : 0;
}

GL_PRIVATE PyObject *
stream_start_method(gl_stream *s, PyObject *waiter)
{
    if (!s->started) {
        s->started = true;
        if (!s->closing && s->loop != NULL) {
            int rc = s->open ? stream_sync(s) : stream_open(s);
            if (rc < 0 && stream_fatal_current(s, "Fatal error on transport") < 0)
                return NULL;
        }
    }
    if (waiter != Py_None && stream_wake_waiter(waiter) < 0)
        return NULL;
    Py_RETURN_NONE;
}

GL_PRIVATE PyObject *
stream_sync_method(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    s->sync_scheduled = false;
    if (stream_sync(s) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- closing ------------------------------------------------------------------------ */

GL_PRIVATE int
stream_force_close(gl_stream *s, PyObject *exc)
{
    if (s->conn_lost || s->loop == NULL)
        return 0;
    if (gl_loop_is_foreign(s->loop))
        return gl_loop_check_usable(s->loop);
    /* What asyncio would have handed to the kernel when it was written goes out
     * still; only what did not fit is dropped. */
    s->closing = true;
    s->conn_lost++;
    if (stream_queued(s) > 0 && !stream_blocked(s) && stream_flush_now(s) < 0)
        PyErr_Clear();
    stream_drop_held(s);
    stream_leave(s);
    return stream_call_soon(s, G.s__call_connection_lost, exc ? exc : Py_None);
}

GL_PRIVATE int
stream_fatal_error(gl_stream *s, PyObject *exc, const char *message)
{
    if (s->loop == NULL)
        return 0;
    bool quiet = s->kind ? pipe_logs_error(s, exc)
                         : PyObject_TypeCheck(exc, (PyTypeObject *)PyExc_OSError);
    if (gl_report_fatal(s->loop, quiet, message, exc, (PyObject *)s, s->protocol) < 0)
        return -1;
    return stream_force_close(s, exc);
}

GL_PRIVATE int
stream_fatal_current(gl_stream *s, const char *message)
{
    if (PyErr_ExceptionMatches(PyExc_SystemExit) ||
        PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
        return -1;
    PyObject *exc = gl_take_exception();
    int rc = stream_fatal_error(s, exc, message);
    Py_DECREF(exc);
    return rc;
}

GL_PRIVATE int
stream_close(gl_stream *s)
{
    if (s->closing || s->loop == NULL)
        return 0;
    if (gl_loop_is_foreign(s->loop))
        return gl_loop_check_usable(s->loop);
    s->closing = true;
    stream_drop_held(s);
    if (stream_queued(s) > 0 && !s->loop->closed && stream_flush_now(s) < 0) {
        s->closing = false;
        return stream_fatal_current(s, GL_WRITE_FAILED(s));
    }
    if (s->conn_lost || s->loop == NULL) /* it was ended meanwhile */
        return 0;
    if (stream_queued(s) > 0)
        return stream_sync(s); /* stops reading; connection_lost comes with the last byte */
    if (s->protocol_paused && !s->loop->closed) {
        /* A flush emptied the queue of a paused protocol and scheduled resume_writing,
         * which may write once more (TLS its close_notify); only then is this the end. */
        if (stream_sync(s) < 0)
            return -1;
        return stream_call_soon(s, G.s__close_if_sent, NULL);
    }
    s->conn_lost++;
    stream_leave(s);
    return stream_call_soon(s, G.s__call_connection_lost, Py_None);
}

GL_PRIVATE PyObject *
stream_close_if_sent_method(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    /* A protocol that is still paused is resumed by the report of the last bytes, which then
     * ends the stream. */
    if (s->closing && stream_queued(s) == 0 && !s->protocol_paused && s->loop != NULL &&
        !s->conn_lost) {
        stream_leave(s);
        if (stream_lost(s, Py_None) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

static int
stream_close_fd(gl_stream *s)
{
    stream_forget_fd(s);
    return gl_lease_close(&s->lease);
}

GL_PRIVATE int
stream_fail_waiter(gl_stream *s, PyObject *exc)
{
    PyObject *waiter = Py_XNewRef(s->empty_waiter);
    if (waiter == NULL)
        return 0;
    PyObject *r = PyObject_CallMethodNoArgs(waiter, G.s_done);
    int done = r ? PyObject_IsTrue(r) : -1;
    Py_XDECREF(r);
    if (done == 0) {
        r = PyObject_CallMethodOneArg(waiter, G.s_set_exception, exc);
        done = r ? 0 : -1;
        Py_XDECREF(r);
    }
    Py_DECREF(waiter);
    return done < 0 ? -1 : 0;
}

GL_PRIVATE int
stream_lost(gl_stream *s, PyObject *exc)
{
    if (s->loop == NULL)
        return 0;
    if (gl_loop_is_foreign(s->loop))
        return gl_loop_check_usable(s->loop);
    s->closing = true;
    if (!s->conn_lost)
        s->conn_lost = 1;
    PyObject *protocol = Py_XNewRef(s->protocol), *error = NULL;
    if (protocol != NULL) {
        PyObject *r = PyObject_CallMethodOneArg(protocol, G.s_connection_lost, exc);
        if (r == NULL)
            error = gl_take_exception();
        Py_XDECREF(r);
        Py_DECREF(protocol);
    }
    if (s->loop == NULL) /* the protocol called _call_connection_lost again */
        goto done;
    stream_leave(s);
    if (s->open) { /* another thread's call: Go is at work on the descriptor */
        Py_CLEAR(s->protocol);
        if (stream_call_soon(s, G.s__call_connection_lost, Py_None) < 0)
            Py_XSETREF(error, gl_take_exception());
        goto done;
    }
    stream_drop_held(s);
    /* As in a chain of `finally`, a later exception takes the place of an earlier. */
    if (stream_close_fd(s) < 0)
        Py_XSETREF(error, gl_take_exception());
    Py_CLEAR(s->protocol);
    Py_CLEAR(s->loop);
    PyObject *server = s->server;
    s->server = NULL;
    if (server != NULL) {
        if (stream_tell_server(s, server, G.s__detach) < 0)
            Py_XSETREF(error, gl_take_exception());
        Py_DECREF(server);
    }
    if (s->empty_waiter != NULL) {
        PyObject *e =
            PyObject_CallFunction(PyExc_ConnectionError, "s", "Connection is closed by peer");
        if (e == NULL || stream_fail_waiter(s, e) < 0)
            Py_XSETREF(error, gl_take_exception());
        Py_XDECREF(e);
    }
done:
    if (error != NULL) {
        gl_restore_exception(error);
        return -1;
    }
    return 0;
}

/* ---- the end ---------------------------------------------------------------------------- */

GL_PRIVATE void
stream_finalize(PyObject *self)
{
    gl_stream *s = (gl_stream *)self;
    if (s->lease.number < 0)
        return;
    PyObject *saved = PyErr_Occurred() ? gl_take_exception() : NULL;
    if (!s->warned) {
        s->warned = true;
        if (PyErr_ResourceWarning(self, 1, "unclosed transport %R", self) < 0)
            PyErr_WriteUnraisable(self);
    }
    s->closing = true;
    if (!s->conn_lost)
        s->conn_lost = 1;
    if (s->loop != NULL)
        stream_leave(s);
    if (stream_close_fd(s) < 0)
        PyErr_WriteUnraisable(self);
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *server = s->server;
    s->server = NULL;
    if (server != NULL && stream_tell_server(s, server, G.s__detach) < 0)
        PyErr_WriteUnraisable(server);
    Py_XDECREF(server);
#endif
    if (saved != NULL)
        gl_restore_exception(saved);
}

GL_PRIVATE int
stream_traverse(PyObject *self, visitproc visit, void *arg)
{
    gl_stream *s = (gl_stream *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(s->extra);
    Py_VISIT(s->high_water);
    Py_VISIT(s->slot_loop);
    Py_VISIT(s->low_water);
    Py_VISIT(s->slot_protocol_paused);
    Py_VISIT(s->dict);
    Py_VISIT(s->loop);
    Py_VISIT(s->protocol);
    Py_VISIT(s->lease.owner);
    Py_VISIT(s->lease.backing);
    Py_VISIT(s->server);
    Py_VISIT(s->context);
    Py_VISIT(s->empty_waiter);
    Py_VISIT(s->held);
    return 0; /* the queue holds exact bytes only, which refer to nothing */
}

GL_PRIVATE int
stream_clear(PyObject *self)
{
    gl_stream *s = (gl_stream *)self;
    /* The reactor looks into the lease's owner as long as it knows the stream. */
    if (s->open && s->loop != NULL)
        stream_leave(s);
    if (!s->open)
        gl_lease_return(&s->lease);
    Py_CLEAR(s->extra);
    Py_CLEAR(s->high_water);
    Py_CLEAR(s->slot_loop);
    Py_CLEAR(s->low_water);
    Py_CLEAR(s->slot_protocol_paused);
    Py_CLEAR(s->dict);
    Py_CLEAR(s->protocol);
    Py_CLEAR(s->server);
    Py_CLEAR(s->context);
    Py_CLEAR(s->empty_waiter);
    Py_CLEAR(s->held);
    if (!s->open) { /* an open one needs its loop to leave the reactor */
        stream_forget_fd(s);
        Py_CLEAR(s->loop);
    }
    return 0;
}

GL_PRIVATE void
stream_dealloc(PyObject *self)
{
    gl_stream *s = (gl_stream *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (PyObject_CallFinalizerFromDealloc(self) < 0)
        return; /* resurrected */
    PyObject_GC_UnTrack(self);
    stream_forget_fd(s); /* before a weak reference's callback looks for who has the number */
    if (s->weakrefs != NULL)
        PyObject_ClearWeakRefs(self);
    /* A subclass may have a __del__ that does not call ours. */
    if (s->lease.owner == NULL)
        (void)gl_lease_close(&s->lease);
    stream_drop_queue(s);
    stream_free_queue(s);
    PyMem_Free(s->raw);
    s->raw = NULL;
    s->open = false;
    stream_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}
