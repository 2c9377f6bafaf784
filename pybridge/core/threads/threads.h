/*
 * threads.h: which thread may use a loop, and how the others wait.
 *
 *   lock.c             the lock of a loop, in a build without the GIL; lock.h has the guards
 *   guard.c            wraps every method of a type so that it takes that lock
 *   shared_lock.c      the loop's side of the lock that it shares with the monitor
 *   submissions.c      the queue of requests to the reactor, which the shared lock protects
 *   foreign_threads.c  how threads that Python did not create enter Python
 */
#pragma once

#include "threads/lock.h"

/* ---- shared_lock.c ------------------------------------------------------------------ */

/* Has the kernel prepare what the monitor wants of it; at import. */
GL_PRIVATE int gl_shared_lock_init(PyObject *module);
/* The reactor, the submissions and the records of streams are the caller's from here to
 * gl_shared_unlock(): the monitor, a thread of C, keeps away, see abi.h.  With the GIL; nests.  No
 * Python runs in between.  Nothing for a closed loop, or NULL.  Waits while another thread is in
 * a turn. */
GL_PRIVATE_INLINE void gl_shared_lock(gl_loop *loop);
GL_PRIVATE_INLINE void gl_shared_unlock(gl_loop *loop);
/* Go's functions, for a call of one at once, which holds by itself; NULL once closed. */
GL_PRIVATE_INLINE const gl_table *gl_reactor_api(gl_loop *loop);
/* The loop runs on after a poll, or begins to run; and: it waits in one, or has stopped. */
GL_PRIVATE_INLINE void gl_monitor_resume(gl_loop *loop);
GL_PRIVATE_INLINE void gl_monitor_pause(gl_loop *loop);

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
/* In a forked child: another thread may have had the mutex. */
GL_PRIVATE void gl_lock_forget_others(gl_loop *loop);

/* ---- guard.c ----------------------------------------------------------------- */

#define GL_OWNER_LOOP_ITSELF (-1) /* the object is the loop */
#define GL_OWNER_LOOP_FUTURE (-2) /* it is a Future: `loop` is a field of asyncio's */
#define GL_OWNER_LOOP_NONE (-3)   /* it has none: its own lock is taken */
enum gl_guard_how {
    GL_GUARD_CALLS = 0,
    GL_GUARD_ENDS = 1, /* how its objects end, too */
};
/* Guards a fresh type; `home` is the offset of gl_owner_loop, or one of these.  `free_names`
 * (ends with NULL, or is NULL) take the lock themselves, or need none. */
GL_PRIVATE int gl_guard_type(PyTypeObject *type, Py_ssize_t home, const char *const *free_names,
                             enum gl_guard_how how);
/* Gives `type` guarded methods and attributes in place of those that it inherits from `base`. */
GL_PRIVATE int gl_guard_inherited(PyTypeObject *type, PyTypeObject *base, Py_ssize_t home);
#define GL_GUARD_TYPE(type, struct_name, field, free_names, how)                                   \
    gl_guard_type(type, offsetof(struct_name, field), free_names, how)
#else
#define GL_GUARD_TYPE(type, struct_name, field, free_names, how) 0
#endif

/* ---- submissions.c ----------------------------------------------------------- */

/* Appends a submission, under a hold; amortised O(1). */
GL_PRIVATE int gl_submit(gl_loop *loop, uint32_t op, uint32_t id, uint32_t gen, int64_t arg);
/* A write waits for the next turn: no later one of this turn may leave at once. */
GL_PRIVATE void gl_put_off(gl_loop *loop);
/* Before what does not wait: sends what waits.  Runs no Python; an error of a stream is reported by
 * the next turn. */
GL_PRIVATE void gl_send_put_off(gl_loop *loop);
/* After a turn: the room of a burst is given back. */
GL_PRIVATE void gl_submissions_trim(gl_loop *loop);

/* ---- foreign_threads.c -------------------------------------------------------------------- */

/* Lets a thread that Python does not know look at its memory, or call it: then `gil` is not NULL.
 * What it does may neither block nor import.  False: Python has ended, and it may do nothing. */
GL_PRIVATE bool gl_foreign_thread_attach(PyGILState_STATE *gil);
GL_PRIVATE void gl_foreign_thread_detach(const PyGILState_STATE *gil);
/* Python ends: nobody comes in any more; returns when all have left. */
GL_PRIVATE PyObject *gl_foreign_thread_close(PyObject *module, PyObject *ignored);
