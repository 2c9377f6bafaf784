/*
 * timers.c: the ids of armed timers, and the handle of each.
 *
 * The timer wheel is part of the Go library.  This file allocates the ids, densely from 0 so that
 * Go's arena stays small, and has the handle of each id (an owned reference).
 *
 *     free --arm--> armed --due (GL_CMP_TIMER)--> free
 *                     |
 *                     +--cancel, not yet seen by Go--> free (the submission becomes a NOP)
 *                     +--cancel, seen by Go--> retired --next turn--> free
 *
 * A retired id is not allocated again, because a completion that Go has already reported may still
 * refer to it.  Ids are allocated from the lowest chunk with a free one, so that the chunks of a
 * burst become empty and can be freed.
 */
#include "queue/private.h"

/* The number of ids in a chunk. */
#define GL_TIMER_CHUNK 1024
/* Every id except GL_NO_TIMER can be armed; the ids of a chunk are all in range. */
#define GL_TIMER_CHUNKS (GL_NO_TIMER / GL_TIMER_CHUNK)

/* The handles of GL_TIMER_CHUNK consecutive ids. */
struct gl_timer_chunk {
    PyObject *owner[GL_TIMER_CHUNK]; /* the handle of each armed timer, owned; else NULL */
    uint16_t free[GL_TIMER_CHUNK];   /* a stack of free indices */
    uint32_t free_len;
};

/* Stores a free id in *id and marks it as used; its chunk is created if necessary.  -1 with
 * MemoryError. */
static int
timers_id_alloc(gl_timers *t, uint32_t *id)
{
    while (t->first_free < t->chunks && t->chunk[t->first_free] &&
           t->chunk[t->first_free]->free_len == 0)
        t->first_free++;
    uint32_t c = t->first_free;
    if (c >= GL_TIMER_CHUNKS || !gl_grow(&t->chunk, &t->chunks, c, sizeof(*t->chunk), 4))
        goto nomem;
    if (t->chunk[c] == NULL) {
        gl_timer_chunk *k = PyMem_Calloc(1, sizeof(*k));
        if (k == NULL)
            goto nomem;
        for (uint32_t i = 0; i < GL_TIMER_CHUNK; i++)
            k->free[i] = (uint16_t)(GL_TIMER_CHUNK - 1 - i);
        k->free_len = GL_TIMER_CHUNK;
        t->chunk[c] = k;
    }
    gl_timer_chunk *k = t->chunk[c];
    *id = c * GL_TIMER_CHUNK + k->free[--k->free_len];
    return 0;
nomem:
    PyErr_NoMemory();
    return -1;
}

/* Marks an id as free.  Frees the memory of an empty chunk, except the first. */
static void
timers_id_free(gl_timers *t, uint32_t id)
{
    uint32_t c = id / GL_TIMER_CHUNK;
    gl_timer_chunk *k = t->chunk[c];
    k->free[k->free_len++] = (uint16_t)(id % GL_TIMER_CHUNK);
    if (c < t->first_free)
        t->first_free = c;
    if (k->free_len == GL_TIMER_CHUNK && c > 0) {
        PyMem_Free(k);
        t->chunk[c] = NULL;
    }
}

/* Returns the address of the reference to an id's handle, which is NULL if the id is not armed;
 * NULL if no chunk has the id. */
static inline PyObject **
timers_owner(gl_timers *t, uint32_t id)
{
    uint32_t c = id / GL_TIMER_CHUNK;
    if (c >= t->chunks || t->chunk[c] == NULL)
        return NULL;
    return &t->chunk[c]->owner[id % GL_TIMER_CHUNK];
}

GL_PRIVATE PyObject *
gl_timers_arm(gl_loop *loop, PyObject *when, int64_t deadline, const gl_call *call)
{
    gl_timer_handle *h = (gl_timer_handle *)gl_handle_new(G.timer_handle_type, loop, call);
    uint32_t id;
    if (h == NULL)
        return NULL;
    h->timer = GL_NO_TIMER;
    h->deadline = deadline;
    h->when = Py_NewRef(when);
    gl_handle_track((PyObject *)h);
    /* Python code that ran while the handle was created may have closed the loop. */
    if (loop->shared == NULL) {
        gl_loop_check_usable(loop);
        goto failed;
    }
    if (timers_id_alloc(&loop->timers, &id) < 0)
        goto failed;
    gl_shared_lock(loop);
    if (gl_submit(loop, GL_SUB_TIMER_ARM, id, 0, deadline) < 0) {
        gl_shared_unlock(loop);
        timers_id_free(&loop->timers, id);
        goto failed;
    }
    h->timer = id;
    h->armed_by = loop;
    h->submission = loop->shared->sub_len - 1;
    *timers_owner(&loop->timers, id) = Py_NewRef((PyObject *)h);
    loop->timers.armed++;
    loop->shared->max_timers = Py_MAX(loop->shared->max_timers, loop->timers.armed);
    if (deadline < loop->shared->next_deadline)
        loop->shared->next_deadline = deadline;
    gl_shared_unlock(loop);
    return (PyObject *)h;
failed:
    Py_DECREF(h);
    return NULL;
}

GL_PRIVATE void
timers_cancel(gl_timer_handle *h)
{
    uint32_t id = h->timer;
    if (id == GL_NO_TIMER)
        return;
    gl_loop *loop = h->armed_by;
    h->timer = GL_NO_TIMER;
    if (loop->shared == NULL) /* closed: the table is gone */
        return;
    PyObject **owner = timers_owner(&loop->timers, id);
    if (owner == NULL || *owner != (PyObject *)h)
        return;
    *owner = NULL;
    loop->timers.armed--;
    gl_shared *sh = loop->shared;
    uint32_t i = h->submission;
    gl_shared_lock(loop);
    if (i < sh->sub_len && sh->sub[i].op == GL_SUB_TIMER_ARM && sh->sub[i].id == id) {
        /* Go has not decoded the submission yet, so it is replaced by a NOP. */
        sh->sub[i].op = GL_SUB_NOP;
        while (sh->sub_len && sh->sub[sh->sub_len - 1].op == GL_SUB_NOP)
            sh->sub_len--;
        timers_id_free(&loop->timers, id);
    } else {
        gl_timers *t = &loop->timers;
        /* If out of memory the id is never freed.  Go then reports an id without an owner, which is
         * ignored. */
        if (gl_grow(&t->retired, &t->retired_cap, t->retired_len, sizeof(id), 64))
            t->retired[t->retired_len++] = id;
        if (gl_submit(loop, GL_SUB_TIMER_CANCEL, id, 0, 0) < 0)
            PyErr_Clear();
    }
    gl_shared_unlock(loop);
    Py_DECREF(h);
}

GL_PRIVATE_INLINE void
gl_timers_free_retired(gl_timers *t, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        timers_id_free(t, t->retired[i]);
    t->retired_len -= n;
    if (t->retired_len)
        memmove(t->retired, t->retired + n, t->retired_len * sizeof(*t->retired));
}

GL_PRIVATE PyObject *
gl_timers_take(gl_loop *loop, uint32_t id)
{
    PyObject **owner = timers_owner(&loop->timers, id);
    if (owner == NULL || *owner == NULL)
        return NULL;
    gl_timer_handle *h = (gl_timer_handle *)*owner;
    *owner = NULL;
    loop->timers.armed--;
    timers_id_free(&loop->timers, id);
    h->timer = GL_NO_TIMER;
    return (PyObject *)h;
}

GL_PRIVATE int
gl_timers_traverse(gl_timers *t, visitproc visit, void *arg)
{
    for (uint32_t c = 0; c < t->chunks; c++) {
        if (t->chunk[c] == NULL || t->chunk[c]->free_len == GL_TIMER_CHUNK)
            continue;
        for (uint32_t i = 0; i < GL_TIMER_CHUNK; i++)
            Py_VISIT(t->chunk[c]->owner[i]);
    }
    return 0;
}

GL_PRIVATE void
gl_timers_clear(gl_timers *t)
{
    gl_timer_chunk **chunk = t->chunk;
    uint32_t chunks = t->chunks;
    PyMem_RawFree(t->retired);
    memset(t, 0, sizeof(*t));
    for (uint32_t c = 0; c < chunks; c++) {
        if (chunk[c] == NULL)
            continue;
        for (uint32_t i = 0; i < GL_TIMER_CHUNK; i++) {
            PyObject *owner = chunk[c]->owner[i];
            if (owner == NULL)
                continue;
            ((gl_timer_handle *)owner)->timer = GL_NO_TIMER;
            Py_DECREF(owner);
        }
        PyMem_Free(chunk[c]);
    }
    PyMem_RawFree(chunk);
}
