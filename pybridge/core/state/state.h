/*
 * state.h: the state of a loop, and what changes it by itself.
 *
 *   loop_state.c   may the loop be used here and now?
 *   submissions.c  the queue of what Go is asked for
 *   scheduling.c   what puts work on the ready queue, wakes the loop, runs an entry
 *   ready.c        the ready queue
 *   handle.c       Handle, TimerHandle and ThreadSafeHandle: the objects
 *   handle_views.c their attributes
 *   handle_run.c   running and cancelling them
 *   timers.c       timer ids and their handles
 *   registry.c     registrations (stream, listener, watch) by id, and what uses an fd
 *   lease.c        whose a descriptor is, and until when; lease.h draws it
 *   calls.c        the system calls on leased descriptors, which a test can make fail
 *   large.c        buffers for large receives
 *   native.c       the one rule: may C stand in for an object's methods?
 *   lock.c         the lock of a loop, where there is no GIL; lock.h has its fields
 *   guard.c        and every method takes it
 *   loops.c        all loops of the process, and what is sent before a fork and at exit
 *   metrics.c      what a loop has done, in figures
 *   watchdog.c     an iteration that lasts too long is reported while it lasts
 *   python_stack.c the Python stack of another thread, read without the GIL
 *   door.c         how threads that Python does not know come to it
 *
 * gl_reg_ops, by which this room calls those below it:
 *
 *   complete  handles one completion of a live registration.  0, or -1 where SystemExit or
 *             KeyboardInterrupt leaves the loop.  The caller keeps `owner` alive
 *   orphan    Loop.close(): leaves the reactor before it goes, for a finalizer must not call
 *             Go afterwards
 *   blocks    of a transport: it is open, and keeps others from its number
 *   unsent    of a transport, may be NULL: it has bytes to send, and the reactor does not know
 *             it yet.  Runs no Python
 *   flush     of such a transport: sends them
 *   queued    of a stream: how many bytes the kernel has not taken yet.  Runs no Python
 */
#ifndef GOLOOP_STATE_H
#define GOLOOP_STATE_H

#include "support/support.h"
#include "state/lease.h"
#include "state/lock.h"

/* ---- Handle and TimerHandle (handle.c) ------------------------------------ */

/* The head of all is asyncio.Handle's own slots, so that asyncio's methods and anybody's
 * attribute access work on them; handle.c checks the offsets.  Python can write or delete
 * them: C takes from them objects, of any kind or NULL, and never more (handle.c).  Only
 * the fields behind the slots are ours alone. */
#if PY_VERSION_HEX < 0x030C0000
#define GL_HANDLE_WEAKREFS PyObject *weakrefs; /* later versions keep it before the object */
#else
#define GL_HANDLE_WEAKREFS
#endif
#define GL_HANDLE_HEAD                                                         \
    PyObject_HEAD                                                              \
    PyObject *args;          /* unless arg[] holds them */                     \
    PyObject *callback;                                                        \
    PyObject *cancelled;                                                       \
    PyObject *context;                                                         \
    PyObject *loop;                                                            \
    PyObject *repr;          /* of these two NULL reads as None */             \
    PyObject *source_traceback;                                                \
    GL_HANDLE_WEAKREFS

typedef struct {
    GL_HANDLE_HEAD
} gl_handle_head;

#define GL_INLINE_ARGS 2
typedef struct {
    int8_t nargs;             /* -1: the arguments are those in the head */
    bool context_due;         /* the context is a new, empty one, made once somebody needs it */
    bool context_ours;        /* it was; so nobody may have it but the handle */
#ifdef GL_FREE_THREADED
    bool posted;              /* by another thread, whose the references to the loop are */
#endif
    PyObject *arg[GL_INLINE_ARGS];
    GL_HOME
} gl_handle_args;

typedef struct {
    GL_HANDLE_HEAD
    gl_handle_args inl;
} gl_handle;

typedef struct {
    GL_HANDLE_HEAD
    PyObject *scheduled;      /* asyncio.TimerHandle's slots; this one is not used */
    PyObject *when;
    gl_handle_args inl;
    int64_t deadline;         /* ns of CLOCK_MONOTONIC */
    struct gl_loop *armed_by; /* borrowed; valid while `timer` is an id */
    uint32_t timer;           /* id in timers.c, or GL_NO_TIMER */
    uint32_t submission;      /* where its arming lies in the submission queue, if it
                               * is still there */
} gl_timer_handle;

typedef struct gl_handle_gate gl_handle_gate;

typedef struct {
    GL_HANDLE_HEAD
    PyObject *lock;           /* the slot of asyncio's class; not used */
    gl_handle_args inl;
    unsigned long running;    /* the thread that runs the callback, or 0 */
    gl_handle_gate *gate;     /* where others wait for its end, or NULL */
} gl_threadsafe_handle;

/* ---- tables -----------------------------------------------------------------
 *
 * Which threads may touch a field stands in brackets behind its comment:
 *
 *   GIL    any thread that has the GIL
 *   loop   with the GIL, the thread that runs the loop; while none does, whoever calls it
 *   made   written when the loop is made and when it is closed, read by any thread with the GIL
 *
 * "loop" is what asyncio asks of its users.  Nothing breaks where they do not keep to it: the GIL
 * keeps each field whole, and what Go works on during a turn is left alone (`in_turn`). */

typedef struct gl_ready {     /* ready.c: a FIFO of owned references [GIL] */
    PyObject **slot;          /* NULL once closed */
    size_t capacity;          /* a power of two; 0 once closed */
    size_t head, count;
    uint64_t popped;          /* since it was made */
    uint64_t probed;          /* `popped` once the entry runs whose wait is measured */
    int64_t probed_at;        /* when that was pushed, ns; or one of the two below */
} gl_ready;
#define GL_PROBE_NONE 0
#define GL_PROBE_NEXT (-1)    /* the next entry is measured */

typedef struct gl_reg {       /* registry.c: by id [loop; never during a turn] */
    PyObject *owner;          /* owned while registered; of a watch: NULL */
    uint32_t gen;
    uint32_t kind;
    int fd;                   /* watch: index in fds */
} gl_reg;

/* One direction of a watched fd (watch.c) [GIL]. */
typedef struct gl_place {
    PyObject *waiter;         /* owned: a Handle, or a Future that waits once; or NULL */
    PyObject *sock;           /* owned: the socket that a Future's owner waits for, or NULL */
    uint64_t turn;            /* in which it was taken: what that turn found is not for it */
    bool once;
    bool refused;             /* the kernel has just refused a call in this direction */
} gl_place;

enum { GL_READING, GL_WRITING };

typedef struct gl_watch {
    gl_place place[2];
    PyObject *file;           /* owned: the object that add_reader/_writer got, or NULL [GIL] */
    uint32_t id, gen;         /* of the registration, while `watched` [loop] */
    int fd;                   /* [made] */
    bool watched;             /* Go knows it [loop] */
    bool late;                /* in the loop's late_watches [GIL] */
} gl_watch;

typedef struct gl_fd {        /* registry.c: what uses a number [GIL] */
    PyObject *transport;      /* borrowed: a gl_stream or gl_datagram, or NULL */
    gl_watch *watch;          /* owned, kept until the loop closes; or NULL */
    uint8_t kind;             /* gl_reg_kind of the transport */
} gl_fd;

/* The table of numbers is a tree, which grows by what is open, not by the highest number.
 * Entries stay where they are until the loop closes. */
#define GL_FD_LEAF 64
#define GL_FD_BRANCH 512
typedef struct gl_fd_leaf {
    gl_fd fd[GL_FD_LEAF];
} gl_fd_leaf;
typedef struct gl_fd_branch {
    gl_fd_leaf *leaf[GL_FD_BRANCH];
} gl_fd_branch;
typedef struct gl_fds {       /* [GIL] */
    gl_fd_branch **branch;
    uint32_t branches;
} gl_fds;

typedef struct gl_timer_chunk gl_timer_chunk;
typedef struct gl_timers {    /* timers.c [GIL] */
    gl_timer_chunk **chunk;   /* by id / GL_TIMER_CHUNK; NULL: none of its ids is armed */
    uint32_t chunks;
    uint32_t first_free;      /* the lowest chunk that has a free id */
    uint32_t armed, armed_max;
    uint32_t *retired;        /* cancelled ids that Go may still report */
    uint32_t retired_len, retired_cap;
} gl_timers;

/* What is not counted in the shared block: names and order as in goloop/_internal/catalogue.py,
 * which tells the meanings.  What is so at the moment is filled in by the snapshot [GIL]. */
typedef struct gl_counts {
    uint64_t iterations, ready, ready_max, timers, timers_max, threadsafe_calls,
        write_buffer_bytes, connections_open, connections_refused, accept_failures, time_blocked,
        blocked_for;
} gl_counts;

/* ---- Loop (loop/loop_type.c) ---------------------------------------------------- */

struct gl_loop {
    PyObject_HEAD
    PyObject *weakrefs;
    struct gl_loop *next_loop, *prev_loop; /* loops.c [GIL] */
    const gl_table *go;       /* NULL once closed [made] */
    gl_shared *shared;        /* NULL once closed [made]; in it: C's while Go is outside, with the
                               * GIL, and Go's during a call */
    int32_t reactor;          /* [made] */
    uint64_t epoch;           /* of the library; another one: we are in a forked child [made] */
    unsigned long thread_id;  /* 0 while not running; Python may write it [GIL] */
    unsigned long running;    /* the thread that is in _run(), or 0 [written by loop] */
    char closed, stopping, debug; /* [GIL] */
    char in_turn;             /* Go is running, and the GIL is released [written by loop] */
    char sleeping;            /* ... and may block: a push must wake it [written by loop] */
    char dirty;               /* the next iteration polls: writes wait, or somebody new does [GIL] */
    char ended;               /* so many polls are due: the peer of what was closed or shut down may
                               * be in this loop, and has its last bytes before its end [GIL] */
    char releasing;           /* loop_release() is on a stack [GIL] */
    uint8_t replaced;         /* methods that somebody has set on the instance (native.c) [GIL] */
    char lingering;           /* current_task.c: an entry without a task is left [loop] */
    PyObject *task_factory;   /* or NULL, or None [GIL] */
    gl_submission *late;      /* made by another thread while Go was running [GIL] */
    uint32_t late_len, late_cap;
    gl_ready ready;
    uint32_t cmp_pos;         /* completions already handled [loop] */
    uint64_t accepts_seen;    /* metrics.connections_accepted, when all had been
                               * handed out [loop] */
    gl_timers timers;
    gl_reg *regs;
    uint32_t regs_cap;
    gl_fds fds;
    gl_watch **late_watches;  /* Go is told of these in the loop's own thread [GIL] */
    uint32_t late_watches_len, late_watches_cap;
    gl_held *held;            /* sockets kept open until their waiters have run [loop] */
    uint32_t held_len, held_cap;
    uint32_t held_first;      /* the waiters of those before it have run */
    PyObject *large[GL_LARGE_MAX]; /* large.c: bytes objects that Go may receive into [loop] */
    bool large_wanted;        /* [loop] */
    uint32_t large_count;     /* how many of these a turn gets now [loop] */
    uint32_t large_idle;      /* turns since one was of use [loop] */
    uint8_t *scratch;         /* sockop.c: received into, then copied [GIL, within one call] */
    PyObject *current_handle; /* what runs now, for debug and diagnostics [GIL] */
    uint32_t since_poll;      /* iterations since the last turn [loop] */
    uint64_t last_poll_ticks; /* [loop] */
    int64_t timers_at;        /* when the turn's first due timer was handed out, or 0 [loop] */
    int64_t share;            /* ns of datagram_received() for a socket in this turn; 0: not known yet [loop] */
    gl_counts counts;
    int64_t blocked_seen;     /* gl_shared.blocked_since whose end was told [loop] */
    uint64_t turns;           /* begun; metrics.turns grows without the GIL [written by loop] */
#ifdef GL_FREE_THREADED
    PyObject *lock;           /* owned: "GIL" above means its mutex, and "loop" too [made] */
    gl_inbox inbox;
    int64_t returned;         /* references to the loop that came back, see gl_inbox_borrow [loop] */
    gl_task_node tasks;       /* task_registry.c [GIL] */
    struct {
        PyObject *task;       /* the running one, borrowed; or NULL [written by loop, atomic] */
        PyObject *published;  /* the one that asyncio's dict has, borrowed [atomic] */
        PyMutex mutex;
    } current;                /* tasks/current_lazily.c */
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
/* RuntimeError for a call that would use the reactor while another thread is in it. */
GL_PRIVATE int gl_loop_check_own_thread(gl_loop *self);
/* True in a process that the loop does not belong to: Go must not be called. */
GL_PRIVATE_INLINE bool gl_loop_is_foreign(gl_loop *self);
/* True where the caller must not enter Go: another thread runs the loop. */
GL_PRIVATE_INLINE bool gl_loop_is_elsewhere(gl_loop *loop);
/* True in the thread that runs the loop: a reference to it is on this stack. */
static inline bool
gl_loop_runs_here(const gl_loop *loop)
{
    return GL_READ(loop->running) == PyThread_get_thread_ident();
}

/* ---- hold.c ------------------------------------------------------------------ */

/* The reactor, the submissions and the records of streams are the caller's from here to
 * gl_let_go(): the monitor, a thread of C, keeps away, see abi.h.  With the GIL; nests.  No
 * Python runs in between.  Nothing for a closed loop, or NULL. */
/* Has the kernel prepare what the monitor wants of it; at import. */
GL_PRIVATE int gl_hold_init(PyObject *module);
GL_PRIVATE_INLINE void gl_hold(gl_loop *loop);
GL_PRIVATE_INLINE void gl_let_go(gl_loop *loop);
/* The loop runs on after a poll, or begins to run; and: it waits in one, or has stopped. */
GL_PRIVATE_INLINE void gl_awake(gl_loop *loop);
GL_PRIVATE_INLINE void gl_asleep(gl_loop *loop);

#ifdef GL_FREE_THREADED
/* ---- lock.c ------------------------------------------------------------------ */

GL_PRIVATE int gl_lock_init(gl_loop *loop);
/* Between iterations, and before a poll: lets waiting threads in. */
GL_PRIVATE void gl_lock_let_in(gl_loop *loop);
static inline void
gl_lock_offer(gl_loop *loop)
{
    if (__atomic_load_n(&loop->inbox.waiting, __ATOMIC_RELAXED) != 0)
        gl_lock_let_in(loop);
}
/* Any thread, without the lock: leaves a Handle; and only wakes the loop.  -1 with RuntimeError
 * where the loop is closed. */
GL_PRIVATE int gl_inbox_post(gl_loop *loop, PyObject *handle);
GL_PRIVATE void gl_inbox_wake(gl_loop *loop);
/* Takes n references to the loop of those that are left over; false: there are too few.  Any
 * thread.  And: gives one back, which another thread took. */
GL_PRIVATE_INLINE bool gl_inbox_borrow(gl_loop *loop, int n);
GL_PRIVATE void gl_inbox_return(gl_loop *loop);
/* The loop has stopped: nothing is left over any more. */
GL_PRIVATE void gl_inbox_settle(gl_loop *loop);
/* Puts what was posted on the ready queue. */
GL_PRIVATE int gl_inbox_join(gl_loop *loop);
static inline bool
gl_inbox_any(gl_loop *loop)
{
    return __atomic_load_n(&loop->inbox.any, __ATOMIC_RELAXED) != 0;
}
/* The loop is about to block; false where something has been posted, and it must not. */
GL_PRIVATE bool gl_inbox_sleep(gl_loop *loop);
GL_PRIVATE void gl_inbox_awake(gl_loop *loop);
/* The loop is closed: what was posted is dropped, as what is on the ready queue. */
GL_PRIVATE void gl_inbox_shut(gl_loop *loop);
GL_PRIVATE int gl_inbox_traverse(gl_loop *loop, visitproc visit, void *arg);
/* In a forked child: another thread may have had the mutex. */
GL_PRIVATE void gl_inbox_forget_others(gl_loop *loop);

/* ---- guard.c ----------------------------------------------------------------- */

#define GL_HOME_ITSELF (-1) /* the object is the loop */
#define GL_HOME_FUTURE (-2) /* it is a Future: `loop` is a field of asyncio's */
#define GL_HOME_NONE (-3)   /* it has none: its own lock is taken */
enum gl_guard_how {
    GL_GUARD_CALLS = 0,
    GL_GUARD_ENDS = 1,        /* how its objects end, too */
};
/* Guards a fresh type; `home` is the offset of gl_home, or one of these.  `free_names`
 * (ends with NULL, or is NULL) take the lock themselves, or need none. */
GL_PRIVATE int gl_guard_type(PyTypeObject *type, Py_ssize_t home, const char *const *free_names,
                             enum gl_guard_how how);
/* Gives `type` guarded methods and attributes in place of those that it inherits from `base`. */
GL_PRIVATE int gl_guard_inherited(PyTypeObject *type, PyTypeObject *base, Py_ssize_t home);
#define GL_GUARD_TYPE(type, struct_name, field, free_names, how)                              \
    gl_guard_type(type, offsetof(struct_name, field), free_names, how)
#else
#define GL_GUARD_TYPE(type, struct_name, field, free_names, how) 0
#endif

/* ---- submissions.c ----------------------------------------------------------- */

/* Appends a submission; amortised O(1). */
GL_PRIVATE int gl_submit(gl_loop *loop, uint32_t op, uint32_t id, uint32_t gen,
                         int64_t arg);
/* After a turn: what was put aside joins the queue. */
GL_PRIVATE int gl_submissions_join_late(gl_loop *loop);
GL_PRIVATE void gl_submissions_trim(gl_loop *loop);

/* ---- ready.c ----------------------------------------------------------------- */

GL_PRIVATE int gl_ready_init(gl_ready *q);
/* Appends; takes over the reference in case of success. */
GL_PRIVATE_INLINE int gl_ready_push(gl_ready *q, PyObject *entry);
/* Takes the oldest entry; the caller owns the reference.  count must not be 0. */
GL_PRIVATE_INLINE PyObject *gl_ready_pop(gl_ready *q);
/* Gives back the memory of a burst once the queue is empty. */
GL_PRIVATE_INLINE void gl_ready_trim(gl_ready *q);
GL_PRIVATE int gl_ready_traverse(gl_ready *q, visitproc visit, void *arg);
/* The collector need not know the newest entry if by now nobody but the queue has it. */
GL_PRIVATE_INLINE void gl_ready_untrack_last(gl_ready *q);
/* The loop stops: an entry that somebody kept may be in a cycle with the loop, which
 * only now can become garbage.  A weak reference can turn into such a somebody. */
GL_PRIVATE void gl_ready_track_kept(gl_ready *q);
/* Drops all entries and the memory: from now on a push is an error.  Idempotent. */
GL_PRIVATE void gl_ready_close(gl_ready *q);

/* ---- handle.c ---------------------------------------------------------------- */

GL_PRIVATE int gl_handle_init_types(PyObject *module);
/* True for the exact types that handle.c makes. */
GL_PRIVATE_INLINE bool gl_is_handle(PyObject *o);
GL_PRIVATE_INLINE bool gl_handle_is_cancelled(PyObject *h);
/* Makes a handle known to the garbage collector. */
GL_PRIVATE_INLINE void gl_handle_track(PyObject *h);
/* The handles of call_soon and call_soon_threadsafe, which are untracked, and of call_at. */
GL_PRIVATE PyObject *gl_handle_new(gl_loop *loop, PyObject *callback, PyObject *const *args,
                                   Py_ssize_t nargs, PyObject *context);
GL_PRIVATE PyObject *gl_threadsafe_handle_new(gl_loop *loop, PyObject *callback,
                                              PyObject *const *args, Py_ssize_t nargs,
                                              PyObject *context);
GL_PRIVATE PyObject *gl_timer_handle_new(gl_loop *loop, PyObject *when, int64_t deadline,
                                         PyObject *callback, PyObject *const *args,
                                         Py_ssize_t nargs, PyObject *context);

/* ---- handle_run.c ------------------------------------------------------------ */

GL_PRIVATE PyObject *gl_handle_cancel(PyObject *self, PyObject *Py_UNUSED(ignored));
/* Hands the exception that is set, of a handle's callback, to the loop's exception handler.
 * -1 where it leaves the loop, or that handler raised. */
GL_PRIVATE int gl_handle_report(gl_loop *loop, PyObject *self);

/* ---- scheduling.c ------------------------------------------------------------ */

GL_PRIVATE_INLINE int64_t gl_monotonic_ns(void);
/* Schedules callable(arg) (arg may be NULL: no argument) in `context` (NULL: a copy
 * of the current one), as call_soon does, without giving out the handle. */
GL_PRIVATE int gl_call_soon(gl_loop *loop, PyObject *callable, PyObject *arg,
                            PyObject *context);
/* loop.call_soon(callable[, arg], context=context) by the shortest way. */
GL_PRIVATE int gl_soon(PyObject *loop, PyObject *callable, PyObject *arg, PyObject *context);
/* Puts a Task on the ready queue; it will be stepped, or woken by its fut_waiter. */
GL_PRIVATE_INLINE int gl_push_task(gl_loop *loop, PyObject *task);
/* Makes a blocked turn return; any thread that has the GIL. */
GL_PRIVATE void gl_wake(gl_loop *loop);
/* Runs a handle that is not cancelled; the caller keeps it alive, and tracks it
 * afterwards where somebody else does too. */
GL_PRIVATE int gl_run_timed(gl_loop *loop, PyObject *handle);
/* Debug mode: says when `what`, which began at `before`, took long. */
GL_PRIVATE int gl_log_slow(gl_loop *loop, PyObject *what, int64_t before);
/* What asyncio's _fatal_error tells before it closes: to the handler, or where quiet to
 * the log of the debug mode. `protocol` may be NULL for None. */
GL_PRIVATE int gl_report_fatal(gl_loop *loop, bool quiet, const char *message, PyObject *exc,
                               PyObject *transport, PyObject *protocol);

/* ---- native.c ---------------------------------------------------------------- */

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

/* ---- timers.c ---------------------------------------------------------------- */

/* Arms a fresh handle: takes a reference of its own. */
GL_PRIVATE int gl_timers_arm(gl_loop *loop, gl_timer_handle *h);
/* The handle of a timer that is due, owned by the caller, or NULL. */
GL_PRIVATE PyObject *gl_timers_take(gl_loop *loop, uint32_t id);
/* After a turn: the first `n` retired ids, those cancelled before it began, can be given
 * out again. */
GL_PRIVATE_INLINE void gl_timers_turned(gl_timers *t, uint32_t n);
GL_PRIVATE int gl_timers_traverse(gl_timers *t, visitproc visit, void *arg);
/* Forgets all timers (at close). */
GL_PRIVATE void gl_timers_clear(gl_timers *t);

/* ---- registry.c -------------------------------------------------------------- */

/* Notes a registration under the id that Go gave; takes a new reference to owner. */
GL_PRIVATE int gl_reg_set(gl_loop *loop, uint32_t id, uint32_t gen, uint32_t kind,
                          PyObject *owner, int fd);
/* Forgets it (gives the reference, which may be NULL, to the caller, or drops it).  Any later
 * completion of it is ignored. */
GL_PRIVATE PyObject *gl_reg_take(gl_loop *loop, uint32_t id, uint32_t gen);
GL_PRIVATE void gl_reg_clear(gl_loop *loop, uint32_t id, uint32_t gen);
/* For the collector: whether the registry has this owner, and the reactor nothing to tell it. */
GL_PRIVATE bool gl_reg_is_dormant(gl_loop *loop, uint32_t id, PyObject *owner);
/* The entry of a number, or NULL where there is none. */
GL_PRIVATE_INLINE gl_fd *gl_fd_find(gl_loop *loop, int fd);
/* The same, made if need be; NULL with OSError (EBADF: nothing is open) or MemoryError. */
GL_PRIVATE gl_fd *gl_fd_get(gl_loop *loop, int fd);
/* The number that an int is or that an object's fileno() gives, which may be no fd's
 * (a closed socket says -1); false with ValueError. */
GL_PRIVATE bool gl_fd_number(PyObject *o, long *fd);
/* The fd of an int or of an object with fileno(), as asyncio's selectors find it;
 * -1 with ValueError. */
GL_PRIVATE int gl_fd_from_object(PyObject *o);
/* RuntimeError if a live transport uses the number (asyncio's words). `named` is what the
 * user passed, for the message; NULL: the number. */
GL_PRIVATE int gl_fd_ensure_no_transport(gl_loop *loop, int fd, PyObject *named);
/* Notes the user of a number, or forgets `transport` there if it is still noted. */
GL_PRIVATE int gl_fd_set_transport(gl_loop *loop, int fd, enum gl_reg_kind kind,
                                   PyObject *transport);
GL_PRIVATE void gl_fd_forget_transport(gl_loop *loop, int fd, PyObject *transport);
/* Lets go of what gl_watch_release gave out. */
GL_PRIVATE void gl_watch_drop(gl_watch *out);
/* Ends the hold on the sockets that were ready in the last turn. */
GL_PRIVATE void gl_held_release(gl_loop *loop);
GL_PRIVATE int gl_registry_traverse(gl_loop *loop, visitproc visit, void *arg);
/* At close: nobody is told any more; the fds themselves are left to their owners. */
GL_PRIVATE void gl_registry_clear(gl_loop *loop);

/* ---- large.c ----------------------------------------------------------------- */

/* The bytes object of a completion that came in a buffer, cut to its length. */
GL_PRIVATE PyObject *gl_large_take(gl_loop *loop, const gl_completion *c);
/* Notes a receive of n bytes. */
GL_PRIVATE_INLINE void gl_large_note(gl_loop *loop, int64_t n);
/* Before a turn. Without memory there are fewer buffers, or none. */
GL_PRIVATE void gl_large_refill(gl_loop *loop);
GL_PRIVATE void gl_large_drop(gl_loop *loop);
/* A bytes object to receive much into; then the n bytes that came, NULL with an exception. */
GL_PRIVATE PyObject *gl_large_new(gl_loop *loop);
GL_PRIVATE void gl_large_cut(gl_loop *loop, PyObject **bytes, Py_ssize_t n);

/* ---- metrics.c ------------------------------------------------------------------ */

/* Notes a value: ns, or a number. */
GL_PRIVATE_INLINE void gl_histogram_add(gl_histogram *h, int64_t value);
/* Note what a call has received or sent: bytes, or < 0. */
GL_PRIVATE_INLINE void gl_count_received(gl_loop *loop, ssize_t n);
GL_PRIVATE_INLINE void gl_count_sent(gl_loop *loop, ssize_t n);
/* The probed entry is about to run. */
GL_PRIVATE void gl_ready_probe_runs(gl_loop *loop);
GL_PRIVATE_DATA PyMethodDef *const gl_metrics_methods;
GL_PRIVATE int gl_metrics_init(PyObject *module);

/* ---- watchdog.c ---------------------------------------------------------------- */

/* The shared block gets, and loses, what the watchdog knows; the monitor must not know it yet, or
 * any longer.  -1 without memory, and without an exception. */
GL_PRIVATE int gl_watchdog_open(gl_shared *sh);
GL_PRIVATE void gl_watchdog_close(gl_shared *sh);
/* This thread begins to run the loop. */
GL_PRIVATE void gl_watchdog_runs(gl_loop *loop);
/* A poll has ended. */
GL_PRIVATE_INLINE void gl_watchdog_polled(gl_loop *loop);
/* The iteration that was reported has ended; runs Python.  -1 where SystemExit or
 * KeyboardInterrupt leaves the loop. */
GL_PRIVATE int gl_watchdog_ended(gl_loop *loop);
GL_PRIVATE_DATA PyMethodDef *const gl_watchdog_methods;
GL_PRIVATE int gl_watchdog_init(PyObject *module);

/* ---- door.c -------------------------------------------------------------------- */

/* Lets a thread that Python does not know look at its memory, or call it: then `gil` is not NULL.
 * What it does may neither block nor import.  False: Python has ended, and it may do nothing. */
GL_PRIVATE bool gl_door_enter(PyGILState_STATE *gil);
GL_PRIVATE void gl_door_leave(const PyGILState_STATE *gil);
/* Python ends: nobody comes in any more; returns when all have left. */
GL_PRIVATE void gl_door_shut(void);

/* ---- asker.c -------------------------------------------------------------------- */

GL_PRIVATE int gl_asker_init(PyObject *module);

/* ---- stopped.c ------------------------------------------------------------------ */

GL_PRIVATE int gl_stopped_init(PyObject *module);

/* ---- lease.c, calls.c and loops.c -------------------------------------------- */

GL_PRIVATE int gl_lease_init(PyObject *module);
GL_PRIVATE int gl_calls_init(PyObject *module);
GL_PRIVATE int gl_loops_init(PyObject *module);
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

#endif /* GOLOOP_STATE_H */
