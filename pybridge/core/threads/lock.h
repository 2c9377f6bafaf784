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

/* Take a lock, and wait for it if necessary; do nothing if the thread's innermost section has it
 * already.  gl_guard_begin() also does nothing for NULL.  _briefly: for code that runs no Python,
 * or only on errors; does nothing if any section of the thread has the lock.  _self: the object's
 * own lock.  gl_guard_end() releases the lock if the guard has taken it. */
GL_PRIVATE_INLINE void gl_guard_begin(gl_guard *guard, struct gl_loop *loop);
GL_PRIVATE_INLINE void gl_guard_begin_briefly(gl_guard *guard, struct gl_loop *loop);
GL_PRIVATE_INLINE void gl_guard_begin_self(gl_guard *guard, PyObject *self);
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
