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

/* Registers the process for membarrier(2), which the monitor uses; at import. */
GL_PRIVATE int gl_shared_lock_init(PyObject *module);
/* Locks the reactor, the submissions and the records of streams against the monitor, see abi.h.
 * With the GIL; recursive.  No Python may run before gl_shared_unlock().  Waits until the monitor
 * has released the lock, and ends another thread's turn and waits for its end.  Both do nothing for
 * a closed loop and for NULL. */
GL_PRIVATE_INLINE void gl_shared_lock(gl_loop *loop);
GL_PRIVATE_INLINE void gl_shared_unlock(gl_loop *loop);
/* Returns the API table for one immediate call, which takes the shared lock itself; NULL once
 * closed.  Waits while another thread is in a turn.  The caller has checked that the loop is not
 * foreign. */
GL_PRIVATE_INLINE const gl_table *gl_reactor_api(gl_loop *loop);
/* Mark the loop as active, after a poll or when it starts to run, and wake a parked monitor; and as
 * inactive. */
GL_PRIVATE_INLINE void gl_monitor_resume(gl_loop *loop);
GL_PRIVATE_INLINE void gl_monitor_pause(gl_loop *loop);

/* ---- stop_world.c ------------------------------------------------------------------- */

/* Imports the functions of the import lock, at import.  -1 with ImportError. */
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
 * loop's thread only, which has the lock before and afterwards. */
GL_PRIVATE void gl_lock_let_in(gl_loop *loop);
/* Calls gl_lock_let_in() if threads wait for the lock; at the start of an iteration. */
static inline void
gl_lock_offer(gl_loop *loop)
{
    if (__atomic_load_n(&loop->inbox.waiting, __ATOMIC_RELAXED) != 0)
        gl_lock_let_in(loop);
}
/* Resets the loop's lock and its mutexes in a forked child, where another thread of the parent may
 * have had them. */
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
 * themselves, or need none.  -1 with an exception. */
GL_PRIVATE int gl_guard_type(PyTypeObject *type, Py_ssize_t loop_offset,
                             const char *const *free_names, enum gl_guard_scope scope);
/* Adds guarded copies of the methods and attributes that `type` inherits from `base` and does not
 * define itself, except special methods.  -1 with an exception. */
GL_PRIVATE int gl_guard_inherited(PyTypeObject *type, PyTypeObject *base, Py_ssize_t loop_offset);
/* gl_guard_type() for objects with a gl_owner_loop `field`; 0 in a build with the GIL. */
#define GL_GUARD_TYPE(type, struct_name, field, free_names, scope)                                 \
    gl_guard_type(type, offsetof(struct_name, field), free_names, scope)
#else
#define GL_GUARD_TYPE(type, struct_name, field, free_names, scope) 0
#endif

/* ---- submissions.c ----------------------------------------------------------- */

/* Appends a submission, with the shared lock; amortised O(1).  A GL_SUB_STREAM makes the next
 * iteration poll.  -1 with MemoryError. */
GL_PRIVATE int gl_submit(gl_loop *loop, uint32_t op, uint32_t id, uint32_t gen, int64_t arg);
/* Defers the sends of this turn to the next one, because a write waits for it. */
GL_PRIVATE void gl_defer_sends(gl_loop *loop);
/* Flushes the deferred sends, before a send that does not wait.  Does nothing if there are none,
 * and for a closed or foreign loop.  Runs no Python; an error of a stream is reported by the next
 * turn. */
GL_PRIVATE void gl_flush_deferred_sends(gl_loop *loop);
/* Shrinks the queue after a burst, if it is empty; called after a turn. */
GL_PRIVATE void gl_submissions_trim(gl_loop *loop);

/* ---- foreign_threads.c -------------------------------------------------------------------- */

/* Lets a foreign thread read Python's memory or, if `gil` is not NULL, call Python: then it takes
 * the GIL.  The thread may neither block nor import until it detaches.  Returns false, and nothing
 * is to be detached, if Python ends or has ended. */
GL_PRIVATE bool gl_foreign_thread_attach(PyGILState_STATE *gil);
GL_PRIVATE void gl_foreign_thread_detach(const PyGILState_STATE *gil);
/* Refuses new threads when Python ends, and waits until all have detached. */
GL_PRIVATE PyObject *gl_foreign_thread_close(PyObject *module, PyObject *ignored);
