/*
 * stream.h: the state of a stream transport, and what its files share.
 *
 *   endpoints.c      raw socket addresses as Python values; TCP_NODELAY
 *   stream.c         birth, start, closing, loss of the connection, finalizer
 *   stream_io.c      the record that Go has too: the write queue, and what is wanted
 *   stream_write.c   write, flow control, write_eof
 *   stream_read.c    what was received, on its way to the protocol
 *   stream_info.c    get_extra_info, attributes, repr
 *   stream_type.c    the table of methods and the type
 *   listener.c       where accepted streams come from
 *   pipe.c           what is different where the stream is an end of a pipe
 *   pipe_type.c      the types of pipe transports
 *
 * The life of a stream:
 *
 *   made ------> started ------> closing -------> lost
 *     |             |              ^  (queue still to be sent: stays in the reactor)
 *     |             +- abort, -----+
 *     |                fatal error
 *     +- reading and writing wait until connection_made was called
 *
 * "open" says that the reactor knows the fd and the record: the registry then holds a
 * reference to the transport, and Go reads the queued bytes.  A stream leaves the
 * reactor as soon as it has nothing more to send, before connection_lost; from
 * then on no completion of it is live and its buffers are free to go.
 *
 * Everything here runs with the GIL.  asyncio's transports are not thread-safe,
 * and neither are these; still, a call from another thread while Go works on the shared
 * memory (loop->in_turn) must not write there: such a change is remembered, and the loop
 * itself brings the record up to date after the turn (stream_sync).
 */
#ifndef GOLOOP_STREAM_H
#define GOLOOP_STREAM_H

#include "transports/transports.h"

/* ---- the stream ------------------------------------------------------------- */

/* A BufferedProtocol that gets so much at once has it received into its own buffer. */
#define GL_DIRECT_MIN (32 * 1024)

/* A piece to be written: bytes that nobody can change, kept alive by owner, which is an
 * exact bytes object. */
typedef struct gl_piece {
    PyObject *owner;
    const char *ptr;
    Py_ssize_t len;
} gl_piece;

/* One that another thread wrote during a turn. */
typedef struct gl_late_piece gl_late_piece;

/* So many pieces have room in the object. */
#define GL_INLINE_PIECES 4u

/* Writes beyond so many bytes are not put off until the turn; measured. */
#define GL_DEFER_MAX (64 * 1024)

/* The same for a pipe: what fills half of it is sent while the reader may still be awake. */
#define GL_DEFER_MAX_PIPE (32 * 1024)

/* asyncio's default high-water mark. */
#define GL_HIGH_WATER (64 * 1024)

/* A socket's stream goes both ways; a pipe's goes one way, and has other rules for
 * errors and for its end (pipe.c). */
enum gl_stream_kind { GL_KIND_SOCKET = 0, GL_KIND_READ_PIPE, GL_KIND_WRITE_PIPE };

struct gl_stream {
    PyObject_HEAD
    /* The slots of asyncio.transports.BaseTransport and _FlowControlMixin, in
     * their order; stream_type.c checks the offsets.  The last two stay NULL, the
     * type's own attributes stand before them. */
    PyObject *extra;              /* dict, or NULL as long as nobody asked */
    PyObject *high_water;         /* as get_write_buffer_limits gives them */
    PyObject *slot_loop;
    PyObject *low_water;
    PyObject *slot_protocol_paused;

    PyObject *dict;
    PyObject *weakrefs;
    gl_loop *loop;                /* NULL once the connection is lost */
    PyObject *protocol;           /* likewise */
    gl_lease lease;               /* the descriptor.  Its owner is a socket.socket, NULL where
                                   * none was made; of a pipe the file object.  Empty once
                                   * the stream is closed */
    PyObject *server;
    PyObject *context;            /* what the protocol's callbacks run in */
    PyObject *empty_waiter;       /* future of _make_empty_waiter */

    int fd_shown;                 /* the number for repr, kept after closing */
    uint32_t id, gen;             /* valid while open */
    uint32_t conn_lost;           /* asyncio's _conn_lost: > 0 once connection_lost is
                                   * scheduled; counts the writes that came too late */

    uint8_t kind;                 /* gl_stream_kind */
    bool watch_end;               /* GL_KIND_WRITE_PIPE: the reactor tells when the reader
                                   * has gone */
    uint32_t late_writes;         /* a pipe's _conn_lost of asyncio: writes that came when
                                   * it was closing */

    bool open;                    /* registered with the reactor */
    bool started;                 /* connection_made was called: reading may begin */
    bool closing;
    bool paused;                  /* by pause_reading */
    bool exposed;                 /* others have the socket object: what is written is sent
                                   * at once, for they may send or shut down next */
    bool buffered;                /* the protocol is a BufferedProtocol */
    gl_receive *receive;          /* ... one in C, which takes bytes by this; else NULL */
    bool eof;                     /* write_eof was called */
    bool shut_behind;             /* ... while bytes were queued: Go shuts down behind them */
    bool protocol_paused;         /* pause_writing was called */
    bool warned;                  /* the finalizer has done its work */

    /* Reading (stream_read.c). */
    bool direct;                  /* receiving is done here, when Go says that there is
                                   * something */
    bool delivering;              /* _deliver_held runs or is scheduled */
    uint8_t rd_end;               /* GL_CMP_EOF or GL_CMP_READ_ERROR once it came */
    uint8_t held_end;             /* the same while it waits behind held data */
    int held_errno;
    PyObject *held;               /* list of bytes received while paused, or NULL */

    /* Writing (stream_io.c, stream_write.c). */
    gl_stream_io io;              /* Go has its address while open */
    PyObject **owners;            /* of the pieces in io.iov, owned from `released` on */
    uint32_t released;            /* <= io.head */
    bool sync_scheduled;
    gl_late_piece *late, *last_late; /* FIFO; not empty only while open */
    Py_ssize_t late_size;         /* their bytes */
    Py_ssize_t high, low;         /* the marks as numbers */
    gl_vector inline_iov[GL_INLINE_PIECES];
    PyObject *inline_owners[GL_INLINE_PIECES];

    /* Names (stream_info.c): keys of extra that were not yet asked for. */
    bool lazy_socket, lazy_peername, lazy_sockname;
    uint8_t peer_len, local_len;
    uint8_t *raw;                 /* peer_len + local_len bytes, or NULL */
};

/* What asyncio says of a failed read or write. */
#define GL_READ_FAILED(s)                                                          \
    ((s)->kind ? "Fatal read error on pipe transport" : "Fatal read error on socket transport")
#define GL_WRITE_FAILED(s)                                                         \
    ((s)->kind ? "Fatal write error on pipe transport" : "Fatal write error on socket transport")

/* ---- stream.c ----------------------------------------------------------------- */

/* A transport over an accepted fd, which it takes over (on failure too). Used by
 * listener.c. */
GL_PRIVATE PyObject *stream_accepted(gl_loop *loop, int fd, const gl_endpoints *ends,
                                    PyObject *protocol, PyObject *server,
                                    PyObject *context);
/* Whether Go may be called for this stream now. */
GL_PRIVATE_INLINE bool stream_go_ready(gl_stream *s);
/* Registers with the reactor. -1 with an exception. */
GL_PRIVATE int stream_open(gl_stream *s);
/* Sends what waits, for somebody is about to see the socket. */
GL_PRIVATE void stream_flush_visible(PyObject *transport);
/* Whether it has something to send and the reactor does not know it yet. */
GL_PRIVATE bool stream_unsent(PyObject *transport);
/* Leaves the reactor; drops the write queue if it could. Keep a reference. */
GL_PRIVATE void stream_leave(gl_stream *s);
/* asyncio's methods of these names.  `exc` may be NULL for None. */
GL_PRIVATE int stream_force_close(gl_stream *s, PyObject *exc);
GL_PRIVATE int stream_fatal_error(gl_stream *s, PyObject *exc, const char *message);
/* The same with the exception that is set; -1, and it stays set, for SystemExit and
 * KeyboardInterrupt. */
GL_PRIVATE int stream_fatal_current(gl_stream *s, const char *message);
GL_PRIVATE int stream_close(gl_stream *s);
GL_PRIVATE int stream_lost(gl_stream *s, PyObject *exc);
/* RuntimeError where the loop is closed or of another process. */
GL_PRIVATE int stream_check_usable(gl_stream *s);
/* Syncs the record with the stream's state; deferred where another thread calls during a
 * turn. */
GL_PRIVATE int stream_sync(gl_stream *s);
/* Schedules the method `name` of the stream, without or with one argument. */
GL_PRIVATE int stream_call_soon(gl_stream *s, PyObject *name, PyObject *arg);

/* ---- pipe.c ---------------------------------------------------------------------- */

/* Whether another transport or a reader has the pipe's number: one number can be in the
 * poller once. */
GL_PRIVATE bool pipe_number_is_taken(gl_stream *s);
/* The end of a pipe was read, or its reader has gone. */
GL_PRIVATE int pipe_ended(gl_stream *s);
/* Whether the pipe's asyncio transport logs such an error instead of reporting it. */
GL_PRIVATE bool pipe_logs_error(gl_stream *s, PyObject *exc);

/* asyncio's warning of writes to a socket whose connection is lost. */
#define GL_LATE_SEND "socket.send() raised exception."

/* ---- stream_io.c ---------------------------------------------------------------- */

/* Bytes that were written and are not in the kernel, exact.  (In another thread during a
 * turn: perhaps a moment old.) */
static inline Py_ssize_t
stream_queued(const gl_stream *s)
{
    return (Py_ssize_t)(s->io.appended - __atomic_load_n(&s->io.sent, __ATOMIC_RELAXED)) +
           s->late_size;
}

/* Whether it is of no use to try: Go does when there is room, or a send has failed. */
static inline bool
stream_blocked(const gl_stream *s)
{
    return __atomic_load_n(&s->io.state, __ATOMIC_RELAXED) &
           (GL_STATE_BLOCKED | GL_STATE_DEAD);
}

GL_PRIVATE void stream_init_queue(gl_stream *s);
GL_PRIVATE void stream_free_queue(gl_stream *s);
/* Appends a piece that is not empty; takes over the reference, on failure too.  -1 with
 * MemoryError. */
GL_PRIVATE int stream_append(gl_stream *s, gl_piece piece);
/* Lets go of what Go has sent, and of everything. */
GL_PRIVATE void stream_release_sent(gl_stream *s);
GL_PRIVATE void stream_drop_queue(gl_stream *s);
/* What the stream wants by its state: GL_WANT_. */
GL_PRIVATE uint32_t stream_wants(gl_stream *s);
/* Brings the record of an open stream up to date, and has the reactor look at it in the next
 * turn where there is something new.  Not during a turn. */
GL_PRIVATE int stream_submit(gl_stream *s);
/* Tries to send the queue now.  -1 with an exception where the fd can't be
 * registered; an error of the socket comes with the next turn. */
GL_PRIVATE int stream_flush_now(gl_stream *s);

/* ---- stream_write.c ------------------------------------------------------------- */

GL_PRIVATE int stream_wrote(gl_stream *s);
GL_PRIVATE int stream_write_failed(gl_stream *s, int err);

/* ---- stream_read.c --------------------------------------------------------------- */

GL_PRIVATE bool stream_reading_wanted(gl_stream *s);
GL_PRIVATE void stream_drop_held(gl_stream *s);

/* ---- stream_info.c ---------------------------------------------------------------- */

/* The Python socket, made if need be; borrowed.  Py_None once closed. */
GL_PRIVATE PyObject *stream_socket(gl_stream *s);
GL_PRIVATE int stream_note_raw(gl_stream *s, const gl_endpoints *ends);
/* Puts what can only be learnt from the open socket into extra. */
GL_PRIVATE int stream_fill_extra(gl_stream *s);

/* ---- pipe.c ---------------------------------------------------------------------------------- */

GL_PRIVATE PyObject *pipe_late_writes_getter(gl_stream *s, void *Py_UNUSED(closure));
/* write_eof() and close(). */
GL_PRIVATE PyObject *write_pipe_eof_method(gl_stream *s, PyObject *Py_UNUSED(ignored));
GL_PRIVATE PyObject *write_pipe_write_method(gl_stream *s, PyObject *const *args, Py_ssize_t nargs,
                                             PyObject *kwnames);
GL_PRIVATE PyObject *read_pipe_close_method(gl_stream *s, PyObject *Py_UNUSED(ignored));
GL_PRIVATE int write_pipe_init(PyObject *self, PyObject *args, PyObject *kwargs);
GL_PRIVATE int read_pipe_init(PyObject *self, PyObject *args, PyObject *kwargs);

/* ---- stream.c -------------------------------------------------------------------------------- */

GL_PRIVATE void stream_dealloc(PyObject *self);
GL_PRIVATE int stream_clear(PyObject *self);
GL_PRIVATE int stream_traverse(PyObject *self, visitproc visit, void *arg);
/* __del__: the last reference goes while the socket is open. A registered stream
 * is kept alive by the loop, so this one either never started, or its loop was
 * closed or is garbage itself. */
GL_PRIVATE void stream_finalize(PyObject *self);
/* The empty waiter learns that its bytes will never leave. */
GL_PRIVATE int stream_fail_waiter(gl_stream *s, PyObject *exc);
/* The second half of a close() that came before resume_writing. */
GL_PRIVATE PyObject *stream_close_if_sent_method(gl_stream *s, PyObject *Py_UNUSED(ignored));
GL_PRIVATE PyObject *stream_sync_method(gl_stream *s, PyObject *Py_UNUSED(ignored));
/* Runs behind connection_made, in the same iteration: reading starts, and who
 * waits for the connection is told. */
GL_PRIVATE PyObject *stream_start_method(gl_stream *s, PyObject *waiter);
/* waiter.set_result(None) unless it was cancelled. */
GL_PRIVATE int stream_wake_waiter(PyObject *waiter);
GL_PRIVATE int stream_init(PyObject *self, PyObject *args, PyObject *kwargs);
GL_PRIVATE PyObject *stream_new(PyTypeObject *type, PyObject *Py_UNUSED(args),
                                PyObject *Py_UNUSED(kwargs));
/* extra gets its three entries, in asyncio's order; a peername that the caller
 * put there stays. */
GL_PRIVATE int note_names(PyObject *sock, PyObject *extra, PyObject *transport);
/* What get_extra_info('socket') gives.  Of a stream (`transport`, else NULL) it sends what
 * waits before it is used. */
GL_PRIVATE PyObject *transport_socket(PyObject *sock, PyObject *transport);
/* What socket.getsockname() or getpeername() says, None where it raises OSError. */
GL_PRIVATE PyObject *stream_ask_name(PyObject *sock, PyObject *method);
GL_PRIVATE bool stream_blocks_number(PyObject *transport);
/* Clears the note of who uses the fd, if it is still this transport's. */
GL_PRIVATE void stream_forget_fd(gl_stream *s);
GL_PRIVATE int stream_set_protocol(gl_stream *s, PyObject *protocol);
GL_PRIVATE void stream_orphan(PyObject *owner);

/* ---- stream_info.c --------------------------------------------------------------------------- */

GL_PRIVATE PyObject *stream_repr(PyObject *self);
GL_PRIVATE PyObject *stream_get_extra_info(gl_stream *s, PyObject *args, PyObject *kwargs);
/* socket.socket(fileno=fd), non-blocking as asyncio's accepted sockets are. On
 * failure the fd stays open. */
GL_PRIVATE PyObject *socket_from_fd(int fd);

/* ---- stream_read.c --------------------------------------------------------------------------- */

GL_PRIVATE int stream_complete(gl_loop *loop, PyObject *owner, const gl_completion *c);
GL_PRIVATE PyObject *stream_resume_reading(gl_stream *s, PyObject *Py_UNUSED(ignored));
GL_PRIVATE PyObject *stream_pause_reading(gl_stream *s, PyObject *Py_UNUSED(ignored));
GL_PRIVATE PyObject *stream_deliver_held_method(gl_stream *s, PyObject *Py_UNUSED(ignored));

/* ---- stream_type.c --------------------------------------------------------------------------- */

/* The bases' slots must lie where gl_stream has them. */
GL_PRIVATE int check_transport_layout(PyObject *mixin);
GL_PRIVATE PyObject *stream_is_reading_method(gl_stream *s, PyObject *Py_UNUSED(ignored));
GL_PRIVATE PyObject *stream_abort_method(gl_stream *s, PyObject *Py_UNUSED(ignored));
/* The one argument of a method that may be given by position or by its name. */
GL_PRIVATE PyObject *one_argument(const char *method, const char *name, PyObject *const *args,
                                  Py_ssize_t nargs, PyObject *kwnames);

/* ---- stream_write.c -------------------------------------------------------------------------- */

GL_PRIVATE PyObject *stream_reset_empty_waiter(gl_stream *s, PyObject *Py_UNUSED(ignored));
GL_PRIVATE PyObject *stream_make_empty_waiter(gl_stream *s, PyObject *Py_UNUSED(ignored));
GL_PRIVATE PyObject *stream_can_write_eof(gl_stream *Py_UNUSED(s), PyObject *Py_UNUSED(ignored));
GL_PRIVATE PyObject *stream_write_eof(gl_stream *s, PyObject *Py_UNUSED(ignored));
/* Since 3.12 each piece stays as it is.  Nothing is queued unless all are good. */
GL_PRIVATE PyObject *stream_writelines_object(gl_stream *s, PyObject *list);
/* Queues a piece; takes over the reference.  An object's __buffer__ may have closed the
 * stream, or given nothing. */
GL_PRIVATE int stream_take_piece(gl_stream *s, gl_piece c);
/* One piece for the queue, from an object with the buffer protocol.  Bytes, and
 * views of bytes, are referred to; whatever may change is copied. */
GL_PRIVATE int piece_from_object(PyObject *data, gl_piece *c);
/* Counts a write that comes too late; asyncio warns from the fifth on. */
GL_PRIVATE int late_write(uint32_t *count, const char *warning);
GL_PRIVATE PyObject *stream_get_write_buffer_size(gl_stream *s, PyObject *Py_UNUSED(ignored));
GL_PRIVATE PyObject *stream_get_write_buffer_limits(gl_stream *s, PyObject *Py_UNUSED(ignored));
GL_PRIVATE PyObject *stream_set_write_buffer_limits(gl_stream *s, PyObject *args,
                                                    PyObject *kwargs);
GL_PRIVATE PyObject *stream_maybe_resume_method(gl_stream *s, PyObject *Py_UNUSED(ignored));
GL_PRIVATE PyObject *stream_maybe_pause_method(gl_stream *s, PyObject *Py_UNUSED(ignored));

#endif /* GOLOOP_STREAM_H */
