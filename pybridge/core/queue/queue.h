/*
 * queue.h: what a loop is about to run.
 *
 *   ready.c        the ready queue
 *   handle.c       Handle, TimerHandle and ThreadSafeHandle: the objects
 *   handle_views.c their types and attributes
 *   handle_run.c   running and cancelling them
 *   timers.c       timer ids and their handles
 *   scheduling.c   what puts work on the ready queue, wakes the loop, runs an entry
 *   inbox.c        what other threads put there, where there is no GIL
 */
#pragma once

#include "observe/observe.h"

/* ---- Handle and TimerHandle (handle.c) ------------------------------------ */

/* The head of all is asyncio.Handle's own slots, so that asyncio's methods and anybody's
 * attribute access work on them; handle_views.c checks the offsets.  Python can write or delete
 * them: C takes from them objects, of any kind or NULL, and never more (handle.c).  Only
 * the fields behind the slots are ours alone. */
#if GL_WEAKREFS_ARE_A_FIELD
#define GL_HANDLE_WEAKREFS PyObject *weakrefs; /* later versions keep it before the object */
#else
#define GL_HANDLE_WEAKREFS
#endif
#define GL_HANDLE_HEAD                                                                             \
    PyObject_HEAD                                                                                  \
    PyObject *args; /* unless arg[] holds them */                                                  \
    PyObject *callback;                                                                            \
    PyObject *cancelled;                                                                           \
    PyObject *context;                                                                             \
    PyObject *loop;                                                                                \
    PyObject *repr; /* of these two NULL reads as None */                                          \
    PyObject *source_traceback;                                                                    \
    GL_HANDLE_WEAKREFS

typedef struct {
    GL_HANDLE_HEAD
} gl_handle_head;

#define GL_INLINE_ARGS 2
typedef struct {
    int8_t nargs;      /* -1: the arguments are those in the head */
    bool context_due;  /* the context is a new, empty one, made once somebody needs it */
    bool context_ours; /* it was; so nobody may have it but the handle */
#ifdef GL_FREE_THREADED
    bool posted;       /* by another thread, whose the references to the loop are */
    int64_t posted_at; /* ns, while it is in the inbox */
#endif
    PyObject *arg[GL_INLINE_ARGS];
    GL_OWNER_LOOP
} gl_handle_args;

typedef struct {
    GL_HANDLE_HEAD
    gl_handle_args inl;
} gl_handle;

typedef struct {
    GL_HANDLE_HEAD
    PyObject *scheduled; /* asyncio.TimerHandle's slots; this one is not used */
    PyObject *when;
    gl_handle_args inl;
    int64_t deadline;         /* ns of CLOCK_MONOTONIC */
    struct gl_loop *armed_by; /* borrowed; valid while `timer` is an id */
    uint32_t timer;           /* id in timers.c, or GL_NO_TIMER */
    uint32_t submission;      /* where its arming lies in the submission queue, if it
                               * is still there */
} gl_timer_handle;

typedef struct {
    GL_HANDLE_HEAD
    PyObject *lock; /* the slot of asyncio's class; not used */
    gl_handle_args inl;
    unsigned long running; /* the thread that runs the callback, or 0 */
    PyObject *gate;        /* a lock, for which others wait until it has ended, or NULL */
} gl_threadsafe_handle;

/* ---- ready.c ----------------------------------------------------------------- */

GL_PRIVATE int gl_ready_init(gl_ready *q);
/* Appends; takes over the reference in case of success.  `since`: ns; 0: it is ready from now on. */
GL_PRIVATE_INLINE int gl_ready_push(gl_ready *q, PyObject *entry, int64_t since);
/* Takes the oldest entry; the caller owns the reference.  count must not be 0. */
GL_PRIVATE_INLINE gl_entry gl_ready_pop(gl_ready *q);
/* Gives back the memory of a burst once the queue is empty. */
GL_PRIVATE_INLINE void gl_ready_trim(gl_ready *q);
/* One thing more is ready.  Its wait is measured, for so many; 0: it is not. */
GL_PRIVATE_INLINE uint32_t gl_ready_sample_weight(gl_ready *q);
/* A poll has ended. */
GL_PRIVATE void gl_ready_polled(gl_ready *q, int64_t now);
GL_PRIVATE int gl_ready_traverse(gl_ready *q, visitproc visit, void *arg);
/* The collector need not know the newest entry if by now nobody but the queue has it. */
GL_PRIVATE_INLINE void gl_ready_untrack_last(gl_ready *q);
/* The loop stops: an entry that somebody kept may be in a cycle with the loop, which
 * only now can become garbage.  A weak reference can turn into such a somebody. */
GL_PRIVATE void gl_ready_track_kept(gl_ready *q);
/* Drops all entries and the memory: from now on a push is an error.  Idempotent. */
GL_PRIVATE void gl_ready_close(gl_ready *q);
/* Makes a blocked turn return; any thread that has the GIL. */
GL_PRIVATE void gl_wake(gl_loop *loop);

/* ---- handle.c and handle_views.c --------------------------------------------- */

GL_PRIVATE int gl_handle_init_types(PyObject *module);
/* True for the exact types of handle_views.c. */
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

#ifdef GL_FREE_THREADED
/* Takes n references to the loop of those that are left over; false: there are too few.  Any
 * thread.  And: gives one back, which another thread took. */
GL_PRIVATE_INLINE bool gl_inbox_borrow(gl_loop *loop, int n);
GL_PRIVATE void gl_inbox_return(gl_loop *loop);
/* The loop has stopped: nothing is left over any more. */
GL_PRIVATE void gl_inbox_settle(gl_loop *loop);
#endif

/* ---- handle_run.c ------------------------------------------------------------ */

GL_PRIVATE PyObject *gl_handle_cancel(PyObject *self, PyObject *Py_UNUSED(ignored));
/* Hands the exception that is set, of a handle's callback, to the loop's exception handler.
 * -1 where it leaves the loop, or that handler raised. */
GL_PRIVATE int gl_handle_report(gl_loop *loop, PyObject *self);

/* ---- scheduling.c ------------------------------------------------------------ */

/* Schedules callable(arg) (arg may be NULL: no argument) in `context` (NULL: a copy
 * of the current one), as call_soon does, without giving out the handle. */
GL_PRIVATE int gl_schedule_on_own_loop(gl_loop *loop, PyObject *callable, PyObject *arg,
                                       PyObject *context);
/* loop.call_soon(callable[, arg], context=context) by the shortest way. */
GL_PRIVATE int gl_schedule_on_any_loop(PyObject *loop, PyObject *callable, PyObject *arg,
                                       PyObject *context);
/* Appends, behind what other threads have posted; takes over the reference in case of success. */
GL_PRIVATE_INLINE int gl_ready_add(gl_loop *loop, PyObject *entry);
/* Puts a Task on the ready queue; it will be stepped, or woken by its fut_waiter. */
GL_PRIVATE_INLINE int gl_push_task(gl_loop *loop, PyObject *task);
/* Runs a handle that is not cancelled; the caller keeps it alive, and tracks it
 * afterwards where somebody else does too. */
GL_PRIVATE int gl_run_handle(gl_loop *loop, PyObject *handle);
/* Debug mode: says when `what`, which began at `before`, took long. */
GL_PRIVATE int gl_log_slow(gl_loop *loop, PyObject *what, int64_t before);

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

#ifdef GL_FREE_THREADED
/* ---- inbox.c ----------------------------------------------------------------- */

/* Any thread, without the lock: leaves a Handle; and only wakes the loop.  -1 with RuntimeError
 * where the loop is closed. */
GL_PRIVATE int gl_inbox_post(gl_loop *loop, PyObject *handle);
GL_PRIVATE void gl_inbox_wake(gl_loop *loop);
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
#endif
