/*
 * state.h: the state of a loop, and what changes it by itself.
 *
 *   loop_state.c   may the loop be used here and now?
 *   submissions.c  the queue of what Go is asked for
 *   scheduling.c   what puts work on the ready queue, wakes the loop, runs an entry
 *   ready.c        the ready queue
 *   handle.c       Handle and TimerHandle
 *   timers.c       timer ids and who waits for them
 *   registry.c     registrations (stream, listener, watch) by id, and what uses an fd
 *   lease.c        whose a descriptor is, and until when; lease.h draws it
 *   calls.c        the system calls on leased descriptors, which a test can make fail
 *   large.c        buffers for large receives
 *   native_loop.c  may an entry go on this loop's ready queue directly?
 *   loops.c        all loops of the process, and what is sent before a fork and at exit
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
 */
#ifndef GOLOOP_STATE_H
#define GOLOOP_STATE_H

#include "support/support.h"
#include "state/lease.h"

/* ---- Handle and TimerHandle (handle.c) ------------------------------------ */

/* The head of all is asyncio.Handle's own slots, so that asyncio's methods and anybody's
 * attribute access work on them; names.c checks the offsets.  Python can write or delete
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
    PyObject *arg[GL_INLINE_ARGS];
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

/* ---- tables ----------------------------------------------------------------- */

typedef struct gl_ready {     /* ready.c: a ring of owned references */
    PyObject **slot;          /* NULL once closed */
    size_t capacity;          /* a power of two; 0 once closed */
    size_t head, count;
} gl_ready;

typedef struct gl_reg {       /* registry.c: by id */
    PyObject *owner;          /* owned while registered; of a watch: NULL */
    uint32_t gen;
    uint32_t kind;
    int fd;                   /* watch: index in fds */
} gl_reg;

/* One direction of a watched fd (watch.c). */
typedef struct gl_place {
    PyObject *waiter;         /* owned: a Handle, or a Future that waits once; or NULL */
    PyObject *sock;           /* owned: the socket that a Future's owner waits for, or NULL */
    uint64_t turn;            /* in which it was taken: what that turn found is not for it */
    bool once;
} gl_place;

enum { GL_READING, GL_WRITING };

typedef struct gl_watch {
    gl_place place[2];
    PyObject *file;           /* owned: the object that add_reader/_writer got, or NULL */
    uint32_t id, gen;         /* of the registration, while `watched` */
    int fd;
    bool watched;
    bool late;                /* in the loop's late_watches */
} gl_watch;

typedef struct gl_fd {        /* registry.c: what uses a number */
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
typedef struct gl_fds {
    gl_fd_branch **branch;
    int branches;
} gl_fds;

typedef struct gl_timer_chunk gl_timer_chunk;
typedef struct gl_timers {    /* timers.c */
    gl_timer_chunk **chunk;
    uint32_t chunks;
    uint32_t first_free;      /* the lowest chunk that has a free id */
    uint32_t armed;
    uint32_t *limbo;          /* cancelled ids that Go may still report */
    uint32_t limbo_len, limbo_cap;
} gl_timers;

/* ---- Loop (loop.c) ------------------------------------------------------------ */

struct gl_loop {
    PyObject_HEAD
    PyObject *weakrefs;
    struct gl_loop *next_loop, *prev_loop; /* loops.c */
    const gl_table *go;       /* NULL once closed */
    gl_shared *shared;
    int32_t reactor;
    uint64_t epoch;           /* of the library; another one: we are in a forked child */
    unsigned long thread_id;  /* 0 while not running */
    char closed, stopping, debug;
    char running;             /* _run() is on the stack */
    char in_turn;             /* Go is running (the GIL is released) */
    char sleeping;            /* ... and may block: a push must wake it */
    char dirty;               /* submissions wait that must not wait long (writes) */
    char releasing;           /* loop_release() is on a stack */
    char replaced;            /* somebody has set call_soon on the instance */
    char lingering;           /* current_task.c: an entry without a task is left */
    PyObject *task_factory;   /* or NULL, or None */
    gl_submission *late;      /* made by another thread while Go was running */
    uint32_t late_len, late_cap;
    gl_ready ready;
    uint32_t cmp_pos;         /* completions already handled */
    gl_timers timers;
    gl_reg *regs;
    uint32_t regs_cap;
    gl_fds fds;
    gl_watch **late_watches;  /* to be told to Go in the loop's own thread */
    uint32_t late_watches_len, late_watches_cap;
    PyObject **held;          /* sockets kept open until who waited for them has run */
    uint32_t held_len, held_cap;
    PyObject *large[GL_LARGE_MAX]; /* large.c: bytes objects that Go may receive into */
    bool large_wanted;
    uint32_t large_idle;      /* turns since one was of use */
    PyObject *resolving;      /* dict: request number -> future */
    uint32_t next_request;
    uint8_t *scratch;         /* sockop.c: received into, then copied */
    PyObject *current_handle; /* what runs now, for debug and diagnostics */
    uint32_t since_poll;      /* iterations since the last turn */
    uint64_t last_poll_ticks;
    uint64_t iterations;
};

#define gl_loop_check(o) PyObject_TypeCheck((o), G.loop_type)

/* Raises RuntimeError for a closed loop, or one that belongs to a parent process. */
GL_PRIVATE int gl_loop_check_usable(gl_loop *self);
/* True in a process that the loop does not belong to: Go must not be called. */
GL_PRIVATE_INLINE bool gl_loop_is_foreign(gl_loop *self);

/* Appends a submission; amortised O(1). */
GL_PRIVATE int gl_submit(gl_loop *loop, uint32_t op, uint32_t id, uint32_t gen,
                         int64_t arg);

/* Schedules callable(arg) (arg may be NULL: no argument) in `context` (NULL: a copy
 * of the current one), as call_soon does, without giving out the handle. */
GL_PRIVATE int gl_call_soon(gl_loop *loop, PyObject *callable, PyObject *arg,
                        PyObject *context);

/* ---- registry.c -------------------------------------------------------------- */

/* Notes a registration under the id that Go gave; takes a new reference to owner. */
GL_PRIVATE int gl_reg_set(gl_loop *loop, uint32_t id, uint32_t gen, uint32_t kind,
                      PyObject *owner, int fd);
/* Forgets it (gives the reference, which may be NULL, to the caller, or drops it).  Any later
 * completion of it is ignored. */
GL_PRIVATE PyObject *gl_reg_take(gl_loop *loop, uint32_t id, uint32_t gen);
GL_PRIVATE void gl_reg_clear(gl_loop *loop, uint32_t id, uint32_t gen);
/* The entry of a number, or NULL where there is none. */
GL_PRIVATE_INLINE gl_fd *gl_fd_find(gl_loop *loop, int fd);
/* The same, made if need be; NULL with OSError (EBADF: nothing is open) or MemoryError. */
GL_PRIVATE gl_fd *gl_fd_get(gl_loop *loop, int fd);
/* The fd of an int or of an object with fileno(), as asyncio's selectors find it;
 * -1 with ValueError. */
GL_PRIVATE int gl_fd_from_object(PyObject *o);
/* RuntimeError if a live transport uses the number (asyncio's words). `named` is what the
 * user passed, for the message; NULL: the number. */
GL_PRIVATE int gl_fd_ensure_no_transport(gl_loop *loop, int fd, PyObject *named);
/* Notes who uses a number, or with NULL forgets `transport` there if it is still noted. */
GL_PRIVATE int gl_fd_set_transport(gl_loop *loop, int fd, enum gl_reg_kind kind,
                                   PyObject *transport);
GL_PRIVATE void gl_fd_forget_transport(gl_loop *loop, int fd, PyObject *transport);
/* True where the caller must not enter Go: another thread runs the loop. */
GL_PRIVATE_INLINE bool gl_loop_is_elsewhere(gl_loop *loop);

/* Makes a blocked turn return; any thread that has the GIL (turn.c). */
GL_PRIVATE void gl_wake(gl_loop *loop);

/* ---- loops.c --------------------------------------------------------------------- */

/* Which loops have a reactor. */
GL_PRIVATE void gl_loops_add(gl_loop *loop);
GL_PRIVATE void gl_loops_remove(gl_loop *loop);
/* Sends what all of them have queued. */
GL_PRIVATE void gl_loops_flush(void);

/* ---- calls.c --------------------------------------------------------------------------------- */

/* _fail_call(call, errno, after=0, times=1): for tests; times=0 ends it. */
GL_PRIVATE PyObject *gl_core_fail_call(PyObject *Py_UNUSED(module), PyObject *args,
                                       PyObject *kwargs);

/* ---- handle.c -------------------------------------------------------------------------------- */

GL_PRIVATE int gl_handle_init_types(PyObject *module);
/* The context dict and the call of the exception handler, as asyncio.Handle._run
 * has them.  Takes the exception that is set. */
GL_PRIVATE int gl_handle_report(gl_loop *loop, PyObject *self);
/* Makes a handle known to the garbage collector. */
GL_PRIVATE_INLINE void gl_handle_track(PyObject *h);
GL_PRIVATE PyObject *gl_handle_cancel(PyObject *self, PyObject *Py_UNUSED(ignored));
GL_PRIVATE PyObject *gl_timer_handle_new(gl_loop *loop, PyObject *when, int64_t deadline,
                                         PyObject *callback, PyObject *const *args,
                                         Py_ssize_t nargs, PyObject *context);
/* The handle of call_soon_threadsafe; untracked too. */
GL_PRIVATE PyObject *gl_threadsafe_handle_new(gl_loop *loop, PyObject *callback,
                                              PyObject *const *args, Py_ssize_t nargs,
                                              PyObject *context);
/* Untracked. */
GL_PRIVATE PyObject *gl_handle_new(gl_loop *loop, PyObject *callback, PyObject *const *args,
                                   Py_ssize_t nargs, PyObject *context);
GL_PRIVATE_INLINE bool gl_handle_is_cancelled(PyObject *h);
/* True for the exact types that handle.c makes. */
GL_PRIVATE_INLINE bool gl_is_handle(PyObject *o);

/* ---- large.c --------------------------------------------------------------------------------- */

/* The bytes object of a completion that came in a buffer, cut to its length. */
GL_PRIVATE PyObject *gl_large_take(gl_loop *loop, const gl_completion *c);
/* Notes a receive of n bytes. */
GL_PRIVATE_INLINE void gl_large_note(gl_loop *loop, int64_t n);
/* Before a turn. Without memory there are fewer buffers, or none. */
GL_PRIVATE void gl_large_refill(gl_loop *loop);
GL_PRIVATE void gl_large_drop(gl_loop *loop);

/* ---- lease.c --------------------------------------------------------------------------------- */

GL_PRIVATE int gl_lease_init(void);

/* ---- loop_state.c ---------------------------------------------------------------------------- */

/* RuntimeError for a call that would use the reactor while another thread is in it. */
GL_PRIVATE int gl_loop_check_own_thread(gl_loop *self);

/* ---- loops.c --------------------------------------------------------------------------------- */

/* _flush_loops(): for atexit. */
GL_PRIVATE PyObject *gl_core_flush_loops(PyObject *Py_UNUSED(module),
                                         PyObject *Py_UNUSED(ignored));

/* ---- ready.c --------------------------------------------------------------------------------- */

/* Drops all entries and the ring: from now on a push is an error.  Idempotent. */
GL_PRIVATE void gl_ready_close(gl_ready *q);
/* The loop stops: an entry that somebody kept may be in a cycle with the loop, which
 * only now can become garbage.  A weak reference can turn into such a somebody. */
GL_PRIVATE void gl_ready_track_kept(gl_ready *q);
/* The collector need not know the newest entry if by now nobody but the ring has it. */
GL_PRIVATE_INLINE void gl_ready_untrack_last(gl_ready *q);
GL_PRIVATE int gl_ready_traverse(gl_ready *q, visitproc visit, void *arg);
/* Gives back the memory of a burst once the ring is empty. */
GL_PRIVATE_INLINE void gl_ready_trim(gl_ready *q);
/* Takes the oldest entry; the caller owns the reference.  count must not be 0. */
GL_PRIVATE_INLINE PyObject *gl_ready_pop(gl_ready *q);
/* Appends; takes over the reference in case of success. */
GL_PRIVATE_INLINE int gl_ready_push(gl_ready *q, PyObject *entry);
GL_PRIVATE int gl_ready_init(gl_ready *q);

/* ---- registry.c ------------------------------------------------------------------------------ */

/* At close: nobody is told any more; the fds themselves are left to their owners. */
GL_PRIVATE void gl_registry_clear(gl_loop *loop);
GL_PRIVATE int gl_registry_traverse(gl_loop *loop, visitproc visit, void *arg);
/* The number that an int is or that an object's fileno() gives, which may be no fd's
 * (a closed socket says -1); false with ValueError. */
GL_PRIVATE bool gl_fd_number(PyObject *o, long *fd);

/* ---- scheduling.c ---------------------------------------------------------------------------- */

/* Runs a handle that is not cancelled; the caller keeps it alive, and tracks it
 * afterwards where somebody else does too. */
GL_PRIVATE int gl_run_timed(gl_loop *loop, PyObject *handle);
GL_PRIVATE int gl_log_slow(gl_loop *loop, PyObject *what, double seconds);
GL_PRIVATE_INLINE int64_t gl_monotonic_ns(void);

/* ---- submissions.c --------------------------------------------------------------------------- */

/* After a turn: what was put aside joins the queue. */
GL_PRIVATE int gl_submissions_join_late(gl_loop *loop);
GL_PRIVATE void gl_submissions_trim(gl_loop *loop);

/* ---- timers.c -------------------------------------------------------------------------------- */

/* Forgets all timers (at close). */
GL_PRIVATE void gl_timers_clear(gl_timers *t);
GL_PRIVATE int gl_timers_traverse(gl_timers *t, visitproc visit, void *arg);
/* The handle of a timer that is due, owned by the caller, or NULL. */
GL_PRIVATE PyObject *gl_timers_take(gl_loop *loop, uint32_t id);
/* After a turn: the first `n` in limbo, those cancelled before it began, can be given
 * out again. */
GL_PRIVATE_INLINE void gl_timers_turned(gl_timers *t, uint32_t n);
/* Arms a fresh handle: takes a reference of its own. */
GL_PRIVATE int gl_timers_arm(gl_loop *loop, gl_timer_handle *h);

/* ---- native_loop.c -------------------------------------------------------------- */

/* The loop, if entries may be put on its ring without asking its call_soon: a usable
 * goloop loop, not in debug mode, whose call_soon nobody has overridden.  Else NULL,
 * without an exception. */
GL_PRIVATE_INLINE gl_loop *gl_native_loop(PyObject *loop);
/* loop.call_soon(callable[, arg], context=context) by the shortest way. */
GL_PRIVATE int gl_soon(PyObject *loop, PyObject *callable, PyObject *arg, PyObject *context);
/* Puts a Task on the ring; it will be stepped, or woken by its fut_waiter. */
GL_PRIVATE_INLINE int gl_push_task(gl_loop *loop, PyObject *task);

/* What asyncio's _fatal_error tells before it closes: to the handler, or where quiet to
 * the log of the debug mode. `protocol` may be NULL for None. */
GL_PRIVATE int gl_report_fatal(gl_loop *loop, bool quiet, const char *message, PyObject *exc,
                           PyObject *transport, PyObject *protocol);
/* Lets go of what gl_watch_release gave out. */
GL_PRIVATE void gl_watch_drop(gl_watch *out);
/* Ends the hold on the sockets that were ready in the last turn. */
GL_PRIVATE void gl_held_release(gl_loop *loop);

#endif /* GOLOOP_STATE_H */
