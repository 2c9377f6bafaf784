/*
 * stream_first_receive.c: the start of an accepted connection.
 *
 * A server that stops closes the connections that have sent no request yet.  A request that waits
 * in the kernel for the next poll would then be lost.  So the first receive follows
 * connection_made() without a poll:
 *
 *   _before_made()                  notes the ready queue
 *   connection_made()
 *   _start()
 *     stream_start_accepted
 *       stream_receive_first          at once, if connection_made() has scheduled no callback
 *   callbacks of connection_made()
 *   _receive_first()                  else after these callbacks: in asyncio they run before the
 *     stream_receive_first            bytes are received, and may pause reading
 */
#include "streams/stream.h"

/* Receives once and delivers the bytes, or an error; asyncio's limit for one receive is the size of
 * the scratch buffer.  The poller reports the end of the stream.  Does nothing if the stream may
 * not receive now. */
static int
stream_receive_first(gl_stream *s)
{
    const gl_completion ready = {.kind = GL_CMP_READY, .res = GL_READABLE};
    if (!s->registered || choose_receive_path(s, &ready) == RECEIVE_NOTHING)
        return 0;
    gl_loop *loop = s->loop;
    uint8_t *scratch = gl_scratch_acquire(loop);
    if (scratch == NULL)
        return gl_transport_fatal_current(&s->base, READ_FAILED(s));
    int err;
    ssize_t n = stream_recv(s, scratch, GL_SCRATCH_SIZE, &err);
    int rc = 0;
    if (n != 0)
        rc = stream_handle_recv_result(s, n, err);
    if (rc > 0) {
        gl_trace *t = gl_active_trace(loop);
        if (t != NULL)
            gl_trace_completion(loop, t, &ready, s->protocol);
        rc = stream_deliver_bytes(s, (const char *)scratch, n, NULL);
    }
    gl_scratch_release(loop, scratch);
    return rc;
}

/* Completions of bytes that Go has received, or of their end: if one is not delivered yet, its
 * bytes come before those that are still in the kernel. */
#define RECEIVED_BY_GO (1u << GL_CMP_DATA | 1u << GL_CMP_EOF | 1u << GL_CMP_READ_ERROR)

GL_PRIVATE PyObject *
stream_receive_first_method(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    if (!s->registered || gl_loop_is_foreign(s->loop) ||
        stream_find_completion(s, RECEIVED_BY_GO) != NULL)
        Py_RETURN_NONE;
    return gl_none_or_null(stream_receive_first(s));
}

/* The number of entries that start a connection: _before_made(), connection_made(), _start(). */
#define START_ENTRIES 3

GL_PRIVATE int
stream_schedule_before_made(gl_stream *s)
{
    if (is_lost(s)) /* the server has closed it */
        return 0;
    s->total_constructed = gl_ready_total(&s->loop->ready);
    s->loop->start_entries += START_ENTRIES;
    return gl_transport_call_soon(&s->base, G.s__before_made, NULL);
}

GL_PRIVATE PyObject *
stream_before_made_method(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    if (s->loop != NULL) {
        s->loop->total_before_made = gl_ready_total(&s->loop->ready);
        s->loop->made_at = gl_monotonic_ns();
    }
    Py_RETURN_NONE;
}

GL_PRIVATE PyObject *
stream_awaits_made_method(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(s->phase == GL_STARTING && s->server != NULL && s->server != Py_None &&
                           s->total_constructed >= s->loop->total_before_made);
}

GL_PRIVATE int
stream_start_accepted(gl_stream *s)
{
    gl_loop *loop = s->loop;
    int rc = 0;
    if (s->native_receive == NULL && gl_ready_total(&loop->ready) == loop->total_before_made)
        rc = stream_receive_first(s);
    else if (s->native_receive == NULL && !s->paused)
        rc = gl_transport_call_soon(&s->base, G.s__receive_first, NULL);
    if (loop->made_at != 0 && loop->shared != NULL)
        loop->shared->accepting += gl_monotonic_ns() - loop->made_at;
    loop->made_at = 0;
    return rc;
}
