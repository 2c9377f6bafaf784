/*
 * transports.h: the base of stream and datagram transports: what both have, once.
 *
 *   transport.c         construction, closing, loss, finalizer; the reactor's registration
 *   transport_type.c    the methods and attributes that both types have; pausing
 *
 * The life of a transport is one number, gl_phase:
 *
 *   GL_EMPTY ---> GL_STARTING ---> GL_OPEN ---> GL_CLOSING ---> GL_ENDING ---> GL_LOST
 *                   |    |            |           ^ |             ^   ^
 *                   |    |            |  close(), | | queue sent  |   |
 *                   |    |            +-----------+-+-------------+   |
 *                   |    |               queue left   no queue, abort(), error
 *                   |    +--- the same: close() or abort() before _start ran
 *                   +-------- construction failed: GL_LOST at once
 *
 *   GL_EMPTY     made by __new__ alone: every method does nothing, as with GL_LOST
 *   GL_STARTING  connection_made and _start are scheduled; nothing is received before
 *   GL_OPEN
 *   GL_CLOSING   no more is received or taken; what is queued is being sent, and a stream
 *                stays registered for that
 *   GL_ENDING    connection_lost is scheduled or runs; nothing is sent any more
 *   GL_LOST      connection_lost was called, the descriptor is closed, loop and protocol
 *                are gone
 *
 * A phase never goes back, but from GL_CLOSING where close() itself fails.  `loop` is set
 * exactly in the phases between GL_EMPTY and GL_LOST; `protocol` may be gone before.
 *
 * "registered" is a fact of its own: the reactor knows the descriptor as (id, gen), and the
 * registry holds a reference to the transport.  A transport leaves the reactor when it
 * comes to GL_ENDING; from then on no completion of it is live.
 *
 * "rest" is another: a send has failed within a call of the program's, while the stream was
 * being read.  asyncio drops what the kernel still has; here it goes to the protocol before
 * connection_lost (stream_read.c), and a stream of which completions wait stays registered for
 * them.  A later close() or abort() ends that.
 *
 * Everything here runs with the GIL.  asyncio's transports are not thread-safe, and neither
 * are these; still, a call from another thread breaks nothing (threads/shared_lock.c).
 */
#pragma once

#include "watch/watch.h"

/* What was closed or shut down is heard of by its peer: bytes in two receives, and the end. */
#define POLLS_AFTER_END 3

/* In an order that makes each question below one comparison. */
enum gl_phase { GL_STARTING, GL_OPEN, GL_CLOSING, GL_ENDING, GL_LOST, GL_EMPTY };

typedef struct gl_transport gl_transport;

/* Where the kinds differ.  What runs Python says so. */
typedef struct transport_ops {
    enum gl_reg_kind kind;
    /* Another transport or a watch may have the number: then this one uses a duplicate. */
    bool shares_number;
    /* Asks Go for the registration of fd, and sets id and gen: 0 or -errno. */
    int32_t (*enter)(gl_transport *t, int fd);
    /* In the loop's own thread: tells Go what it has not been told; registers if need be. */
    int (*tell)(gl_transport *t);
    /* Behind connection_made, the first time that receiving may begin.  -1: an exception
     * that _start raises. */
    int (*start)(gl_transport *t);
    /* close() in GL_CLOSING: what becomes of the queue. */
    int (*close)(gl_transport *t);
    /* abort(): sends what asyncio would have handed to the kernel by now, and returns the
     * exception that this met, or NULL; or NULL. */
    PyObject *(*send_rest)(gl_transport *t);
    /* Lets go of the queue.  May run Python. */
    void (*drop)(gl_transport *t);
    /* What else must hear of the loss, behind connection_lost; or NULL.  Runs Python. */
    int (*lost)(gl_transport *t);
    /* The same behind the finalizer; or NULL.  Runs Python. */
    int (*finalized)(gl_transport *t);
    /* Gives back memory that no Python object has. */
    void (*freed)(gl_transport *t);
    /* resume_reading: whether something is to be delivered before receiving goes on. */
    bool (*holds)(gl_transport *t);
    /* Schedules what gives the rest to the protocol, and connection_lost(exc) behind it. */
    int (*tell_rest)(gl_transport *t, PyObject *exc);
    /* Gives a held item to the protocol, or with NULL the end behind them.  Runs Python. */
    int (*deliver)(gl_transport *t, PyObject *item);
    /* Whether the rest of what is held waits for the next turn; or NULL. */
    bool (*spent)(gl_transport *t);
    /* Another protocol comes; or NULL.  May run Python. */
    int (*changes)(gl_transport *t, PyObject *protocol);
    /* For repr: whether it receives. */
    bool (*reading)(gl_transport *t);
} transport_ops;

/* The head of both.  First are the slots of asyncio.transports.BaseTransport and
 * _FlowControlMixin, in their order; transport_type.c checks the offsets.  slot_loop and
 * slot_protocol_paused stay NULL where the type's own attributes stand before them. */
#define TRANSPORT_FIELDS                                                                           \
    PyObject_HEAD                                                                                  \
    PyObject *extra;      /* dict; NULL: empty, and made when asked for */                         \
    PyObject *high_water; /* as get_write_buffer_limits gives them */                              \
    PyObject *slot_loop;                                                                           \
    PyObject *low_water;                                                                           \
    PyObject *slot_protocol_paused;                                                                \
                                                                                                   \
    PyObject *dict;                                                                                \
    PyObject *weakrefs;                                                                            \
    gl_loop *loop; /* NULL in GL_EMPTY and GL_LOST */                                              \
    PyObject *protocol;                                                                            \
    PyObject *context; /* what the protocol's callbacks run in */                                  \
    PyObject *held;    /* list of what was received while paused; NULL: nothing */                 \
    gl_lease lease;    /* the descriptor; empty once it is closed */                               \
    const transport_ops *ops;                                                                      \
                                                                                                   \
    int fd_shown;       /* the number for repr, kept after closing; -1: GL_EMPTY */                \
    uint32_t id, gen;   /* valid while registered */                                               \
    uint32_t conn_lost; /* asyncio's _conn_lost: > 0 from GL_ENDING on; counts */                  \
                        /* the writes that came too late */                                        \
    uint8_t phase;      /* gl_phase */                                                             \
    uint8_t held_end;   /* GL_CMP_EOF or GL_CMP_READ_ERROR that waits behind held */               \
    bool registered;    /* the reactor knows it */                                                 \
    bool paused;        /* by pause_reading */                                                     \
    bool warned;        /* the finalizer has given its warning */                                  \
    bool delivering;    /* _deliver_held runs or is scheduled */                                   \
    bool rest;          /* in GL_ENDING: the protocol still gets what has come */                  \
    GL_OWNER_LOOP

struct gl_transport {
    TRANSPORT_FIELDS
};

/* Its fields by their names, and as one object. */
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

/* close() or abort() was called, or it is over: asyncio's is_closing(). */
#define is_closing(t) ((t)->phase >= GL_CLOSING)
/* Nothing can be sent any more. */
#define is_ending(t) ((t)->phase >= GL_ENDING)
/* There is no loop any more, or not yet. */
#define is_lost(t) ((t)->phase >= GL_LOST)
/* What is received is dropped. */
#define is_deaf(t) (is_closing(t) && !(t)->rest)
/* Only the queue is left to be sent. */
#define is_flushing(t) ((t)->phase == GL_CLOSING)

/* ---- transport.c ----------------------------------------------------------------------- */

/* What all constructors are given, and what is made of it. */
typedef struct {
    PyObject *loop, *file, *protocol, *waiter; /* borrowed; `file` has the descriptor */
    PyObject *given_extra;                     /* borrowed; None: an empty dict */
    PyObject *given_context;                   /* borrowed; None: a copy of the current one */
    PyObject *extra, *context;                 /* owned */
    gl_lease lease;
} transport_arguments;

#define TRANSPORT_ARGUMENTS                                                                        \
    {.waiter = Py_None, .given_extra = Py_None, .given_context = Py_None, .lease = GL_NO_LEASE}

/* The empty state. */
GL_PRIVATE gl_transport *gl_transport_alloc(PyTypeObject *type, const transport_ops *ops);
/* Takes a lease of the descriptor, and the arguments over: GL_STARTING.  -1 with an exception,
 * and the transport is as it was. */
GL_PRIVATE int gl_transport_construct(gl_transport *t, transport_arguments *a);
/* Its last step, which runs no Python.  -1 where there is no memory. */
GL_PRIVATE int gl_transport_attach_fd(gl_transport *t, transport_arguments *a);
/* Lets go of what gl_transport_attach_fd has not taken over. */
GL_PRIVATE void gl_transport_arguments_clear(transport_arguments *a);
/* Calls a method of an object in a copy of the transport's context: a writer may be in that very
 * context, which can't be entered twice. */
GL_PRIVATE int gl_transport_call_apart(gl_transport *t, PyObject *object, PyObject *method);
/* Schedules connection_made and _start. */
GL_PRIVATE int gl_transport_schedule_connection_made(gl_transport *t, PyObject *waiter);
/* Construction failed, with an exception, which stays: GL_LOST, and the descriptor stays its
 * owner's, or the caller's.  Returns -1. */
GL_PRIVATE int gl_transport_abandon(gl_transport *t);

/* Schedules the method `name`, without or with one argument. */
GL_PRIVATE int gl_transport_call_soon(gl_transport *t, PyObject *name, PyObject *arg);
/* RuntimeError where the loop is closed or of another process. */
GL_PRIVATE int gl_transport_check_usable(gl_transport *t);
/* Registers with the reactor. */
GL_PRIVATE int gl_transport_open(gl_transport *t);
/* Leaves the reactor and lets go of the queue, unless Go is at work on it for another
 * thread's call: then gl_transport_lost does both.  Keep a reference. */
GL_PRIVATE void gl_transport_unregister(gl_transport *t);
/* Tells the reactor what it has not been told; put off where another thread calls during a
 * turn. */
GL_PRIVATE int gl_transport_sync(gl_transport *t);
/* gl_reg_ops */
GL_PRIVATE void gl_transport_unregister_on_loop_close(PyObject *owner);
GL_PRIVATE bool gl_transport_blocks_number(PyObject *transport);

GL_PRIVATE int transport_close(gl_transport *t);
/* connection_lost(exc) is scheduled, and nothing is sent until then, or received but for the
 * rest. */
GL_PRIVATE int gl_transport_end(gl_transport *t, PyObject *exc);
/* asyncio's methods of these names. */
GL_PRIVATE int gl_transport_force_close(gl_transport *t, PyObject *exc);
GL_PRIVATE int gl_transport_fatal_error(gl_transport *t, PyObject *exc, const char *message);
/* The same with the exception that is set; -1, and it stays set, for SystemExit and
 * KeyboardInterrupt. */
GL_PRIVATE int gl_transport_fatal_current(gl_transport *t, const char *message);
GL_PRIVATE int gl_transport_lost(gl_transport *t, PyObject *exc);
/* _start(waiter) */
GL_PRIVATE PyObject *gl_transport_start_method(gl_transport *t, PyObject *waiter);

/* Keeps an item at the front (what is left of a delivery) or at the back; takes over the
 * reference, which may be NULL with an exception set. */
GL_PRIVATE int gl_transport_hold(gl_transport *t, PyObject *item, bool front);
GL_PRIVATE void gl_transport_drop_held(gl_transport *t);
/* Delivers what is held, until the protocol pauses.  Runs Python. */
GL_PRIVATE int gl_transport_deliver_held(gl_transport *t);
GL_PRIVATE int gl_transport_schedule_delivery(gl_transport *t);

/* What types need.  The type's own functions call the last two first. */
GL_PRIVATE void gl_transport_dealloc(PyObject *self);
GL_PRIVATE void gl_transport_finalize(PyObject *self);
GL_PRIVATE int gl_transport_traverse(gl_transport *t, visitproc visit, void *arg);
GL_PRIVATE void gl_transport_clear(gl_transport *t);

/* ---- transport_type.c ------------------------------------------------------------------- */

/* Sets the TypeError for data to be sent that is not bytes-like, in asyncio's words. */
GL_PRIVATE void gl_transport_refuse_data(PyObject *transport, PyObject *data);
/* asyncio's warning of writes to a socket whose connection is lost. */
#define LATE_SEND "socket.send() raised exception."
/* Counts a write that comes too late; asyncio warns from the fifth on. */
GL_PRIVATE int gl_late_write(uint32_t *count, const char *warning);
/* A type with asyncio's bases by their names in asyncio.transports, whose slots must lie
 * where TRANSPORT_FIELDS has them, with what all transports have, and with max_size; kept by the
 * module. */
GL_PRIVATE PyTypeObject *gl_transport_make_type(PyObject *module, PyType_Spec *spec,
                                                const char *base, const char *second,
                                                long max_size);

/* `_number` is -1 once the descriptor is closed. */
#define TRANSPORT_MEMBERS                                                                          \
    {"__dictoffset__", T_PYSSIZET, offsetof(gl_transport, dict), READONLY, NULL},                  \
        {"__weaklistoffset__", T_PYSSIZET, offsetof(gl_transport, weakrefs), READONLY, NULL},      \
        {"_number", T_INT, offsetof(gl_transport, lease.number), READONLY, NULL},                  \
        {"_sock_fd", T_INT, offsetof(gl_transport, fd_shown), READONLY, NULL},                     \
        {"_paused", T_BOOL, offsetof(gl_transport, paused), READONLY, NULL},                       \
        {"_context", T_OBJECT, offsetof(gl_transport, context), READONLY, NULL},                   \
        {"_loop", T_OBJECT, offsetof(gl_transport, loop), READONLY, NULL},                         \
        {"_owner", T_OBJECT, offsetof(gl_transport, lease.owner), READONLY, NULL},                 \
    {                                                                                              \
        "_protocol", T_OBJECT, offsetof(gl_transport, protocol), READONLY, NULL                    \
    }
