/*
 * lock.h: what a loop has where there is no GIL; lock.c.
 */
#pragma once

#include "state/state.h"

#ifdef GL_FREE_THREADED
/* A lock while it is held. */
typedef struct gl_guard {
    PyCriticalSection section;
    bool begun; /* else it was held before */
} gl_guard;

/* `loop` may be NULL.  _briefly: for what does not run Python, or only where it fails; it is
 * enough then that the lock is held at all. _self: the object's own lock. */
GL_PRIVATE_INLINE void gl_guard_begin(gl_guard *guard, struct gl_loop *loop);
GL_PRIVATE_INLINE void gl_guard_begin_briefly(gl_guard *guard, struct gl_loop *loop);
GL_PRIVATE_INLINE void gl_guard_begin_self(gl_guard *guard, PyObject *self);
GL_PRIVATE_INLINE void gl_guard_end(gl_guard *guard);

/* What guard_here begins to hold ends with the block. */
#define GL_GUARD_LATER __attribute__((cleanup(gl_guard_end))) gl_guard guard_here = {.begun = false}
/* Holds the loop's lock to the end of the block. */
#define GL_GUARD(loop)                                                                             \
    GL_GUARD_LATER;                                                                                \
    gl_guard_begin(&guard_here, (struct gl_loop *)(loop))
#else
#define GL_GUARD(loop) ((void)0)
#endif
