/*
 * lock.h: what a loop has where there is no GIL; lock.c.
 */
#ifndef GOLOOP_LOCK_H
#define GOLOOP_LOCK_H

#include "support/support.h"

#ifdef GL_FREE_THREADED
#include <pthread.h>

/* What any thread may leave for a loop without its lock.  The mutex is held for some instructions,
 * and for one write to the wakeup's descriptor. */
typedef struct gl_inbox {
    pthread_mutex_t mutex;
    bool shut;                /* the loop is closed: nothing is taken any more */
    bool sleeping;            /* the loop may block: who leaves something wakes it */
    PyObject *first, *last;   /* Handles, owned, through gl_home.next */
    uint32_t any;             /* `first` is not NULL [atomic] */
} gl_inbox;
#endif

#endif /* GOLOOP_LOCK_H */
