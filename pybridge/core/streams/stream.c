/*
 * stream.c: construction, registration, closing and loss of stream transports, as far as they
 * differ from other transports (transport.c).
 */
#include "streams/stream.h"

#include <errno.h>
#include <netinet/in.h>

/* Calls `method` of the server, which is _attach() or _detach().  Since 3.13 both get the
 * transport. */
static int
stream_call_server(gl_stream *s, PyObject *server, PyObject *method)
{
    PyObject *arg = NULL;
    if (GL_SERVER_TRACKS_TRANSPORTS)
        arg = (PyObject *)s;
    return gl_call_method(server, method, arg);
}

/* Removes the stream from its server, if it has one: drops the reference and calls _detach(), once.
 * -1 with the exception of that call. */
static int
stream_detach_server(gl_stream *s)
{
    PyObject *server = s->server;
    s->server = NULL;
    int rc = 0;
    if (server != NULL && server != Py_None)
        rc = stream_call_server(s, server, G.s__detach);
    Py_XDECREF(server);
    return rc;
}

/* ---- the reactor ------------------------------------------------------------- */

/* transport_ops.register_fd: gives Go the stream's record, with the interest of this moment, and
 * makes the next iteration poll.  Returns 0 or -errno. */
GL_NO_PYTHON static int32_t
stream_register_fd(gl_transport *t, int fd)
{
    gl_stream *s = (gl_stream *)t;
    uint32_t flags = 0;
    if (s->kind == KIND_WRITE_PIPE)
        flags = GL_OPEN_WATCH_END;
    s->io.want = stream_interest(s);
    s->io.owner = gl_lease_word(&s->lease);
    s->io.listed = 0;
    s->loop->dirty = 1;
    return gl_reactor_api(s->loop)->stream_open(s->loop->reactor, fd, &s->io, flags, &s->id,
                                                &s->gen);
}

/* transport_ops.update_interest: submits the stream's record if it has changed.  Does nothing for a
 * stream that is not registered. */
static int
stream_update_interest(gl_transport *t)
{
    if (!t->registered)
        return 0; /* _start registers with the interest of that moment */
    if (gl_loop_check_usable(t->loop) < 0)
        return -1;
    return stream_submit((gl_stream *)t);
}

/* ---- construction ---------------------------------------------------------------- */

/* How a protocol receives bytes. */
typedef struct {
    bool buffered;
    gl_receive *native_receive;
} protocol_kind;

GL_PRIVATE int
has_buffer_methods(PyObject *protocol)
{
    PyObject *const names[] = {G.s_data_received, G.s_get_buffer, G.s_buffer_updated};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(names); i++) {
        PyObject *method = PyObject_GetAttr(protocol, names[i]);
        if (method == NULL && !PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();
        bool found = method != NULL;
        Py_XDECREF(method);
        if (found == (i == 0))
            return 0;
    }
    return 1;
}

/* Returns 1 if the protocol has the methods of a BufferedProtocol, 0 if not.  If the class has no
 * base class of asyncio, its methods decide, which is rare. */
static int
protocol_is_buffered(PyObject *protocol)
{
    int r = PyObject_IsInstance(protocol, G.asyncio_BufferedProtocol);
    if (r != 0)
        return r;
    r = PyObject_IsInstance(protocol, G.asyncio_Protocol);
    if (r < 0)
        return -1;
    if (r != 0)
        return 0;
    return has_buffer_methods(protocol);
}

/* Finds out how the protocol receives bytes, and stores it in *kind.  Runs Python, so it precedes
 * the change of the stream. */
static int
find_protocol_kind(PyObject *protocol, protocol_kind *kind)
{
    int buffered = protocol_is_buffered(protocol);
    if (buffered < 0)
        return -1;
    kind->buffered = buffered;
    kind->native_receive = NULL;
    if (buffered && G.native_protocol != NULL && PyObject_TypeCheck(protocol, G.native_protocol))
        kind->native_receive = G.native_receive;
    return 0;
}

/* Stores the result of find_protocol_kind() in the stream. */
GL_NO_PYTHON static void
stream_set_protocol_kind(gl_stream *s, protocol_kind kind)
{
    s->buffered = kind.buffered;
    s->native_receive = kind.native_receive;
}

/* transport_ops.protocol_changed: adapts the stream to the protocol that set_protocol() is about to
 * set.  On failure nothing has changed. */
static int
stream_protocol_changed(gl_transport *t, PyObject *protocol)
{
    gl_stream *s = (gl_stream *)t;
    protocol_kind kind = {.buffered = false};
    /* Pipes call data_received of any protocol, as in asyncio. */
    if (s->kind == KIND_SOCKET && find_protocol_kind(protocol, &kind) < 0)
        return -1;
    stream_set_protocol_kind(s, kind);
    return 0;
}

/* Attaches the server and schedules connection_made, after gl_transport_attach_fd().  `waiter` is
 * the Future to resolve when the transport has started, `server` a Server; either may be None.  On
 * failure the server is detached, and the stream is GL_LOST as after
 * gl_transport_fail_construction(). */
static int
stream_finish_construction(gl_stream *s, PyObject *waiter, PyObject *server)
{
    int rc = 0;
    if (server != Py_None) {
        s->server = Py_NewRef(server);
        rc = stream_call_server(s, server, G.s__attach);
        if (rc < 0)
            Py_CLEAR(s->server);
        else
            rc = stream_schedule_before_made(s);
    }
    if (rc == 0 && gl_transport_schedule_connection_made(&s->base, waiter) == 0)
        return 0;
    PyObject *exc = gl_take_exception();
    if (stream_detach_server(s) < 0)
        PyErr_WriteUnraisable(server);
    gl_restore_exception(exc);
    return gl_transport_fail_construction(&s->base);
}

/* Returns true if a raw socket address is of the family AF_INET. */
static bool
is_ipv4(const uint8_t *name)
{
    sa_family_t family;
    memcpy(&family, name + offsetof(struct sockaddr, sa_family), sizeof(family));
    return family == AF_INET;
}

/* Returns the number of bytes of a raw name that are stored: an IPv4 address without its
 * padding. */
static uint32_t
sockaddr_stored_size(const uint8_t *name, uint32_t len)
{
    if (len == sizeof(struct sockaddr_in) && is_ipv4(name))
        return SHORT_NAME;
    return Py_MIN(len, GL_MAX_SOCKADDR);
}

/* Returns true if the raw names, if any, are in short_raw, so that `raw` is not in use. */
static bool
has_short_names(const gl_stream *s)
{
    return s->peer_len <= SHORT_NAME && s->local_len <= SHORT_NAME;
}

/* Stores the raw names of an accepted connection.  -1 with MemoryError, and none is stored. */
static int
stream_store_names(gl_stream *s, const gl_endpoints *ends)
{
    uint32_t peer = sockaddr_stored_size(ends->peer, ends->peer_len);
    uint32_t local = sockaddr_stored_size(ends->local, ends->local_len);
    uint8_t *raw = s->short_raw;
    if (peer > SHORT_NAME || local > SHORT_NAME) {
        raw = PyMem_Malloc(peer + local);
        if (raw == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        s->raw = raw;
    }
    memcpy(raw, ends->peer, peer);
    memcpy(raw + peer, ends->local, local);
    s->peer_len = (uint8_t)peer;
    s->local_len = (uint8_t)local;
    return 0;
}

GL_PRIVATE PyObject *
stream_name(gl_stream *s, bool peer)
{
    uint8_t name[GL_MAX_SOCKADDR] = {0};
    uint32_t len = peer ? s->peer_len : s->local_len;
    if (len == 0)
        return NULL;
    const uint8_t *raw = has_short_names(s) ? s->short_raw : s->raw;
    if (!peer)
        raw = &raw[s->peer_len];
    memcpy(name, raw, len);
    if (is_ipv4(name))
        len = sizeof(struct sockaddr_in);
    return gl_sockaddr_to_object(name, len);
}

GL_PRIVATE bool
gl_stream_class(PyObject *cls)
{
    if (PyType_Check(cls) && PyType_IsSubtype((PyTypeObject *)cls, G.stream_type))
        return true;
    PyErr_Format(PyExc_TypeError,
                 "goloop._internal.net.stream_transport.StreamTransport must be a subclass of "
                 "goloop._core.StreamTransport, got %R",
                 cls);
    return false;
}

/* Constructs the transport of an accepted connection, in a stream that __new__ has made.  `a` has
 * the lease of the accepted fd, which moves into the stream.  On failure the lease is in `a` or in
 * the stream, and the caller closes the fd. */
static int
stream_construct_accepted(gl_stream *s, transport_arguments *a, const gl_endpoints *ends,
                          PyObject *server)
{
    protocol_kind kind;
    if (stream_store_names(s, ends) < 0 || find_protocol_kind(a->protocol, &kind) < 0 ||
        gl_loop_check_usable((gl_loop *)a->loop) < 0)
        return -1;
    if (gl_transport_attach_fd(&s->base, a) < 0)
        return -1;
    stream_set_protocol_kind(s, kind);
    s->lazy_extra = true;
    return stream_finish_construction(s, Py_None, server);
}

GL_PRIVATE PyObject *
gl_stream_accepted(PyTypeObject *type, gl_loop *loop, const gl_accepted *accepted,
                   PyObject *protocol, PyObject *server, PyObject *context)
{
    /* Not type->tp_new: a subclass's __new__ may return any object. */
    gl_stream *s = (gl_stream *)stream_new(type, NULL, NULL);
    if (s == NULL) {
        gl_call_close(accepted->fd);
        return NULL;
    }
    transport_arguments a = {.loop = (PyObject *)loop,
                             .protocol = protocol,
                             .context = Py_NewRef(context),
                             .lease = GL_NO_LEASE};
    a.lease.fd = accepted->fd;
    int rc = stream_construct_accepted(s, &a, accepted->ends, server);
    if (rc < 0) {
        PyObject *exc = gl_take_exception();
        /* A hook of the server may have made a socket object, which then owns the fd. */
        if (a.lease.fd >= 0)
            (void)gl_lease_close(&a.lease);
        else if (s->lease.owner == NULL)
            (void)gl_lease_close(&s->lease);
        Py_CLEAR(s);
        gl_restore_exception(exc);
    }
    gl_transport_arguments_clear(&a);
    return (PyObject *)s;
}

static const transport_ops pipe_ops;

/* Changes a new stream of kind KIND_SOCKET into an end of a pipe. */
static void
stream_become_pipe(gl_stream *s, enum stream_kind kind)
{
    s->kind = (uint8_t)kind;
    s->ops = &pipe_ops;
}

GL_PRIVATE int
stream_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"loop",    "sock",    "protocol", "waiter",    "extra", "server",
                            "context", "exposed", "pipe",     "watch_end", NULL};
    gl_stream *s = (gl_stream *)self;
    transport_arguments a = TRANSPORT_ARGUMENTS;
    PyObject *server = Py_None;
    protocol_kind kind = {.buffered = false};
    int exposed = 0;
    int pipe = 0;
    int watch_end = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|OOOOppp:StreamTransport", names,
                                     G.loop_type, &a.loop, &a.file, &a.protocol, &a.waiter,
                                     &a.given_extra, &server, &a.given_context, &exposed, &pipe,
                                     &watch_end))
        return -1;
    if (pipe && s->phase == GL_EMPTY && s->kind == KIND_SOCKET)
        stream_become_pipe(s, KIND_WRITE_PIPE);
    if (s->kind == KIND_SOCKET && find_protocol_kind(a.protocol, &kind) < 0)
        return -1;
    GL_GUARD(a.loop);
    int rc = gl_transport_construct(&s->base, &a);
    if (rc == 0) {
        stream_set_protocol_kind(s, kind);
        s->exposed = (char)exposed;
        s->watch_end = watch_end && s->kind == KIND_WRITE_PIPE;
        rc = stream_finish_construction(s, a.waiter, server);
    }
    gl_transport_arguments_clear(&a);
    return rc;
}

/* transport_ops.start of a socket, called after connection_made: registers the fd, so that
 * receiving starts.  An error ends the transport by _fatal_error(); -1 as
 * gl_transport_fatal_current(), or with an exception of the first receive of an accepted
 * connection.  Does nothing for a closing transport. */
static int
stream_start(gl_transport *t)
{
    if (is_closing(t))
        return 0;
    int rc;
    if (t->registered)
        rc = gl_transport_update_interest(t);
    else
        rc = gl_transport_register(t);
    if (rc < 0)
        return gl_transport_fatal_current(t, "Fatal error on transport");
    gl_stream *s = (gl_stream *)t;
    if (s->server != NULL && s->server != Py_None)
        return stream_start_accepted(s);
    return 0;
}

/* transport_ops.start of a pipe: starts reading, or watching for the end.  A writing end is also
 * registered while it is closing and its queue is being sent.  A device that can't be polled
 * (/dev/null) fails here: -1 with OSError.  Does nothing without a descriptor. */
static int
pipe_start(gl_transport *t)
{
    /* The fd number is missing if user code has set _pipe to None. */
    if (t->lease.fd < 0)
        return 0;
    if (t->registered)
        return gl_transport_update_interest(t);
    return gl_transport_register(t);
}

/* ---- closing ------------------------------------------------------------------------ */

/* transport_ops.flush_before_abort: sends the bytes that asyncio would have passed to the kernel in
 * write(); only the bytes that the kernel refuses are dropped.  Returns the exception of a failed
 * send, with which asyncio would have ended the stream earlier, or NULL. */
static PyObject *
stream_flush_before_abort(gl_transport *t)
{
    gl_stream *s = (gl_stream *)t;
    if (stream_can_flush(s) && stream_flush_now(s) < 0)
        return gl_take_exception();
    return NULL;
}

/* transport_ops.close: sends the queue now.  With an empty queue schedules connection_lost;
 * otherwise the WROTE completion of the last byte ends the stream.  If the protocol is still
 * paused, _close_if_sent() ends the stream after resume_writing(); during writelines() the end
 * waits for all items.  A failed send ends the transport with its error. */
static int
stream_close(gl_transport *t)
{
    gl_stream *s = (gl_stream *)t;
    if (s->in_writelines)
        return gl_transport_update_interest(t);
    if (stream_queued(s) > 0 && !s->loop->closed && stream_flush_now(s) < 0)
        return gl_transport_fatal_current(t, WRITE_FAILED(s));
    if (is_ending(s)) /* the flush failed, and ended it */
        return 0;
    if (stream_queued(s) > 0)
        return gl_transport_update_interest(t); /* connection_lost is called after the last byte */
    if (s->protocol_paused && !s->loop->closed) {
        /* A flush has emptied the queue of a paused protocol and scheduled resume_writing, which
         * may write again (TLS writes close_notify).  The stream ends after that. */
        if (gl_transport_update_interest(t) < 0)
            return -1;
        return gl_transport_call_soon(t, G.s__close_if_sent, NULL);
    }
    return gl_transport_schedule_connection_lost(t, Py_None);
}

GL_PRIVATE PyObject *
stream_close_if_sent_method(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    /* A protocol that is still paused is resumed by the WROTE completion of the last bytes, which
     * then ends the stream. */
    if (is_flushing(s) && stream_queued(s) == 0 && !s->protocol_paused) {
        gl_transport_unregister(&s->base);
        if (gl_transport_connection_lost(&s->base, Py_None) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

/* transport_ops.after_connection_lost: detaches the server, and sets ConnectionError on the Future
 * of _make_empty_waiter().  -1 with the last exception of the two. */
static int
stream_after_connection_lost(gl_transport *t)
{
    gl_stream *s = (gl_stream *)t;
    PyObject *error = NULL;
    if (stream_detach_server(s) < 0)
        error = gl_take_exception();
    if (s->empty_waiter != NULL) {
        PyObject *e =
            PyObject_CallFunction(PyExc_ConnectionError, "s", "Connection is closed by peer");
        if (e == NULL || stream_resolve_empty_waiter(s, e) < 0)
            Py_XSETREF(error, gl_take_exception());
        Py_XDECREF(e);
    }
    gl_restore_exception(error);
    if (error != NULL)
        return -1;
    return 0;
}

GL_PRIVATE PyObject *
pipe_release_fd(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    if (s->loop != NULL && gl_loop_is_foreign(s->loop))
        return gl_none_or_null(gl_loop_check_usable(s->loop));
    if (!is_closing(s))
        s->phase = GL_CLOSING;
    if (s->loop != NULL) {
        gl_transport_unregister(&s->base);
        gl_fd_clear_transport(s->loop, s->fd_in_repr, (PyObject *)s);
    }
    gl_lease_release(&s->lease);
    Py_RETURN_NONE;
}

GL_PRIVATE PyObject *
pipe_stop_watching_end(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    if (s->loop == NULL || is_closing(s))
        Py_RETURN_NONE;
    if (gl_loop_check_usable(s->loop) < 0)
        return NULL;
    s->watch_end = false;
    return gl_none_or_null(gl_transport_update_interest(&s->base));
}

/* ---- the end ---------------------------------------------------------------------------- */

#if GL_SERVER_TRACKS_TRANSPORTS
/* transport_ops.after_finalize: detaches the server of a stream that was dropped without a
 * close(). */
static int
stream_after_finalize(gl_transport *t)
{
    return stream_detach_server((gl_stream *)t);
}
#else
#define stream_after_finalize NULL
#endif

/* transport_ops.discard_queue: drops all pending pieces. */
static void
stream_discard_queue_op(gl_transport *t)
{
    stream_discard_queue((gl_stream *)t);
}

/* transport_ops.free_memory: frees the arrays of the queue and the raw names. */
static void
stream_free_memory(gl_transport *t)
{
    gl_stream *s = (gl_stream *)t;
    stream_free_queue(s);
    if (!has_short_names(s))
        PyMem_Free(s->raw);
}

GL_PRIVATE int
stream_traverse(PyObject *self, visitproc visit, void *arg)
{
    gl_stream *s = (gl_stream *)self;
    Py_VISIT(s->server);
    Py_VISIT(s->empty_waiter);
    return gl_transport_traverse(&s->base, visit, arg); /* the queue holds exact bytes only */
}

GL_PRIVATE int
stream_clear(PyObject *self)
{
    gl_stream *s = (gl_stream *)self;
    gl_transport_clear(&s->base);
    Py_CLEAR(s->server);
    Py_CLEAR(s->empty_waiter);
    return 0;
}

/* transport_ops.is_receiving: returns true if the stream wants to be registered for reading. */
static bool
stream_is_receiving(gl_transport *t)
{
    return stream_wants_read((gl_stream *)t);
}

/* The functions that sockets and pipes have in common. */
#define STREAM_OPS                                                                                 \
    .kind = GL_REG_STREAM, .register_fd = stream_register_fd,                                      \
    .update_interest = stream_update_interest, .close = stream_close,                              \
    .flush_before_abort = stream_flush_before_abort, .discard_queue = stream_discard_queue_op,     \
    .after_connection_lost = stream_after_connection_lost, .free_memory = stream_free_memory,      \
    .prepare_delivery = stream_prepare_delivery,                                                   \
    .schedule_input_drain = stream_schedule_input_drain, .deliver_item = stream_deliver_item,      \
    .is_receiving = stream_is_receiving, .protocol_changed = stream_protocol_changed

static const transport_ops socket_ops = {
    STREAM_OPS,
    .start = stream_start,
    .after_finalize = stream_after_finalize,
};

static const transport_ops pipe_ops = {
    STREAM_OPS,
    .shares_number = true,
    .start = pipe_start,
};

GL_PRIVATE PyObject *
stream_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    gl_stream *s = (gl_stream *)gl_transport_alloc(type, &socket_ops);
    if (s != NULL) {
        s->high_mark = HIGH_WATER;
        s->low_mark = HIGH_WATER / 4;
    }
    return (PyObject *)s;
}

GL_PRIVATE PyObject *
read_pipe_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *self = stream_new(type, args, kwargs);
    if (self != NULL)
        stream_become_pipe((gl_stream *)self, KIND_READ_PIPE);
    return self;
}
