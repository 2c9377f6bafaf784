/*
 * stream_paths.c: the choice of the path by which a stream's bytes leave and arrive.
 *
 * All paths of C are in the two tables below; the other files only execute the choice.  Go chooses
 * among its own paths in netloop/stream_paths.go.
 */
#include "streams/stream.h"

/* ---- sending ------------------------------------------------------------------------- */

/* The references to the socket object of a transport that nothing but the transport can use: the
 * lease has one, and the TransportSocket of get_extra_info() has one. */
#define OWN_SOCKET_REFERENCES 2

/* Returns true if user code can use the socket or the file, too: the transport has handed out its
 * number (`exposed`), or user code still has references, strong or weak, to the socket object that
 * the transport was made with.  aiohttp's client, for example, makes its connections itself
 * (sock=), and then drops the socket. */
static inline bool
stream_is_exposed(const gl_stream *s)
{
    if (s->exposed)
        return true;
    PyObject *sock = s->lease.owner;
    return s->kind == KIND_SOCKET && sock != NULL &&
           (Py_REFCNT(sock) > OWN_SOCKET_REFERENCES || gl_has_weakrefs(sock));
}

/* Returns true if the rule of eager turns sends a write within write(): few streams are ready in
 * this turn, so the peer can work on the answer while Python goes on.  This holds for the first
 * write of a stream in a turn, while eager sends of the turn are left and nothing is queued.  A
 * stream that wrote more than once in the turn of its previous write is excluded, because it may
 * do so again, and then its pieces leave in one call. */
static inline bool
fits_eager_turn(const gl_stream *s)
{
    const gl_loop *loop = s->loop;
    return loop->eager_sends_left > 0 && s->single_write_last_turn && stream_queued(s) == 0 &&
           s->last_write_turn != (uint32_t)loop->turns;
}

/* The table of choose_write().  The first row that applies is used.  C sends within write(), unless
 * the write is deferred, and queues the bytes that the kernel refuses:
 *
 * choice               condition                          the reason
 * WRITE_NOW            the write exceeds the high-water   only bytes that the kernel refuses count
 *                      mark                               for pause_writing()
 *                      it exceeds MAX_DEFERRED            asyncio would have sent it; saves a call
 *                                                         of Go
 *                      user code can use the socket       it may send or shut down next
 * WRITE_IN_EAGER_TURN  a socket, and fits_eager_turn():   the peer works meanwhile
 *                      few streams are ready
 * WRITE_DEFERRED       otherwise                          all writes of an iteration leave in one
 *                                                         call, when the next turn begins
 *
 * Sending within write() needs an empty queue and a registered socket without other requests to
 * Go, which stream_try_send() checks under the shared lock.  If they are missing, the write is
 * queued.  It first sends the writes of other streams that wait, and a deferred write ends the
 * eager sends of the turn, so that no write overtakes an earlier one (threads/submissions.c). */

GL_PRIVATE_INLINE enum write_choice
choose_write(const gl_stream *s, Py_ssize_t size)
{
    if (size > s->high_mark || size > MAX_DEFERRED || stream_is_exposed(s))
        return WRITE_NOW;
    if (s->kind == KIND_SOCKET && s->loop != NULL && fits_eager_turn(s))
        return WRITE_IN_EAGER_TURN;
    return WRITE_DEFERRED;
}

GL_PRIVATE_INLINE void
note_write(gl_stream *s, enum write_choice choice)
{
    gl_loop *loop = s->loop;
    if (loop == NULL)
        return;
    if (choice == WRITE_NOW) {
        if (loop->shared != NULL && stream_is_exposed(s))
            loop->shared->exposed_sends++;
        return;
    }
    s->single_write_last_turn = s->last_write_turn != (uint32_t)loop->turns;
    s->last_write_turn = (uint32_t)loop->turns;
    if (choice == WRITE_IN_EAGER_TURN)
        loop->eager_sends_left--;
}

/* The table of queue_is_urgent(): the queue is sent now, by Go (stream_flush_now), and does not
 * wait for the next turn, if
 *
 * condition                                            the reason
 * the loop does not run                                no turn will come
 * the kernel has not refused bytes, the protocol is    as for the choices of write(); a pipe's
 * not paused, and: the socket is exposed, the queue    reader may be awake now
 * exceeds the high-water mark or MAX_DEFERRED[_PIPE]
 * the same, and Go does not know the stream            the monitor could not send the queue
 *
 * Bytes that the kernel has refused are sent when the poller reports room. */

GL_PRIVATE_INLINE bool
queue_is_urgent(const gl_stream *s)
{
    Py_ssize_t queued = stream_queued(s);
    if (queued == 0)
        return false;
    if (s->loop->thread_id == 0)
        return true;
    if (stream_blocked(s) || s->protocol_paused)
        return false;
    Py_ssize_t max = MAX_DEFERRED;
    if (s->kind != KIND_SOCKET)
        max = MAX_DEFERRED_PIPE;
    return !s->registered || stream_is_exposed(s) || queued > s->high_mark || queued > max;
}

/* ---- receiving ----------------------------------------------------------------------- */

/* Returns true if newly received bytes must not be delivered now: reading is paused, or earlier
 * input still waits for delivery. */
static inline bool
has_paused_input(const gl_stream *s)
{
    return s->paused || s->paused_data != NULL || s->paused_end;
}

/* The table of choose_receive_path(), for a DATA or READY completion.  The first row that applies
 * is used:
 *
 * path                          completion  condition                    the reason
 * RECEIVE_NOTHING               all         the stream has no protocol:  no receiver
 *                                           connection_lost was called
 *                               READY       the stream is closing, is    the bytes stay in the
 *                                           paused, has paused data, or  kernel, and the poller
 *                                           a send has failed            reports READY again.  Go's
 *                                                                        next completion reports a
 *                                                                        failed send, and
 *                                                                        stream_failed_send.c then
 *                                                                        receives the bytes
 *                               DATA        received bytes are dropped   as in asyncio
 *                                           after close()
 * RECEIVE_INTO_PROTOCOL_BUFFER  READY       a BufferedProtocol, not one  without a copy
 *                                           of C
 * RECEIVE_INTO_READER           READY       as the next row, and a       without a bytes object.  A
 *                                           StreamReaderProtocol         reader that C can't feed
 *                                                                        gets the next row
 * RECEIVE_INTO_BYTES            READY       the last receive was of at   without a copy: a bytes
 *                                           least LARGE_RECEIVE_MIN      object, cut to its length
 * RECEIVE_INTO_SCRATCH          READY       otherwise: few streams are   the bytes are in cache,
 *                                           ready                        and the peer works while
 *                                                                        others are served
 * RECEIVE_LATER                 DATA        the stream is paused or has  bytes arrive in order:
 *                                           paused data                  they are appended to the
 *                                                                        paused data
 * RECEIVE_FROM_LENT_BUFFER      DATA        Go used a large buffer, and  without a copy; for large
 *                                           the protocol gets bytes      receives of pipes
 * RECEIVE_FROM_ARENA            DATA        otherwise: many streams are  Go has received for all of
 *                                           ready, or a pipe             them in one batch; a copy
 *
 * receive_requests() requests READY or DATA from Go in advance. */

GL_PRIVATE_INLINE enum receive_path
choose_receive_path(const gl_stream *s, const gl_completion *c)
{
    if (s->protocol == NULL)
        return RECEIVE_NOTHING;
    if (c->kind == GL_CMP_READY) {
        if (is_closing(s) || has_paused_input(s) ||
            __atomic_load_n(&s->io.state, __ATOMIC_RELAXED) & GL_STATE_DEAD)
            return RECEIVE_NOTHING;
        if (s->buffered && s->native_receive == NULL)
            return RECEIVE_INTO_PROTOCOL_BUFFER;
        if (s->receives_large && gl_may_feed_reader(s->protocol))
            return RECEIVE_INTO_READER;
        if (s->receives_large)
            return RECEIVE_INTO_BYTES;
        return RECEIVE_INTO_SCRATCH;
    }
    if (discards_received(s))
        return RECEIVE_NOTHING;
    if (has_paused_input(s))
        return RECEIVE_LATER;
    if (c->res > 0 && !s->buffered)
        return RECEIVE_FROM_LENT_BUFFER;
    return RECEIVE_FROM_ARENA;
}

GL_NO_PYTHON GL_PRIVATE_INLINE uint32_t
receive_requests(const gl_stream *s)
{
    uint32_t requests = 0;
    if (s->receives_large)
        requests |= GL_WANT_RECEIVE_IN_C;
    if (s->kind == KIND_SOCKET)
        requests |= GL_WANT_RECEIVE_IN_EAGER_TURN;
    return requests;
}
