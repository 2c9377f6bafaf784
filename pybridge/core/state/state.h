/*
 * state.h: the record of a loop, and the rule by which C may stand in for Python methods.
 *
 *   inbox.h        fields of a loop that other threads write, in a build without the GIL
 *   loop_state.c   whether the loop can be used in this process
 *   native_rule.c  whether C may stand in for an object's methods
 *   loops.c        the list of all loops of the process
 */
#pragma once

#include "support/support.h"
#include "state/inbox.h"

/* ---- parts of a loop --------------------------------------------------------
 *
 * The brackets after a field's comment say which threads may use it:
 *
 *   GIL    any thread that has the GIL
 *   loop   with the GIL, the thread that runs the loop; if no thread does, any caller
 *   made   written when the loop is created and when it is closed, read by any thread with the GIL
 *
 * "loop" is asyncio's rule for its users.  A violation does no harm: the GIL keeps each field
 * consistent, and a call that needs the reactor waits for the end of the turn
 * (threads/shared_lock.c). */

/* An entry of the ready queue. */
typedef struct gl_entry {
    PyObject *object; /* owned */
    uint64_t sample;  /* gl_sample_pack(), or 0: the waiting time is not measured */
} gl_entry;

/* Packs a sample: the time of the push in ns, and the weight, a power of two, as its log2 in the
 * low 5 bits. */
static inline uint64_t
gl_sample_pack(int64_t since, uint32_t weight)
{
    return (uint64_t)since << 5 | (unsigned)__builtin_ctz(weight);
}
/* Returns the time of the push in ns of a packed sample. */
static inline int64_t
gl_sample_time(uint64_t sample)
{
    return (int64_t)(sample >> 5);
}
/* Returns the weight of a packed sample. */
static inline uint32_t
gl_sample_weight(uint64_t sample)
{
    return 1u << (sample & 31);
}

/* The ready queue (queue/ready.c), a FIFO [GIL]. */
typedef struct gl_ready {
    gl_entry *slot;  /* NULL once closed */
    size_t capacity; /* a power of two; 0 once closed */
    uint64_t head;   /* total of entries that were run; its low bits are the index */
    size_t count;
    uint32_t countdown;        /* arrivals up to and including the next that is sampled, or that
                                * ends a guest's poll */
    uint32_t sample_countdown; /* 0; or, if the next arrival ends a guest's poll, the arrivals up to
                                * and including the next sample */
    uint32_t stride;           /* arrivals that the next sample represents */
    uint32_t stride_rest;      /* arrivals of the stride after the sampled one */
    int64_t sample_budget;     /* samples that may still be taken at stride 1 */
    int64_t budget_time;       /* ns: the budget was refilled up to this time */
    uint64_t rng;              /* state of a linear congruential generator */
} gl_ready;

/* The root of the tree of fd numbers (fds/registry.c) [GIL]. */
typedef struct gl_fds {
    struct gl_fd_branch **branch;
    uint32_t branches;
} gl_fds;

typedef struct gl_timer_chunk gl_timer_chunk;
/* The timers of a loop by id (queue/timers.c) [GIL]. */
typedef struct gl_timers {
    gl_timer_chunk **chunk; /* indexed by id / GL_TIMER_CHUNK; NULL: no id of the chunk is armed */
    uint32_t chunks;
    uint32_t first_free; /* lowest chunk with a free id */
    uint32_t armed;      /* number of armed timers */
    uint32_t *retired;   /* cancelled ids that Go may still report */
    uint32_t retired_len, retired_cap;
} gl_timers;

/* Metrics that are not in the shared block, with the names and the order of
 * goloop/_internal/observe/metric_registry.py, which has their meanings.  A snapshot fills in the
 * gauges [GIL]. */
typedef struct gl_counts {
    uint64_t iterations, time_busy, time_idle, ready, timers, threadsafe_calls, write_buffer_bytes,
        connections_open, connections_refused, accept_failures, time_blocked, blocked_for;
} gl_counts;

/* Guest mode: requested; running, between two iterations; inside an iteration or a poll. */
enum { GL_GUEST_REQUESTED = 1, GL_GUEST_IDLE, GL_GUEST_RUNNING };

/* ---- Loop (loop/loop_type.c) ---------------------------------------------------- */

/* The Python object goloop._core.Loop: the core's half of a loop. */
struct gl_loop {
    PyObject_HEAD
    PyObject *weakrefs;
    struct gl_loop *next_loop, *prev_loop; /* loops.c [GIL] */
    const gl_table *go;                    /* NULL once closed [made] */
    /* The shared block; NULL once closed [made].  Its contents belong to C, with the GIL, except
     * during a call of Go. */
    gl_shared *shared;
    int32_t reactor; /* number of the reactor [made] */
    uint64_t epoch;  /* the library's number at creation; differs in a forked child [made] */
    unsigned long thread_id;      /* 0 while not running; Python may write it [GIL] */
    unsigned long running;        /* the thread that is in _run(), or 0 [written by loop] */
    char closed, stopping, debug; /* [GIL] */
    char guest_mode;              /* GL_GUEST_..., or 0 [GIL] */
    /* A turn is in progress [written by loop: set with the GIL, cleared without; atomic]. */
    char in_turn;
    char sleeping; /* the turn may block, so that a push must wake it [written by loop] */
    char dirty;    /* the next iteration polls: for pending writes or a new registration [GIL] */
    /* Number of writes in this turn that may still be sent immediately [loop]. */
    char eager_sends_left;
    /* Writes of this turn wait for the next one; other sends flush them first
     * (gl_flush_deferred_sends) [GIL]. */
    char sends_deferred;
    /* Number of further iterations that poll although the ready queue is not empty: after a close,
     * a peer in the same loop needs up to three polls to receive the last bytes and the end of file
     * [GIL]. */
    char forced_polls_left;
    char releasing;          /* loop_release() is in progress [GIL] */
    uint8_t replaced;        /* methods that were set on the instance (native_rule.c) [GIL] */
    char current_task_stale; /* asyncio's dict still has an entry without a task
                              * (tasks/current_task.c) [loop] */
    PyObject *task_factory;  /* the factory that the program has set, NULL or None [GIL] */
    gl_ready ready;
    uint32_t cmp_pos;      /* completions delivered in this turn [loop] */
    uint64_t accepts_seen; /* metrics.connections_accepted when all accepted connections had
                            * been delivered [loop] */
    /* The total of the ready queue (gl_ready_total) and the time (ns) right before the last
     * connection_made() of an accepted connection; the time is 0 once the connection has started
     * [loop]. */
    uint64_t total_before_made;
    int64_t made_at;
    uint64_t start_entries; /* total of ready entries that start accepted connections [loop] */
    gl_timers timers;
    struct gl_reg *regs;
    uint32_t regs_cap;
    gl_fds fds;
    struct gl_written_stream
        *written; /* streams of which Go may send pieces before the next turn ends */
    uint32_t written_len, written_cap;
    struct gl_kept_socket *kept_sockets; /* sockets kept open until their waiters have run [loop] */
    uint32_t kept_sockets_len, kept_sockets_cap;
    uint32_t kept_sockets_next; /* the waiters of the sockets before this index have run */
    /* fds/receive_buffers.c: bytes objects into which Go may receive [loop] */
    PyObject *large[GL_MAX_LARGE];
    bool large_wanted;   /* a stream received much at once [loop] */
    uint32_t large_idle; /* turns since one was used [loop] */
    uint8_t *scratch;    /* fds/receive_buffers.c: NULL while in use [GIL] */
    /* transports/transport_schedule.c: owned list of transports whose connection_lost() could not
     * be scheduled for want of memory [GIL] */
    struct gl_transport *unscheduled_ends;
    PyObject *current_handle; /* the running entry, for debug mode and diagnostics [GIL] */
    uint32_t since_poll;      /* iterations since the last turn [loop] */
    uint64_t last_poll_ticks; /* time of the last turn [loop] */
    int64_t timers_at;        /* time at which a due timer of this turn was run, or 0 [loop] */
    int64_t polled_before;    /* end of the poll before the last [loop] */
    /* ns of datagram_received() for one socket in this turn; 0: not known yet [loop] */
    int64_t share;
    gl_counts counts;
    int64_t blocked_seen; /* gl_shared.blocked_since of the last reported block [loop] */
    uint64_t turns;       /* started turns; metrics.turns grows without the GIL [written by loop] */
#ifdef GL_FREE_THREADED
    /* Owned.  "GIL" and "loop" above mean this object's mutex in a build without the GIL [made]. */
    PyObject *lock;
    gl_inbox inbox;
    /* Returned spare references to the loop, see gl_inbox_take_references [loop]. */
    int64_t returned;
    gl_task_node tasks; /* tasks/task_registry.c [GIL] */
    struct {
        PyObject *task;      /* the running task, borrowed; or NULL [written by loop, atomic] */
        PyObject *published; /* the task in asyncio's dict, borrowed [atomic] */
        PyMutex mutex;
    } current; /* tasks/current_task_ft.c */
#endif
};

/* Returns true if the object is a goloop loop, or an instance of a subclass. */
#define gl_loop_check(o) PyObject_TypeCheck((o), G.loop_type)

#ifdef GL_FREE_THREADED
/* Casts an object (which may be NULL) to a goloop loop; NULL if it is not one.  No other type has
 * this tp_hash, so the comparison is nearly always enough. */
static inline gl_loop *
gl_as_loop(PyObject *o)
{
    if (o == NULL || (Py_TYPE(o)->tp_hash != G.loop_type->tp_hash && !gl_loop_check(o)))
        return NULL;
    return (gl_loop *)o;
}
#endif

/* ---- loop_state.c ------------------------------------------------------------ */

/* Returns 0 if the loop can be used, or -1 with RuntimeError: it is closed, its __init__() was not
 * called, or it belongs to the parent process. */
GL_PRIVATE int gl_loop_check_usable(gl_loop *self);
/* Returns true in a forked child, to which the loop does not belong: Go must not be called.  Also
 * true, once the library is open, for a loop whose __init__() was not called. */
GL_PRIVATE_INLINE bool gl_loop_is_foreign(gl_loop *self);
/* Returns true in the thread that runs the loop: its stack has a reference to the loop. */
static inline bool
gl_loop_runs_here(const gl_loop *loop)
{
    return GL_READ(loop->running) == PyThread_get_thread_ident();
}

/* ---- native_rule.c ---------------------------------------------------------------- */

/* Sets the classes of the rules for asyncio's loop, handles and streams and for sockets, and adds
 * replaced_methods() to the module, at import. */
GL_PRIVATE int gl_native_init(PyObject *module);
/* Sets the class of another rule, and imports the module of its functions; until then the rule's
 * result is GL_NOT_OURS.  -1 with TypeError if `cls` is not a class, or with another exception; the
 * rule then still has no class. */
GL_PRIVATE int gl_rule_set_class(enum gl_rule rule, PyObject *cls);
/* Returns the methods of a class that a program has replaced: bits in the order of the rule's
 * table, or GL_NOT_OURS (all bits) if the class does not derive from the rule's, if it has its own
 * attribute lookup (`__getattribute__`, `__getattr__`), or if the rule has no class yet.  Runs no
 * Python. */
#define GL_NOT_OURS 0xFFFFu
GL_PRIVATE_INLINE unsigned gl_replaced_methods(enum gl_rule rule, PyTypeObject *type);
/* Returns the methods of an object that its class or its own dict replaces, as
 * gl_replaced_methods() does: GL_NOT_OURS for an object of another class, and all methods of the
 * rule for an object whose dict can't be read.  Clears the current exception, so none may be set.
 * */
GL_PRIVATE unsigned gl_object_replaced_methods(enum gl_rule rule, PyObject *o);
/* Returns true if C may act in place of all methods of the rule: the object's class is exactly the
 * rule's, and neither the class nor the object replaces one.  Clears the current exception, so none
 * may be set. */
GL_PRIVATE bool gl_is_native(enum gl_rule rule, PyObject *o);
/* Returns what gl_is_native() returns, faster, for objects that are used for each packet.  Clears
 * the current exception, so none may be set.  Runs no Python. */
GL_PRIVATE_INLINE bool gl_is_native_per_call(enum gl_rule rule, PyObject *o);
/* The bit of a class whose objects do not have the attributes of the rule in themselves, or whose
 * property is not the original one. */
#define GL_OWN_ATTRIBUTES 0x8000u
/* The bits of a socket: fileno() and the methods that streams use. */
#define GL_OWN_RECV 1u
#define GL_OWN_RECV_INTO 2u
#define GL_OWN_SEND 4u
#define GL_OWN_FILENO 8u
#define GL_OWN_STREAM 0x3Fu
/* The bits of a loop. */
#define GL_OWN_CALL_SOON 1u
#define GL_OWN_IS_RUNNING 2u
#define GL_OWN_CALL_AT 4u
#define GL_OWN_CREATE_FUTURE 8u
/* Returns true if a subclass or the instance of a goloop loop replaces one of `methods`, GL_OWN_
 * bits, or if the subclass has its own attribute lookup. */
GL_PRIVATE bool gl_loop_has_own(gl_loop *loop, unsigned methods);
/* Returns true if a program has replaced create_task() of asyncio's BaseEventLoop, which goloop's
 * loop derives from, or the code of this function, as tracers do: then the replacement is
 * called. */
GL_PRIVATE bool gl_asyncio_create_task_replaced(void);
/* Returns true if a program has replaced _run() of asyncio.Handle or asyncio.TimerHandle, as
 * profilers of callbacks do: then the replacement is called for each callback, and each step of a
 * task has a handle. */
GL_PRIVATE_INLINE bool gl_handles_are_hooked(void);
/* Returns the loop, borrowed, if entries may be pushed on its ready queue without a call of
 * call_soon(): a usable goloop loop, not in debug mode, with its original call_soon() and
 * is_running(), while gl_handles_are_hooked() is false.  Otherwise, also for NULL, returns NULL
 * without an exception. */
GL_PRIVATE_INLINE gl_loop *gl_loop_if_native(PyObject *loop);
/* Records in `loop->replaced` that an attribute of the instance is set, or deleted (`value` is
 * NULL), if it is one of the rule's methods. */
GL_PRIVATE void gl_note_replaced(gl_loop *loop, PyObject *name, PyObject *value);

/* ---- loops.c ----------------------------------------------------------------- */

/* Add a loop, as a borrowed reference, and remove it.  The list has the open loops and, in a build
 * without the GIL, closed ones that still have tasks. */
GL_PRIVATE void gl_loops_add(gl_loop *loop);
GL_PRIVATE void gl_loops_remove(gl_loop *loop);
/* Returns new references to the loops of this process, without those inherited from a parent; fewer
 * or none if out of memory.  `closed`: includes closed loops that still have tasks, in a build
 * without the GIL.  The caller passes the result to gl_loops_drop(). */
typedef struct gl_loop_list {
    gl_loop **item;
    uint32_t len, cap;
} gl_loop_list;
GL_PRIVATE gl_loop_list gl_loops_all(bool closed);
GL_PRIVATE void gl_loops_drop(gl_loop_list *list);
