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
 * Everything here runs with the GIL.  asyncio's transports are not thread-safe, and neither
 * are these; still, a call from another thread breaks nothing (state/hold.c).
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
    /* Asks Go to forget it. */
    void (*leave)(gl_transport *t);
    /* In the loop's own thread: tells Go what it has not been told; registers if need be. */
    int (*tell)(gl_transport *t);
    /* Behind connection_made, the first time that receiving may begin.  -1: an exception
     * that _start raises. */
    int (*start)(gl_transport *t);
    /* close() in GL_CLOSING: what becomes of the queue. */
    int (*close)(gl_transport *t);
    /* abort(): sends what asyncio would have handed to the kernel by now; or NULL. */
    void (*send_rest)(gl_transport *t);
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
    /* Gives a held item to the protocol, or with NULL the end behind them.  Runs Python. */
    int (*deliver)(gl_transport *t, PyObject *item);
    /* Whether the rest of what is held waits for the next turn; or NULL. */
    bool (*spent)(gl_transport *t);
    /* For repr: whether it receives. */
    bool (*reading)(gl_transport *t);
} transport_ops;

/* The head of both.  First are the slots of asyncio.transports.BaseTransport and
 * _FlowControlMixin, in their order; transport_type.c checks the offsets.  slot_loop and
 * slot_protocol_paused stay NULL where the type's own attributes stand before them. */
#define TRANSPORT_FIELDS                                                                      \
    PyObject_HEAD                                                                             \
    PyObject *extra;              /* dict; NULL: empty, and made when asked for */             \
    PyObject *high_water;         /* as get_write_buffer_limits gives them */                 \
    PyObject *slot_loop;                                                                      \
    PyObject *low_water;                                                                      \
    PyObject *slot_protocol_paused;                                                           \
                                                                                              \
    PyObject *dict;                                                                           \
    PyObject *weakrefs;                                                                       \
    gl_loop *loop;                /* NULL in GL_EMPTY and GL_LOST */                          \
    PyObject *protocol;                                                                       \
    PyObject *context;            /* what the protocol's callbacks run in */                  \
    PyObject *held;               /* list of what was received while paused; NULL: nothing */ \
    gl_lease lease;               /* the descriptor; empty once it is closed */               \
    const transport_ops *ops;                                                                 \
                                                                                              \
    int fd_shown;                 /* the number for repr, kept after closing; -1: GL_EMPTY */ \
    uint32_t id, gen;             /* valid while registered */                                \
    uint32_t conn_lost;           /* asyncio's _conn_lost: > 0 from GL_ENDING on; counts */   \
                                  /* the writes that came too late */                         \
    uint8_t phase;                /* gl_phase */                                              \
    uint8_t held_end;             /* GL_CMP_EOF or GL_CMP_READ_ERROR that waits behind held */ \
    bool registered;              /* the reactor knows it */                                  \
    bool paused;                  /* by pause_reading */                                      \
    bool warned;                  /* the finalizer has given its warning */                   \
    bool delivering;              /* _deliver_held runs or is scheduled */                    \
    GL_HOME

struct gl_transport {
    TRANSPORT_FIELDS
};

/* Its fields by their names, and as one object. */
#define TRANSPORT_HEAD                                                                        \
    union {                                                                                   \
        struct {                                                                              \
            TRANSPORT_FIELDS                                                                  \
        };                                                                                    \
        gl_transport base;                                                                    \
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
/* Only the queue is left to be sent. */
#define is_flushing(t) ((t)->phase == GL_CLOSING)

/* ---- transport.c ----------------------------------------------------------------------- */

/* What all constructors are given, and what is made of it. */
typedef struct {
    PyObject *loop, *file, *protocol, *waiter; /* borrowed; `file` has the descriptor */
    PyObject *given_extra;        /* borrowed; None: an empty dict */
    PyObject *given_context;      /* borrowed; None: a copy of the current one */
    PyObject *extra, *context;    /* owned */
    gl_lease lease;
} transport_arguments;

#define TRANSPORT_ARGUMENTS                                                                   \
    {.waiter = Py_None, .given_extra = Py_None, .given_context = Py_None, .lease = GL_NO_LEASE}

/* The empty state. */
GL_PRIVATE gl_transport *gl_transport_alloc(PyTypeObject *type, const transport_ops *ops);
/* Takes a lease of the descriptor, and the arguments over: GL_STARTING.  -1 with an exception,
 * and the transport is as it was. */
GL_PRIVATE int gl_transport_construct(gl_transport *t, transport_arguments *a);
/* Its last step, which runs no Python.  -1 where there is no memory. */
GL_PRIVATE int gl_transport_take(gl_transport *t, transport_arguments *a);
/* Lets go of what gl_transport_take has not taken over. */
GL_PRIVATE void gl_transport_arguments_clear(transport_arguments *a);
/* Calls a method of an object in a copy of the transport's context: a writer may be in that very
 * context, which can't be entered twice. */
GL_PRIVATE int gl_transport_call_apart(gl_transport *t, PyObject *object, PyObject *method);
/* Schedules connection_made and _start. */
GL_PRIVATE int gl_transport_begin(gl_transport *t, PyObject *waiter);
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
GL_PRIVATE void gl_transport_leave(gl_transport *t);
/* Tells the reactor what it has not been told; put off where another thread calls during a
 * turn. */
GL_PRIVATE int gl_transport_sync(gl_transport *t);
/* gl_reg_ops */
GL_PRIVATE void gl_transport_orphan(PyObject *owner);
GL_PRIVATE bool gl_transport_blocks_number(PyObject *transport);

GL_PRIVATE int transport_close(gl_transport *t);
/* connection_lost(exc) is scheduled, and nothing is received or sent until then. */
GL_PRIVATE int gl_transport_end(gl_transport *t, PyObject *exc);
/* asyncio's methods of these names. */
GL_PRIVATE int gl_transport_force_close(gl_transport *t, PyObject *exc);
GL_PRIVATE int gl_transport_fatal_error(gl_transport *t, PyObject *exc, const char *message);
/* The same with the exception that is set; -1, and it stays set, for SystemExit and
 * KeyboardInterrupt. */
GL_PRIVATE int gl_transport_fatal_current(gl_transport *t, const char *message);
GL_PRIVATE int gl_transport_lost(gl_transport *t, PyObject *exc);

/* Keeps an item at the front (what is left of a delivery) or at the back; takes over the
 * reference, which may be NULL with an exception set. */
GL_PRIVATE int gl_transport_hold(gl_transport *t, PyObject *item, bool front);
GL_PRIVATE void transport_drop_held(gl_transport *t);
GL_PRIVATE int gl_transport_schedule_delivery(gl_transport *t);

/* What types need.  The type's own functions call the last two first. */
GL_PRIVATE void gl_transport_dealloc(PyObject *self);
GL_PRIVATE void gl_transport_finalize(PyObject *self);
GL_PRIVATE int gl_transport_traverse(gl_transport *t, visitproc visit, void *arg);
GL_PRIVATE void gl_transport_clear(gl_transport *t);

/* ---- transport_type.c ------------------------------------------------------------------- */

GL_PRIVATE PyObject *gl_transport_close_method(gl_transport *t, PyObject *ignored);
GL_PRIVATE PyObject *gl_transport_abort_method(gl_transport *t, PyObject *ignored);
GL_PRIVATE PyObject *gl_transport_is_closing_method(gl_transport *t, PyObject *ignored);
GL_PRIVATE PyObject *gl_transport_is_reading_method(gl_transport *t, PyObject *ignored);
GL_PRIVATE PyObject *gl_transport_pause_reading(gl_transport *t, PyObject *ignored);
GL_PRIVATE PyObject *gl_transport_resume_reading(gl_transport *t, PyObject *ignored);
GL_PRIVATE PyObject *gl_transport_deliver_held_method(gl_transport *t, PyObject *ignored);
GL_PRIVATE PyObject *gl_transport_set_protocol_method(gl_transport *t, PyObject *const *args,
                                                      Py_ssize_t nargs, PyObject *kwnames);
GL_PRIVATE PyObject *gl_transport_get_protocol_method(gl_transport *t, PyObject *ignored);
GL_PRIVATE PyObject *gl_transport_force_close_method(gl_transport *t, PyObject *exc);
GL_PRIVATE PyObject *gl_transport_lost_method(gl_transport *t, PyObject *exc);
GL_PRIVATE PyObject *gl_transport_start_method(gl_transport *t, PyObject *waiter);
GL_PRIVATE PyObject *gl_transport_flag_getter(gl_transport *t, void *offset);
GL_PRIVATE PyObject *gl_transport_object_getter(gl_transport *t, void *offset);
GL_PRIVATE PyObject *gl_transport_extra_getter(gl_transport *t, void *ignored);
GL_PRIVATE int gl_transport_extra_setter(gl_transport *t, PyObject *extra, void *ignored);
GL_PRIVATE PyObject *gl_transport_conn_lost_getter(gl_transport *t, void *ignored);
GL_PRIVATE PyObject *gl_transport_closing_getter(gl_transport *t, void *ignored);
GL_PRIVATE PyObject *gl_transport_receives_getter(gl_transport *t, void *ignored);

/* Sets the TypeError for data to be sent that is not bytes-like, in asyncio's words. */
GL_PRIVATE void gl_transport_refuse_data(PyObject *transport, PyObject *data);
/* asyncio's warning of writes to a socket whose connection is lost. */
#define LATE_SEND "socket.send() raised exception."
/* Counts a write that comes too late; asyncio warns from the fifth on. */
GL_PRIVATE int gl_late_write(uint32_t *count, const char *warning);
/* A type with asyncio's bases by their names in asyncio.transports, whose slots must lie
 * where TRANSPORT_FIELDS has them, and with max_size where it is not 0; kept by the module. */
GL_PRIVATE PyTypeObject *gl_transport_make_type(PyObject *module, PyType_Spec *spec,
                                                const char *base, const char *second, long max_size);

GL_TAKES_NONE(is_closing_checked, gl_transport_is_closing_method, "is_closing")
GL_TAKES_NONE(get_protocol_checked, gl_transport_get_protocol_method, "get_protocol")
GL_TAKES_NONE(is_reading_checked, gl_transport_is_reading_method, "is_reading")
GL_TAKES_NONE(pause_reading_checked, gl_transport_pause_reading, "pause_reading")
GL_TAKES_NONE(resume_reading_checked, gl_transport_resume_reading, "resume_reading")
GL_TAKES_NONE(close_checked, gl_transport_close_method, "close")
GL_TAKES_NONE(abort_checked, gl_transport_abort_method, "abort")

/* What every transport has. */
#define TRANSPORT_METHODS                                                                     \
    {"is_closing", GL_FASTKW(is_closing_checked),                                             \
     PyDoc_STR("is_closing($self)\n--\n\n"                                                    \
               "Return True if the transport is closing or closed.")},                        \
    {"get_protocol", GL_FASTKW(get_protocol_checked),                                         \
     PyDoc_STR("get_protocol($self)\n--\n\nReturn the current protocol.")},                   \
    {"_call_connection_lost", GL_ONEARG(gl_transport_lost_method), NULL},                     \
    {"_start", GL_ONEARG(gl_transport_start_method), NULL}
/* What all have that are no write ends of pipes. */
#define TRANSPORT_READING_METHODS                                                             \
    {"is_reading", GL_FASTKW(is_reading_checked),                                             \
     PyDoc_STR("is_reading($self)\n--\n\nReturn True if the transport is receiving.")},       \
    {"pause_reading", GL_FASTKW(pause_reading_checked),                                       \
     PyDoc_STR("pause_reading($self)\n--\n\n"                                                 \
               "Pass nothing to the protocol until resume_reading().")},                      \
    {"resume_reading", GL_FASTKW(resume_reading_checked),                                     \
     PyDoc_STR("resume_reading($self)\n--\n\nPass data to the protocol again.")},             \
    {"_deliver_held", GL_NOARGS(gl_transport_deliver_held_method), NULL}
#define METHOD_CLOSE                                                                          \
    {"close", GL_FASTKW(close_checked),                                                       \
     PyDoc_STR("close($self)\n--\n\n"                                                         \
               "Close the transport once what is queued is sent; no more is received.")}
#define METHOD_ABORT                                                                          \
    {"abort", GL_FASTKW(abort_checked),                                                       \
     PyDoc_STR("abort($self)\n--\n\nClose the transport at once; what is queued is lost.")}
#define METHOD_SET_PROTOCOL(function)                                                         \
    {"set_protocol", GL_FASTKW(function),                                                     \
     PyDoc_STR("set_protocol($self, protocol)\n--\n\nSet a new protocol.")}

#define ATTRIBUTE_FLAG(name, kind, field)                                                     \
    {name, (getter)gl_transport_flag_getter, NULL, NULL, (void *)offsetof(kind, field)}
#define ATTRIBUTE_OBJECT(name, kind, field)                                                   \
    {name, (getter)gl_transport_object_getter, NULL, NULL, (void *)offsetof(kind, field)}

#define TRANSPORT_ATTRIBUTES                                                                  \
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},               \
        {"_extra", (getter)gl_transport_extra_getter, (setter)gl_transport_extra_setter, NULL, NULL}, \
        {"_closing", (getter)gl_transport_closing_getter, NULL, NULL, NULL},                  \
        {"_receives", (getter)gl_transport_receives_getter, NULL, NULL, NULL},                \
        ATTRIBUTE_FLAG("_paused", gl_transport, paused),                                      \
        ATTRIBUTE_OBJECT("_context", gl_transport, context),                                  \
        ATTRIBUTE_OBJECT("_loop", gl_transport, loop),                                        \
        ATTRIBUTE_OBJECT("_owner", gl_transport, lease.owner),                                \
        ATTRIBUTE_OBJECT("_protocol", gl_transport, protocol)

/* `_number` is -1 once the descriptor is closed. */
#define TRANSPORT_MEMBERS                                                                     \
    {"__dictoffset__", T_PYSSIZET, offsetof(gl_transport, dict), READONLY, NULL},             \
        {"__weaklistoffset__", T_PYSSIZET, offsetof(gl_transport, weakrefs), READONLY, NULL}, \
        {"_number", T_INT, offsetof(gl_transport, lease.number), READONLY, NULL},             \
        {"_sock_fd", T_INT, offsetof(gl_transport, fd_shown), READONLY, NULL}
