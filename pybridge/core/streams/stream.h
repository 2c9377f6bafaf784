/*
 * stream.h: the state of a stream transport, and what its files share.
 *
 *   stream.c         construction, and what of closing and loss is a stream's alone
 *   stream_io.c      the record that Go has too: the write queue, and what is wanted
 *   stream_write.c   write, flow control, write_eof
 *   stream_read.c    what was received, on its way to the protocol
 *   stream_type.c    methods and attributes of socket streams, their type
 *
 * transports/transports.h has the base, and draws a transport's life.  A stream in GL_CLOSING stays
 * registered until the last byte has left.  While it is registered Go has the address of
 * `io` and reads the queued bytes.
 *
 * What runs once per connection, or only when asked for, is Python's: goloop/_internal/net/streams.py
 * and goloop/_internal/net/pipes.py have the classes that programs meet (extra info, repr).
 */
#pragma once

#include "streams/streams.h"

/* A BufferedProtocol that gets so much at once has it received into its own buffer. */
#define LARGE_RECEIVE_MIN (32 * 1024)

/* A piece to be written: bytes that nobody can change, kept alive by owner, which is an
 * exact bytes object. */
typedef struct gl_piece {
    PyObject *owner;
    const char *ptr;
    Py_ssize_t len;
} gl_piece;

/* An IPv4 address without its padding. */
#define SHORT_NAME 8

/* Writes beyond so many bytes are not put off until the turn; measured. */
#define DEFER_MAX (64 * 1024)

/* The same for a pipe: what fills half of it is sent while the reader may still be awake. */
#define DEFER_MAX_PIPE (32 * 1024)

/* A socket's stream goes both ways.  A stream can also be one end of a pipe, a FIFO, a terminal or
 * another character device, or a socket that serves as one.  It goes one way, and has asyncio's other
 * rules:
 *
 *   - The pipe object is the caller's until the transport has been made, then the
 *     transport's; it is closed once, by its close(), behind connection_lost.
 *   - Reading: the end (stream_read.c) schedules eof_received and connection_lost, whatever
 *     eof_received answers.  What data_received raises is reported, and reading goes on.
 *   - Writing: write_eof() and close() are one: no more is taken, and the pipe is closed
 *     when all is sent.  On FIFOs and sockets the reactor watches for the end:
 *     anything readable there means that the reader has gone.
 *
 * One fd number can be in the poller once.  A terminal that is opened for both
 * directions has two transports, and loop.add_reader may have the number too: the second
 * user gets a duplicate for the reactor (shares_number). */
enum stream_kind { KIND_SOCKET = 0, KIND_READ_PIPE, KIND_WRITE_PIPE };

typedef struct gl_stream {
    TRANSPORT_HEAD /* the lease's owner is a socket.socket, NULL where none was
                    * made; of a pipe the file object */
    PyObject *server;
    PyObject *empty_waiter; /* future of _make_empty_waiter */

    uint8_t kind;                /* stream_kind */
    bool watch_end;              /* KIND_WRITE_PIPE: the reactor tells when the reader has
                                  * gone */
    char exposed;                /* others have the socket or file: what is written is sent
                                  * at once, for they may send or shut down next.  Python's */
    bool buffered;               /* the protocol is a BufferedProtocol */
    bool eof;                    /* write_eof was called */
    bool shutdown_when_sent;     /* ... while bytes were queued: Go shuts down behind them */
    bool in_writelines;          /* writelines() asks an iterator for more: the end waits */
    bool protocol_paused;        /* pause_writing was called */
    bool receives_large;         /* receiving is done here, when Go says that there is
                                  * something */
    uint8_t read_end;            /* GL_CMP_EOF or GL_CMP_READ_ERROR once it came */
    char lazy_extra;             /* extra has not yet all that it could have.  Python's */
    char counted;                /* among its server's connections.  Python's */
    uint8_t peer_len, local_len; /* of the raw names */
    bool
        single_write_last_turn; /* one piece was all that it wrote in the turn in which it wrote last */
    uint32_t
        last_write_turn; /* which that was, of those with few streams: see stream_may_send_now */
    int paused_errno;
    uint32_t late_writes;       /* a pipe's _conn_lost of asyncio: writes that came when
                                 * it was closing */
    uint32_t released_pieces;   /* <= io.head */
    gl_receive *native_receive; /* of a BufferedProtocol in C: takes bytes; else NULL */

    /* Writing (stream_io.c, stream_write.c). */
    gl_stream_io io;                /* Go has its address while registered */
    PyObject **owners;              /* of the pieces in io.iov, owned from `released` on */
    Py_ssize_t high_mark, low_mark; /* the marks as numbers */

    /* The raw names of an accepted connection: the peer's, then its own. */
    union {
        uint8_t *raw;                      /* peer_len + local_len bytes, or NULL */
        uint8_t short_raw[2 * SHORT_NAME]; /* where neither is longer */
    };
} gl_stream;

/* What asyncio says of a failed read or write. */
#define READ_FAILED(s)                                                                             \
    ((s)->kind ? "Fatal read error on pipe transport" : "Fatal read error on socket transport")
#define WRITE_FAILED(s)                                                                            \
    ((s)->kind ? "Fatal write error on pipe transport" : "Fatal write error on socket transport")

/* ---- stream.c ----------------------------------------------------------------- */

GL_PRIVATE PyObject *stream_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);
GL_PRIVATE PyObject *read_pipe_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);
/* Lets go of a pipe, unclosed. */
GL_PRIVATE PyObject *pipe_release_fd(gl_stream *s, PyObject *ignored);
GL_PRIVATE PyObject *pipe_stop_watching_end(gl_stream *s, PyObject *ignored);
GL_PRIVATE int stream_init(PyObject *self, PyObject *args, PyObject *kwargs);
/* A name that an accepted connection came with; NULL, perhaps with an exception, where it must be
 * asked. */
GL_PRIVATE PyObject *stream_name(gl_stream *s, bool peer);
/* The second half of a close() that came before resume_writing. */
GL_PRIVATE PyObject *stream_close_if_sent_method(gl_stream *s, PyObject *ignored);
GL_PRIVATE int stream_traverse(PyObject *self, visitproc visit, void *arg);
GL_PRIVATE int stream_clear(PyObject *self);
/* ---- stream_io.c ---------------------------------------------------------------- */

/* Bytes that were written and are not in the kernel, exact.  (In another thread during a
 * turn: perhaps a moment old.) */
static inline Py_ssize_t
stream_queued(const gl_stream *s)
{
    return (Py_ssize_t)(s->io.appended - __atomic_load_n(&s->io.sent, __ATOMIC_RELAXED));
}

/* Whether it is of no use to try: Go does when there is room, or a send has failed. */
static inline bool
stream_blocked(const gl_stream *s)
{
    return __atomic_load_n(&s->io.state, __ATOMIC_RELAXED) & (GL_STATE_BLOCKED | GL_STATE_DEAD);
}

GL_PRIVATE void stream_free_queue(gl_stream *s);
GL_PRIVATE bool stream_wants_read(gl_stream *s);
/* Appends pieces, and submits where the reactor knows the stream; takes over the references, on
 * failure too.  -1 with MemoryError. */
GL_PRIVATE int stream_append(gl_stream *s, const gl_piece *pieces, Py_ssize_t n);
/* Sends what the kernel takes of a piece, if it is the first and nothing else is wanted: that spares
 * the queue and Go.  The rest is left in it.  1 where it has tried, else 0.  An error closes the
 * transport; -1 where that fails. */
GL_PRIVATE int stream_try_send(gl_stream *s, gl_piece *c);
/* Whether a failed send may leave something to be received. */
GL_PRIVATE bool stream_can_drain_input(const gl_stream *s);
/* Ends the transport for the exception that a send within a call of the program's has set. */
GL_PRIVATE int stream_fail_send(gl_stream *s);
/* Lets go of what Go has sent, and of everything. */
GL_PRIVATE void stream_release_sent(gl_stream *s);
GL_PRIVATE void stream_discard_queue(gl_stream *s);
/* What the stream wants by its state: GL_WANT_. */
GL_PRIVATE uint32_t stream_interest(gl_stream *s);
/* Brings the record of a registered stream up to date, and has the reactor look at it in the
 * next turn where there is something new.  Not during a turn. */
GL_PRIVATE int stream_submit(gl_stream *s);
/* Tries to send the queue now.  -1 with an exception where the fd can't be
 * registered; an error of the socket comes with the next turn. */
GL_PRIVATE int stream_flush_now(gl_stream *s);
GL_PRIVATE PyObject *stream_write(gl_stream *s, PyObject *data);
/* gl_reg_ops. */
GL_PRIVATE size_t stream_get_queued_bytes(PyObject *transport);
/* Only by what C writes: Go may be at work while another thread collects. */
GL_PRIVATE bool stream_is_dormant(PyObject *transport);
/* Before other code sees the socket, or ends the process. */
GL_PRIVATE PyObject *stream_flush(gl_stream *s, PyObject *ignored);

/* ---- stream_write.c ------------------------------------------------------------- */

#if GL_STREAM_HAS_WRITELINES
GL_PRIVATE PyObject *stream_writelines(gl_stream *s, PyObject *const *args, Py_ssize_t nargs,
                                       PyObject *kwnames);
#endif
GL_PRIVATE PyObject *stream_write_eof(gl_stream *s, PyObject *ignored);
GL_PRIVATE PyObject *stream_can_write_eof(gl_stream *s, PyObject *ignored);
GL_PRIVATE PyObject *stream_get_write_buffer_size(gl_stream *s, PyObject *ignored);
GL_PRIVATE PyObject *stream_maybe_pause_method(gl_stream *s, PyObject *ignored);
GL_PRIVATE PyObject *stream_maybe_resume_method(gl_stream *s, PyObject *ignored);
/* _high_water and _low_water, to which asyncio's _FlowControlMixin writes; the closure is
 * NULL for the low mark. */
GL_PRIVATE PyObject *stream_mark_getter(gl_stream *s, void *high);
GL_PRIVATE int stream_mark_setter(gl_stream *s, PyObject *mark, void *high);
GL_PRIVATE int stream_handle_wrote(gl_stream *s);
/* Whoever waits for the empty queue learns that it is, or with an exception that its bytes
 * will never leave. */
GL_PRIVATE int stream_resolve_empty_waiter(gl_stream *s, PyObject *exc);

/* ---- stream_read.c --------------------------------------------------------------- */

GL_PRIVATE bool stream_has_pending(gl_transport *t);
GL_PRIVATE int stream_deliver_item(gl_transport *t, PyObject *item);
GL_PRIVATE int stream_complete(gl_loop *loop, PyObject *owner, const gl_completion *c);
GL_PRIVATE int stream_schedule_input_drain(gl_transport *t, PyObject *exc);
GL_PRIVATE PyObject *stream_drain_input_method(gl_stream *s, PyObject *exc);
