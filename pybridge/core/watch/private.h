/*
 * private.h: the functions that only the files of this room share.
 */
#pragma once

#include "watch/watch.h"

/* ---- older_waiters.c ------------------------------------------------------------------------- */

/* Discards all older Futures. */
GL_PRIVATE void older_waiters_discard(gl_older_waiters *older);
/* Adds a Future that was replaced in its slot.  Returns false without memory. */
GL_PRIVATE bool older_waiters_add(gl_older_waiters *older, gl_watch_slot *old);
/* Removes the Future `waiter`, or the newest if NULL.  Returns false if there is none. */
GL_PRIVATE bool older_waiters_remove(gl_older_waiters *older, const PyObject *waiter,
                                     gl_watch_slot *out);

/* ---- watch.c --------------------------------------------------------------------------------- */

/* Clears a slot; if `only` is not NULL, only if that object is in the slot or is an older waiter.
 * Returns true if it was cleared. */
GL_PRIVATE bool watch_clear_slot(gl_loop *loop, int fd, int which, PyObject *only);
/* Puts `made` into the slot of a direction and steals its references, on failure too.  -1 with an
 * exception. */
GL_PRIVATE int watch_set_slot(gl_loop *loop, int fd, int which, gl_watch_slot made, PyObject *file);
/* Returns the fd that is watched for this very object, or -1. */
GL_PRIVATE int watch_find_by_file(gl_loop *loop, PyObject *file);
/* Deregisters the watch in Go and in the registry, if it is registered. */
GL_PRIVATE void watch_unregister(gl_loop *loop, gl_watch *w);
/* Runs a Handle, or resolves a Future with None. */
GL_PRIVATE int watch_run_waiter(gl_loop *loop, PyObject *waiter);
/* Makes a Future that is resolved when the fd is ready once.  slot.sock: the socket of the fd, or
 * NULL.  slot.refused: the kernel has just refused a call in that direction, and no turn was made
 * since. */
GL_PRIVATE PyObject *make_wait_future(gl_loop *loop, int fd, int which, gl_watch_slot slot);
