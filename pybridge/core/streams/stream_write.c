/*
 * stream_write.c: writing to a stream, and its flow control.
 *
 * write() takes a reference to immutable bytes and puts their address into the record that Go
 * reads (stream_io.c).  Nothing is copied, and in the turn Go sends all pieces of a connection in
 * one system call.  Some writes are sent earlier: choose_write() in stream_paths.c has the table.
 *
 *   stream_write
 *     piece_from_object       the bytes, without a copy where possible
 *     choose_write            now or in the turn?
 *       stream_try_send       now: C sends (stream_io.c)
 *     stream_append           unsent bytes go to the queue (stream_io.c)
 *     stream_after_append     flushes an urgent queue; pause_writing()
 *   stream_handle_wrote       a WROTE completion: resume_writing(), end of a closing stream
 */
#include "streams/stream.h"

#include <math.h>

/* ---- flow control ------------------------------------------------------------------ */

/* Calls pause_writing(), in a copy of the transport's context, or resume_writing() of the protocol.
 * An exception goes to the loop's exception handler, with the message `failed`; -1 if that
 * fails. */
static int
stream_call_flow_control(gl_stream *s, PyObject *method, const char *failed)
{
    PyObject *protocol = Py_NewRef(s->protocol);
    gl_loop *loop = (gl_loop *)Py_NewRef(s->loop);
    int rc;
    if (method == G.s_pause_writing)
        rc = gl_transport_call_in_context_copy(&s->base, protocol, method);
    else
        rc = gl_call_method(protocol, method, NULL);
    if (rc < 0)
        rc = gl_call_exception_handler(loop, failed, (PyObject *)s, s->protocol);
    Py_DECREF(loop);
    Py_DECREF(protocol);
    return rc;
}

/* Calls pause_writing() of a protocol that is not paused, if the queue is above the high-water
 * mark.  -1 as stream_call_flow_control(). */
static inline int
stream_maybe_pause(gl_stream *s)
{
    if (stream_queued(s) <= s->high_mark || s->protocol_paused || is_lost(s) || s->protocol == NULL)
        return 0;
    s->protocol_paused = true;
    return stream_call_flow_control(s, G.s_pause_writing, "protocol.pause_writing() failed");
}

/* Calls resume_writing() of a paused protocol, if the queue is at or below the low-water mark.  -1
 * as stream_call_flow_control(). */
static inline int
stream_maybe_resume(gl_stream *s)
{
    if (!s->protocol_paused || stream_queued(s) > s->low_mark || is_lost(s) || s->protocol == NULL)
        return 0;
    s->protocol_paused = false;
    return stream_call_flow_control(s, G.s_resume_writing, "protocol.resume_writing() failed");
}

/* Flushes the queue; a failure ends the transport.  -1 with an exception that leaves the call. */
static int
flush_or_end(gl_stream *s)
{
    if (stream_flush_now(s) < 0)
        return stream_fail_send(s);
    return 0;
}

GL_PRIVATE PyObject *
stream_maybe_pause_method(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    if (stream_queued(s) > s->high_mark && !is_ending(s) && !stream_blocked(s) &&
        flush_or_end(s) < 0)
        return NULL;
    return gl_none_or_null(stream_maybe_pause(s));
}

GL_PRIVATE PyObject *
stream_maybe_resume_method(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    return gl_none_or_null(stream_maybe_resume(s));
}

/* Flushes the queue after an append if it is urgent, and pauses the protocol if it is then above
 * the high-water mark.  `tried`: the kernel has just refused bytes, so the next turn need not try
 * again.  A failed send ends the transport.  -1 with an exception that leaves the call. */
static int
stream_after_append(gl_stream *s, bool tried)
{
    gl_loop *loop = s->loop;
    if (!s->registered && gl_transport_update_interest(&s->base) < 0)
        return -1;
    if (queue_is_urgent(s)) {
        if (flush_or_end(s) < 0)
            return -1;
    } else if (!tried && !stream_blocked(s)) {
        gl_defer_sends(loop);
    }
    if (stream_queued(s) > s->high_mark && !is_ending(s))
        return stream_maybe_pause(s);
    return 0;
}

/* Converts a mark to a Py_ssize_t: the floor, saturated, so that size <= *out exactly if size <=
 * mark.  A NaN becomes the minimum.  -1 with TypeError. */
static int
mark_as_number(PyObject *mark, Py_ssize_t *out)
{
    if (PyFloat_Check(mark)) {
        double d = floor(PyFloat_AS_DOUBLE(mark));
        if (d >= (double)PY_SSIZE_T_MAX)
            *out = PY_SSIZE_T_MAX;
        else if (d > (double)PY_SSIZE_T_MIN)
            *out = (Py_ssize_t)d;
        else
            *out = PY_SSIZE_T_MIN;
        return 0;
    }
    *out = PyNumber_AsSsize_t(mark, NULL);
    if (*out == -1)
        return gl_error_status();
    return 0;
}

GL_PRIVATE PyObject *
stream_mark_getter(gl_stream *s, void *high)
{
    if (high)
        return gl_ref_or_none(s->high_water);
    return gl_ref_or_none(s->low_water);
}

GL_PRIVATE int
stream_mark_setter(gl_stream *s, PyObject *mark, void *high)
{
    Py_ssize_t number;
    if (mark == NULL) {
        PyErr_SetString(PyExc_AttributeError, "the write buffer limits can't be deleted");
        return -1;
    }
    if (mark_as_number(mark, &number) < 0)
        return -1;
    if (high) {
        s->high_mark = number;
        Py_XSETREF(s->high_water, Py_NewRef(mark));
    } else {
        s->low_mark = number;
        Py_XSETREF(s->low_water, Py_NewRef(mark));
    }
    /* A low mark that is raised above the size of the queue resumes the protocol, from the loop, as
     * sent bytes do.  Otherwise a peer that does not read would leave it paused. */
    if (high || !s->protocol_paused || is_ending(s) || stream_queued(s) > s->low_mark)
        return 0;
    return gl_transport_call_soon(&s->base, G.s__maybe_resume_protocol, NULL);
}

GL_PRIVATE PyObject *
stream_get_write_buffer_size(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    if (!is_ending(s) && stream_can_flush(s) && flush_or_end(s) < 0)
        return NULL;
    if (is_ending(s))
        return PyLong_FromLong(0);
    return PyLong_FromSsize_t(stream_queued(s));
}

/* ---- write -------------------------------------------------------------------------- */

/* Makes a piece for the queue from an object with the buffer protocol.  Bytes and views of bytes
 * are referenced; mutable objects are copied. */
static int
piece_from_object(PyObject *data, gl_piece *c)
{
    if (PyBytes_CheckExact(data)) {
        *c = (gl_piece){Py_NewRef(data), PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)};
        return 0;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return -1;
    PyObject *base = NULL;
    if (PyMemoryView_Check(data))
        base = PyMemoryView_GET_BASE(data);
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

/* Handles a MemoryError of a write.  If a part of its bytes is sent or queued (`partly`), ends the
 * transport with the error and returns None: the program can't know which part, and with a later
 * write the peer would get a stream with a gap.  Otherwise returns NULL with the error. */
static PyObject *
stream_end_partial_write(gl_stream *s, bool partly)
{
    if (!partly || !PyErr_ExceptionMatches(PyExc_MemoryError))
        return NULL;
    return gl_none_or_null(stream_fail_send(s));
}

/* Returns true if a write is ignored: the transport is closing (pipe) or ending (socket). */
static inline bool
stream_is_write_too_late(const gl_stream *s)
{
    if (s->kind != KIND_SOCKET)
        return is_closing(s);
    return is_ending(s);
}

/* Counts a write that is ignored, in the counter of asyncio's transport of this kind, and logs its
 * warning from asyncio's limit on. */
static int
stream_count_late_write(gl_stream *s)
{
    if (s->kind == KIND_SOCKET)
        return gl_count_late_write(&s->conn_lost, LATE_WRITE_WARNING);
    return gl_count_late_write(&s->late_writes, "pipe closed by peer or os.write(pipe, data) "
                                                "raised exception.");
}

/* Handles data of which no piece could be made; the exception is set.  asyncio finds out that a
 * view is not contiguous when it sends it, which ends the transport: None.  Otherwise NULL. */
static PyObject *
stream_refuse_data(gl_stream *s)
{
    if (!PyErr_ExceptionMatches(PyExc_BufferError))
        return NULL;
    s->late_writes++;
    return gl_none_or_null(gl_transport_fatal_current(&s->base, WRITE_FAILED(s)));
}

static const gl_params write_params =
    GL_PARAMS("_SelectorSocketTransport.write", 1, 1, false, GL_NAME(data));

GL_PRIVATE PyObject *
stream_write(gl_stream *s, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *data = gl_arg(&write_params, s, args, nargs, kwnames);
    if (data == NULL)
        return NULL;
    if (!PyBytes_Check(data) && !PyByteArray_Check(data) && !PyMemoryView_Check(data)) {
        gl_transport_set_data_error((PyObject *)s, data);
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
    Py_ssize_t size;
    if (PyBytes_Check(data))
        size = PyBytes_GET_SIZE(data);
    else if (PyByteArray_Check(data))
        size = PyByteArray_GET_SIZE(data);
    else
        size = PyMemoryView_GET_BUFFER(data)->len;
    if (size == 0)
        Py_RETURN_NONE;
    if (stream_is_write_too_late(s))
        return gl_none_or_null(stream_count_late_write(s));
    gl_piece c;
    if (piece_from_object(data, &c) < 0)
        return stream_refuse_data(s);
    /* An object's __buffer__ may have closed the stream, or returned an empty buffer. */
    bool late = c.len == 0 || stream_is_write_too_late(s) || s->eof;
    int rc = 0;
    if (!late && s->loop != NULL)
        rc = gl_loop_check_usable(s->loop);
    if (late || rc < 0) {
        Py_DECREF(c.owner);
        return gl_none_or_null(rc);
    }
    Py_ssize_t len = c.len;
    uint64_t queued = s->io.appended;
    enum write_choice choice = choose_write(s, c.len);
    note_write(s, choice);
    if (choice != WRITE_DEFERRED)
        rc = stream_try_send(s, &c); /* lint: allow check-commit: an error ends the stream */
    if (rc < 0 || c.len == 0 || is_ending(s)) {
        Py_DECREF(c.owner);
        return gl_none_or_null(rc);
    }
    if (stream_append(s, &c, 1) < 0)
        return stream_end_partial_write(s, c.len < len || s->io.appended != queued);
    return gl_none_or_null(stream_after_append(s, rc > 0));
}

#if GL_STREAM_HAS_WRITELINES

/* Makes a piece from an item of writelines(), which may be any object with the buffer protocol. */
static int
piece_from_item(PyObject *item, gl_piece *piece)
{
    bool plain = PyBytes_CheckExact(item);
    PyObject *view = plain ? Py_NewRef(item) : PyMemoryView_FromObject(item);
    int rc = -1;
    if (view)
        rc = piece_from_object(view, piece);
    Py_XDECREF(view);
    return rc;
}

/* Makes the pieces of a tuple of objects.  Returns the number of pieces; if it is smaller than the
 * number of objects, an exception is set.  The caller owns the pieces in both cases. */
static Py_ssize_t
pieces_from_items(PyObject *items, gl_piece *pieces)
{
    Py_ssize_t n = PyTuple_GET_SIZE(items);
    Py_ssize_t taken = 0;
    while (taken < n && piece_from_item(PyTuple_GET_ITEM(items, taken), &pieces[taken]) == 0)
        taken++;
    return taken;
}

#if GL_WRITELINES_QUEUES_EACH

/* Queues one item of writelines(); ignores an empty one, and any item of a stream that is
 * ending. */
static int
stream_queue_item(gl_stream *s, PyObject *item)
{
    gl_piece piece;
    int some = PyObject_IsTrue(item);
    if (some <= 0)
        return some;
    if (piece_from_item(item, &piece) < 0)
        return -1;
    if (is_ending(s) || gl_loop_check_usable(s->loop) < 0) {
        Py_DECREF(piece.owner);
        return gl_error_status();
    }
    return stream_append(s, &piece, 1);
}

/* Executes a close() or write_eof() of the iteration now, after all items.  `before`: the value of
 * in_writelines before this call; true if an outer writelines() still iterates. */
static int
stream_end_writelines(gl_stream *s, bool before)
{
    s->in_writelines = before;
    if (before || is_ending(s))
        return 0;
    if (is_flushing(s))
        return s->ops->close(&s->base);
    if (s->shutdown_when_sent)
        return gl_transport_update_interest(&s->base);
    return 0;
}

/* Queues the items of an iterator.  Since 3.15 asyncio queues each item before it requests the
 * next, so that writes of the iterator itself come between the items.  On failure the earlier items
 * are queued. */
static int
stream_write_each(gl_stream *s, PyObject *list)
{
    PyObject *iterator = PyObject_GetIter(list);
    if (iterator == NULL)
        return -1;
    bool before = s->in_writelines;
    s->in_writelines = true;
    for (;;) {
        PyObject *item = PyIter_Next(iterator);
        if (item == NULL)
            break;
        int queued = stream_queue_item(s, item);
        Py_DECREF(item);
        if (queued < 0)
            break;
    }
    Py_DECREF(iterator);
    PyObject *exc = gl_take_exception();
    int rc = stream_end_writelines(s, before);
    if (exc != NULL && rc < 0)
        PyErr_WriteUnraisable((PyObject *)s);
    if (exc != NULL)
        gl_restore_exception(exc);
    if (exc != NULL)
        return -1;
    return rc;
}

#endif

/* Queues all items of a tuple.  Queues none if one is invalid or the loop can't be used (-1 with an
 * exception), or if the conversion of the items has ended the stream or called write_eof() (0).  -1
 * with MemoryError, and some items may be queued. */
static int
stream_queue_all_or_none(gl_stream *s, PyObject *items)
{
    Py_ssize_t n = PyTuple_GET_SIZE(items);
    gl_piece *pieces = PyMem_New(gl_piece, (size_t)Py_MAX(n, 1));
    if (pieces == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t taken = pieces_from_items(items, pieces);
    /* Python code ran (__buffer__, an iterator) and may have closed the loop. */
    int rc = 0;
    if (taken < n || gl_transport_check_usable(&s->base) < 0)
        rc = -1;
    if (rc == 0 && !is_ending(s) && !s->eof) {
        rc = stream_append(s, pieces, n);
    } else {
        for (Py_ssize_t i = 0; i < taken; i++)
            Py_DECREF(pieces[i].owner); /* lint: allow check-commit: exact bytes */
    }
    PyMem_Free(pieces);
    return rc;
}

/* Queues the items of writelines(): of a list or a tuple all or none, of another iterable since
 * 3.15 one by one. */
static int
stream_write_list(gl_stream *s, PyObject *list)
{
#if GL_WRITELINES_QUEUES_EACH
    if (!PyList_CheckExact(list) && !PyTuple_CheckExact(list))
        return stream_write_each(s, list);
#endif
    /* A private copy, because the __buffer__ methods of the items may change the list. */
    PyObject *items = PySequence_Tuple(list);
    if (items == NULL)
        return -1;
    int rc = stream_queue_all_or_none(s, items);
    Py_DECREF(items);
    return rc;
}

static const gl_params writelines_params =
    GL_PARAMS("_SelectorSocketTransport.writelines", 1, 1, false, GL_NAME(list_of_data));

GL_PRIVATE PyObject *
stream_writelines(gl_stream *s, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *list = gl_arg(&writelines_params, s, args, nargs, kwnames);
    if (list == NULL)
        return NULL;
    if (s->eof) {
        PyErr_SetString(PyExc_RuntimeError, "Cannot call writelines() after write_eof()");
        return NULL;
    }
    if (s->empty_waiter != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "unable to writelines; sendfile is in progress");
        return NULL;
    }
    int some = PyObject_IsTrue(list);
    if (some <= 0)
        return gl_none_or_null(some);
    if (is_ending(s))
        return gl_none_or_null(gl_count_late_write(&s->conn_lost, LATE_WRITE_WARNING));
    uint64_t queued = s->io.appended;
    int rc = stream_write_list(s, list);
    if (rc < 0) {
        if (!PyErr_ExceptionMatches(PyExc_BufferError))
            return stream_end_partial_write(s, s->io.appended != queued);
        return gl_none_or_null(gl_transport_fatal_current(&s->base, WRITE_FAILED(s)));
    }
    if (!is_ending(s) && stream_queued(s) > 0 && stream_after_append(s, false) < 0)
        return NULL;
    Py_RETURN_NONE;
}

#endif

GL_PRIVATE PyObject *
stream_write_eof(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    if (is_closing(s) || s->eof)
        Py_RETURN_NONE;
    if (gl_transport_check_usable(&s->base) < 0)
        return NULL;
    s->eof = true;
    s->loop->forced_polls_left = FORCED_POLLS_AFTER_CLOSE;
    if (stream_queued(s) == 0 && !s->in_writelines) {
        gl_flush_deferred_sends(s->loop);
        if (gl_call_shutdown(&s->lease, SHUT_WR) < 0)
            return PyErr_SetFromErrno(PyExc_OSError);
        Py_RETURN_NONE;
    }
    s->shutdown_when_sent = true;
    int rc = gl_transport_update_interest(&s->base);
    if (rc == 0 && s->loop->thread_id == 0) /* no turn will come */
        rc = flush_or_end(s);
    return gl_none_or_null(rc);
}

GL_PRIVATE PyObject *
stream_can_write_eof(gl_stream *Py_UNUSED(s), PyObject *Py_UNUSED(ignored))
{
    Py_RETURN_TRUE;
}

/* ---- the WROTE completion -------------------------------------------------------------------- */

/* Ends the stream after its last byte, while an exception leaves the loop: connection_lost is
 * scheduled for the next run.  Keeps the exception; returns -1. */
static int
stream_end_after_exception(gl_stream *s)
{
    PyObject *exc = gl_take_exception();
    if (gl_transport_schedule_connection_lost(&s->base, Py_None) < 0)
        PyErr_WriteUnraisable((PyObject *)s);
    gl_restore_exception(exc);
    return -1;
}

GL_PRIVATE int
stream_resolve_empty_waiter(gl_stream *s, PyObject *exc)
{
    PyObject *waiter = Py_XNewRef(s->empty_waiter);
    if (waiter == NULL)
        return 0;
    int done = gl_take_bool(PyObject_CallMethodNoArgs(waiter, G.s_done));
    if (done == 0 && exc != NULL)
        done = gl_call_method(waiter, G.s_set_exception, exc);
    else if (done == 0)
        done = gl_call_method(waiter, G.s_set_result, Py_None);
    Py_DECREF(waiter);
    if (done < 0)
        return -1;
    return 0;
}

GL_PRIVATE int
stream_handle_wrote(gl_stream *s)
{
    if (is_ending(s))
        return 0;
    stream_release_sent(s);
    if (!s->protocol_paused && s->empty_waiter == NULL && !is_closing(s))
        return 0;
    int rc = stream_maybe_resume(s); /* resume_writing() may write more */
    if (rc == 0 && stream_queued(s) == 0 && !is_ending(s))
        rc = stream_resolve_empty_waiter(s, NULL);
    if (is_flushing(s) && stream_queued(s) == 0) {
        if (rc == 0)
            rc = gl_transport_connection_lost(&s->base, Py_None);
        else
            rc = stream_end_after_exception(s);
    }
    return rc;
}
