/*
 * lock.h: guards, which take the lock of a loop in a build without the GIL (lock.c).
 */
#pragma once

#include "state/state.h"

#ifdef GL_FREE_THREADED
/* The lock of a loop or an object, while a block of code has it. */
typedef struct gl_guard {
    PyCriticalSection section;
    bool begun; /* false: the thread had the lock already */
} gl_guard;

/* Takes the loop's lock as the thread's innermost section, and waits for it if necessary.  Does
 * nothing if that section has it already, and for NULL. */
GL_PRIVATE_INLINE void gl_guard_begin(gl_guard *guard, struct gl_loop *loop);
/* Takes the loop's lock for code that runs no Python, or only on errors.  Any section of the thread
 * that has the lock is enough, so nothing is taken if there is one. */
GL_PRIVATE_INLINE void gl_guard_begin_briefly(gl_guard *guard, struct gl_loop *loop);
/* Takes the object's own lock, and waits for it if necessary.  Does nothing if the thread's
 * innermost section has it already. */
GL_PRIVATE_INLINE void gl_guard_begin_self(gl_guard *guard, PyObject *self);
/* Releases the lock that the guard has taken, if it has taken one.  Call it once: `begun` stays
 * set. */
GL_PRIVATE_INLINE void gl_guard_end(gl_guard *guard);

/* Declares a guard that releases its lock at the end of the block. */
#define GL_GUARD_LATER __attribute__((cleanup(gl_guard_end))) gl_guard guard_here = {.begun = false}
/* Takes the loop's lock until the end of the block. */
#define GL_GUARD(loop)                                                                             \
    GL_GUARD_LATER;                                                                                \
    gl_guard_begin(&guard_here, (struct gl_loop *)(loop))
#else
#define GL_GUARD(loop) ((void)0)
#endif
