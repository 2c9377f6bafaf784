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

/* ---- tables -----------------------------------------------------------------
 *
 * Which threads may touch a field stands in brackets behind its comment:
 *
 *   GIL    any thread that has the GIL
 *   loop   with the GIL, the thread that runs the loop; while none does, whoever calls it
 *   made   written when the loop is made and when it is closed, read by any thread with the GIL
 *
 * "loop" is what asyncio asks of its users.  Nothing breaks where they do not keep to it: the GIL
 * keeps each field whole, and a call that needs what Go works on waits for the turn's end (shared_lock.c). */

typedef struct gl_entry {
    PyObject *object; /* owned */
    uint64_t sample;  /* 0, or it is measured: 32 * ns when pushed + log2 of what it stands for */
} gl_entry;

typedef struct gl_ready { /* ready.c: a FIFO [GIL] */
    gl_entry *slot;       /* NULL once closed */
    size_t capacity;      /* a power of two; 0 once closed */
    uint64_t head;        /* not wrapped: how many were run */
    size_t count;
    uint32_t until;           /* so many arrivals, and the last of them is measured */
    uint32_t block, behind;   /* it stands for so many, of which so many come behind it */
    int64_t budget, refilled; /* measurements left; until when they were granted, ns */
    uint64_t lot;             /* pseudo-random */
} gl_ready;

typedef struct gl_fds { /* [GIL] */
    struct gl_fd_branch **branch;
    uint32_t branches;
} gl_fds;

typedef struct gl_timer_chunk gl_timer_chunk;
typedef struct gl_timers {  /* timers.c [GIL] */
    gl_timer_chunk **chunk; /* by id / GL_TIMER_CHUNK; NULL: none of its ids is armed */
    uint32_t chunks;
    uint32_t first_free; /* the lowest chunk that has a free id */
    uint32_t armed;
    uint32_t *retired; /* cancelled ids that Go may still report */
    uint32_t retired_len, retired_cap;
} gl_timers;

/* Counts outside of the shared block: names and order as in
 * goloop/_internal/metrics/metric_registry.py,
 * which tells the meanings.  What is so at the moment is filled in by the snapshot [GIL]. */
typedef struct gl_counts {
    uint64_t iterations, time_busy, time_idle, ready, timers, threadsafe_calls, write_buffer_bytes,
        connections_open, connections_refused, accept_failures, time_blocked, blocked_for;
} gl_counts;

/* Guest mode: asked for; in a run, between two iterations; in one of them, or in a poll. */
enum { GL_GUEST_REQUESTED = 1, GL_GUEST_IDLE, GL_GUEST_RUNNING };

/* ---- Loop (loop/loop_type.c) ---------------------------------------------------- */

struct gl_loop {
    PyObject_HEAD
    PyObject *weakrefs;
    struct gl_loop *next_loop, *prev_loop; /* loops.c [GIL] */
    const gl_table *go;                    /* NULL once closed [made] */
    gl_shared *shared;       /* NULL once closed [made]; in it: C's while Go is outside, with the
                              * GIL, and Go's during a call */
    int32_t reactor;         /* [made] */
    uint64_t epoch;          /* of the library; another one: we are in a forked child [made] */
    unsigned long thread_id; /* 0 while not running; Python may write it [GIL] */
    unsigned long running;   /* the thread that is in _run(), or 0 [written by loop] */
    char closed, stopping, debug; /* [GIL] */
    char guest_mode;              /* GL_HOSTED_..., or 0 [GIL] */
    char in_turn;          /* Go is at work in a turn [written by loop: set with the GIL, cleared
                            * without; atomic] */
    char sleeping;         /* ... and may block: a push must wake it [written by loop] */
    char dirty;            /* the next iteration polls: writes wait, or somebody new does [GIL] */
    char eager_sends_left; /* so many more writes of this turn may leave at once [loop] */
    char put_off;          /* writes of this turn wait for the next, untried: what leaves before
                            * sends them first (gl_send_put_off) [GIL] */
    char ended;            /* so many polls are due: the peer of what was closed or shut down may
                            * be in this loop, and has its last bytes before its end [GIL] */
    char releasing;        /* loop_release() is on a stack [GIL] */
    uint8_t replaced;      /* methods that somebody has set on the instance (native_rule.c) [GIL] */
    char current_task_stale; /* current_task.c: an entry without a task is left [loop] */
    PyObject *task_factory;  /* or NULL, or None [GIL] */
    gl_ready ready;
    uint32_t cmp_pos;      /* completions already handled [loop] */
    uint64_t accepts_seen; /* metrics.connections_accepted, when all had been
                            * handed out [loop] */
    gl_timers timers;
    struct gl_reg *regs;
    uint32_t regs_cap;
    gl_fds fds;
    struct gl_kept_socket *kept_sockets; /* sockets kept open until their waiters have run [loop] */
    uint32_t kept_sockets_len, kept_sockets_cap;
    uint32_t kept_sockets_next; /* the waiters of those before it have run */
    PyObject
        *large[GL_LARGE_MAX]; /* receive_buffers.c: bytes objects that Go may receive into [loop] */
    bool large_wanted;        /* [loop] */
    uint32_t large_idle;      /* turns since one was of use [loop] */
    uint8_t *scratch;         /* receive_buffers.c: NULL while somebody has it [GIL] */
    PyObject *current_handle; /* what runs now, for debug and diagnostics [GIL] */
    uint32_t since_poll;      /* iterations since the last turn [loop] */
    uint64_t last_poll_ticks; /* [loop] */
    int64_t timers_at;        /* when a due timer of this turn was handed out, or 0 [loop] */
    int64_t polled_before;    /* the end of the poll before the last [loop] */
    int64_t
        share; /* ns of datagram_received() for a socket in this turn; 0: not known yet [loop] */
    gl_counts counts;
    int64_t blocked_seen; /* gl_shared.blocked_since whose end was told [loop] */
    uint64_t turns;       /* begun; metrics.turns grows without the GIL [written by loop] */
#ifdef GL_FREE_THREADED
    PyObject *lock; /* owned: "GIL" above means its mutex, and "loop" too [made] */
    gl_inbox inbox;
    int64_t returned;   /* references to the loop that came back, see gl_inbox_borrow [loop] */
    gl_task_node tasks; /* task_registry.c [GIL] */
    struct {
        PyObject *task;      /* the running one, borrowed; or NULL [written by loop, atomic] */
        PyObject *published; /* the one that asyncio's dict has, borrowed [atomic] */
        PyMutex mutex;
    } current; /* tasks/current_task_ft.c */
#endif
};

#define gl_loop_check(o) PyObject_TypeCheck((o), G.loop_type)

#ifdef GL_FREE_THREADED
/* An object as a loop of ours, or NULL; it may be NULL.  Nobody else has our hash, and a class of
 * ours seldom another one. */
static inline gl_loop *
gl_as_loop(PyObject *o)
{
    return o != NULL && (Py_TYPE(o)->tp_hash == G.loop_type->tp_hash || gl_loop_check(o))
               ? (gl_loop *)o
               : NULL;
}
#endif

/* ---- loop_state.c ------------------------------------------------------------ */

/* Raises RuntimeError for a closed loop, or one that belongs to a parent process. */
GL_PRIVATE int gl_loop_check_usable(gl_loop *self);
/* True in a process that the loop does not belong to: Go must not be called. */
GL_PRIVATE_INLINE bool gl_loop_is_foreign(gl_loop *self);
/* True in the thread that runs the loop: a reference to it is on this stack. */
static inline bool
gl_loop_runs_here(const gl_loop *loop)
{
    return GL_READ(loop->running) == PyThread_get_thread_ident();
}

/* ---- native_rule.c ---------------------------------------------------------------- */

/* A rule can be asked from here on, about this class. */
GL_PRIVATE int gl_native_init(PyObject *module);
GL_PRIVATE int gl_rule_begin(enum gl_rule rule, PyObject *cls);
/* Which methods of a class are not those that C stands in for: bits in the order of the rule's
 * table, or GL_NOT_OURS where the class does not derive from the rule's.  Runs no Python. */
#define GL_NOT_OURS 0xFFFFu
GL_PRIVATE_INLINE unsigned gl_replaced(enum gl_rule rule, PyTypeObject *type);
/* The same of an object: of its class, and what it has of its own. */
GL_PRIVATE unsigned gl_object_replaced(enum gl_rule rule, PyObject *o);
/* Whether C may stand in for all of an object's methods: its class is exactly the rule's, and
 * neither the class nor the object has others.  Runs no Python. */
GL_PRIVATE bool gl_native(enum gl_rule rule, PyObject *o);
/* The bits of a socket: its number and how it is used as a stream. */
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
/* Whether a loop of ours has one of these methods from its subclass, or as its attribute. */
GL_PRIVATE bool gl_loop_has_own(gl_loop *loop, unsigned methods);
/* Whether a program has replaced asyncio.Handle._run, as what times callbacks does: then it is
 * called for each of them, and each step of a task has a handle. */
GL_PRIVATE_INLINE bool gl_handles_hooked(void);
/* The loop, if entries may be put on its ready queue without asking its call_soon: a usable
 * goloop loop, not in debug mode, whose call_soon nobody has overridden.  Else NULL,
 * without an exception. */
GL_PRIVATE_INLINE gl_loop *gl_native_loop(PyObject *loop);
/* An attribute of the instance is set, or with NULL deleted. */
GL_PRIVATE void gl_note_replaced(gl_loop *loop, PyObject *name, PyObject *value);

/* ---- loops.c ----------------------------------------------------------------- */

/* Which loops have a reactor. */
GL_PRIVATE void gl_loops_add(gl_loop *loop);
GL_PRIVATE void gl_loops_remove(gl_loop *loop);
/* All of them that belong to this process, owned; without memory none.  `closed`: also those that
 * are closed and have tasks, where there is no GIL. */
typedef struct gl_loop_list {
    gl_loop **item;
    uint32_t len, cap;
} gl_loop_list;
GL_PRIVATE gl_loop_list gl_loops_all(bool closed);
GL_PRIVATE void gl_loops_drop(gl_loop_list *list);
