/*
 * stream_read.c: received bytes on their way to the protocol.
 *
 * choose_receive_path() in stream_paths.c has the table of the paths.
 *
 *   stream_handle_readable                 READY: C receives
 *     stream_receive_into_protocol_buffer
 *     stream_receive_into_reader           many bytes for a StreamReader: stream_reader.c
 *     stream_receive_into_bytes
 *     stream_receive_into_scratch
 *       stream_deliver_bytes               data_received() or get_buffer() and buffer_updated();
 *                                          a StreamReader is fed by stream_reader.c
 *   stream_handle_data                     DATA: Go has received
 *     stream_deliver_bytes
 *   stream_handle_read_end                 EOF, READ_ERROR
 *     stream_deliver_end
 *
 * Go receives for all connections before the first protocol is called, so the state is checked
 * again before each call of Python: an earlier callback of the same turn may have closed or paused
 * this transport, or set another protocol.  Bytes for a closing transport are dropped, because
 * asyncio no longer reads then.  Bytes for a paused one become paused data, in order:
 *
 *      paused_data[0] paused_data[1] ...  paused_end (EOF or an error)
 *
 * _deliver_paused_data, which resume_reading schedules, delivers them.  While there is paused data
 * the stream is not registered for reading, so only completions of the same turn can follow, and
 * these are appended.
 *
 * An error of a socket's protocol ends the transport by _fatal_error(), and counts as handled: the
 * result is 0.  -1 means an exception that is not handled, such as SystemExit, KeyboardInterrupt,
 * one of _fatal_error(), or one of a pipe's protocol; stream_complete() reports it to the loop.
 */
#include "streams/stream.h"

/* ---- delivery -------------------------------------------------------------------------------- */

/* Calls get_buffer(-1) of a BufferedProtocol.  Returns 1 with a writable view that is not empty,
 * which the caller releases; 0 if an error has closed the transport. */
static int
stream_get_buffer(gl_stream *s, Py_buffer *view)
{
    PyObject *protocol = Py_NewRef(s->protocol);
    PyObject *hint = PyLong_FromLong(-1);
    PyObject *buf = NULL;
    if (hint)
        buf = PyObject_CallMethodOneArg(protocol, G.s_get_buffer, hint);
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
        /* The message of socket.recv_into, which asyncio calls with the buffer. */
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

/* Calls buffer_updated(n) of a BufferedProtocol.  An exception of the method closes the
 * transport. */
static int
stream_buffer_updated(gl_stream *s, Py_ssize_t n)
{
    PyObject *protocol = Py_NewRef(s->protocol);
    PyObject *count = PyLong_FromSsize_t(n);
    int rc = -1;
    if (count)
        rc = gl_call_method(protocol, G.s_buffer_updated, count);
    Py_XDECREF(count);
    Py_DECREF(protocol);
    if (rc < 0)
        rc = gl_transport_fatal_current(&s->base,
                                        "Fatal error: protocol.buffer_updated() call failed.");
    return rc;
}

/* Calls get_buffer, copies as many of the n bytes as fit, and calls buffer_updated.  *done: the
 * number of copied bytes, 0 if an error has closed the transport.  An error is handled as in
 * stream_get_buffer(). */
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
    if (s->protocol == NULL) /* connection_lost was called within get_buffer */
        return 0;
    return stream_buffer_updated(s, n);
}

/* Calls data_received() with n bytes; `whole`, if not NULL, is a bytes object of them.  A
 * StreamReader is fed without the call where the native rule allows it.  An exception closes a
 * socket's transport; a pipe goes on reading, except after a MemoryError: -1 with the
 * exception. */
static int
stream_call_data_received(gl_stream *s, const char *data, Py_ssize_t n, PyObject *whole)
{
    PyObject *protocol = Py_NewRef(s->protocol);
    int rc = gl_stream_reader_feed((PyObject *)s->loop, protocol, data, n);
    if (rc == 0) {
        PyObject *bytes = whole ? Py_NewRef(whole) : PyBytes_FromStringAndSize(data, n);
        if (bytes == NULL) {
            Py_DECREF(protocol);
            return gl_transport_fatal_current(&s->base, READ_FAILED(s));
        }
        rc = gl_call_method(protocol, G.s_data_received, bytes);
        Py_DECREF(bytes);
    }
    Py_DECREF(protocol);
    /* asyncio's pipes go on reading, and the loop reports the exception.  After a MemoryError the
     * bytes may be lost, so a pipe ends too. */
    if (rc < 0 && s->kind == KIND_SOCKET)
        rc = gl_transport_fatal_current(&s->base,
                                        "Fatal error: protocol.data_received() call failed.");
    else if (rc < 0)
        gl_transport_end_without_memory(&s->base);
    return Py_MIN(rc, 0);
}

/* Passes n bytes to a BufferedProtocol that is written in C, without get_buffer and buffer_updated.
 * An exception closes the transport. */
static int
stream_call_native_receive(gl_stream *s, const char *data, Py_ssize_t n)
{
    PyObject *protocol = Py_NewRef(s->protocol);
    int rc = s->native_receive(protocol, data, n);
    Py_DECREF(protocol);
    if (rc < 0)
        rc = gl_transport_fatal_current(&s->base,
                                        "Fatal error: protocol.buffer_updated() call failed.");
    return rc;
}

/* Moves undelivered bytes to the front of paused_data.  `rc` is the result of the delivery; if it
 * is -1, its exception is kept, and another delivery is scheduled unless reading is paused.
 * Returns rc.  Without memory the bytes are lost, which ends the transport: if rc is 0, by
 * gl_transport_fatal_current(), whose result is returned. */
static int
stream_keep_undelivered(gl_stream *s, const char *data, Py_ssize_t n, int rc)
{
    PyObject *exc = NULL;
    if (rc < 0)
        exc = gl_take_exception();
    PyObject *bytes = PyBytes_FromStringAndSize(data, n);
    if (gl_transport_keep_paused_data(&s->base, bytes, true) < 0 ||
        (exc != NULL && !s->paused && gl_transport_schedule_delivery(&s->base) < 0)) {
        if (exc == NULL) {
            rc = gl_transport_fatal_current(&s->base, READ_FAILED(s));
        } else {
            gl_transport_end_without_memory(&s->base);
            PyErr_Clear();
        }
    }
    gl_restore_exception(exc);
    return rc;
}

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
            rc = stream_call_native_receive(s, data + pos, n - pos);
            pos = n;
        } else if (s->buffered) {
            Py_ssize_t done;
            rc = stream_copy_to_protocol_buffer(s, data + pos, n - pos, &done);
            if (rc == 0 && done == 0)
                return 0;
            pos += done;
        } else {
            rc = stream_call_data_received(s, data + pos, n - pos, pos == 0 ? whole : NULL);
            pos = n;
        }
    }
    if (pos < n && !discards_received(s))
        rc = stream_keep_undelivered(s, data + pos, n - pos, rc);
    return rc;
}

/* Logs, in debug mode, that the peer has closed the pipe.  -1 with an exception of the logger. */
static int
pipe_log_closed(gl_stream *s)
{
    if (!s->loop->debug)
        return 0;
    return gl_drop_result(PyObject_CallMethod(G.logger, GL_METHOD(info), "sO",
                                              "%r was closed by peer", (PyObject *)s));
}

/* Handles the end of a reading pipe: deregisters it, and schedules eof_received and
 * connection_lost, as asyncio does.  Does nothing if the pipe is closing. */
static int
read_pipe_ended(gl_stream *s)
{
    if (is_closing(s) || pipe_log_closed(s) < 0 || is_lost(s) || s->protocol == NULL)
        return gl_error_status();
    s->phase = GL_CLOSING;
    gl_transport_unregister(&s->base);
    PyObject *method = PyObject_GetAttr(s->protocol, G.s_eof_received);
    if (method == NULL)
        return -1;
    int rc = 0;
    if (s->loop != NULL)
        rc = gl_schedule_on_own_loop(s->loop, method, NULL, s->context);
    Py_DECREF(method);
    if (rc < 0)
        return -1;
    return gl_transport_force_close(&s->base, Py_None);
}

/* Handles a closed reader: ends the transport, with BrokenPipeError for connection_lost if bytes
 * are queued, else with None.  Does nothing if the transport has ended. */
static int
write_pipe_ended(gl_stream *s)
{
    if (is_ending(s) || pipe_log_closed(s) < 0 || is_lost(s))
        return gl_error_status();
    if (stream_queued(s) == 0)
        return gl_transport_force_close(&s->base, Py_None);
    PyObject *exc = PyObject_CallNoArgs(PyExc_BrokenPipeError);
    if (exc == NULL)
        return -1;
    int rc = gl_transport_force_close(&s->base, exc);
    Py_DECREF(exc);
    return rc;
}

/* Handles the end of a pipe, of either kind. */
static int
pipe_ended(gl_stream *s)
{
    if (s->kind == KIND_READ_PIPE)
        return read_pipe_ended(s);
    return write_pipe_ended(s);
}

/* Keeps the end of file after an exit exception of eof_received(), and schedules its delivery:
 * asyncio's loop finds the end again when it polls.  Returns -1 with the exception. */
static int
stream_keep_end(gl_stream *s)
{
    PyObject *exc = gl_take_exception();
    if (!is_closing(s)) {
        s->paused_end = GL_CMP_EOF;
        if (gl_transport_schedule_delivery(&s->base) < 0)
            PyErr_Clear();
    }
    gl_restore_exception(exc);
    return -1;
}

/* Reports the end of file: calls eof_received(), and close() unless the result is true.  An
 * exception of eof_received() ends the transport.  A closing socket ignores the end of file.  Pipes
 * have their own rules (pipe_ended()).  After _ignore_end() the writing side of a pipe ignores that
 * its reader has closed. */
static int
stream_deliver_eof(gl_stream *s)
{
    if (s->kind == KIND_WRITE_PIPE && !s->watch_end)
        return 0; /* reported before pipe_stop_watching_end() */
    if (s->kind != KIND_SOCKET)
        return pipe_ended(s);
    if (is_closing(s) || s->protocol == NULL)
        return 0;
    if (s->loop->debug)
        gl_log_debug((PyObject *)s, "%r received EOF");
    PyObject *protocol = Py_NewRef(s->protocol);
    PyObject *r = PyObject_CallMethodNoArgs(protocol, G.s_eof_received);
    Py_DECREF(protocol);
    if (r == NULL && gl_is_exit_exception())
        return stream_keep_end(s);
    if (r == NULL)
        return gl_transport_fatal_current(&s->base,
                                          "Fatal error: protocol.eof_received() call failed.");
    int keep_open = PyObject_IsTrue(r);
    Py_DECREF(r);
    if (keep_open < 0)
        return -1;
    /* asyncio stops reading now, even if eof_received() has resumed it. */
    s->paused_end = 0;
    if (keep_open)
        return 0;
    return gl_call_method((PyObject *)s, G.s_close, NULL);
}

/* Closes the transport with the OSError of the errno `err`, unless it is closing already. */
static int
stream_deliver_read_error(gl_stream *s, int err)
{
    if (is_closing(s))
        return 0;
    PyObject *exc = gl_oserror(err);
    if (exc == NULL)
        exc = gl_take_exception();
    int rc = gl_transport_fatal_error(&s->base, exc, READ_FAILED(s));
    Py_DECREF(exc);
    return rc;
}

/* Delivers the end of the received bytes, GL_CMP_EOF or GL_CMP_READ_ERROR. */
static int
stream_deliver_end(gl_stream *s, uint8_t end)
{
    if (end == GL_CMP_EOF)
        return stream_deliver_eof(s);
    return stream_deliver_read_error(s, s->paused_errno);
}

/* ---- receiving in C ----------------------------------------------------------------------
 *
 * Bytes that Go receives are copied once more.  For a few bytes of many connections this costs
 * little, but not for many bytes.  In an eager turn a peer that has its answer can work while the
 * next one is served.  In these cases Go only reports that the stream is readable, and C receives.
 */

/* Handles EOF that C has received: deregisters from reading and reports EOF.  Go stops reading by
 * itself only at an EOF that it has received. */
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

GL_PRIVATE int
stream_handle_recv_result(gl_stream *s, ssize_t n, int err)
{
    if (n < 0) {
        if (err == EAGAIN || err == EINTR)
            return 0;
        return stream_deliver_read_error(s, err);
    }
    if (n == 0)
        return stream_handle_recv_eof(s);
    gl_large_record_receive(s->loop, n);
    s->receives_large = n >= LARGE_RECEIVE_MIN;
    if (s->registered && stream_submit(s) < 0)
        return gl_transport_fatal_current(&s->base, READ_FAILED(s));
    return 1;
}

/* Executes RECEIVE_INTO_PROTOCOL_BUFFER: get_buffer(), a receive into that buffer,
 * buffer_updated(). */
static int
stream_receive_into_protocol_buffer(gl_stream *s)
{
    Py_buffer view;
    int rc = stream_get_buffer(s, &view);
    if (rc <= 0)
        return rc;
    ssize_t n = -1;
    int err = EAGAIN;
    if (s->protocol != NULL && !gl_loop_is_foreign(s->loop)) /* get_buffer() may have closed it */
        n = stream_recv(s, view.buf, view.len, &err);
    PyBuffer_Release(&view); /* lint: allow check-commit: checked again */
    if (s->protocol == NULL)
        return 0;
    rc = stream_handle_recv_result(s, n, err);
    if (rc <= 0)
        return rc;
    return stream_buffer_updated(s, n);
}

/* Executes RECEIVE_INTO_BYTES: a receive into a new large bytes object, which is cut to its length
 * and delivered. */
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
    if (rc > 0 && bytes != NULL)
        rc = stream_deliver_bytes(s, PyBytes_AS_STRING(bytes), n, bytes);
    else if (rc > 0)
        rc = gl_transport_fatal_current(&s->base, READ_FAILED(s));
    Py_XDECREF(bytes);
    return rc;
}

/* Executes RECEIVE_INTO_READER: a receive straight into the buffer of the protocol's StreamReader.
 * Returns 1, or 0 if that is not possible, and nothing was received. */
static int
stream_receive_into_reader(gl_stream *s)
{
    PyObject *reader = NULL;
    ssize_t n;
    int err;
    int received = stream_reader_receive(s, &reader, &n, &err);
    if (received < 0 && gl_transport_fatal_current(&s->base, READ_FAILED(s)) < 0)
        return -1;
    if (received <= 0)
        return -received;
    int rc = stream_handle_recv_result(s, n, err);
    if (rc > 0 && stream_reader_received(s, reader) < 0)
        rc = gl_transport_fatal_current(&s->base,
                                        "Fatal error: protocol.data_received() call failed.");
    Py_DECREF(reader);
    return rc < 0 ? -1 : 1;
}

/* Executes RECEIVE_INTO_SCRATCH: a receive into the loop's scratch buffer, whose bytes are copied
 * for the protocol. */
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

GL_PRIVATE int
stream_handle_readable(gl_stream *s, const gl_completion *c)
{
    int rc;
    switch (choose_receive_path(s, c)) {
    case RECEIVE_INTO_PROTOCOL_BUFFER:
        return stream_receive_into_protocol_buffer(s);
    case RECEIVE_INTO_READER:
        rc = stream_receive_into_reader(s);
        if (rc != 0)
            return Py_MIN(rc, 0);
        return stream_receive_into_bytes(s);
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

GL_PRIVATE bool
stream_prepare_delivery(gl_transport *t)
{
    gl_stream *s = (gl_stream *)t;
    if (s->read_end == GL_CMP_EOF)
        s->paused_end = GL_CMP_EOF;
    return s->paused_data != NULL || s->paused_end;
}

/* ---- completions of Go ----------------------------------------------------------- */

GL_PRIVATE int
stream_handle_data(gl_stream *s, const gl_completion *c)
{
    PyObject *bytes = NULL;
    const char *data = c->ptr;
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
        data = PyBytes_AS_STRING(bytes); /* cutting may have moved it */
    }
    int rc = stream_deliver_bytes(s, data, (Py_ssize_t)c->arg, bytes);
    Py_XDECREF(bytes);
    if (rc == 0 && c->arg >= LARGE_RECEIVE_MIN && s->kind == KIND_SOCKET && s->protocol != NULL) {
        s->receives_large = true;
        if (s->registered)
            rc = stream_submit(s);
        else
            rc = 0;
    }
    return rc;
}

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
