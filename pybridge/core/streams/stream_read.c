/*
 * stream_read.c: received bytes on their way to the protocol.
 *
 * Go receives for all connections before the first protocol is called, so the
 * state is looked at again before each call of Python: an earlier callback of the
 * same turn may have closed this transport, paused it, or given it another
 * protocol.  What was received for a closing transport is dropped, as asyncio
 * drops what it does not read any more.  What was received for a paused one is
 * held, in order:
 *
 *      held[0] held[1] ...  paused_end (EOF or an error)
 *
 * and delivered by _deliver_paused_data, which resume_reading schedules.  While anything
 * is held the reactor is not told to read on, so nothing newer can overtake it but
 * what the same turn brought, and that is appended.
 */
#include "streams/stream.h"

/* ---- delivery: each returns -1 where an exception has to leave the loop ----------------- */

/* The buffer of a BufferedProtocol: 1 with a view that is not empty, 0 where the
 * transport was closed for an error, -1. */
static int
stream_get_buffer(gl_stream *s, Py_buffer *view)
{
    PyObject *protocol = Py_NewRef(s->protocol), *hint = PyLong_FromLong(-1);
    PyObject *buf = hint ? PyObject_CallMethodOneArg(protocol, G.s_get_buffer, hint) : NULL;
    Py_XDECREF(hint);
    Py_DECREF(protocol);
    if (buf != NULL) {
        Py_ssize_t n = PyObject_Size(buf);
        if (n == 0)
            PyErr_SetString(PyExc_RuntimeError, "get_buffer() returned an empty buffer");
        if (n <= 0)
            Py_CLEAR(buf);
    }
    if (buf == NULL)
        return gl_transport_fatal_current(&s->base,
                                          "Fatal error: protocol.get_buffer() call failed.");
    int rc = PyObject_GetBuffer(buf, view, PyBUF_WRITABLE);
    if (rc < 0) {
        /* In the words of socket.recv_into, which asyncio calls with the buffer. */
        if (!gl_is_exit_exception()) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError,
                         "recv_into() argument 1 must be read-write bytes-like object, not "
                         "%.50s",
                         Py_TYPE(buf)->tp_name);
        }
    } else if (view->len == 0) {
        PyBuffer_Release(view);
        PyErr_SetString(PyExc_RuntimeError, "get_buffer() returned an empty buffer");
        rc = -1;
    }
    Py_DECREF(buf);
    if (rc < 0)
        return gl_transport_fatal_current(&s->base, READ_FAILED(s));
    return 1;
}

static int
stream_buffer_updated(gl_stream *s, Py_ssize_t n)
{
    PyObject *protocol = Py_NewRef(s->protocol), *count = PyLong_FromSsize_t(n);
    int rc = count ? gl_call_method(protocol, G.s_buffer_updated, count) : -1;
    Py_XDECREF(count);
    Py_DECREF(protocol);
    if (rc < 0)
        rc = gl_transport_fatal_current(&s->base,
                                        "Fatal error: protocol.buffer_updated() call failed.");
    return rc;
}

/* One round of get_buffer and buffer_updated; *done: the bytes that it took, 0 where
 * the transport was closed for an error. */
static int
stream_copy_to_protocol_buffer(gl_stream *s, const char *data, Py_ssize_t n, Py_ssize_t *done)
{
    Py_buffer view;
    *done = 0;
    int rc = stream_get_buffer(s, &view);
    if (rc <= 0)
        return rc;
    if (n > view.len)
        n = view.len;
    memcpy(view.buf, data, (size_t)n);
    PyBuffer_Release(&view);
    *done = n;
    if (s->protocol == NULL) /* lost within get_buffer */
        return 0;
    return stream_buffer_updated(s, n);
}

/* Delivers n bytes.  `whole`, where not NULL, is a bytes object of just these. What
 * a pause, or an exception that leaves the loop, prevents goes to the front of held. */
GL_PRIVATE int
stream_deliver_bytes(gl_stream *s, const char *data, Py_ssize_t n, PyObject *whole)
{
    Py_ssize_t pos = 0;
    int rc = 0;
    while (pos < n && rc == 0) {
        if (discards_received(s) || s->protocol == NULL)
            return 0;
        if (s->paused)
            break;
        if (s->native_receive != NULL) {
            PyObject *protocol = Py_NewRef(s->protocol);
            rc = s->native_receive(protocol, data + pos, n - pos);
            Py_DECREF(protocol);
            if (rc < 0)
                rc = gl_transport_fatal_current(
                    &s->base, "Fatal error: protocol.buffer_updated() call failed.");
            pos = n;
        } else if (s->buffered) {
            Py_ssize_t done;
            rc = stream_copy_to_protocol_buffer(s, data + pos, n - pos, &done);
            if (rc == 0 && done == 0)
                return 0;
            pos += done;
        } else {
            PyObject *bytes = pos == 0 && whole != NULL
                                  ? Py_NewRef(whole)
                                  : PyBytes_FromStringAndSize(data + pos, n - pos);
            if (bytes == NULL)
                return gl_transport_fatal_current(&s->base, READ_FAILED(s));
            PyObject *protocol = Py_NewRef(s->protocol);
            rc = gl_call_method(protocol, G.s_data_received, bytes);
            Py_DECREF(protocol);
            Py_DECREF(bytes);
            /* asyncio's pipes read on, and the loop reports the exception. */
            if (rc < 0 && !s->kind)
                rc = gl_transport_fatal_current(
                    &s->base, "Fatal error: protocol.data_received() call failed.");
            pos = n;
        }
    }
    if (pos < n && !discards_received(s)) {
        PyObject *exc = rc < 0 ? gl_take_exception() : NULL;
        if (gl_transport_keep_paused_data(&s->base, PyBytes_FromStringAndSize(data + pos, n - pos),
                                          true) < 0 ||
            (exc != NULL && !s->paused && gl_transport_schedule_delivery(&s->base) < 0)) {
            if (exc != NULL)
                PyErr_Clear();
            else
                rc = gl_transport_fatal_current(&s->base, READ_FAILED(s));
        }
        gl_restore_exception(exc);
    }
    return rc;
}

static int
pipe_log_closed(gl_stream *s)
{
    if (!s->loop->debug)
        return 0;
    return gl_drop_result(PyObject_CallMethod(G.logger, GL_METHOD(info), "sO",
                                              "%r was closed by peer", (PyObject *)s));
}

static int
read_pipe_ended(gl_stream *s)
{
    if (is_closing(s) || pipe_log_closed(s) < 0 || is_lost(s) || s->protocol == NULL)
        return PyErr_Occurred() ? -1 : 0;
    s->phase = GL_CLOSING;
    gl_transport_unregister(&s->base);
    PyObject *method = PyObject_GetAttr(s->protocol, G.s_eof_received);
    if (method == NULL)
        return -1;
    int rc = s->loop != NULL ? gl_schedule_on_own_loop(s->loop, method, NULL, s->context) : 0;
    Py_DECREF(method);
    return rc < 0 ? -1 : gl_transport_force_close(&s->base, Py_None);
}

static int
write_pipe_ended(gl_stream *s)
{
    if (is_ending(s) || pipe_log_closed(s) < 0 || is_lost(s))
        return PyErr_Occurred() ? -1 : 0;
    if (stream_queued(s) == 0)
        return gl_transport_force_close(&s->base, Py_None);
    PyObject *exc = PyObject_CallNoArgs(PyExc_BrokenPipeError);
    if (exc == NULL)
        return -1;
    int rc = gl_transport_force_close(&s->base, exc);
    Py_DECREF(exc);
    return rc;
}

static int
pipe_ended(gl_stream *s)
{
    return s->kind == KIND_READ_PIPE ? read_pipe_ended(s) : write_pipe_ended(s);
}

static int
stream_deliver_eof(gl_stream *s)
{
    if (s->kind == KIND_WRITE_PIPE && !s->watch_end)
        return 0; /* it came before the end was left to a reader */
    if (s->kind)
        return pipe_ended(s);
    if (is_closing(s) || s->protocol == NULL)
        return 0;
    if (s->loop->debug)
        gl_log_debug((PyObject *)s, "%r received EOF");
    PyObject *protocol = Py_NewRef(s->protocol);
    PyObject *r = PyObject_CallMethodNoArgs(protocol, G.s_eof_received);
    Py_DECREF(protocol);
    if (r == NULL)
        return gl_transport_fatal_current(&s->base,
                                          "Fatal error: protocol.eof_received() call failed.");
    int keep_open = PyObject_IsTrue(r);
    Py_DECREF(r);
    if (keep_open < 0)
        return -1;
    /* asyncio stops reading now, also where eof_received() has resumed it. */
    s->paused_end = 0;
    return keep_open ? 0 : gl_call_method((PyObject *)s, G.s_close, NULL);
}

static int
stream_deliver_read_error(gl_stream *s, int err)
{
    if (is_closing(s))
        return 0;
    PyObject *exc = gl_oserror(err);
    if (exc == NULL)
        return -1;
    int rc = gl_transport_fatal_error(&s->base, exc, READ_FAILED(s));
    Py_DECREF(exc);
    return rc;
}

static int
stream_deliver_end(gl_stream *s, uint8_t end)
{
    return end == GL_CMP_EOF ? stream_deliver_eof(s)
                             : stream_deliver_read_error(s, s->paused_errno);
}

/* ---- receiving directly ----------------------------------------------------------------
 *
 * What Go receives is copied once more.  For a few bytes of many connections that is cheaper than
 * a call of the system's for each.  For many bytes it is not; and of few connections Go makes no
 * batch, and a peer that has its answer works while we serve the next.  Then Go only reports that
 * there is something, and it is received here.
 */

/* Go, which stops by itself where it meets the end, has not met it. */
static int
stream_handle_recv_eof(gl_stream *s)
{
    s->read_end = GL_CMP_EOF;
    if (s->registered && stream_submit(s) < 0) {
        s->read_end = 0;
        return -1;
    }
    return stream_deliver_eof(s);
}

/* Receives, and counts that; what recv(2) gives, with errno in *err. */
GL_PRIVATE ssize_t
stream_recv(gl_stream *s, void *to, Py_ssize_t size, int *err)
{
    ssize_t n = gl_call_recv(&s->lease, to, (size_t)size, MSG_DONTWAIT);
    *err = errno;
    s->loop->shared->recvs++;
    gl_count_received(s->loop, n);
    return n;
}

/* What a receive of n came to: 1 where bytes have come; else 0 or -1, and it is dealt with. */
static int
stream_handle_recv_result(gl_stream *s, ssize_t n, int err)
{
    if (n < 0)
        return err == EAGAIN || err == EINTR ? 0 : stream_deliver_read_error(s, err);
    if (n == 0)
        return stream_handle_recv_eof(s);
    gl_large_record_receive(s->loop, n);
    s->receives_large = n >= LARGE_RECEIVE_MIN;
    if (s->registered && stream_submit(s) < 0)
        return gl_transport_fatal_current(&s->base, READ_FAILED(s));
    return 1;
}

static int
stream_receive_into_protocol_buffer(gl_stream *s)
{
    Py_buffer view;
    int rc = stream_get_buffer(s, &view);
    if (rc <= 0)
        return rc;
    ssize_t n = -1;
    int err = EAGAIN;
    if (s->protocol != NULL && !gl_loop_is_foreign(s->loop)) /* whatever get_buffer() has done */
        n = stream_recv(s, view.buf, view.len, &err);
    PyBuffer_Release(&view); /* lint: allow check-commit: looked at again */
    if (s->protocol == NULL)
        return 0;
    rc = stream_handle_recv_result(s, n, err);
    return rc <= 0 ? rc : stream_buffer_updated(s, n);
}

static int
stream_receive_into_bytes(gl_stream *s)
{
    PyObject *bytes = gl_large_alloc(s->loop);
    if (bytes == NULL)
        return gl_transport_fatal_current(&s->base, READ_FAILED(s));
    int err;
    ssize_t n = stream_recv(s, PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes), &err);
    gl_large_truncate(s->loop, &bytes, n);
    int rc = stream_handle_recv_result(s, n, err);
    if (rc > 0)
        rc = bytes ? stream_deliver_bytes(s, PyBytes_AS_STRING(bytes), n, bytes)
                   : gl_transport_fatal_current(&s->base, READ_FAILED(s));
    Py_XDECREF(bytes);
    return rc;
}

static int
stream_receive_into_scratch(gl_stream *s)
{
    gl_loop *loop = s->loop;
    uint8_t *scratch = gl_scratch_acquire(loop);
    if (scratch == NULL)
        return gl_transport_fatal_current(&s->base, READ_FAILED(s));
    int err;
    ssize_t n = stream_recv(s, scratch, GL_SCRATCH_SIZE, &err);
    int rc = stream_handle_recv_result(s, n, err);
    if (rc > 0)
        rc = stream_deliver_bytes(s, (const char *)scratch, n, NULL);
    gl_scratch_release(loop, scratch);
    return rc;
}

/* Receives, after Go has reported that the stream is readable. */
GL_PRIVATE int
stream_handle_readable(gl_stream *s, const gl_completion *c)
{
    switch (choose_receive_path(s, c)) {
    case RECEIVE_INTO_PROTOCOL_BUFFER:
        return stream_receive_into_protocol_buffer(s);
    case RECEIVE_INTO_BYTES:
        return stream_receive_into_bytes(s);
    case RECEIVE_INTO_SCRATCH:
        return stream_receive_into_scratch(s);
    default:
        return 0;
    }
}

GL_PRIVATE int
stream_deliver_item(gl_transport *t, PyObject *item)
{
    gl_stream *s = (gl_stream *)t;
    if (item != NULL)
        return stream_deliver_bytes(s, PyBytes_AS_STRING(item), PyBytes_GET_SIZE(item), item);
    uint8_t end = s->paused_end;
    s->paused_end = 0;
    return stream_deliver_end(s, end);
}

/* A socket at its end stays readable: asyncio tells whoever reads again of the EOF once
 * more, and start_tls relies on it. */
GL_PRIVATE bool
stream_has_pending(gl_transport *t)
{
    gl_stream *s = (gl_stream *)t;
    if (s->read_end == GL_CMP_EOF)
        s->paused_end = GL_CMP_EOF;
    return s->paused_data != NULL || s->paused_end;
}

/* ---- completions of Go ----------------------------------------------------------- */

/* Delivers a DATA completion: bytes that Go has received. */
GL_PRIVATE int
stream_handle_data(gl_stream *s, const gl_completion *c)
{
    PyObject *bytes = NULL;
    enum receive_path path = choose_receive_path(s, c);
    if (path == RECEIVE_NOTHING)
        return 0;
    gl_large_record_receive(s->loop, c->arg);
    if (path == RECEIVE_LATER) {
        bytes = PyBytes_FromStringAndSize(c->ptr, (Py_ssize_t)c->arg);
        if (gl_transport_keep_paused_data(&s->base, bytes, false) < 0)
            return gl_transport_fatal_current(&s->base, READ_FAILED(s));
        return 0;
    }
    if (path == RECEIVE_FROM_LENT_BUFFER) {
        bytes = gl_large_detach(s->loop, c);
        if (bytes == NULL)
            return gl_transport_fatal_current(&s->base, READ_FAILED(s));
    }
    int rc = stream_deliver_bytes(s, c->ptr, (Py_ssize_t)c->arg, bytes);
    Py_XDECREF(bytes);
    if (rc == 0 && c->arg >= LARGE_RECEIVE_MIN && !s->kind && s->protocol != NULL) {
        s->receives_large = true;
        rc = s->registered ? stream_submit(s) : 0;
    }
    return rc;
}

/* Delivers an EOF or READ_ERROR completion, or stores it after paused data. */
GL_PRIVATE int
stream_handle_read_end(gl_stream *s, const gl_completion *c)
{
    s->read_end = (uint8_t)c->kind;
    if ((is_closing(s) && s->kind != KIND_WRITE_PIPE) || s->protocol == NULL)
        return 0;
    s->paused_errno = c->res;
    if (s->paused || s->paused_data != NULL) {
        s->paused_end = (uint8_t)c->kind;
        return 0;
    }
    return stream_deliver_end(s, (uint8_t)c->kind);
}
