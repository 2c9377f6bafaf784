/*
 * stream_write.c: writing to a stream, and its flow control.
 *
 * write() takes hold of immutable bytes and puts their address into the record that Go
 * reads (stream_io.c); nothing is sent and nothing is copied until the turn, where Go
 * sends all that one connection has in one system call.
 *
 * A write is tried at once, and not in the turn, where waiting would be seen:
 *   - no loop runs, so that no turn will come;
 *   - the queue crosses the high-water mark: only what the kernel refuses counts
 *     for pause_writing;
 *   - more than GL_DEFER_MAX bytes wait;
 *   - close(), abort(), get_write_buffer_size(): asyncio would have sent already.
 * Once the kernel has refused bytes (stream_blocked), trying is Go's, when it is told
 * that the socket is writable.
 */
#include "transports/stream.h"

#include <math.h>
#include <sys/socket.h>

/* ---- flow control ------------------------------------------------------------------ */

static int
stream_tell_protocol(gl_stream *s, PyObject *method, const char *failed)
{
    PyObject *protocol = Py_NewRef(s->protocol);
    gl_loop *loop = (gl_loop *)Py_NewRef(s->loop);
    PyObject *r = PyObject_CallMethodNoArgs(protocol, method);
    int rc = 0;
    if (r != NULL) {
        Py_DECREF(r);
    } else if (PyErr_ExceptionMatches(PyExc_SystemExit) ||
               PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
        rc = -1;
    } else {
        PyObject *exc = gl_take_exception();
        rc = gl_report_exception_object(loop, failed, exc, (PyObject *)s,
                                        s->protocol ? s->protocol : Py_None);
        Py_DECREF(exc);
    }
    Py_DECREF(loop);
    Py_DECREF(protocol);
    return rc;
}

static inline int
stream_maybe_pause(gl_stream *s)
{
    if (stream_queued(s) <= s->high || s->protocol_paused || s->loop == NULL || s->protocol == NULL)
        return 0;
    s->protocol_paused = true;
    return stream_tell_protocol(s, G.s_pause_writing, "protocol.pause_writing() failed");
}

static inline int
stream_maybe_resume(gl_stream *s)
{
    if (!s->protocol_paused || stream_queued(s) > s->low || s->loop == NULL || s->protocol == NULL)
        return 0;
    s->protocol_paused = false;
    return stream_tell_protocol(s, G.s_resume_writing, "protocol.resume_writing() failed");
}

GL_PRIVATE PyObject *
stream_maybe_pause_method(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    if (stream_maybe_pause(s) < 0)
        return NULL;
    Py_RETURN_NONE;
}

GL_PRIVATE PyObject *
stream_maybe_resume_method(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    if (stream_maybe_resume(s) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Something was appended: have the reactor look at it, try it now where that is due, and
 * pause the protocol if too much is left. */
static int
stream_appended(gl_stream *s)
{
    gl_loop *loop = s->loop;
    if (loop->in_turn || !s->open) {
        if (stream_sync(s) < 0)
            return -1;
    } else if (stream_submit(s) < 0) {
        return -1;
    }
    Py_ssize_t queued = stream_queued(s);
    bool seen = s->exposed || queued > s->high ||
                queued > (s->kind ? GL_DEFER_MAX_PIPE : GL_DEFER_MAX);
    if (loop->thread_id == 0 || (seen && !stream_blocked(s) && !s->protocol_paused)) {
        if (stream_flush_now(s) < 0)
            return stream_fatal_current(s, GL_WRITE_FAILED(s));
    }
    return stream_maybe_pause(s);
}

/* A floor that saturates: for any int size, size > n exactly if size > mark. */
static int
mark_as_number(PyObject *mark, Py_ssize_t *out)
{
    if (PyFloat_Check(mark)) {
        double d = floor(PyFloat_AS_DOUBLE(mark));
        *out = d >= (double)PY_SSIZE_T_MAX ? PY_SSIZE_T_MAX : (Py_ssize_t)d;
        return 0;
    }
    *out = PyNumber_AsSsize_t(mark, NULL);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

/* asyncio's arithmetic on whatever numbers the caller has: high is 4 * low or
 * 64 KiB, low is high // 4. */
static int
stream_set_limits(gl_stream *s, PyObject *high, PyObject *low)
{
    PyObject *four = PyLong_FromLong(4), *zero = PyLong_FromLong(0);
    int rc = -1, good;
    Py_ssize_t high_number, low_number;
    high = high != Py_None  ? Py_NewRef(high)
           : low == Py_None ? Py_NewRef(G.high_default)
           : four           ? PyNumber_Multiply(four, low)
                            : NULL;
    low = low != Py_None ? Py_NewRef(low) : high && four ? PyNumber_FloorDivide(high, four) : NULL;
    if (high == NULL || low == NULL || zero == NULL)
        goto done;
    good = PyObject_RichCompareBool(high, low, Py_GE);
    if (good > 0)
        good = PyObject_RichCompareBool(low, zero, Py_GE);
    if (good < 0)
        goto done;
    if (!good) {
        PyErr_Format(PyExc_ValueError, "high (%R) must be >= low (%R) must be >= 0", high, low);
        goto done;
    }
    if (mark_as_number(high, &high_number) < 0 || mark_as_number(low, &low_number) < 0)
        goto done;
    s->high = high_number;
    s->low = low_number;
    Py_XSETREF(s->high_water, Py_NewRef(high));
    Py_XSETREF(s->low_water, Py_NewRef(low));
    rc = 0;
done:
    Py_XDECREF(high);
    Py_XDECREF(low);
    Py_XDECREF(zero);
    Py_XDECREF(four);
    return rc;
}

GL_PRIVATE PyObject *
stream_set_write_buffer_limits(gl_stream *s, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"high", "low", NULL};
    PyObject *high = Py_None, *low = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:set_write_buffer_limits", names, &high,
                                     &low))
        return NULL;
    if (stream_set_limits(s, high, low) < 0)
        return NULL;
    if (stream_queued(s) > s->high && !stream_blocked(s) && !s->conn_lost && stream_flush_now(s) < 0) {
        if (stream_fatal_current(s, GL_WRITE_FAILED(s)) < 0)
            return NULL;
    }
    return stream_maybe_pause_method(s, NULL);
}

GL_PRIVATE PyObject *
stream_get_write_buffer_limits(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    return PyTuple_Pack(2, s->low_water, s->high_water);
}

GL_PRIVATE PyObject *
stream_get_write_buffer_size(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    if (s->conn_lost)
        return PyLong_FromLong(0);
    if (stream_queued(s) > 0 && !stream_blocked(s) && stream_go_ready(s) && stream_flush_now(s) < 0) {
        if (stream_fatal_current(s, GL_WRITE_FAILED(s)) < 0)
            return NULL;
    }
    return PyLong_FromSsize_t(stream_queued(s));
}

/* ---- write -------------------------------------------------------------------------- */

GL_PRIVATE int
late_write(uint32_t *count, const char *warning)
{
    PyObject *limit = PyObject_GetAttrString(G.asyncio_constants,
                                             "LOG_THRESHOLD_FOR_CONNLOST_WRITES");
    long threshold = limit ? PyLong_AsLong(limit) : -1;
    Py_XDECREF(limit);
    if (threshold == -1 && PyErr_Occurred())
        return -1;
    if ((long)*count >= threshold) {
        PyObject *r = PyObject_CallMethod(G.logger, "warning", "s", warning);
        if (r == NULL)
            return -1;
        Py_DECREF(r);
    }
    if (*count < UINT32_MAX)
        ++*count;
    return 0;
}

/* The state in which bytes are not taken: 1 ignored, 0 they are, -1 exception. */
static int
stream_refuse(gl_stream *s)
{
    if (s->conn_lost)
        return late_write(&s->conn_lost, GL_LATE_SEND) < 0 ? -1 : 1;
    return stream_check_usable(s);
}

GL_PRIVATE int
piece_from_object(PyObject *data, gl_piece *c)
{
    if (PyBytes_CheckExact(data)) {
        *c = (gl_piece){Py_NewRef(data), PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)};
        return 0;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return -1;
    PyObject *base = PyMemoryView_Check(data) ? PyMemoryView_GET_BASE(data) : NULL;
    if (base != NULL && PyBytes_CheckExact(base)) {
        *c = (gl_piece){Py_NewRef(base), view.buf, view.len};
    } else {
        PyObject *copy = PyBytes_FromStringAndSize(view.buf, view.len);
        if (copy == NULL) {
            PyBuffer_Release(&view);
            return -1;
        }
        *c = (gl_piece){copy, PyBytes_AS_STRING(copy), view.len};
    }
    PyBuffer_Release(&view);
    return 0;
}

GL_PRIVATE int
stream_take_piece(gl_stream *s, gl_piece c)
{
    if (c.len == 0 || s->conn_lost || s->eof || s->loop == NULL) {
        Py_DECREF(c.owner);
        return 0;
    }
    if (stream_check_usable(s) < 0) {
        Py_DECREF(c.owner);
        return -1;
    }
    return stream_append(s, c) < 0 ? -1 : stream_appended(s);
}

GL_PRIVATE PyObject *
gl_stream_write(gl_stream *s, PyObject *data)
{
    if (!PyBytes_Check(data) && !PyByteArray_Check(data) && !PyMemoryView_Check(data)) {
#if PY_VERSION_HEX >= 0x030E0000
        const char *words = "data argument must be a bytes, bytearray, or memoryview object, "
                            "not %R";
#else
        const char *words = "data argument must be a bytes-like object, not %R";
#endif
        PyObject *name = PyType_GetName(Py_TYPE(data));
        if (name != NULL)
            PyErr_Format(PyExc_TypeError, words, name);
        Py_XDECREF(name);
        return NULL;
    }
    if (s->eof) {
        PyErr_SetString(PyExc_RuntimeError, "Cannot call write() after write_eof()");
        return NULL;
    }
    if (s->empty_waiter != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "unable to write; sendfile is in progress");
        return NULL;
    }
    Py_ssize_t size = PyBytes_Check(data)       ? PyBytes_GET_SIZE(data)
                      : PyByteArray_Check(data) ? PyByteArray_GET_SIZE(data)
                                                : PyMemoryView_GET_BUFFER(data)->len;
    if (size == 0)
        Py_RETURN_NONE;
    int refused = stream_refuse(s);
    if (refused != 0) {
        if (refused < 0)
            return NULL;
        Py_RETURN_NONE;
    }
    gl_piece c;
    if (piece_from_object(data, &c) < 0) {
        /* asyncio learns of a view in pieces when it sends it. */
        if (!PyErr_ExceptionMatches(PyExc_BufferError) ||
            stream_fatal_current(s, GL_WRITE_FAILED(s)) < 0)
            return NULL;
        Py_RETURN_NONE;
    }
    if (stream_take_piece(s, c) < 0)
        return NULL;
    Py_RETURN_NONE;
}

#if PY_VERSION_HEX < 0x030C0000

GL_PRIVATE PyObject *
stream_writelines_object(gl_stream *s, PyObject *list)
{
    PyObject *empty = PyBytes_FromStringAndSize(NULL, 0);
    PyObject *joined = empty ? PyObject_CallMethodOneArg(empty, G.s_join, list) : NULL;
    Py_XDECREF(empty);
    if (joined == NULL)
        return NULL;
    PyObject *r = gl_stream_write(s, joined);
    Py_DECREF(joined);
    return r;
}

#else

GL_PRIVATE PyObject *
stream_writelines_object(gl_stream *s, PyObject *list)
{
    if (s->eof) {
        PyErr_SetString(PyExc_RuntimeError, "Cannot call writelines() after write_eof()");
        return NULL;
    }
    if (s->empty_waiter != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "unable to writelines; sendfile is in progress");
        return NULL;
    }
    int some = PyObject_IsTrue(list);
    if (some <= 0) {
        if (some < 0)
            return NULL;
        Py_RETURN_NONE;
    }
    int refused = stream_refuse(s);
    if (refused != 0) {
        if (refused < 0)
            return NULL;
        Py_RETURN_NONE;
    }
    /* A private copy: iterating a list in place would follow changes made by the
     * __buffer__ methods of its items. */
    PyObject *items = PySequence_Tuple(list);
    if (items == NULL)
        return NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(items), taken = 0;
    gl_piece *pieces = PyMem_New(gl_piece, (size_t)(n ? n : 1));
    if (pieces == NULL) {
        Py_DECREF(items);
        return PyErr_NoMemory();
    }
    for (; taken < n; taken++) {
        PyObject *item = PyTuple_GET_ITEM(items, taken);
        if (PyBytes_CheckExact(item)) {
            piece_from_object(item, &pieces[taken]);
            continue;
        }
        PyObject *view = PyMemoryView_FromObject(item);
        int rc = view ? piece_from_object(view, &pieces[taken]) : -1;
        Py_XDECREF(view);
        if (rc < 0)
            break;
    }
    bool good = taken == n;
    /* Python code ran (__buffer__, an iterator): is the stream still there? */
    if (good && !s->conn_lost && !s->eof && s->loop != NULL) {
        Py_ssize_t i = 0;
        while (i < taken) {
            gl_piece c = pieces[i++];
            if (c.len == 0)
                Py_DECREF(c.owner);
            else if (stream_append(s, c) < 0) {
                good = false;
                break;
            }
        }
        while (i < taken)
            Py_DECREF(pieces[i++].owner);
    } else {
        for (Py_ssize_t i = 0; i < taken; i++)
            Py_DECREF(pieces[i].owner);
    }
    PyMem_Free(pieces);
    Py_DECREF(items);
    if (!good) {
        if (PyErr_ExceptionMatches(PyExc_BufferError) &&
            stream_fatal_current(s, GL_WRITE_FAILED(s)) == 0)
            Py_RETURN_NONE;
        return NULL;
    }
    if (!s->conn_lost && s->loop != NULL && stream_queued(s) > 0 && stream_appended(s) < 0)
        return NULL;
    Py_RETURN_NONE;
}

#endif

GL_PRIVATE PyObject *
stream_write_eof(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    if (s->closing || s->eof)
        Py_RETURN_NONE;
    if (stream_check_usable(s) < 0)
        return NULL;
    s->eof = true;
    if (stream_queued(s) == 0) {
        if (gl_call_shutdown(&s->lease, SHUT_WR) < 0)
            return PyErr_SetFromErrno(PyExc_OSError);
        Py_RETURN_NONE;
    }
    s->shut_behind = true;
    if (stream_sync(s) < 0 || (s->loop->thread_id == 0 && stream_flush_now(s) < 0))
        return NULL;
    Py_RETURN_NONE;
}

GL_PRIVATE PyObject *
stream_can_write_eof(gl_stream *Py_UNUSED(s), PyObject *Py_UNUSED(ignored))
{
    Py_RETURN_TRUE;
}

/* ---- loop.sendfile: nothing is in the queue any more --------------------------------- */

GL_PRIVATE PyObject *
stream_make_empty_waiter(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    if (s->empty_waiter != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "Empty waiter is already set");
        return NULL;
    }
    if (s->loop == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the transport is closed");
        return NULL;
    }
    if (stream_check_usable(s) < 0)
        return NULL;
    PyObject *waiter = PyObject_CallMethodNoArgs((PyObject *)s->loop, G.s_create_future);
    if (waiter == NULL)
        return NULL;
    Py_XSETREF(s->empty_waiter, Py_NewRef(waiter));
    if (stream_queued(s) > 0 && !stream_blocked(s) && stream_flush_now(s) < 0)
        PyErr_Clear(); /* the turn reports it */
    if (stream_queued(s) == 0) {
        PyObject *r = PyObject_CallMethodOneArg(waiter, G.s_set_result, Py_None);
        if (r == NULL) {
            Py_DECREF(waiter);
            return NULL;
        }
        Py_DECREF(r);
    }
    return waiter;
}

GL_PRIVATE PyObject *
stream_reset_empty_waiter(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    Py_CLEAR(s->empty_waiter);
    Py_RETURN_NONE;
}

static int
stream_fill_waiter(gl_stream *s)
{
    PyObject *waiter = Py_XNewRef(s->empty_waiter);
    if (waiter == NULL)
        return 0;
    PyObject *r = PyObject_CallMethodNoArgs(waiter, G.s_done);
    int done = r ? PyObject_IsTrue(r) : -1;
    Py_XDECREF(r);
    if (done == 0) {
        r = PyObject_CallMethodOneArg(waiter, G.s_set_result, Py_None);
        done = r ? 0 : -1;
        Py_XDECREF(r);
    }
    Py_DECREF(waiter);
    return done < 0 ? -1 : 0;
}

/* ---- what Go reports -------------------------------------------------------------------- */

/* An exception leaves the loop just when the last byte has gone: connection_lost
 * waits until the loop runs again. */
static int
stream_lost_later(gl_stream *s)
{
    PyObject *exc = gl_take_exception();
    s->conn_lost++;
    stream_leave(s);
    if (stream_call_soon(s, G.s__call_connection_lost, Py_None) < 0)
        PyErr_WriteUnraisable((PyObject *)s);
    gl_restore_exception(exc);
    return -1;
}

/* Bytes have left the queue: let their owners go; then, in asyncio's order, wake
 * the protocol and the empty waiter, and end a stream that only waited for this. */
GL_PRIVATE int
stream_wrote(gl_stream *s)
{
    if (s->conn_lost || s->loop == NULL)
        return 0;
    stream_release_sent(s);
    if (!s->protocol_paused && s->empty_waiter == NULL && !s->closing)
        return 0;
    if (PyContext_Enter(s->context) < 0)
        return -1;
    int rc = stream_maybe_resume(s); /* which may write more */
    if (rc == 0 && stream_queued(s) == 0 && s->loop != NULL && !s->conn_lost)
        rc = stream_fill_waiter(s);
    if (s->closing && stream_queued(s) == 0 && s->loop != NULL && !s->conn_lost)
        rc = rc == 0 ? stream_lost(s, Py_None) : stream_lost_later(s);
    gl_context_exit(s->context);
    return rc;
}

GL_PRIVATE int
stream_write_failed(gl_stream *s, int err)
{
    if (s->conn_lost || s->loop == NULL)
        return 0;
    stream_drop_queue(s); /* Go does not look at it any more */
    s->late_writes++; /* asyncio's pipes count the failed one too */
    PyObject *exc = gl_oserror(err);
    if (exc == NULL)
        return -1;
    if (PyContext_Enter(s->context) < 0) {
        Py_DECREF(exc);
        return -1;
    }
    int rc = stream_fatal_error(s, exc, GL_WRITE_FAILED(s));
    if (rc == 0)
        rc = stream_fail_waiter(s, exc);
    gl_context_exit(s->context);
    Py_DECREF(exc);
    return rc;
}
