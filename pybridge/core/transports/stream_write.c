/*
 * stream_write.c: the write queue of a stream, and its flow control.
 *
 * write() takes hold of immutable bytes and submits their address; nothing is sent
 * and nothing is copied until the turn, where Go sends all that one connection has
 * in one system call.  The queue is a ring of chunks:
 *
 *      head                     submitted                count
 *       | known to Go, sent in order | not yet submitted     |
 *       +-- head_done bytes of the first are gone
 *
 * `queued` is the sum of what is left.  Chunks are let go when Go reports that
 * their bytes are in the kernel, and never before: Go reads them in place.
 *
 * A write is tried at once, and not in the turn, where waiting would be seen:
 *   - no loop runs, so that no turn will come;
 *   - the queue crosses the high-water mark: only what the kernel refuses counts
 *     for pause_writing;
 *   - more than GL_DEFER_MAX bytes wait;
 *   - close(), abort(), get_write_buffer_size(): asyncio would have sent already.
 * Once the kernel has refused bytes (`blocked`), trying is Go's, when it is told
 * that the socket is writable.
 */
#include "transports/stream.h"

#include <math.h>
#include <sys/socket.h>

/* ---- the ring ---------------------------------------------------------------- */

static inline gl_chunk *
chunk_at(gl_stream *s, uint32_t i)
{
    return &s->chunk[(s->chunk_head + i) & s->chunk_mask];
}

static int
chunk_grow(gl_stream *s)
{
    uint32_t capacity = s->chunk_mask + 1;
    if (capacity > UINT32_MAX / 4) {
        PyErr_NoMemory();
        return -1;
    }
    gl_chunk *bigger = PyMem_New(gl_chunk, (size_t)capacity * 2);
    if (bigger == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0; i < s->chunk_count; i++)
        bigger[i] = *chunk_at(s, i);
    if (s->chunk != s->inline_chunk)
        PyMem_Free(s->chunk);
    s->chunk = bigger;
    s->chunk_head = 0;
    s->chunk_mask = capacity * 2 - 1;
    return 0;
}

/* Takes over the reference to owner, on failure too. */
static int
chunk_push(gl_stream *s, PyObject *owner, const char *ptr, Py_ssize_t len)
{
    if (s->chunk_count > s->chunk_mask && chunk_grow(s) < 0) {
        Py_DECREF(owner);
        return -1;
    }
    *chunk_at(s, s->chunk_count) = (gl_chunk){owner, ptr, len};
    s->chunk_count++;
    s->queued += len;
    return 0;
}

/* A long queue is over: back to the place in the object. */
static void
chunk_shrink(gl_stream *s)
{
    if (s->chunk_count == 0 && s->chunk != s->inline_chunk && s->chunk_mask > 255) {
        PyMem_Free(s->chunk);
        s->chunk = s->inline_chunk;
        s->chunk_mask = GL_INLINE_CHUNKS - 1;
        s->chunk_head = 0;
    }
}

/* n bytes from the head have left.  Owners are exact bytes: no Python runs. */
static void
chunk_consume(gl_stream *s, int64_t n)
{
    if (n > s->queued)
        n = s->queued;
    s->queued -= (Py_ssize_t)n;
    while (n > 0) {
        gl_chunk *c = chunk_at(s, 0);
        Py_ssize_t left = c->len - s->head_done;
        if (n < left) {
            s->head_done += (Py_ssize_t)n;
            return;
        }
        n -= left;
        s->head_done = 0;
        Py_CLEAR(c->owner); /* lint: allow check-commit: exact bytes */
        s->chunk_head = (s->chunk_head + 1) & s->chunk_mask;
        s->chunk_count--;
        if (s->submitted > 0)
            s->submitted--;
    }
    chunk_shrink(s);
}

GL_PRIVATE void
stream_drop_queue(gl_stream *s)
{
    chunk_consume(s, s->queued);
    s->submitted = 0;
    s->deferred = 0;
    s->blocked = false;
}

/* ---- the way to Go -------------------------------------------------------------- */

/* Bytes that were submitted since the last turn, which Go has not tried to send. */
static inline void
stream_count_deferred(gl_stream *s, Py_ssize_t n)
{
    uint64_t turn = s->loop->shared->turns;
    if (s->deferred_turn != turn) {
        s->deferred_turn = turn;
        s->deferred = 0;
    }
    s->deferred += n;
}

GL_PRIVATE int
stream_submit_writes(gl_stream *s)
{
    gl_loop *loop = s->loop;
    while (s->submitted < s->chunk_count) {
        gl_chunk *c = chunk_at(s, s->submitted);
        Py_ssize_t skip = s->submitted == 0 ? s->head_done : 0;
        if (gl_submit(loop, GL_SUB_WRITE, s->id, s->gen, c->ptr + skip, c->len - skip) < 0)
            return -1;
        /* Nobody waits for the report: it need not end the turn's wait. */
        if (!loop->in_turn && !s->protocol_paused && !s->closing && s->empty_waiter == NULL)
            loop->shared->sub[loop->shared->sub_len - 1].flags = GL_WRITE_QUIET;
        s->submitted++;
        stream_count_deferred(s, c->len - skip);
        loop->dirty = 1;
    }
    if (s->shut_pending) {
        if (gl_submit(loop, GL_SUB_SHUT_WR, s->id, s->gen, NULL, 0) < 0)
            return -1;
        s->shut_pending = false;
        loop->dirty = 1;
    }
    return 0;
}

/* Tries to send the queue now.  -1 with an exception where the fd can't be
 * registered; an error of the socket comes with the next turn. */
GL_PRIVATE int
stream_flush_now(gl_stream *s)
{
    if (!stream_go_ready(s))
        return 0;
    gl_loop *loop = s->loop;
    if ((s->open ? stream_submit_writes(s) : stream_open(s)) < 0)
        return -1;
    /* What stream_open() has taken from a watch of the number may have run Python. */
    if (!stream_go_ready(s) || !s->open)
        return 0;
    int64_t n = loop->go->flush_stream(loop->reactor, s->id, s->gen);
    if (n < 0)
        return gl_set_oserror((int)-n);
    chunk_consume(s, n);
    s->deferred = 0;
    s->blocked = s->queued > 0;
    /* asyncio resumes the protocol from the loop, never from within write(). */
    if (s->protocol_paused && s->queued <= s->low && !s->conn_lost)
        return stream_call_soon(s, G.s__maybe_resume_protocol, NULL);
    return 0;
}

GL_PRIVATE bool
stream_unsent(PyObject *transport)
{
    gl_stream *s = (gl_stream *)transport;
    return !s->open && s->queued > 0;
}

GL_PRIVATE void
stream_flush_visible(PyObject *transport)
{
    gl_stream *s = (gl_stream *)transport;
    if (s->queued == 0 || s->blocked || s->conn_lost)
        return;
    PyObject *exc = PyErr_Occurred() ? gl_take_exception() : NULL;
    if (stream_flush_now(s) < 0)
        PyErr_Clear(); /* the next turn finds the same, and reports it */
    if (exc != NULL)
        gl_restore_exception(exc);
}

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
    if (s->queued <= s->high || s->protocol_paused || s->loop == NULL || s->protocol == NULL)
        return 0;
    s->protocol_paused = true;
    return stream_tell_protocol(s, G.s_pause_writing, "protocol.pause_writing() failed");
}

static inline int
stream_maybe_resume(gl_stream *s)
{
    if (!s->protocol_paused || s->queued > s->low || s->loop == NULL || s->protocol == NULL)
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

/* Something was appended: submit it, try it now where that is due, and pause the
 * protocol if too much is left. */
static int
stream_appended(gl_stream *s)
{
    gl_loop *loop = s->loop;
    if (loop->in_turn || !s->open) {
        if (stream_sync(s) < 0)
            return -1;
    } else if (stream_submit_writes(s) < 0) {
        return -1;
    }
    bool due = s->queued > s->high ||
               s->deferred > (s->kind ? GL_DEFER_MAX_PIPE : GL_DEFER_MAX);
    bool seen = due || s->exposed;
    if (loop->thread_id == 0 || (seen && !s->blocked && !s->protocol_paused)) {
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
    if (s->queued > s->high && !s->blocked && !s->conn_lost && stream_flush_now(s) < 0) {
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
    if (s->queued > 0 && !s->blocked && stream_go_ready(s) && stream_flush_now(s) < 0) {
        if (stream_fatal_current(s, GL_WRITE_FAILED(s)) < 0)
            return NULL;
    }
    return PyLong_FromSsize_t(s->queued);
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
chunk_from_object(PyObject *data, gl_chunk *c)
{
    if (PyBytes_CheckExact(data)) {
        *c = (gl_chunk){Py_NewRef(data), PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)};
        return 0;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return -1;
    PyObject *base = PyMemoryView_Check(data) ? PyMemoryView_GET_BASE(data) : NULL;
    if (base != NULL && PyBytes_CheckExact(base)) {
        *c = (gl_chunk){Py_NewRef(base), view.buf, view.len};
    } else {
        PyObject *copy = PyBytes_FromStringAndSize(view.buf, view.len);
        if (copy == NULL) {
            PyBuffer_Release(&view);
            return -1;
        }
        *c = (gl_chunk){copy, PyBytes_AS_STRING(copy), view.len};
    }
    PyBuffer_Release(&view);
    return 0;
}

GL_PRIVATE int
stream_take_chunk(gl_stream *s, gl_chunk c)
{
    if (c.len == 0 || s->conn_lost || s->eof || s->loop == NULL) {
        Py_DECREF(c.owner);
        return 0;
    }
    if (stream_check_usable(s) < 0) {
        Py_DECREF(c.owner);
        return -1;
    }
    return chunk_push(s, c.owner, c.ptr, c.len) < 0 ? -1 : stream_appended(s);
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
    gl_chunk c;
    if (chunk_from_object(data, &c) < 0) {
        /* asyncio learns of a view in pieces when it sends it. */
        if (!PyErr_ExceptionMatches(PyExc_BufferError) ||
            stream_fatal_current(s, GL_WRITE_FAILED(s)) < 0)
            return NULL;
        Py_RETURN_NONE;
    }
    if (stream_take_chunk(s, c) < 0)
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
    gl_chunk *chunks = PyMem_New(gl_chunk, (size_t)(n ? n : 1));
    if (chunks == NULL) {
        Py_DECREF(items);
        return PyErr_NoMemory();
    }
    for (; taken < n; taken++) {
        PyObject *item = PyTuple_GET_ITEM(items, taken);
        if (PyBytes_CheckExact(item)) {
            chunk_from_object(item, &chunks[taken]);
            continue;
        }
        PyObject *view = PyMemoryView_FromObject(item);
        int rc = view ? chunk_from_object(view, &chunks[taken]) : -1;
        Py_XDECREF(view);
        if (rc < 0)
            break;
    }
    bool good = taken == n;
    /* Python code ran (__buffer__, an iterator): is the stream still there? */
    if (good && !s->conn_lost && !s->eof) {
        Py_ssize_t i = 0;
        while (i < taken) {
            gl_chunk c = chunks[i++];
            if (c.len == 0)
                Py_DECREF(c.owner);
            else if (chunk_push(s, c.owner, c.ptr, c.len) < 0) {
                good = false;
                break;
            }
        }
        while (i < taken)
            Py_DECREF(chunks[i++].owner);
    } else {
        for (Py_ssize_t i = 0; i < taken; i++)
            Py_DECREF(chunks[i].owner);
    }
    PyMem_Free(chunks);
    Py_DECREF(items);
    if (!good) {
        if (PyErr_ExceptionMatches(PyExc_BufferError) &&
            stream_fatal_current(s, GL_WRITE_FAILED(s)) == 0)
            Py_RETURN_NONE;
        return NULL;
    }
    if (!s->conn_lost && s->queued > 0 && stream_appended(s) < 0)
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
    if (s->queued == 0) {
        if (gl_call_shutdown(&s->lease, SHUT_WR) < 0)
            return PyErr_SetFromErrno(PyExc_OSError);
        Py_RETURN_NONE;
    }
    s->shut_pending = true;
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
    if (s->queued > 0 && !s->blocked && stream_flush_now(s) < 0)
        PyErr_Clear(); /* the turn reports it */
    if (s->queued == 0) {
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

/* n bytes are in the kernel: let their owners go; then, in asyncio's order, wake
 * the protocol and the empty waiter, and end a stream that only waited for this. */
GL_PRIVATE int
stream_wrote(gl_stream *s, int64_t n)
{
    if (s->conn_lost || s->loop == NULL)
        return 0;
    chunk_consume(s, n);
    if (s->deferred_turn != s->loop->shared->turns)
        s->deferred = 0;
    s->blocked = s->queued > s->deferred;
    pipe_note_moved(s, n, s->blocked);
    if (!s->protocol_paused && s->empty_waiter == NULL && !s->closing)
        return 0;
    if (PyContext_Enter(s->context) < 0)
        return -1;
    int rc = stream_maybe_resume(s); /* which may write more */
    if (rc == 0 && s->queued == 0 && s->loop != NULL && !s->conn_lost)
        rc = stream_fill_waiter(s);
    if (s->closing && s->queued == 0 && s->loop != NULL && !s->conn_lost)
        rc = rc == 0 ? stream_lost(s, Py_None) : stream_lost_later(s);
    gl_context_exit(s->context);
    return rc;
}

GL_PRIVATE int
stream_write_failed(gl_stream *s, int64_t n, int err)
{
    if (s->conn_lost || s->loop == NULL)
        return 0;
    chunk_consume(s, n);
    /* Go has dropped the rest, and reads none of it any more. */
    stream_drop_queue(s);
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
