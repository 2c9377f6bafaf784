/*
 * inbox.c: the queue of Handles that other threads post to a loop, in a free-threaded build of
 * CPython.
 *
 * call_soon_threadsafe must not wait for the end of a running callback, so it posts its Handle here
 * without the loop's lock.  The loop moves posted Handles to its ready queue.
 */
#include "queue/private.h"

#ifdef GL_FREE_THREADED

#include <sched.h>

/* Returns the address of the link from a posted Handle to the next one. */
static inline PyObject **
posted_next(PyObject *handle)
{
    return &handle_inline(handle)->owner_loop.next;
}

/* Empties the inbox; returns its first Handle, or NULL.  posted_next() leads to the next Handles,
 * and the caller owns a reference to each. */
static PyObject *
inbox_take(gl_inbox *inbox)
{
    pthread_mutex_lock(&inbox->mutex);
    PyObject *first = inbox->first;
    inbox->first = NULL;
    inbox->last = NULL;
    __atomic_store_n(&inbox->any, 0u, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&inbox->mutex);
    return first;
}

/* Wakes the loop, and decrements `waking`.  The caller has incremented `waking`, so the loop's
 * descriptor stays open.  The caller does not have the mutex, because the woken loop locks it,
 * perhaps before this thread continues. */
static void
inbox_wake(gl_loop *loop)
{
    gl_wake(loop);
    pthread_mutex_lock(&loop->inbox.mutex);
    loop->inbox.waking--;
    pthread_mutex_unlock(&loop->inbox.mutex);
}

GL_PRIVATE int
gl_inbox_post(gl_loop *loop, PyObject *handle)
{
    gl_inbox *inbox = &loop->inbox;
    pthread_mutex_lock(&inbox->mutex);
    bool shut = inbox->shut;
    if (!shut) {
        handle_inline(handle)->posted_at = gl_monotonic_ns();
        gl_newref_shared(handle); /* the loop's thread drops it, and thereby frees most handles */
        if (inbox->last != NULL)
            *posted_next(inbox->last) = handle;
        else
            inbox->first = handle;
        inbox->last = handle;
        __atomic_store_n(&inbox->any, 1u, __ATOMIC_RELAXED);
        GL_WRITE(inbox->posts, inbox->posts + 1);
    }
    bool wakes = !shut && inbox->sleeping;
    if (wakes)
        inbox->waking++;
    pthread_mutex_unlock(&inbox->mutex);
    if (wakes)
        inbox_wake(loop);
    if (!shut)
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "Event loop is closed");
    return -1;
}

GL_PRIVATE int
gl_inbox_join(gl_loop *loop)
{
    int rc = 0;
    /* Not in another thread (a wrong call): the loop's thread writes `returned` without the lock
     * when it frees a Handle in a critical section of another object. */
    if (loop->returned != 0 && gl_loop_runs_here(loop)) {
        __atomic_fetch_add(&loop->inbox.credit, loop->returned, __ATOMIC_RELAXED);
        loop->returned = 0;
    }
    for (PyObject *h = inbox_take(&loop->inbox), *next; h != NULL; h = next) {
        next = *posted_next(h);
        *posted_next(h) = NULL;
        if (rc == 0 && gl_ready_push(&loop->ready, h, handle_inline(h)->posted_at) < 0)
            rc = -1;
        if (rc < 0)
            Py_DECREF(h); /* out of memory: the loop ends with MemoryError */
    }
    return rc;
}

GL_PRIVATE bool
gl_inbox_set_sleeping(gl_loop *loop)
{
    pthread_mutex_lock(&loop->inbox.mutex);
    bool empty = loop->inbox.first == NULL;
    loop->inbox.sleeping = empty;
    GL_WRITE(loop->sleeping, empty);
    pthread_mutex_unlock(&loop->inbox.mutex);
    return empty;
}

GL_PRIVATE void
gl_inbox_set_awake(gl_loop *loop)
{
    pthread_mutex_lock(&loop->inbox.mutex);
    loop->inbox.sleeping = false;
    pthread_mutex_unlock(&loop->inbox.mutex);
}

GL_PRIVATE void
gl_inbox_wake(gl_loop *loop)
{
    pthread_mutex_lock(&loop->inbox.mutex);
    bool open = !loop->inbox.shut;
    if (open)
        loop->inbox.waking++;
    pthread_mutex_unlock(&loop->inbox.mutex);
    if (open)
        inbox_wake(loop);
}

GL_PRIVATE void
gl_inbox_close(gl_loop *loop)
{
    pthread_mutex_lock(&loop->inbox.mutex);
    loop->inbox.shut = true;
    while (loop->inbox.waking > 0) { /* for the time of one system call in the other threads */
        pthread_mutex_unlock(&loop->inbox.mutex);
        sched_yield();
        pthread_mutex_lock(&loop->inbox.mutex);
    }
    pthread_mutex_unlock(&loop->inbox.mutex);
    for (PyObject *h = inbox_take(&loop->inbox), *next; h != NULL; h = next) {
        next = *posted_next(h);
        *posted_next(h) = NULL;
        Py_DECREF(h);
    }
}

GL_PRIVATE int
gl_inbox_traverse(gl_loop *loop, visitproc visit, void *arg)
{
    for (PyObject *h = loop->inbox.first; h != NULL; h = *posted_next(h))
        Py_VISIT(h);
    return 0;
}

#endif /* GL_FREE_THREADED */
