/*
 * older_waiters.c: several Futures that wait for one direction of an fd.
 *
 * The newest Future is in the slot of the direction (watch.c).  The older Futures are in a list.
 * Readiness wakes all of them together.  If the Future in the slot is removed, the newest one of
 * the list takes its place.
 */
#include "watch/private.h"

GL_PRIVATE void
older_waiters_discard(gl_older_waiters *older)
{
    gl_older_waiters out = *older;
    *older = (gl_older_waiters){NULL, 0, 0};
    for (uint32_t i = 0; i < out.len; i++) {
        Py_CLEAR(out.slot[i].waiter);
        Py_CLEAR(out.slot[i].sock);
    }
    PyMem_RawFree(out.slot);
}

GL_NO_PYTHON GL_PRIVATE bool
older_waiters_reserve(gl_older_waiters *older)
{
    return gl_grow(&older->slot, &older->cap, older->len, sizeof(gl_watch_slot), 4);
}

GL_NO_PYTHON GL_PRIVATE void
older_waiters_add(gl_older_waiters *older, gl_watch_slot *old)
{
    older->slot[older->len] = *old;
    older->len++;
    *old = (gl_watch_slot){.waiter = NULL};
}

GL_NO_PYTHON GL_PRIVATE bool
older_waiters_remove(gl_older_waiters *older, const PyObject *waiter, gl_watch_slot *out)
{
    uint32_t i = older->len;
    while (i > 0 && waiter != NULL && older->slot[i - 1].waiter != waiter)
        i--;
    if (i == 0)
        return false;
    *out = older->slot[i - 1];
    memmove(&older->slot[i - 1], &older->slot[i], (older->len - i) * sizeof(gl_watch_slot));
    older->len--;
    return true;
}
