/*
 * inbox.h: the fields of a loop that threads write without the loop's lock, in a build without the
 * GIL.  queue/inbox.c posts callbacks into these fields, and a thread that waits for the loop's
 * lock uses them (threads/lock.c).
 */
#pragma once

#include "support/support.h"

#ifdef GL_FREE_THREADED
#include <pthread.h>

/* The fields by which threads without the loop's lock post Handles, and wait for the lock.  The
 * mutex is locked for a few instructions at a time. */
typedef struct gl_inbox {
    char before[64]; /* padding: the fields have cache lines of their own */
    pthread_mutex_t mutex;
    bool shut;                /* the loop is closed: posts are refused */
    bool sleeping;            /* the loop may block: a post has to wake it */
    uint32_t waking;          /* number of threads that will wake the loop: its fd stays open */
    PyObject *first, *last;   /* Handles, owned, through gl_owner_loop.next */
    uint32_t any;             /* `first` is not NULL [atomic] */
    int64_t credit;           /* references to the loop that the next post may take [atomic] */
    unsigned long long posts; /* total; written with the mutex, read by any thread [atomic] */
    uint32_t waiting;         /* number of threads that wait for the lock [atomic] */
    /* Total of waiting threads that got the lock; guarded by the mutex and the lock. */
    uint32_t entries;
    /* Futexes, guarded by the mutex: number of times that the lock was offered, and number of times
     * that a waiting thread got it. */
    uint32_t let_in;
    uint32_t entered;
    char after[64]; /* padding */
} gl_inbox;
#endif
