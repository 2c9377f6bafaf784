/*
 * threads.h: which thread may use a loop, and how other threads wait.
 *
 *   stop_world.c       stops all other Python threads for a moment, in a build without the GIL
 *   lock.c             the lock of a loop, in a build without the GIL; lock.h has the guards
 *   guard.c            wraps every method of a type so that it takes that lock
 *   shared_lock.c      the loop's side of the lock that it shares with the monitor
 *   submissions.c      the queue of requests to the reactor, which the shared lock protects
 *   foreign_threads.c  how threads that Python did not create enter Python
 */
#pragma once

#include "threads/lock.h"

/* ---- shared_lock.c ------------------------------------------------------------------ */

/* Registers the process for membarrier(2), which the monitor uses; at import.  Returns 0. */
GL_PRIVATE int gl_shared_lock_init(PyObject *module);
/* Locks the reactor, the submissions and the records of streams against the monitor, see abi.h;
 * recursive.  Called with the GIL; no Python may run before gl_shared_unlock().  Waits until the
 * monitor has released the lock, and ends the poll of another thread's turn and waits for the end
 * of the turn.  Does nothing for NULL and for a closed loop. */
GL_PRIVATE_INLINE void gl_shared_lock(gl_loop *loop);
/* Ends one gl_shared_lock(); the outermost one releases the lock.  Does nothing for NULL and for a
 * closed loop. */
GL_PRIVATE_INLINE void gl_shared_unlock(gl_loop *loop);
/* Returns the API table for one immediate call, which takes the shared lock itself; NULL once
 * closed.  Waits while another thread is in a turn.  The caller has checked that the loop is not
 * foreign. */
GL_PRIVATE_INLINE const gl_table *gl_reactor_api(gl_loop *loop);
/* Marks the loop, which is open, as active, after a poll or when it starts to run, and wakes a
 * parked monitor.  Needs no GIL. */
GL_PRIVATE_INLINE void gl_monitor_resume(gl_loop *loop);
/* Marks the loop as inactive, before a poll or when it stops: the monitor ignores it.  Does nothing
 * for a closed loop. */
GL_PRIVATE_INLINE void gl_monitor_pause(gl_loop *loop);

/* ---- stop_world.c ------------------------------------------------------------------- */

/* Imports the functions of the import lock, at import; does nothing in a build with the GIL.  -1
 * with ImportError. */
GL_PRIVATE int gl_stop_world_init(PyObject *module);
#ifdef GL_FREE_THREADED
/* Calls `visit` with any object and `arg`, once, while all other threads are stopped.  `visit` must
 * return 0, run no Python, allocate nothing and wait for no lock.  The caller holds no mutex,
 * because the thread may wait, detached from Python.  os.fork() in another thread waits until the
 * call returns.  When Python ends, only the thread that ends it can stop the world; for other
 * threads the function does nothing. */
GL_PRIVATE void gl_visit_stopped_world(gcvisitobjects_t visit, void *arg);

/* ---- lock.c ------------------------------------------------------------------ */

/* Creates the lock and the inbox of a new loop.  -1 with MemoryError. */
GL_PRIVATE int gl_lock_init(gl_loop *loop);
/* Offers the lock to the waiting threads and waits until one has taken it, at most 0.2 ms.  The
 * loop's thread calls this function at the start of an iteration if threads wait (gl_lock_offer()).
 * The thread is detached from Python meanwhile, which releases the lock; on return it has the lock
 * again. */
GL_PRIVATE void gl_lock_let_in(gl_loop *loop);
/* Calls gl_lock_let_in() if threads wait for the lock; at the start of an iteration. */
static inline void
gl_lock_offer(gl_loop *loop)
{
    if (__atomic_load_n(&loop->inbox.waiting, __ATOMIC_RELAXED) != 0)
        gl_lock_let_in(loop);
}
/* Resets, in a forked child, the inbox's mutex and its counts of threads, the mutex of the current
 * task, and the loop's lock, which stays locked only if this thread has it: another thread of the
 * parent may have had them. */
GL_PRIVATE void gl_lock_forget_others(gl_loop *loop);

/* ---- guard.c ----------------------------------------------------------------- */

#define GL_OWNER_LOOP_ITSELF (-1) /* the object is the loop */
#define GL_OWNER_LOOP_FUTURE (-2) /* the object is a Future, with asyncio's field `loop` */
#define GL_OWNER_LOOP_NONE (-3)   /* the object has no loop: its own lock is taken */
enum gl_guard_scope {
    GL_GUARD_CALLS = 0,   /* methods and attributes */
    GL_GUARD_DEALLOC = 1, /* methods, attributes, tp_dealloc, tp_clear and tp_finalize */
};
/* Makes all methods and attributes of a new type take the loop's lock (`scope`: its deallocation
 * too), and makes the type immortal.  `loop_offset` is the offset of gl_owner_loop, or one of the
 * constants above.  The methods `free_names` (a list that ends with NULL, or NULL) take the lock
 * themselves, or need none.  -1 with SystemError after GL_GUARD_TYPES types, or with another
 * exception. */
GL_PRIVATE int gl_guard_type(PyTypeObject *type, Py_ssize_t loop_offset,
                             const char *const *free_names, enum gl_guard_scope scope);
/* Adds guarded copies of the methods and attributes that `type` inherits from `base` and does not
 * define itself, except special methods. */
GL_PRIVATE int gl_guard_inherited(PyTypeObject *type, PyTypeObject *base, Py_ssize_t loop_offset);
/* gl_guard_type() for objects with a gl_owner_loop `field`; 0 in a build with the GIL. */
#define GL_GUARD_TYPE(type, struct_name, field, free_names, scope)                                 \
    gl_guard_type(type, offsetof(struct_name, field), free_names, scope)
#else
#define GL_GUARD_TYPE(type, struct_name, field, free_names, scope) 0
#endif

/* ---- submissions.c ----------------------------------------------------------- */

/* Appends a submission `op` for the registration or timer `id`; `arg` depends on it (abi.h).  A
 * GL_SUB_STREAM also makes the next iteration poll, shows the monitor that sends are pending, and
 * moves an alarm that would be too late for them.  With the shared lock; amortised O(1).  -1 with
 * MemoryError. */
GL_PRIVATE int gl_submit(gl_loop *loop, uint32_t op, uint32_t id, uint32_t gen, int64_t arg);
/* Records that a write waits for the turn, so that no later write of this turn is sent eagerly. */
GL_PRIVATE void gl_defer_sends(gl_loop *loop);
/* Sends the writes that wait for the turn, if there are any, before a send that does not wait.
 * Does nothing for a closed or foreign loop.  Runs no Python; an error of a stream is reported by
 * the next turn. */
GL_PRIVATE void gl_flush_deferred_sends(gl_loop *loop);
/* Shrinks an empty queue to its first capacity if a burst has made it larger than GL_SUB_KEEP.
 * Called after a turn; takes the shared lock. */
GL_PRIVATE void gl_submissions_trim(gl_loop *loop);

/* ---- foreign_threads.c -------------------------------------------------------------------- */

/* Lets a foreign thread read Python's memory or, if `gil` is not NULL, call Python: then it takes
 * the GIL.  The thread may neither block nor import until it detaches.  Returns false, and nothing
 * is to be detached, if Python ends or has ended. */
GL_PRIVATE bool gl_foreign_thread_attach(PyGILState_STATE *gil);
/* Ends the use of Python by a foreign thread; `gil` as at its gl_foreign_thread_attach(). */
GL_PRIVATE void gl_foreign_thread_detach(const PyGILState_STATE *gil);
/* Refuses new threads for good when Python ends, and waits, without the GIL, until all have
 * detached.  Registered with atexit.  Returns None. */
GL_PRIVATE PyObject *gl_foreign_thread_close(PyObject *module, PyObject *ignored);
