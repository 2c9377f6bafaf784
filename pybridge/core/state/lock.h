/*
 * lock.h: what a loop has where there is no GIL; lock.c.
 */
#ifndef GOLOOP_LOCK_H
#define GOLOOP_LOCK_H

#include "support/support.h"

#ifdef GL_FREE_THREADED
#include <pthread.h>

/* Where threads that have not the loop's lock leave something, or wait for it.  The mutex is held for some instructions,
 * and for one write to the wakeup's descriptor. */
typedef struct gl_inbox {
    pthread_mutex_t mutex;
    bool shut;                /* the loop is closed: nothing is taken any more */
    bool sleeping;            /* the loop may block: who leaves something wakes it */
    PyObject *first, *last;   /* Handles, owned, through gl_home.next */
    uint32_t any;             /* `first` is not NULL [atomic] */
    uint32_t waiting;         /* threads that wait for the lock [atomic] */
    pthread_cond_t let_in;    /* for these: it is free for a moment */
    pthread_cond_t entered;   /* one of them has looked */
} gl_inbox;
#endif

#endif /* GOLOOP_LOCK_H */
