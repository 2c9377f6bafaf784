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

/* Applies the rule of eager turns to a write.  Returns true if it is sent eagerly, and then
 * decrements eager_sends_left; records the write in last_write_turn either way.  Few streams are
 * ready in this turn, so the peer can work on the answer while Python goes on: the first write
 * of a stream in a turn is sent, while eager sends of the turn are left and nothing is queued.  A
 * stream that wrote more than once in the turn of its previous write is excluded, because it may
 * do so again, and then its pieces leave in one call. */
static inline bool
use_eager_send(gl_stream *s)
{
    gl_loop *loop = s->loop;
    bool first = s->last_write_turn != (uint32_t)loop->turns;
    bool expects_single_write = first && s->single_write_last_turn;
    s->single_write_last_turn = first;
    s->last_write_turn = (uint32_t)loop->turns;
    if (loop->eager_sends_left == 0 || stream_queued(s) > 0 || !expects_single_write)
        return false;
    loop->eager_sends_left--;
    return true;
}

/* Returns true if the queue may not wait for the next turn: it is large, user code can use the
 * socket too, or Go does not know the stream, so that the monitor can't send the queue. */
static inline bool
queue_is_urgent(const gl_stream *s)
{
    Py_ssize_t queued = stream_queued(s);
    Py_ssize_t max = MAX_DEFERRED;
    if (s->kind)
        max = MAX_DEFERRED_PIPE;
    return !s->registered || stream_is_exposed(s) || queued > s->high_mark || queued > max;
}

/* Chooses the path of the queued bytes.  `tried`: C has just tried to send, and the kernel did not
 * accept all. */
static inline enum send_path
choose_path_of_queue(const gl_stream *s, bool tried)
{
    bool blocked = stream_blocked(s);
    if (stream_queued(s) > 0 &&
        (s->loop->thread_id == 0 || (!blocked && !s->protocol_paused && queue_is_urgent(s))))
        return SEND_BY_FLUSH;
    if (tried || blocked)
        return SEND_WHEN_WRITABLE;
    return SEND_IN_TURN;
}

/* Chooses the path of a write or of the queue.  The first row that applies is used:
 *
 * path                occasion         condition                         the reason
 * SEND_EAGERLY        ON_WRITE         the socket is exposed             user code may send or
 * (by C, in write();                                                     shut down next
 * a remainder goes                     the write exceeds the high-water  only bytes that the
 * to the queue)                        mark                              kernel refuses count for
 *                                                                        pause_writing()
 *                                      it exceeds MAX_DEFERRED              asyncio would have sent
 *                                                                        it; saves a call of Go
 *                                      use_eager_send(): few streams     the peer works meanwhile
 *                                      are ready; not for pipes
 * SEND_BY_FLUSH       AFTER_APPEND,    the loop does not run             no turn will come
 * (by Go, now:        AFTER_TRY        not blocked, the protocol is not  the reasons of
 * stream_flush_now)                    paused, and queue_is_urgent()     SEND_EAGERLY; a pipe's
 *                                                                        reader may be awake now
 *                     ON_REQUEST       bytes are queued, not blocked     get_write_buffer_size(),
 *                                                                        abort(), fork, use of the
 *                                                                        socket: asyncio would have
 *                                                                        sent already
 *                     ON_WRITE_EOF     the loop does not run             no turn will come
 *                     ON_CLOSE         bytes are queued, and the loop    asyncio would have sent
 *                                      is open; also if the kernel has   already
 *                                      refused bytes
 * SEND_WHEN_WRITABLE  all              the kernel has refused bytes      Go tries again when the
 *                                      (AFTER_TRY, or blocked)           poller reports room
 * SEND_IN_TURN        all              otherwise                         all writes of an iteration
 *                                                                        leave in one call
 *
 * SEND_EAGERLY needs an empty queue and a registered socket without other requests to Go, which
 * stream_try_send() checks under the shared lock.  If they are missing, the write is queued, and
 * the path is chosen again for AFTER_APPEND.
 *
 * A path that does not wait for the turn first sends the writes of other streams that wait, and
 * SEND_IN_TURN ends the eager sends of the turn, so that no write overtakes an earlier one
 * (threads/submissions.c).
 *
 * The choice for ON_WRITE records the write and may decrement eager_sends_left (use_eager_send()),
 * so it is made once for each write. */
GL_PRIVATE_INLINE enum send_path
choose_send_path(gl_stream *s, enum send_occasion occasion, Py_ssize_t size)
{
    switch (occasion) {
    case ON_WRITE:
        if (size > s->high_mark || size > MAX_DEFERRED)
            return SEND_EAGERLY;
        if (stream_is_exposed(s)) {
            if (s->loop != NULL && s->loop->shared != NULL)
                s->loop->shared->exposed_sends++;
            return SEND_EAGERLY;
        }
        if (s->loop != NULL && s->kind == KIND_SOCKET && use_eager_send(s))
            return SEND_EAGERLY;
        return SEND_IN_TURN;
    case AFTER_APPEND:
    case AFTER_TRY:
        return choose_path_of_queue(s, occasion == AFTER_TRY);
    case ON_REQUEST:
        if (stream_blocked(s))
            return SEND_WHEN_WRITABLE;
        if (stream_queued(s) > 0)
            return SEND_BY_FLUSH;
        return SEND_IN_TURN;
    case ON_WRITE_EOF:
        if (s->loop->thread_id == 0)
            return SEND_BY_FLUSH;
        return SEND_IN_TURN;
    case ON_CLOSE:
        if (stream_queued(s) > 0 && !s->loop->closed)
            return SEND_BY_FLUSH;
        return SEND_IN_TURN;
    }
    Py_UNREACHABLE();
}

/* ---- receiving ----------------------------------------------------------------------- */

/* Returns true if newly received bytes must not be delivered now: reading is paused, or earlier
 * input still waits for delivery. */
static inline bool
has_paused_input(const gl_stream *s)
{
    return s->paused || s->paused_data != NULL || s->paused_end;
}

/* Chooses the path of the received bytes of a DATA or READY completion.  The first row that applies
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

/* Returns the GL_WANT_ bits for READY completions in place of DATA: always for a stream that
 * receives much at once, and for any socket in eager turns. */
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
