/*
 * transports.h: the base of stream and datagram transports.
 *
 *   transport_registration.c   registration with the reactor
 *   transport.c                construction, closing, connection_lost, finalizer
 *   transport_type.c           the methods and attributes that both types have; paused data
 *
 * The life of a transport is one number, gl_phase:
 *
 *   GL_EMPTY ---> GL_STARTING ---> GL_OPEN ---> GL_CLOSING ---> GL_ENDING ---> GL_LOST
 *                   |    |            |           ^ |             ^   ^
 *                   |    |            |  close(), | | queue sent  |   |
 *                   |    |            +-----------+-+-------------+   |
 *                   |    |            queue not     queue empty, abort(), error
 *                   |    |            empty
 *                   |    +--- close() or abort() before _start ran: as from GL_OPEN
 *                   +-------- construction failed: GL_LOST at once
 *
 *   GL_EMPTY     made by __new__ alone: every method does nothing, as with GL_LOST
 *   GL_STARTING  connection_made and _start are scheduled; nothing is received before
 *   GL_OPEN
 *   GL_CLOSING   no more bytes are received or accepted for sending; the queue is being sent,
 *                and a stream stays registered for that
 *   GL_ENDING    connection_lost is scheduled or runs; nothing more is sent
 *   GL_LOST      connection_lost was called, the descriptor is closed, the references to the
 *                loop and the protocol are released
 *
 * A phase never goes back, except from GL_CLOSING when close() itself fails.  `loop` is set
 * exactly in the phases between GL_EMPTY and GL_LOST; `protocol` may be NULL earlier.
 *
 * `registered` is independent of the phase: the reactor knows the descriptor as (id, gen), and
 * the registry holds a reference to the transport.  A transport is unregistered when it enters
 * GL_ENDING; from then on none of its completions is live.
 *
 * `drains_input` is independent too: a send has failed within a call of the program, while the
 * stream was being read.  asyncio drops the bytes that the kernel has received by then.  goloop
 * delivers these bytes to the protocol before connection_lost (stream_failed_send.c), and a stream
 * with undelivered completions stays registered until then.  A later close() or abort() drops the
 * bytes.
 *
 * All functions here run with the GIL.  Like asyncio's transports they are not thread-safe; a call
 * from another thread may come at a wrong time, but corrupts no memory (threads/shared_lock.c).
 */
#pragma once

#include "watch/watch.h"

/* Forced polls after a close or shutdown.  A peer in the same loop needs up to two receives to
 * read the last bytes, and one more for EOF. */
#define FORCED_POLLS_AFTER_CLOSE 3

/* The order of the values makes each predicate below one comparison. */
enum gl_phase { GL_STARTING, GL_OPEN, GL_CLOSING, GL_ENDING, GL_LOST, GL_EMPTY };

typedef struct gl_transport gl_transport;

/* The functions in which the kinds of transports differ.  An int result is 0.  A comment says which
 * functions run Python. */
typedef struct transport_ops {
    enum gl_reg_kind kind; /* the kind of the registration */
    /* The fd number may belong to another transport or a watch too: this transport then uses a
     * duplicate. */
    bool shares_number;
    /* Registers fd with Go, and sets id and gen.  Returns 0 or -errno. */
    int32_t (*register_fd)(gl_transport *t, int fd);
    /* Sends a changed interest to Go; a datagram transport is registered first if necessary.  Runs
     * in the loop's own thread. */
    int (*update_interest)(gl_transport *t);
    /* Starts receiving, after connection_made.  -1: an exception that _start raises. */
    int (*start)(gl_transport *t);
    /* For close(), in GL_CLOSING: sends the queue or ends the transport. */
    int (*close)(gl_transport *t);
    /* For abort(): sends the bytes that asyncio would have passed to the kernel already.  Returns
     * the exception of a failed send (a new reference; none is set), or NULL.  The member may be
     * NULL. */
    PyObject *(*flush_before_abort)(gl_transport *t);
    /* Discards the write queue.  May run Python. */
    void (*discard_queue)(gl_transport *t);
    /* Notifies other objects (server, waiter) after connection_lost; may be NULL.  Runs Python. */
    int (*after_connection_lost)(gl_transport *t);
    /* Notifies other objects after the finalizer; may be NULL.  Runs Python. */
    int (*after_finalize)(gl_transport *t);
    /* For the deallocation: frees the memory that no Python object owns. */
    void (*free_memory)(gl_transport *t);
    /* For resume_reading(): returns true if paused data, or an end, has to be delivered before
     * receiving goes on.  A stream that has reached EOF stores the end again. */
    bool (*prepare_delivery)(gl_transport *t);
    /* Schedules the delivery of the last received bytes, and connection_lost(exc) after it.  Called
     * if drains_input is set; otherwise only connection_lost is scheduled. */
    int (*schedule_input_drain)(gl_transport *t, PyObject *exc);
    /* Delivers one item of paused_data to the protocol, or with NULL the stored end of the stream
     * (paused_end).  Runs Python. */
    int (*deliver_item)(gl_transport *t, PyObject *item);
    /* Begins the transport's share of this turn, or returns true if the share is used up: the
     * remaining paused data has to wait for the next turn.  May be NULL. */
    bool (*begin_or_check_share)(gl_transport *t);
    /* Adapts the transport to the protocol of a set_protocol() call, before it is set; may be NULL.
     * May run Python. */
    int (*protocol_changed)(gl_transport *t, PyObject *protocol);
    /* Returns true if the transport receives; for repr. */
    bool (*is_receiving)(gl_transport *t);
} transport_ops;

/* The first fields of gl_stream and gl_datagram.  They begin with the slots of
 * asyncio.transports.BaseTransport and _FlowControlMixin, in asyncio's order; transport_type.c
 * checks the offsets.  slot_loop and slot_protocol_paused stay NULL where an attribute of the type
 * itself hides asyncio's slot.
 *
 * extra          dict; NULL: empty, created on first access
 * high_water     the marks as get_write_buffer_limits() returns them, like low_water
 * loop           NULL in GL_EMPTY and GL_LOST
 * context        the context in which the protocol's callbacks run
 * paused_data    list of received items that wait for delivery: reading is paused, or a datagram
 *                transport has used up its share of the turn; NULL: none
 * end_error      owned: in the loop's list of unscheduled ends, the argument of connection_lost();
 *                else NULL
 * next_end       owned: the next transport in that list
 * lease          the descriptor; empty after it was closed
 * fd_in_repr     the fd number for repr, kept after closing; -1: GL_EMPTY
 * id, gen        the registration, valid while registered
 * ops            the functions of this kind of transport
 * conn_lost      asyncio's _conn_lost: > 0 from GL_ENDING on; counts late writes
 * phase          a gl_phase
 * paused_end     GL_CMP_EOF or GL_CMP_READ_ERROR that is delivered after paused_data; 0: none
 * registered     the reactor knows the descriptor
 * paused         pause_reading() was called
 * warned_unclosed     the finalizer has given its ResourceWarning
 * delivery_scheduled  _deliver_paused_data() is scheduled or runs
 * drains_input   GL_ENDING: the last received bytes still go to the protocol */
#define TRANSPORT_FIELDS                                                                           \
    PyObject_HEAD                                                                                  \
    PyObject *extra;                                                                               \
    PyObject *high_water;                                                                          \
    PyObject *slot_loop;                                                                           \
    PyObject *low_water;                                                                           \
    PyObject *slot_protocol_paused;                                                                \
                                                                                                   \
    PyObject *dict;                                                                                \
    PyObject *weakrefs;                                                                            \
    gl_loop *loop;                                                                                 \
    PyObject *protocol;                                                                            \
    PyObject *context;                                                                             \
    PyObject *paused_data;                                                                         \
    PyObject *end_error;                                                                           \
    gl_transport *next_end;                                                                        \
    gl_lease lease;                                                                                \
    const transport_ops *ops;                                                                      \
                                                                                                   \
    int fd_in_repr;                                                                                \
    uint32_t id, gen;                                                                              \
    uint32_t conn_lost;                                                                            \
    uint8_t phase;                                                                                 \
    uint8_t paused_end;                                                                            \
    bool registered;                                                                               \
    bool paused;                                                                                   \
    bool warned_unclosed;                                                                          \
    bool delivery_scheduled;                                                                       \
    bool drains_input;                                                                             \
    GL_OWNER_LOOP

struct gl_transport {
    TRANSPORT_FIELDS
};

/* The fields of the base, accessible by name and as one struct. */
#define TRANSPORT_HEAD                                                                             \
    union {                                                                                        \
        struct {                                                                                   \
            TRANSPORT_FIELDS                                                                       \
        };                                                                                         \
        gl_transport base;                                                                         \
    };

/* asyncio's default high-water mark. */
#define HIGH_WATER (64 * 1024)

/* ---- the phase ------------------------------------------------------------------------- */

/* close() or abort() was called, or the connection is lost: asyncio's is_closing(). */
#define is_closing(t) ((t)->phase >= GL_CLOSING)
/* Nothing can be sent any more. */
#define is_ending(t) ((t)->phase >= GL_ENDING)
/* The transport has no loop: it is not constructed yet, or connection_lost was called. */
#define is_lost(t) ((t)->phase >= GL_LOST)
/* Received bytes are dropped. */
#define discards_received(t) (is_closing(t) && !(t)->drains_input)
/* close() was called, and the queue is still being sent. */
#define is_flushing(t) ((t)->phase == GL_CLOSING)

/* ---- transport_registration.c ----------------------------------------------------------- */

/* Registers the descriptor with the reactor (a pipe's duplicate if the number is in use), and sends
 * the interest.  Ends a watch of the number, also if the registration fails.  Runs Python.  -1 with
 * RuntimeError if the loop can't be used, OSError (EBADF: the owner has closed the descriptor) or
 * of the interest; in the last case the transport is registered all the same. */
GL_PRIVATE int gl_transport_register(gl_transport *t);
/* Deregisters from the reactor (unless the loop is closed or foreign) and the registry, and
 * discards the write queue.  Drops the registry's reference; the caller has a reference of its own.
 * May run Python. */
GL_PRIVATE void gl_transport_unregister(gl_transport *t);
/* Calls transport_ops.update_interest, which sends a changed interest to the reactor; a datagram
 * transport may be registered by it.  Does nothing from GL_ENDING on. */
GL_PRIVATE int gl_transport_update_interest(gl_transport *t);
/* Returns true if another transport or a watch of the loop uses the fd number.  The poller accepts
 * each number once. */
GL_PRIVATE bool transport_number_is_used(gl_transport *t, gl_loop *loop, int fd);
/* gl_reg_ops.unregister_on_loop_close: deregisters in Go for Loop.close().  The registry's entry
 * stays.  The queue is kept, because asyncio's transports would still report its size.  The
 * transport sends nothing any more, so it no longer delays the close() of its socket, which runs
 * Python if it was called already. */
GL_PRIVATE void gl_transport_unregister_on_loop_close(PyObject *owner);
/* gl_reg_ops.blocks_number: true while the transport is open and its descriptor valid. */
GL_PRIVATE bool gl_transport_blocks_number(PyObject *transport);

/* ---- transport.c ----------------------------------------------------------------------- */

/* The arguments that all constructors have, and the objects that are made of these arguments. */
typedef struct {
    PyObject *loop; /* borrowed, like all above `extra` */
    PyObject *file; /* the object that has the descriptor */
    PyObject *protocol;
    PyObject *waiter;        /* a future, or None */
    PyObject *given_extra;   /* None: an empty dict */
    PyObject *given_context; /* None: a copy of the current context */
    PyObject *extra;         /* owned */
    PyObject *context;       /* owned */
    gl_lease lease;
} transport_arguments;

/* The default arguments. */
#define TRANSPORT_ARGUMENTS                                                                        \
    {.waiter = Py_None, .given_extra = Py_None, .given_context = Py_None, .lease = GL_NO_LEASE}

/* Allocates a transport in GL_EMPTY with asyncio's default write limits; a new reference, or NULL
 * with MemoryError. */
GL_PRIVATE gl_transport *gl_transport_alloc(PyTypeObject *type, const transport_ops *ops);
/* Acquires a lease of the descriptor and moves the arguments into the transport: GL_STARTING.  On
 * failure the transport is unchanged.  The caller then calls gl_transport_arguments_clear(), after
 * a success too. */
GL_PRIVATE int gl_transport_construct(gl_transport *t, transport_arguments *a);
/* Moves the lease and the converted arguments into the transport: GL_STARTING.  Makes the transport
 * the user of the fd number, unless it shares the number with another user.  The last step of
 * construction.  -1 with MemoryError or OSError, and the transport and the arguments are
 * unchanged. */
GL_PRIVATE int gl_transport_attach_fd(gl_transport *t, transport_arguments *a);
/* Releases the arguments that gl_transport_attach_fd() has not moved.  Closes no descriptor. */
GL_PRIVATE void gl_transport_arguments_clear(transport_arguments *a);
/* Calls `method` of `object`, without arguments, in a copy of the transport's context, or of the
 * current one if the transport has none.  The caller of write() may have entered the transport's
 * context, and a context can't be entered twice. */
GL_PRIVATE int gl_transport_call_in_context_copy(gl_transport *t, PyObject *object,
                                                 PyObject *method);
/* Schedules connection_made and _start(waiter).  `waiter` is a Future, or None.  Does nothing for a
 * lost transport. */
GL_PRIVATE int gl_transport_schedule_connection_made(gl_transport *t, PyObject *waiter);
/* Sets GL_LOST after a failed construction and keeps the exception.  Returns -1.  A lease with an
 * owner is released, and the owner keeps the descriptor.  A lease without an owner stays in the
 * transport, and the caller has to close it. */
GL_PRIVATE int gl_transport_fail_construction(gl_transport *t);

/* Schedules a call of the transport's method `name`, with `arg` unless it is NULL.  Does nothing
 * for a transport without a loop. */
GL_PRIVATE int gl_transport_call_soon(gl_transport *t, PyObject *name, PyObject *arg);
/* Returns 0 if the transport's loop can be used, or if it has none; else -1 with RuntimeError: the
 * loop is closed or belongs to another process. */
GL_PRIVATE int gl_transport_check_usable(gl_transport *t);
/* close(): sets GL_CLOSING and ends the transport when its queue is sent; received bytes are
 * dropped.  A transport that is closing already only stops delivering input.  On failure the phase
 * is restored.  -1 with RuntimeError if the loop is foreign, or with another exception. */
GL_PRIVATE int transport_close(gl_transport *t);
/* Ends the transport: sets GL_ENDING, counts it in _conn_lost, discards the write queue and
 * schedules connection_lost(exc), where `exc` may be None.  Nothing is sent from now on, and
 * nothing is received unless drains_input is set. */
GL_PRIVATE int gl_transport_schedule_connection_lost(gl_transport *t, PyObject *exc);
/* _force_close(exc), and abort() with None: ends the transport at once; the only call of Python is
 * connection_lost() in a later iteration.  Needs no memory.  The bytes that asyncio would have sent
 * already are sent first; an error of that send replaces `exc`, unless that is an error of a system
 * call too.  A transport that is ending already only stops delivering input.  -1 with RuntimeError
 * if the loop is foreign, or with another exception. */
GL_PRIVATE int gl_transport_force_close(gl_transport *t, PyObject *exc);
/* Ends a transport with `exc`, without a report, unless it is ending or its loop is foreign.  Keeps
 * the current exception. */
GL_PRIVATE void gl_transport_end(gl_transport *t, PyObject *exc);
/* If the current exception is a MemoryError, ends the transport with it: received bytes or a step
 * may be lost.  Keeps the exception. */
GL_PRIVATE void gl_transport_end_without_memory(gl_transport *t);
/* _call_connection_lost(exc): calls connection_lost, deregisters, closes the descriptor, sets
 * GL_LOST and calls after_connection_lost.  Each step runs even if an earlier one has failed.  Does
 * nothing for a lost transport.  -1 with the last exception; RuntimeError if the loop is
 * foreign. */
GL_PRIVATE int gl_transport_connection_lost(gl_transport *t, PyObject *exc);
/* _start(waiter): sets GL_OPEN, records the connection in a trace, starts receiving, and resolves
 * the future that waits for the transport, unless that is None.  Runs after connection_made, in the
 * same iteration.  A transport that was closed meanwhile keeps its phase; its waiter is resolved
 * too. */
GL_PRIVATE PyObject *gl_transport_start_method(gl_transport *t, PyObject *waiter);

/* ---- transport.c: paused data ------------------------------------------------------------ */

/* Adds an item to paused_data: at the front (the remainder of a delivery) or at the back.  Steals
 * the reference, which may be NULL with an exception set. */
GL_PRIVATE int gl_transport_keep_paused_data(gl_transport *t, PyObject *item, bool front);
/* Drops the received items that wait for delivery, and the end of the stream or the read error that
 * waits after them (paused_end). */
GL_PRIVATE void gl_transport_discard_paused_data(gl_transport *t);

/* ---- transport_failure.c ---------------------------------------------------------------- */

/* Calls the method _fatal_error(exc, message), which reports the exception and ends the transport.
 * If the method fails, C ends the transport.  Does nothing for a lost transport.  -1 with an
 * exception of that call. */
GL_PRIVATE int gl_transport_fatal_error(gl_transport *t, PyObject *exc, const char *message);
/* Ends the transport with the current exception, by _fatal_error().  Returns 0 with the exception
 * cleared; -1 with SystemExit or KeyboardInterrupt still set, or with an exception of
 * _fatal_error(). */
GL_PRIVATE int gl_transport_fatal_current(gl_transport *t, const char *message);

/* ---- transport_schedule.c --------------------------------------------------------------- */

/* Schedules connection_lost(exc) of an ending transport.  Without memory the loop's next iteration
 * schedules it.  -1 with an exception other than MemoryError. */
GL_PRIVATE int gl_transport_schedule_lost(gl_transport *t, PyObject *exc);
/* Schedules connection_lost() of the transports in the loop's list.  Those for which there is still
 * no memory are in the list again afterwards. */
GL_PRIVATE void gl_transports_retry_unscheduled_ends(gl_loop *loop);
/* Drops the loop's list, when the loop is closed: connection_lost() is not called, as for scheduled
 * calls.  Runs Python. */
GL_PRIVATE void gl_transports_drop_unscheduled_ends(gl_loop *loop);

/* ---- transport_type.c: paused data ------------------------------------------------------- */

/* Delivers paused_data and then the stored end, until the protocol pauses or closes the transport,
 * or the share of the turn is used up.  Runs Python.  -1 with an exception of the protocol. */
GL_PRIVATE int gl_transport_deliver_paused_data(gl_transport *t);
/* Schedules _deliver_paused_data(), once. */
GL_PRIVATE int gl_transport_schedule_delivery(gl_transport *t);

/* tp_dealloc of all transports.  Calls the finalizer, which may resurrect the transport.  Closes a
 * descriptor without an owner if the finalizer has not, and frees all memory. */
GL_PRIVATE void gl_transport_dealloc(PyObject *self);
/* __del__: deregisters a transport that was not closed and closes its descriptor, with a
 * ResourceWarning.  The transport never started, or its loop was closed or is garbage too, or the
 * program has dropped a transport that the reactor can't call (gl_reg_is_dormant).  Exceptions go
 * to sys.unraisablehook. */
GL_PRIVATE void gl_transport_finalize(PyObject *self);
/* tp_traverse of the fields of the base.  The registry's reference to a dormant transport counts as
 * a reference of the transport to itself. */
GL_PRIVATE int gl_transport_traverse(gl_transport *t, visitproc visit, void *arg);
/* tp_clear of the fields of the base.  Deregisters a transport that has a loop, and releases its
 * lease without closing the descriptor.  A constructed transport is then GL_LOST. */
GL_PRIVATE void gl_transport_clear(gl_transport *t);

/* ---- transport_type.c ------------------------------------------------------------------- */

/* Sets the TypeError for data to be sent that is not bytes-like, in asyncio's words. */
GL_PRIVATE void gl_transport_set_data_error(PyObject *transport, PyObject *data);
/* asyncio's warning of writes to a socket after the loss of its connection. */
#define LATE_WRITE_WARNING "socket.send() raised exception."
/* Adds a write after the loss of the connection to *count.  If *count was at least asyncio's limit
 * (5), logs the message `warning` first.  On failure *count is unchanged. */
GL_PRIVATE int gl_count_late_write(uint32_t *count, const char *warning);
/* Makes a type with the methods of all transports and with max_size.  Its bases are the classes
 * `base` and, unless NULL, `second` of asyncio.transports, whose slots must lie where
 * TRANSPORT_FIELDS has them: else NULL with ImportError.  The module keeps a reference; the result
 * is another one. */
GL_PRIVATE PyTypeObject *gl_transport_make_type(PyObject *module, PyType_Spec *spec,
                                                const char *base, const char *second,
                                                long max_size);

/* `_fd` is -1 after the descriptor was closed; `_sock_fd` keeps the number, for repr. */
#define TRANSPORT_MEMBERS                                                                          \
    {"__dictoffset__", T_PYSSIZET, offsetof(gl_transport, dict), READONLY, NULL},                  \
        {"__weaklistoffset__", T_PYSSIZET, offsetof(gl_transport, weakrefs), READONLY, NULL},      \
        {"_fd", T_INT, offsetof(gl_transport, lease.fd), READONLY, NULL},                          \
        {"_sock_fd", T_INT, offsetof(gl_transport, fd_in_repr), READONLY, NULL},                   \
        {"_paused", T_BOOL, offsetof(gl_transport, paused), READONLY, NULL},                       \
        {"_context", T_OBJECT, offsetof(gl_transport, context), READONLY, NULL},                   \
        {"_loop", T_OBJECT, offsetof(gl_transport, loop), READONLY, NULL},                         \
        {"_owner", T_OBJECT, offsetof(gl_transport, lease.owner), READONLY, NULL},                 \
    {                                                                                              \
        "_protocol", T_OBJECT, offsetof(gl_transport, protocol), READONLY, NULL                    \
    }
