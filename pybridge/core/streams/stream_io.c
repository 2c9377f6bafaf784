/*
 * stream_io.c: the record that a stream shares with Go (gl_stream_io in abi.h): the pieces
 * of its write queue, its interest, and the results.
 *
 *      released_pieces  io.head                       io.tail        io.cap
 *       | sent, not yet   | to be sent, in order        |              |   io.iov
 *       | released        |                             |              |   owners
 *
 * Go reads the pieces in place, so the reference to a piece is dropped after Go has sent it, and
 * never before.  Only C moves the arrays; a connection with an empty queue has none.
 *
 * The record is only written under the shared lock, which excludes the monitor and a turn of
 * another thread (threads/shared_lock.c).  The caller of a queue_ function or of
 * submit_if_changed() has the shared lock.
 */
#include "streams/stream.h"

#include <string.h>
#include <sys/socket.h>

#define PIECES_FIRST 4u  /* capacity of the first arrays; an empty queue frees them */
#define PIECES_KEEP 256u /* an empty queue frees arrays of a larger capacity too */

/* ---- the queue --------------------------------------------------------------- */

GL_NO_PYTHON GL_PRIVATE void
stream_free_queue(gl_stream *s)
{
    PyMem_Free(s->io.iov);
    s->io.iov = NULL;
    s->owners = NULL;
    s->io.cap = 0;
}

/* Drops the references to the pieces that Go has sent.  If none is left, moves the indices to the
 * start, and frees arrays that are very small or very large. */
GL_NO_PYTHON static void
queue_release_sent(gl_stream *s)
{
    gl_stream_io *io = &s->io;
    while (s->released_pieces < io->head)
        Py_DECREF(s->owners[s->released_pieces++]); /* lint: allow check-commit: exact bytes */
    if (io->head == io->tail) {
        io->head = 0;
        io->tail = 0;
        s->released_pieces = 0;
        if (io->cap == PIECES_FIRST || io->cap > PIECES_KEEP)
            stream_free_queue(s);
    }
}

GL_NO_PYTHON GL_PRIVATE void
stream_release_sent(gl_stream *s)
{
    gl_shared_lock(s->loop);
    queue_release_sent(s);
    gl_shared_unlock(s->loop);
}

GL_NO_PYTHON GL_PRIVATE void
stream_discard_queue(gl_stream *s)
{
    gl_shared_lock(s->loop);
    s->io.head = s->io.tail;
    s->io.appended = s->io.sent;
    queue_release_sent(s);
    gl_shared_unlock(s->loop);
}

/* Makes room for one more piece; releases the sent pieces first.  The pieces are moved to the front
 * if half of the array is free there, so that a queue that is never empty does not grow with the
 * number of its pieces.  -1 with MemoryError, and the pieces that are to be sent are unchanged. */
static int
queue_make_room(gl_stream *s)
{
    gl_stream_io *io = &s->io;
    queue_release_sent(s);
    if (io->tail < io->cap)
        return 0;
    uint32_t n = io->tail - io->head;
    uint32_t cap = io->cap;
    if (cap == 0)
        cap = PIECES_FIRST;
    else if (io->head < io->cap / 2)
        cap *= 2;
    gl_vector *iov = io->iov;
    PyObject **owners = s->owners;
    if (cap > io->cap) {
        if (cap <= UINT32_MAX / 4)
            iov = PyMem_Malloc(cap * (sizeof(*iov) + sizeof(*owners)));
        else
            iov = NULL;
        if (iov == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        owners = (PyObject **)(iov + cap);
    }
    if (n > 0) {
        memmove(iov, io->iov + io->head, n * sizeof(*iov));
        memmove(owners, s->owners + io->head, n * sizeof(*owners));
    }
    if (iov != io->iov)
        stream_free_queue(s);
    io->iov = iov;
    io->cap = cap;
    io->tail = n;
    io->head = 0;
    s->released_pieces = 0;
    s->owners = owners;
    return 0;
}

/* Appends a piece to the queue.  Steals the piece's reference if it succeeds.  -1 with MemoryError,
 * and the queue is unchanged. */
static int
queue_append(gl_stream *s, gl_piece piece)
{
    gl_stream_io *io = &s->io;
    if (io->tail == io->cap && queue_make_room(s) < 0)
        return -1;
    io->iov[io->tail] = (gl_vector){piece.ptr, (size_t)piece.len};
    s->owners[io->tail] = piece.owner;
    io->tail++;
    io->appended += (uint64_t)piece.len;
    return 0;
}

GL_PRIVATE bool
stream_can_drain_input(const gl_stream *s)
{
    return s->kind == KIND_SOCKET && s->phase <= GL_OPEN && !s->paused && !s->read_end &&
           s->protocol != NULL;
}

GL_PRIVATE int
stream_fail_send(gl_stream *s)
{
    s->drains_input = stream_can_drain_input(s);
    int rc = gl_transport_fatal_current(&s->base, WRITE_FAILED(s));
    if (!is_ending(s))
        s->drains_input = false;
    return rc;
}

GL_NO_PYTHON GL_PRIVATE const gl_completion *
stream_find_completion(const gl_stream *s, uint32_t kinds)
{
    const gl_shared *shared = s->loop->shared;
    if (!s->registered || shared == NULL)
        return NULL;
    for (uint32_t i = s->loop->cmp_pos; i < shared->cmp_len; i++) {
        const gl_completion *c = &shared->cmp[i];
        if (kinds & 1u << c->kind && c->id == s->id && c->gen == s->gen)
            return c;
    }
    return NULL;
}

/* Sets the OSError of a failed send; returns -1.  The kernel reports a reset once: if a receive of
 * this turn has met it, the send fails with EPIPE.  asyncio, which has not received yet, would send
 * first, so the error of the receive is used. */
static int
set_send_error(const gl_stream *s, int err)
{
    const gl_completion *failed = NULL;
    if (err == EPIPE)
        failed = stream_find_completion(s, 1u << GL_CMP_READ_ERROR);
    if (failed != NULL)
        err = failed->res;
    return gl_set_oserror(err);
}

GL_PRIVATE int
stream_try_send(gl_stream *s, gl_piece *c)
{
    gl_stream_io *io = &s->io;
    ssize_t n = 0;
    int err = 0;
    bool tried = false;
    gl_flush_deferred_sends(s->loop);
    gl_shared_lock(s->loop); /* the monitor may be sending for other streams */
    uint32_t others =
        stream_interest(s) & ~(GL_WANT_READ | GL_WANT_RECEIVE_IN_C | GL_WANT_RECEIVE_IN_EAGER_TURN);
    if (s->registered && io->head == io->tail && io->state == 0 && s->kind == KIND_SOCKET &&
        !others) {
        size_t size = (size_t)Py_MIN(c->len, GL_MAX_SEND);
        n = gl_call_send(&s->lease, c->ptr, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0)
            err = errno;
        tried = true;
        s->loop->shared->sends++;
        gl_note_sent(s->loop, n);
    }
    gl_shared_unlock(s->loop);
    if (n > 0) {
        c->ptr += n;
        c->len -= n;
    }
    if (err == 0 || err == EAGAIN || err == EINTR)
        return tried;
    set_send_error(s, err);
    return stream_fail_send(s);
}

GL_PRIVATE ssize_t
stream_recv(gl_stream *s, void *to, Py_ssize_t size, int *err)
{
    ssize_t n = gl_call_recv(&s->lease, to, (size_t)size, MSG_DONTWAIT);
    *err = errno;
    s->loop->shared->recvs++;
    gl_count_received(s->loop, n);
    return n;
}

/* ---- submissions to Go -------------------------------------------------------------- */

/* Returns true if the stream's loop has a reactor that this process may call. */
static inline bool
stream_can_call_go(gl_stream *s)
{
    gl_loop *loop = s->loop;
    return loop != NULL && loop->go != NULL && !gl_loop_is_foreign(loop);
}

GL_PRIVATE bool
stream_wants_read(gl_stream *s)
{
    if (s->kind == KIND_WRITE_PIPE) /* until the last byte is sent */
        return s->watch_end && (s->phase == GL_OPEN || is_flushing(s)) && !s->read_end;
    return s->phase == GL_OPEN && !s->paused && !s->read_end && s->paused_data == NULL &&
           !s->paused_end;
}

GL_NO_PYTHON GL_PRIVATE uint32_t
stream_interest(gl_stream *s)
{
    uint32_t interest = receive_requests(s);
    if (stream_wants_read(s))
        interest |= GL_WANT_READ;
    if (s->shutdown_when_sent && !s->in_writelines)
        interest |= GL_WANT_SHUT;
    if (s->protocol_paused || is_closing(s) || s->empty_waiter)
        interest |= GL_WANT_REPORT;
    return interest;
}

/* An entry of loop->written. */
struct gl_written_stream {
    uint32_t id, gen;
};

/* Enters the stream into loop->written, unless it is there.  Without memory it is not entered, and
 * its pieces stay until the next write. */
GL_NO_PYTHON static void
note_written(gl_stream *s)
{
    gl_loop *loop = s->loop;
    if (s->written_gen == s->gen)
        return;
    if (!gl_grow(&loop->written, &loop->written_cap, loop->written_len, sizeof(*loop->written), 16))
        return;
    loop->written[loop->written_len++] = (struct gl_written_stream){s->id, s->gen};
    s->written_gen = s->gen;
}

GL_NO_PYTHON GL_PRIVATE void
gl_streams_release_sent(gl_loop *loop)
{
    /* A stream of which the kernel has refused bytes is no longer in the list: Go reports its
     * progress. */
    for (uint32_t i = 0; i < loop->written_len; i++) {
        struct gl_written_stream entry = loop->written[i];
        gl_reg *reg = NULL;
        if (entry.id < loop->regs_cap)
            reg = &loop->regs[entry.id];
        if (reg == NULL || reg->kind != GL_REG_STREAM || reg->gen != entry.gen)
            continue;
        gl_stream *s = (gl_stream *)reg->owner;
        s->written_gen = 0;
        queue_release_sent(s);
        gl_trace *t = gl_active_trace(loop);
        if (t != NULL) {
            gl_completion wrote = {.kind = GL_CMP_WROTE, .id = entry.id, .gen = entry.gen};
            gl_trace_completion(loop, t, &wrote, s->protocol);
        }
    }
    loop->written_len = 0;
}

/* Submits the record for the next turn if the interest or the lease has changed, or if pieces are
 * queued that the kernel has not refused.  -1 with MemoryError. */
static int
submit_if_changed(gl_stream *s)
{
    gl_stream_io *io = &s->io;
    uint32_t want = stream_interest(s);
    const int32_t *owner = gl_lease_word(&s->lease);
    bool untried = io->head < io->tail && !stream_blocked(s);
    if (!untried && want == io->want && owner == io->owner)
        return 0;
    if (!io->listed && gl_submit(s->loop, GL_SUB_STREAM, s->id, s->gen, 0) < 0)
        return -1;
    if (untried)
        note_written(s);
    io->listed = 1;
    io->want = want;
    io->owner = owner;
    return 0;
}

GL_PRIVATE int
stream_submit(gl_stream *s)
{
    gl_shared_lock(s->loop);
    int rc = submit_if_changed(s);
    gl_shared_unlock(s->loop);
    return rc;
}

GL_PRIVATE int
stream_append(gl_stream *s, const gl_piece *pieces, Py_ssize_t n)
{
    int rc = 0;
    gl_shared_lock(s->loop);
    for (Py_ssize_t i = 0; i < n; i++) {
        bool appended = false;
        if (rc == 0 && pieces[i].len > 0) {
            rc = queue_append(s, pieces[i]);
            appended = rc == 0;
        }
        if (!appended)
            Py_DECREF(pieces[i].owner); /* lint: allow check-commit: exact bytes */
    }
    if (rc == 0 && s->registered)
        rc = submit_if_changed(s);
    gl_shared_unlock(s->loop);
    return rc;
}

GL_PRIVATE int
stream_flush_now(gl_stream *s)
{
    if (!stream_can_call_go(s))
        return 0;
    gl_loop *loop = s->loop;
    int rc;
    if (s->registered)
        rc = stream_submit(s);
    else
        rc = gl_transport_register(&s->base);
    if (rc < 0)
        return -1;
    /* The registration may have detached a watch of the same fd, which may have run Python. */
    if (!stream_can_call_go(s) || !s->registered)
        return 0;
    rc = gl_reactor_api(loop)->flush_stream(loop->reactor, s->id, s->gen);
    if (rc < 0) {
        s->late_writes++; /* asyncio's pipes count the failed write too */
        return set_send_error(s, -rc);
    }
    stream_release_sent(s);
    /* asyncio resumes the protocol from the loop, never from within write(). */
    if (s->protocol_paused && stream_queued(s) <= s->low_mark && !is_ending(s))
        return gl_transport_call_soon(&s->base, G.s__maybe_resume_protocol, NULL);
    return 0;
}

GL_PRIVATE size_t
stream_get_queued_bytes(PyObject *transport)
{
    return (size_t)stream_queued((gl_stream *)transport);
}

GL_PRIVATE bool
stream_is_dormant(PyObject *transport)
{
    gl_stream *s = (gl_stream *)transport;
    return s->phase == GL_OPEN && !stream_wants_read(s) && s->io.tail == 0 &&
           s->empty_waiter == NULL;
}

GL_PRIVATE PyObject *
stream_flush(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    if (s->loop != NULL)
        gl_flush_deferred_sends(s->loop);
    if (!is_ending(s) && stream_can_flush(s) && stream_flush_now(s) < 0)
        PyErr_Clear(); /* the next turn fails in the same way, and reports the error */
    Py_RETURN_NONE;
}
