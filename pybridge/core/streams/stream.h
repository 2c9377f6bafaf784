/*
 * stream.h: the state of a stream transport, and the functions that its files share.
 *
 *   stream_paths.c        the table of all paths by which bytes leave and arrive
 *   stream.c              construction, closing and loss
 *   stream_io.c           the record shared with Go: the write queue, and the stream's interest
 *   stream_write.c        write, flow control, write_eof
 *   stream_read.c         received bytes on their way to the protocol
 *   stream_reader.c       ... on their way to an asyncio.StreamReader, without Python
 *   stream_failed_send.c  the last received bytes after a failed send
 *   stream_first_receive.c  the first received bytes of an accepted connection
 *   stream_type.c         methods and attributes of socket streams, their type
 *
 * transports/transports.h has the base, and draws a transport's life.  A stream in GL_CLOSING stays
 * registered until the last byte was sent.  While it is registered Go has the address of `io` and
 * reads the queued bytes.
 *
 * Work that is done once per connection, or only on request, is in Python:
 * goloop/_internal/net/stream_transport.py and net/pipes.py have the classes that programs
 * use (extra info, repr).
 */
#pragma once

#include "streams/streams.h"

/* After a receive of at least this size the next receive goes straight into the protocol's buffer
 * or into a bytes object. */
#define LARGE_RECEIVE_MIN (32 * 1024)

/* Immutable bytes to be written, in the exact bytes object `owner`. */
typedef struct gl_piece {
    PyObject *owner;
    const char *ptr;
    Py_ssize_t len;
} gl_piece;

/* The length of an IPv4 address without its padding. */
#define SHORT_NAME 8

/* Writes larger than this are sent immediately (threshold found by benchmark). */
#define MAX_DEFERRED (64 * 1024)

/* Threshold for immediate writes to a pipe: half of its capacity, so that the bytes are sent while
 * the reader may still be awake. */
#define MAX_DEFERRED_PIPE (32 * 1024)

/* A socket's stream goes both ways.  A stream can also be one end of a pipe, a FIFO, a terminal or
 * another character device, or a socket that is used as one.  Such a stream goes one way, and
 * follows asyncio's rules for pipes:
 *
 *   - The pipe object belongs to the caller until the transport is constructed, then to the
 *     transport; its close() is called once, after connection_lost.
 *   - Reading: the end (stream_read.c) schedules eof_received and connection_lost, whether or not
 *     eof_received returns true.  An exception of data_received is reported, and reading goes on.
 *   - Writing: write_eof() and close() have the same effect: no more bytes are accepted, and the
 *     pipe is closed when all queued bytes are sent.  On FIFOs and sockets the reactor watches for
 *     the end: readability there means that the reader has closed.
 *
 * The poller accepts each fd number once.  A terminal that is opened for both directions has two
 * transports, and loop.add_reader may have the number too: the second user gets a duplicate for
 * the reactor (shares_number). */
enum stream_kind { KIND_SOCKET = 0, KIND_READ_PIPE, KIND_WRITE_PIPE };

/* A stream transport. */
typedef struct gl_stream {
    TRANSPORT_HEAD    /* the lease's owner: a socket.socket, or NULL where none was made; the file
                       * object of a pipe */
    PyObject *server; /* owned: the Server that accepted the connection, None or NULL */
    PyObject *empty_waiter; /* owned: the Future of _make_empty_waiter(), or NULL */

    uint8_t kind;                /* stream_kind */
    bool watch_end;              /* KIND_WRITE_PIPE: the reactor reports when the reader closed */
    char exposed;                /* user code has the number of the socket or the pipe's file:
                                  * writes are sent in write().  Set by Python */
    bool buffered;               /* the protocol is a BufferedProtocol */
    bool eof;                    /* write_eof() was called */
    bool shutdown_when_sent;     /* ... with a queue: Go shuts down when it is sent */
    bool in_writelines;          /* writelines() iterates: the end waits */
    bool protocol_paused;        /* pause_writing() was called, resume_writing() not yet */
    bool receives_large;         /* the last receive was large: READY instead of DATA */
    uint8_t read_end;            /* GL_CMP_EOF or GL_CMP_READ_ERROR after it arrived */
    char lazy_extra;             /* extra is not yet complete.  Set by Python */
    char counted;                /* counted as a connection of its server.  Set by Python */
    uint8_t peer_len, local_len; /* lengths of the raw names; 0: not known */
    bool single_write_last_turn; /* only one write was made in last_write_turn */
    uint32_t last_write_turn;    /* turn of the last write, see fits_eager_turn() */
    int paused_errno;            /* the errno of the last READ_ERROR, for paused_end */
    uint32_t late_writes; /* count of ignored or failed writes; a pipe's _conn_lost of asyncio */
    uint32_t written_gen; /* generation of its entry in loop->written, or 0 */
    uint32_t released_pieces;   /* pieces in io.iov whose references were dropped; <= io.head */
    uint64_t total_constructed; /* accepted: the ready queue's total before the entries that start
                                 * the connection; else 0 */
    gl_receive *native_receive; /* receive function of a BufferedProtocol in C; else NULL */

    /* Writing (stream_io.c, stream_write.c). */
    gl_stream_io io;   /* Go has its address while registered */
    PyObject **owners; /* objects of the pieces in io.iov; references from `released_pieces` on */
    Py_ssize_t high_mark; /* write limits, in bytes; high_water and low_water have the objects */
    Py_ssize_t low_mark;

    /* The raw names of an accepted connection: the peer's, then the local one. */
    union {
        uint8_t *raw;                      /* peer_len + local_len bytes, or NULL */
        uint8_t short_raw[2 * SHORT_NAME]; /* used if neither name is longer */
    };
} gl_stream;

/* asyncio's messages for a failed read or write. */
#define READ_FAILED(s)                                                                             \
    ((s)->kind != KIND_SOCKET ? "Fatal read error on pipe transport"                               \
                              : "Fatal read error on socket transport")
#define WRITE_FAILED(s)                                                                            \
    ((s)->kind != KIND_SOCKET ? "Fatal write error on pipe transport"                              \
                              : "Fatal write error on socket transport")

/* ---- stream_paths.c ------------------------------------------------------------- */

/* How write() treats its bytes; the comment of choose_write() has the table. */
enum write_choice {
    WRITE_NOW,           /* C sends within write() */
    WRITE_IN_EAGER_TURN, /* C sends within write(): one of the turn's eager sends */
    WRITE_DEFERRED,      /* Go sends when the next turn begins */
};
/* Returns the choice for a write of `size` bytes. */
GL_PRIVATE_INLINE enum write_choice choose_write(const gl_stream *s, Py_ssize_t size);
/* Records a write, once, after its choice, for the choices of later ones. */
GL_PRIVATE_INLINE void note_write(gl_stream *s, enum write_choice choice);
/* Returns true if the queue may not wait for the next turn. */
GL_PRIVATE_INLINE bool queue_is_urgent(const gl_stream *s);

/* The ways in which received bytes reach the protocol; choose_receive_path() has the table. */
enum receive_path {
    RECEIVE_NOTHING,              /* the bytes stay in the kernel, or are dropped */
    RECEIVE_LATER,                /* stored as paused data */
    RECEIVE_FROM_ARENA,           /* received by Go, copied */
    RECEIVE_FROM_LENT_BUFFER,     /* received by Go into a bytes object */
    RECEIVE_INTO_PROTOCOL_BUFFER, /* received by C into get_buffer() */
    RECEIVE_INTO_READER,          /* received by C into the buffer of a StreamReader */
    RECEIVE_INTO_BYTES,           /* received by C into a bytes object */
    RECEIVE_INTO_SCRATCH,         /* received by C into the scratch buffer, copied */
};
/* Returns the path of the bytes of a DATA or READY completion. */
GL_PRIVATE_INLINE enum receive_path choose_receive_path(const gl_stream *s, const gl_completion *c);
/* Returns the GL_WANT_ bits for READY completions in place of DATA: always for a stream that
 * receives much at once, and for any socket in eager turns. */
GL_PRIVATE_INLINE uint32_t receive_requests(const gl_stream *s);

/* ---- stream.c ----------------------------------------------------------------- */

/* Returns 1 if a protocol has BufferedProtocol's two methods, and not data_received(), else 0.
 * uvloop checks for the methods instead of the class, and programs written for it rely on that;
 * asyncio would call data_received() and fail. */
GL_PRIVATE int has_buffer_methods(PyObject *protocol);
/* tp_new of a socket's stream and of a pipe's writing end: a transport in GL_EMPTY with asyncio's
 * default write limits. */
GL_PRIVATE PyObject *stream_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);
/* tp_new of ReadPipeTransport: like stream_new(), but the reading end of a pipe. */
GL_PRIVATE PyObject *read_pipe_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);
/* _let_go(): sets GL_CLOSING, deregisters the pipe, discards its queue, and ends its lease without
 * closing the descriptor, which then belongs to the caller again.  NULL with RuntimeError if the
 * loop is foreign. */
GL_PRIVATE PyObject *pipe_release_fd(gl_stream *s, PyObject *ignored);
/* _ignore_end(): stops watching a writing end for a closed reader.  The stream remains open.  Does
 * nothing for a closing stream; NULL with RuntimeError if the loop can't be used. */
GL_PRIVATE PyObject *pipe_stop_watching_end(gl_stream *s, PyObject *ignored);
/* StreamTransport(loop, sock, protocol, ...): constructs the transport and schedules
 * connection_made.  For a pipe `sock` is the file object, and `pipe` is true for the writing end.
 * `watch_end`: readability means that the reader has closed.  `exposed`: the program can use the
 * socket or file too.  `waiter`: the Future to resolve at the start.  `server`: attached, and
 * detached again after a failure.  `context`: by default a copy of the current one.  -1 with
 * RuntimeError for a second call: the descriptor still belongs to the caller. */
GL_PRIVATE int stream_init(PyObject *self, PyObject *args, PyObject *kwargs);
/* Returns the name of one side of an accepted connection as a Python address: the peer's, or the
 * local one.  NULL without an exception: the kernel gave no name, and the socket has to be
 * asked. */
GL_PRIVATE PyObject *stream_name(gl_stream *s, bool peer);
/* _close_if_sent(): ends a closing stream after resume_writing(), if its queue is still empty.
 * close() schedules it when the protocol is paused and the queue is already empty. */
GL_PRIVATE PyObject *stream_close_if_sent_method(gl_stream *s, PyObject *ignored);
/* tp_traverse: visits the server, the empty waiter and the base. */
GL_PRIVATE int stream_traverse(PyObject *self, visitproc visit, void *arg);
/* tp_clear: clears the base, the server and the empty waiter. */
GL_PRIVATE int stream_clear(PyObject *self);

/* ---- stream_io.c ---------------------------------------------------------------- */

/* Returns the number of written bytes that are not in the kernel yet.  The number is exact, except
 * in another thread during a turn, where it may be a moment old. */
static inline Py_ssize_t
stream_queued(const gl_stream *s)
{
    return (Py_ssize_t)(s->io.appended - __atomic_load_n(&s->io.sent, __ATOMIC_RELAXED));
}

/* Returns true if an attempt to send is useless: Go sends when there is room, or a send failed. */
static inline bool
stream_blocked(const gl_stream *s)
{
    return __atomic_load_n(&s->io.state, __ATOMIC_RELAXED) & (GL_STATE_BLOCKED | GL_STATE_DEAD);
}

/* Returns true if a flush can empty the queue, or shorten it. */
static inline bool
stream_can_flush(const gl_stream *s)
{
    return stream_queued(s) > 0 && !stream_blocked(s);
}

/* Frees the arrays of the queue, which must be empty. */
GL_PRIVATE void stream_free_queue(gl_stream *s);
/* Returns true if the stream has to be registered for reading: it delivers received bytes now, or
 * watches for a closed reader. */
GL_PRIVATE bool stream_wants_read(gl_stream *s);
/* Appends n pieces to the queue, and submits them if the reactor knows the stream.  Steals the
 * references, on failure too.  -1 with MemoryError, and the pieces before the failure are
 * queued. */
GL_PRIVATE int stream_append(gl_stream *s, const gl_piece *pieces, Py_ssize_t n);
/* Sends the deferred writes of other streams, and then as much of the piece `c` as the kernel
 * accepts, by C; removes these bytes from the piece.  Tries only if the queue is empty and Go has
 * no request of the stream.  Returns 1 if it has tried, else 0.  An error closes the transport: 0,
 * or -1 with an exception that leaves the call. */
GL_PRIVATE int stream_try_send(gl_stream *s, gl_piece *c);
/* Receives at most `size` bytes, without blocking, and counts them in the metrics.  Returns the
 * result of recv(2), with errno in *err. */
GL_PRIVATE ssize_t stream_recv(gl_stream *s, void *to, Py_ssize_t size, int *err);
/* Returns the stream's first completion of this turn that is not delivered yet and is of one of the
 * kinds, a set of bits 1 << gl_completion.kind, or NULL. */
GL_PRIVATE const gl_completion *stream_find_completion(const gl_stream *s, uint32_t kinds);
/* Returns true if received bytes are still delivered after a failed send: a socket that is being
 * read, without a pause and before its end. */
GL_PRIVATE bool stream_can_drain_input(const gl_stream *s);
/* Ends the transport after a failed send within a call of the program; the exception is set, and is
 * reported by _fatal_error().  Received bytes are delivered first (drains_input).  Returns 0 with
 * the exception cleared, or -1 with an exception that leaves the call. */
GL_PRIVATE int stream_fail_send(gl_stream *s);
/* Drops the references to the pieces that Go has sent. */
GL_PRIVATE void stream_release_sent(gl_stream *s);
/* Drops all pieces, sent or not: Go sends none of them any more, and stream_queued() is 0. */
GL_PRIVATE void stream_discard_queue(gl_stream *s);
/* Returns the GL_WANT_ bits of the stream's present state, for gl_stream_io.want. */
GL_PRIVATE uint32_t stream_interest(gl_stream *s);
/* Updates the record of a registered stream, and submits it for the next turn if it has changed.
 * Not during a turn.  -1 with MemoryError. */
GL_PRIVATE int stream_submit(gl_stream *s);
/* Calls Go, which sends the queue now, and releases the sent pieces; registers the stream first if
 * necessary.  A protocol that may resume writing is resumed in a later iteration.  Does nothing if
 * the loop is closed or foreign.  -1 with the exception of the registration, or with OSError of the
 * send. */
GL_PRIVATE int stream_flush_now(gl_stream *s);
/* gl_reg_ops.queued_bytes: returns stream_queued(), for the metric of the bytes in write
 * buffers. */
GL_PRIVATE size_t stream_get_queued_bytes(PyObject *transport);
/* gl_reg_ops.is_dormant: true for an open stream that neither reads nor has pieces to send nor a
 * Future that waits for that.  Reads only fields that C writes: Go may be working while another
 * thread collects garbage. */
GL_PRIVATE bool stream_is_dormant(PyObject *transport);
/* _flush(): sends the deferred writes of other streams, and then the queue.  Called before other
 * code uses the socket, or ends the process.  Returns None, also after a failed send: the next turn
 * reports the error. */
GL_PRIVATE PyObject *stream_flush(gl_stream *s, PyObject *ignored);

/* ---- stream_write.c ------------------------------------------------------------- */

/* write(data): checks the argument and the state, then sends the bytes or queues them, as
 * choose_write() says.  Returns None, also if the write comes too late and is only counted, or
 * if its send fails and ends the transport.  NULL with TypeError (not bytes-like), RuntimeError
 * (write_eof(), sendfile, a closed loop), MemoryError (none of the bytes was accepted) or an
 * exception of a callback. */
GL_PRIVATE PyObject *stream_write(gl_stream *s, PyObject *const *args, Py_ssize_t nargs,
                                  PyObject *kwnames);
#if GL_STREAM_HAS_WRITELINES
/* writelines(list_of_data): queues all items, and sends them by one path.  An ended stream only
 * counts the call.  NULL with TypeError, RuntimeError (write_eof(), sendfile, a closed loop) or an
 * exception of an item; a failed send, or a buffer that is not contiguous, ends the transport. */
GL_PRIVATE PyObject *stream_writelines(gl_stream *s, PyObject *const *args, Py_ssize_t nargs,
                                       PyObject *kwnames);
#endif
/* write_eof() of a socket: shuts down the writing side, now if the queue is empty, else after its
 * last byte.  Writing ends of pipes override it in goloop/_internal/net/pipes.py.  Does nothing for
 * a closing stream or in a second call.  NULL with RuntimeError (the loop can't be used), or with
 * OSError of the shutdown, after which write() is refused too. */
GL_PRIVATE PyObject *stream_write_eof(gl_stream *s, PyObject *ignored);
/* can_write_eof(): always True. */
GL_PRIVATE PyObject *stream_can_write_eof(gl_stream *s, PyObject *ignored);
/* get_write_buffer_size(): returns the number of queued bytes, 0 for an ended stream.  Tries to
 * send the queue first, so that only bytes that the kernel refuses are counted, as in asyncio.  A
 * failed send ends the transport; the result is then 0.  NULL with an exception that leaves the
 * call. */
GL_PRIVATE PyObject *stream_get_write_buffer_size(gl_stream *s, PyObject *ignored);
/* _maybe_pause_protocol(): flushes a queue above the high-water mark first, because only bytes that
 * the kernel refuses count, and then calls pause_writing() if it is still too long.  A failed send
 * ends the transport.  Returns None, or NULL with an exception that leaves the call. */
GL_PRIVATE PyObject *stream_maybe_pause_method(gl_stream *s, PyObject *ignored);
/* _maybe_resume_protocol(): stream_maybe_resume() as a handle of its own. */
GL_PRIVATE PyObject *stream_maybe_resume_method(gl_stream *s, PyObject *ignored);
/* Getter of _high_water, or of _low_water with the closure NULL: the mark as the program has set
 * it. */
GL_PRIVATE PyObject *stream_mark_getter(gl_stream *s, void *high);
/* Setter of _high_water and _low_water.  Stores the object, for the getter, and its value as an
 * integer, for the comparisons.  A raised low mark may schedule resume_writing().  -1 with
 * AttributeError (a deletion), TypeError or another exception. */
GL_PRIVATE int stream_mark_setter(gl_stream *s, PyObject *mark, void *high);
/* Handles a WROTE completion: releases the sent pieces.  Then, in asyncio's order, resumes the
 * protocol, resolves the empty waiter, and calls connection_lost() of a closing stream whose queue
 * is empty.  Does nothing for an ended stream. */
GL_PRIVATE int stream_handle_wrote(gl_stream *s);
/* Resolves the Future that waits for the empty queue; with `exc`, sets this exception: the bytes
 * will never be sent.  Does nothing without a Future, or if it is done. */
GL_PRIVATE int stream_resolve_empty_waiter(gl_stream *s, PyObject *exc);

/* ---- stream_read.c --------------------------------------------------------------- */

/* Delivers n received bytes to the protocol, in as many calls as its buffers need.  `whole`, if not
 * NULL, is a bytes object of exactly these bytes, which data_received() then gets.  Bytes that
 * can't be delivered because of a pause or an exit exception go to the front of paused_data; if a
 * call closes the transport, the remaining bytes are dropped.  -1 with an exception that did not
 * end the transport, such as SystemExit, KeyboardInterrupt, or one of a pipe's protocol. */
GL_PRIVATE int stream_deliver_bytes(gl_stream *s, const char *data, Py_ssize_t n, PyObject *whole);
/* Handles the result n of stream_recv(): reports an error or EOF, and records the size for the next
 * receive.  Returns 1 if there are bytes to deliver; 0 if the kernel had none (EAGAIN), or after an
 * error or EOF. */
GL_PRIVATE int stream_handle_recv_result(gl_stream *s, ssize_t n, int err);
/* transport_ops.prepare_delivery: returns true if paused data or an end waits for delivery.  If the
 * stream has reached EOF, it stores EOF as pending again: a socket at EOF stays readable, asyncio
 * reports EOF again when reading is resumed, and start_tls relies on it. */
GL_PRIVATE bool stream_prepare_delivery(gl_transport *t);
/* transport_ops.deliver_item: delivers an item of paused_data, a bytes object, or with NULL the
 * stored end, which is then no longer stored. */
GL_PRIVATE int stream_deliver_item(gl_transport *t, PyObject *item);
/* Handles a READY completion: receives once, by the path that choose_receive_path() gives, and
 * delivers the bytes.  Does nothing for RECEIVE_NOTHING. */
GL_PRIVATE int stream_handle_readable(gl_stream *s, const gl_completion *c);
/* Handles a DATA completion: delivers the bytes that Go has received, or stores them as paused
 * data.  After a large receive of a socket C requests READY for the next one. */
GL_PRIVATE int stream_handle_data(gl_stream *s, const gl_completion *c);
/* Handles an EOF or READ_ERROR completion: delivers the end, or stores it after paused data.  A
 * closing socket or reading pipe only records it in read_end. */
GL_PRIVATE int stream_handle_read_end(gl_stream *s, const gl_completion *c);

/* ---- stream_reader.c --------------------------------------------------------------- */

/* Receives straight into the buffer of the protocol's StreamReader, which saves a bytes object and
 * a copy.  1 with the result of stream_recv() in *n and *err, and a new reference in *reader; 0 if
 * that is not possible, and nothing was received; -1 with MemoryError, and the received bytes are
 * lost.  Runs no Python. */
GL_PRIVATE int stream_reader_receive(gl_stream *s, PyObject **reader, ssize_t *n, int *err);
/* Does the rest of feed_data() after stream_reader_receive(): wakes the waiter, and pauses the
 * transport if there are too many bytes. */
GL_PRIVATE int stream_reader_received(gl_stream *s, PyObject *reader);

/* ---- stream_failed_send.c --------------------------------------------------------- */

/* Handles a WRITE_ERROR completion with the errno `err`: delivers the bytes that the kernel has
 * received, and reports the error after them.  If the protocol pauses reading, the remaining bytes
 * are dropped, as in asyncio.  Does nothing for a stream that has ended.  -1 with an exception of
 * the protocol. */
GL_PRIVATE int stream_handle_write_error(gl_stream *s, int err);
/* transport_ops.schedule_input_drain: discards the write queue and schedules _drain_input(exc).
 * The stream stays registered if received bytes of this turn are still to be delivered. */
GL_PRIVATE int stream_schedule_input_drain(gl_transport *t, PyObject *exc);
/* _drain_input(exc): delivers the received bytes, and then ends the stream: calls
 * connection_lost(exc) now if the kernel had no more bytes, else schedules it.  Schedules itself
 * again while completions of this turn, or a scheduled delivery, still have bytes of the stream.
 * Does nothing for a lost stream. */
GL_PRIVATE PyObject *stream_drain_input_method(gl_stream *s, PyObject *exc);

/* ---- stream_first_receive.c ------------------------------------------------------- */

/* The second half of transport_ops.start for a connection of a server: makes or schedules the first
 * receive, and adds the time since _before_made() to `accepting`.  A TLS connection has its
 * handshake first, which has a share of its own. */
GL_PRIVATE int stream_start_accepted(gl_stream *s);
/* Schedules _before_made() of an accepted connection, before connection_made(), and counts the
 * entries that start the connection. */
GL_PRIVATE int stream_schedule_before_made(gl_stream *s);
/* _before_made(): notes the total of the ready queue, so that _start() knows whether
 * connection_made() has scheduled callbacks, and the time. */
GL_PRIVATE PyObject *stream_before_made_method(gl_stream *s, PyObject *ignored);
/* _awaits_made(): returns True for an accepted connection before its connection_made(), and before
 * the call for the connections that were accepted with it. */
GL_PRIVATE PyObject *stream_awaits_made_method(gl_stream *s, PyObject *ignored);
/* _receive_first(): the first receive of a connection whose connection_made() has scheduled
 * callbacks.  Does nothing if a turn has come before it, in which Go has received for the
 * stream. */
GL_PRIVATE PyObject *stream_receive_first_method(gl_stream *s, PyObject *ignored);
