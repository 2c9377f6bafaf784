/*
 * queue.h: the ready queue, handles and timers of a loop.
 *
 *   ready.c        the ready queue
 *   handle.c       Handle, TimerHandle and ThreadSafeHandle: the objects
 *   handle_views.c types and attributes of handles
 *   handle_run.c   running and cancelling handles
 *   timers.c       timer ids and their handles
 *   scheduling.c   scheduling of callbacks and tasks, running of one entry
 *   inbox.c        callbacks that other threads post, in a build without the GIL
 */
#pragma once

#include "observe/observe.h"

/* ---- Handle and TimerHandle (handle.c) ------------------------------------ */

/* All handles begin with the slots of asyncio.Handle, so that asyncio's methods and attribute
 * access work on them; handle_views.c checks the offsets.  Python code can write or delete the
 * slots, so C must accept any object, or NULL, in each of them (handle.c).  Only
 * the fields after the slots are private to C. */
#if GL_WEAKREFS_ARE_A_FIELD
#define GL_HANDLE_WEAKREFS PyObject *weakrefs; /* later versions store it before the object */
#else
#define GL_HANDLE_WEAKREFS
#endif
#define GL_HANDLE_HEAD                                                                             \
    PyObject_HEAD                                                                                  \
    PyObject *args; /* NULL if they are in arg[] */                                                \
    PyObject *callback;                                                                            \
    PyObject *cancelled;                                                                           \
    PyObject *context;                                                                             \
    PyObject *loop;                                                                                \
    PyObject *repr; /* Python reads NULL in this and the next field as None */                     \
    PyObject *source_traceback;                                                                    \
    GL_HANDLE_WEAKREFS

/* The slots of every handle, by which C accesses them without knowing the type. */
typedef struct {
    GL_HANDLE_HEAD
} gl_handle_head;

/* The fields of every handle that only C uses, after the slots of its type. */
#define GL_INLINE_ARGS 2
typedef struct {
    int8_t nargs;      /* -1: the arguments are those in the head */
    bool context_due;  /* an empty context will be created when it is needed */
    bool context_ours; /* C created the context, and the handle may have the only reference */
#ifdef GL_FREE_THREADED
    bool posted;       /* the creating thread's references to the loop are in the shared count */
    int64_t posted_at; /* ns, while it is in the inbox */
#endif
    PyObject *arg[GL_INLINE_ARGS];
    GL_OWNER_LOOP
} gl_handle_args;

/* The handle of a call_soon(). */
typedef struct {
    GL_HANDLE_HEAD
    gl_handle_args inl;
} gl_handle;

/* The handle of a call_later() or call_at(). */
typedef struct {
    GL_HANDLE_HEAD
    PyObject *scheduled; /* not used; this and the next are slots of asyncio.TimerHandle */
    PyObject *when;
    gl_handle_args inl;
    int64_t deadline;         /* ns of CLOCK_MONOTONIC */
    struct gl_loop *armed_by; /* borrowed; valid while `timer` is an id */
    uint32_t timer;           /* id in timers.c, or GL_NO_TIMER */
    uint32_t submission;      /* index of its TIMER_ARM in the submission queue; valid until Go
                               * has decoded the submission */
} gl_timer_handle;

/* The handle of a call_soon_threadsafe(), since CPython 3.14. */
typedef struct {
    GL_HANDLE_HEAD
    PyObject *lock; /* asyncio's slot, kept for its offset; goloop uses done_lock */
    gl_handle_args inl;
    unsigned long running; /* the thread that runs the callback, or 0 */
    PyObject *done_lock; /* held while the callback runs, for cancel() in other threads; or NULL */
} gl_threadsafe_handle;

/* ---- ready.c ----------------------------------------------------------------- */

/* Allocates the buffer of a new queue.  -1 with MemoryError. */
GL_PRIVATE int gl_ready_init(gl_ready *q);
/* Appends an entry, a Handle or a Task; steals the reference, except if it fails.  `since`: the
 * time when the entry became ready, ns; 0: now.  -1 with RuntimeError for a closed queue, or with
 * MemoryError. */
GL_PRIVATE_INLINE int gl_ready_push(gl_ready *q, PyObject *entry, int64_t since);
/* Removes the oldest entry, whose reference the caller then owns.  The queue must not be empty. */
GL_PRIVATE_INLINE gl_entry gl_ready_pop(gl_ready *q);
/* Returns the number of entries that were ever appended to an open queue. */
static inline uint64_t
gl_ready_total(const gl_ready *q)
{
    return q->head + q->count;
}
/* Moves the next n entries after all others; there must be as many. */
GL_PRIVATE void gl_ready_move_to_end(gl_ready *q, uint64_t n);
/* Shrinks the buffer to its first capacity after a burst, once the queue is empty. */
GL_PRIVATE_INLINE void gl_ready_trim(gl_ready *q);
/* Counts one arrival: a pushed entry, or a due timer.  Returns the number of arrivals that it
 * represents if its waiting time is to be measured, else 0.  Ends a poll of the loop, if the
 * arrival is such a sample or the first after gl_ready_wake_at_next_push(). */
GL_PRIVATE_INLINE uint32_t gl_ready_count_arrival(gl_ready *q);
/* Lets the next push end a poll: in guest mode the host loop pushes while another thread polls. */
GL_PRIVATE void gl_ready_wake_at_next_push(gl_ready *q);
/* Refills the budget of samples after a poll at `now` (ns).  Once half of the budget is there, the
 * stride is 1 again. */
GL_PRIVATE void gl_ready_refill_samples(gl_ready *q, int64_t now);
/* Visits the entries for the loop's tp_traverse, and the references of an untracked handle that
 * only the queue has.  Returns the visitor's result if it is not 0. */
GL_PRIVATE int gl_ready_traverse(gl_ready *q, visitproc visit, void *arg);
/* Untracks the newest entry if it is a handle to which only the queue refers.  For a loop that does
 * not run. */
GL_PRIVATE_INLINE void gl_ready_untrack_last(gl_ready *q);
/* Tracks the entries to which there are other references, when the loop stops: such an entry may
 * be in a cycle with the loop, which can become garbage now.  A weak reference counts too. */
GL_PRIVATE void gl_ready_track_kept(gl_ready *q);
/* Drops all entries, tracks those handles to which there are other references, and frees the
 * memory.  Later pushes raise RuntimeError.  May be called again. */
GL_PRIVATE void gl_ready_close(gl_ready *q);
/* Ends a blocked turn.  Does nothing if the turn does not block, and for a closed or foreign loop.
 * Called by any thread that has the GIL, which orders its push before the wake-up.  Until the turn
 * has seen the wake-up, further calls write nothing. */
GL_PRIVATE void gl_wake(gl_loop *loop);

/* ---- handle.c and handle_views.c --------------------------------------------- */

/* Creates the types of handles, at import; ThreadSafeHandle only from 3.14 on.  Makes their methods
 * take the loop's lock in a build without the GIL.  -1 with ImportError if the layout of asyncio's
 * handles is unknown, or with another exception. */
GL_PRIVATE int gl_handle_init_types(PyObject *module);
/* Returns true if the object is exactly a Handle, TimerHandle or ThreadSafeHandle of goloop. */
GL_PRIVATE_INLINE bool gl_is_handle(PyObject *o);
/* Returns true if cancel() was called. */
GL_PRIVATE_INLINE bool gl_handle_is_cancelled(PyObject *h);
/* Tracks a handle for the garbage collector, unless it is tracked already. */
GL_PRIVATE_INLINE void gl_handle_track(PyObject *h);
/* The call that a handle will make: callback(*args) in `context` (NULL or None: a copy of the
 * current one).  All references are borrowed. */
typedef struct gl_call {
    PyObject *callback;
    PyObject *const *args;
    Py_ssize_t nargs;
    PyObject *context;
} gl_call;
/* Creates a handle of one of the three types, untracked in a build with the GIL; gl_timers_arm()
 * calls it for TimerHandles. */
GL_PRIVATE PyObject *gl_handle_new(PyTypeObject *type, gl_loop *loop, const gl_call *call);

#ifdef GL_FREE_THREADED
/* Takes n of the spare references to the loop, in any thread.  Returns false, and takes none, if
 * there are fewer. */
GL_PRIVATE_INLINE bool gl_inbox_take_references(gl_loop *loop, int n);
/* Drops a posted Handle's reference to the loop: in the loop's thread, while the loop runs, it
 * becomes a spare one without an atomic operation, in any other thread its count is decremented. */
GL_PRIVATE void gl_inbox_return_reference(gl_loop *loop);
/* Drops all spare references, when the loop has stopped.  The caller has another reference. */
GL_PRIVATE void gl_inbox_drop_spare_references(gl_loop *loop);
#endif

/* ---- handle_run.c ------------------------------------------------------------ */

/* handle.cancel(): marks the handle as cancelled, cancels a timer, and drops callback and
 * arguments; in debug mode it stores the repr first, and if that raises, the handle is cancelled
 * but keeps them.  Returns None, also for a cancelled handle.  Waits while another thread runs the
 * callback of a ThreadSafeHandle.  Calls the method of asyncio's class instead if a program has
 * replaced methods of those classes, or `_loop` or `_cancelled` of this handle. */
GL_PRIVATE PyObject *gl_handle_cancel(PyObject *self, PyObject *Py_UNUSED(ignored));
/* Passes the current exception, of a handle's callback, to the loop's exception handler, and clears
 * it.  -1 if the exception ends the loop's run (it stays set), or with the handler's exception. */
GL_PRIVATE int gl_handle_report(gl_loop *loop, PyObject *self);

/* ---- scheduling.c ------------------------------------------------------------ */

/* Schedules callable(arg) on the goloop loop of the caller, by a call_soon() that a program has
 * replaced, or directly, without giving out the handle.  `arg` may be NULL (no argument), `context`
 * too (a copy of the current one).  -1 with RuntimeError if the loop can't be used, or with another
 * exception. */
GL_PRIVATE int gl_schedule_on_own_loop(gl_loop *loop, PyObject *callable, PyObject *arg,
                                       PyObject *context);
/* Schedules callable(arg) on any asyncio loop: directly on a native one, else by its call_soon().
 * `arg` and `context` may be NULL.  The caller has references to all arguments except the loop.  -1
 * with RuntimeError if `loop` is NULL, or with another exception. */
GL_PRIVATE int gl_schedule_on_any_loop(PyObject *loop, PyObject *callable, PyObject *arg,
                                       PyObject *context);
/* Appends an entry after the Handles that other threads have posted; steals the reference, except
 * if it fails. */
GL_PRIVATE_INLINE int gl_ready_add(gl_loop *loop, PyObject *entry);
/* Appends a Task, with a new reference; it will be stepped, or woken up with the result of its
 * fut_waiter. */
GL_PRIVATE_INLINE int gl_push_task(gl_loop *loop, PyObject *task);
/* Runs a handle that is not cancelled, and records the call in a trace.  In debug mode the handle
 * is the loop's current_handle meanwhile, and a slow one is logged.  The caller has a reference,
 * and tracks the handle afterwards if there are others.  -1 if an exception ends the run of the
 * loop. */
GL_PRIVATE int gl_run_handle(gl_loop *loop, PyObject *handle);
/* Debug mode: calls Loop._log_slow(entry, seconds since `before`), which logs a handle, task or
 * transport that took longer than slow_callback_duration. */
GL_PRIVATE int gl_log_slow(gl_loop *loop, PyObject *entry, int64_t before);

/* ---- timers.c ---------------------------------------------------------------- */

/* Creates the TimerHandle of a call, tracked, and arms its timer: allocates an id, submits
 * TIMER_ARM, and lowers the loop's next deadline.  `when` is the result of the handle's when(),
 * `deadline` the same time in ns of CLOCK_MONOTONIC.  NULL with RuntimeError for a closed loop. */
GL_PRIVATE PyObject *gl_timers_arm(gl_loop *loop, PyObject *when, int64_t deadline,
                                   const gl_call *call);
/* Removes an expired timer and frees its id.  Returns its handle, which the caller then owns, or
 * NULL, without an exception, if it was cancelled. */
GL_PRIVATE PyObject *gl_timers_take(gl_loop *loop, uint32_t id);
/* Makes the first `n` retired ids available again, after a turn.  Their timers were cancelled
 * before the turn. */
GL_PRIVATE_INLINE void gl_timers_free_retired(gl_timers *t, uint32_t n);
/* Visits the handles of armed timers for the loop's tp_traverse. */
GL_PRIVATE int gl_timers_traverse(gl_timers *t, visitproc visit, void *arg);
/* Disarms and drops all timers and frees the memory, when the loop is closed. */
GL_PRIVATE void gl_timers_clear(gl_timers *t);

#ifdef GL_FREE_THREADED
/* ---- inbox.c ----------------------------------------------------------------- */

/* Appends a Handle, with a new reference, and wakes a sleeping loop.  Called by any thread, without
 * the loop's lock.  -1 with RuntimeError if the loop is closed. */
GL_PRIVATE int gl_inbox_post(gl_loop *loop, PyObject *handle);
/* Wakes the loop without a post, unless its inbox is closed.  Any thread, without the loop's
 * lock. */
GL_PRIVATE void gl_inbox_wake(gl_loop *loop);
/* Moves the posted Handles to the ready queue and, in the loop's thread, the returned references to
 * the spare ones.  The caller has the loop's lock.  On failure the remaining Handles are
 * dropped. */
GL_PRIVATE int gl_inbox_join(gl_loop *loop);
/* Returns true if Handles were posted; read without the mutex, so the answer may be out of date. */
static inline bool
gl_inbox_any(gl_loop *loop)
{
    return __atomic_load_n(&loop->inbox.any, __ATOMIC_RELAXED) != 0;
}
/* Marks the loop as sleeping before a poll, so that every later post wakes it.  Returns false, and
 * marks nothing, if the inbox has entries, so that the loop must not block. */
GL_PRIVATE bool gl_inbox_set_sleeping(gl_loop *loop);
/* Marks the loop as awake after a poll: a post need not wake it. */
GL_PRIVATE void gl_inbox_set_awake(gl_loop *loop);
/* Closes the inbox when the loop is closed, waits until no thread is about to wake the loop, and
 * drops the posted handles. */
GL_PRIVATE void gl_inbox_close(gl_loop *loop);
/* Visits the posted handles for the loop's tp_traverse. */
GL_PRIVATE int gl_inbox_traverse(gl_loop *loop, visitproc visit, void *arg);
#endif
