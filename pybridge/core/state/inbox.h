/*
 * inbox.h: the part of a loop that threads without its lock write, in a build without the GIL.
 * queue/inbox.c posts callbacks into it, and threads/lock.c waits in it.
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
#endif
