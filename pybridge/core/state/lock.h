/*
 * lock.h: what a loop has where there is no GIL; lock.c.
 */
#pragma once

#include "support/support.h"

#ifdef GL_FREE_THREADED
#include <pthread.h>

/* Where threads that have not the loop's lock leave something, or wait for it.  The mutex is held
 * for some instructions. */
typedef struct gl_inbox {
    char before[64]; /* nobody else's words in these cache lines */
    pthread_mutex_t mutex;
    bool shut;                /* the loop is closed: nothing is taken any more */
    bool sleeping;            /* the loop may block: a post has to wake it */
    uint32_t waking;          /* threads that are about to, or do: the wakeup stays open for them */
    PyObject *first, *last;   /* Handles, owned, through gl_owner_loop.next */
    uint32_t any;             /* `first` is not NULL [atomic] */
    int64_t credit;           /* references to the loop that the next post may take [atomic] */
    unsigned long long posts; /* with the mutex; read by any thread [atomic] */
    uint32_t waiting;         /* threads that wait for the lock, to which they count until they
                               * have it [atomic] */
    uint32_t entries; /* of these, so many have had it, in all; with the mutex and the lock */
    uint32_t let_in;  /* for these: it is free for a moment; counted, with the mutex */
    uint32_t entered; /* one of them has the lock; counted as well [both are futexes] */
    char behind[64];
} gl_inbox;

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
