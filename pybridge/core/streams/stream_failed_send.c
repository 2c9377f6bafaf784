/*
 * stream_failed_send.c: the last bytes of a connection whose send has failed.
 *
 * A peer that rejects an upload sends its answer and closes the connection with unread bytes: the
 * next send fails, and the answer is still in the kernel.  asyncio's selector loop reads before it
 * writes when one poll reports both.  Here a send may fail in the flush before the poll, in the
 * monitor, or within write().  So the bytes in the kernel are received after the failure, and the
 * error is reported after these bytes.  EOF is not reported, because the error already ends the
 * connection.
 *
 *   stream_handle_write_error      a send of Go failed (WRITE_ERROR)
 *     stream_drain_input
 *       stream_drain_once
 *     stream_fail_unsent           connection_lost(exc)
 *
 *   stream_fail_send               a send within a call of the program failed (stream_io.c)
 *     stream_schedule_input_drain  (transport_ops)
 *       stream_drain_input_method  in a later iteration: _drain_input(exc)
 */
#include "streams/stream.h"

/* Limit of the receives: a peer that has shut down only its reading side may go on sending. */
#define MAX_DRAIN_RECEIVES 64

/* Receives once and delivers the bytes.  Returns 1 if there were any, 0 at the end of the bytes or
 * at an error of the receive, -1 with MemoryError or an exception of the delivery. */
static int
stream_drain_once(gl_stream *s)
{
    gl_loop *loop = s->loop;
    uint8_t *scratch = gl_scratch_acquire(loop);
    if (scratch == NULL)
        return -1;
    int err;
    ssize_t n = stream_recv(s, scratch, GL_SCRATCH_SIZE, &err);
    int rc = 0;
    if (n > 0)
        rc = stream_deliver_bytes(s, (const char *)scratch, n, NULL);
    gl_scratch_release(loop, scratch);
    if (rc < 0)
        return -1;
    return n > 0;
}

/* Delivers the paused data and the bytes that the kernel still has, in at most MAX_DRAIN_RECEIVES
 * receives, until the protocol pauses or closes.  Returns the number of receives that returned
 * bytes, or -1 with an exception of the protocol. */
static int
stream_drain_input(gl_stream *s)
{
    int rc = gl_transport_deliver_paused_data(&s->base);
    int received = 0;
    bool more = rc == 0;
    while (more && received < MAX_DRAIN_RECEIVES && !s->paused && !discards_received(s) &&
           s->protocol != NULL && !gl_loop_is_foreign(s->loop)) {
        rc = stream_drain_once(s);
        more = rc > 0;
        if (more)
            received++;
    }
    if (rc < 0)
        return -1;
    return received;
}

GL_PRIVATE int
stream_schedule_input_drain(gl_transport *t, PyObject *exc)
{
    gl_stream *s = (gl_stream *)t;
    if (stream_find_completion(s, 1u << GL_CMP_DATA) != NULL) {
        stream_discard_queue(s);
        if (stream_submit(s) < 0)
            return -1;
    } else {
        /* Discards the queue and the registration, and keeps the paused data. */
        gl_transport_unregister(t);
    }
    return gl_transport_call_soon(t, G.s__drain_input, exc);
}

GL_PRIVATE PyObject *
stream_drain_input_method(gl_stream *s, PyObject *exc)
{
    if (is_lost(s))
        Py_RETURN_NONE;
    bool waits = s->drains_input &&
                 (s->delivery_scheduled || stream_find_completion(s, 1u << GL_CMP_DATA) != NULL);
    if (waits) {
        if (gl_transport_call_soon(&s->base, G.s__drain_input, exc) == 0)
            Py_RETURN_NONE;
        if (!PyErr_ExceptionMatches(PyExc_MemoryError))
            return NULL;
        PyErr_Clear(); /* the end does not wait for the bytes then */
        s->drains_input = false;
    }
    int received = 0;
    if (s->drains_input)
        received = stream_drain_input(s);
    s->drains_input = false;
    PyObject *raised = NULL;
    if (received < 0)
        raised = gl_take_exception();
    int rc = 0;
    if (!is_lost(s) && received == 0) {
        rc = gl_transport_connection_lost(&s->base, exc);
    } else if (!is_lost(s)) {
        /* connection_lost runs in the next iteration, after a task that the last bytes have
         * woken. */
        gl_transport_discard_paused_data(&s->base);
        gl_transport_unregister(&s->base);
        rc = gl_transport_schedule_lost(&s->base, exc);
    }
    if (raised != NULL) {
        if (rc < 0)
            PyErr_WriteUnraisable((PyObject *)s);
        gl_restore_exception(raised);
        rc = -1;
    }
    return gl_none_or_null(rc);
}

/* Discards the queue and closes the transport with the error `err` of a send in Go: reports the
 * error to the protocol and to the Future that waits for the empty queue. */
static int
stream_fail_unsent(gl_stream *s, int err)
{
    stream_discard_queue(s); /* Go does not send it any more */
    s->late_writes++;        /* asyncio's pipes count the failed write too */
    PyObject *exc = gl_oserror(err);
    if (exc == NULL)
        exc = gl_take_exception();
    int rc = gl_transport_fatal_error(&s->base, exc, WRITE_FAILED(s));
    if (rc == 0)
        rc = stream_resolve_empty_waiter(s, exc);
    Py_DECREF(exc);
    return rc;
}

GL_PRIVATE int
stream_handle_write_error(gl_stream *s, int err)
{
    if (is_ending(s))
        return 0;
    PyObject *raised = NULL;
    if (stream_can_drain_input(s) && stream_drain_input(s) < 0)
        raised = gl_take_exception();
    int rc = 0;
    if (!is_ending(s))
        rc = stream_fail_unsent(s, err);
    if (raised == NULL)
        return rc;
    if (rc < 0)
        PyErr_WriteUnraisable((PyObject *)s);
    gl_restore_exception(raised);
    return -1;
}
