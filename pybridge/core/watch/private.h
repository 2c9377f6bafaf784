/*
 * private.h: the functions that only the files of this room share.
 */
#pragma once

#include "watch/watch.h"

/* ---- older_waiters.c ------------------------------------------------------------------------- */

/* Drops the references to all older Futures and their sockets; runs Python. */
GL_PRIVATE void older_waiters_discard(gl_older_waiters *older);
/* older_waiters_reserve() makes room in the list for one more Future; it returns false, without an
 * exception, if out of memory.  older_waiters_add() then moves a Future that was replaced in its
 * slot, with its references, to the list as the newest one. */
GL_PRIVATE bool older_waiters_reserve(gl_older_waiters *older);
GL_PRIVATE void older_waiters_add(gl_older_waiters *older, gl_watch_slot *old);
/* Moves the Future `waiter`, or the newest one if NULL, with its references to *out.  Returns false
 * if there is none. */
GL_PRIVATE bool older_waiters_remove(gl_older_waiters *older, const PyObject *waiter,
                                     gl_watch_slot *out);

/* ---- watch.c --------------------------------------------------------------------------------- */

/* Clears a slot and its older waiters; a Handle is cancelled.  If `only` is not NULL, removes only
 * that waiter, from the slot or from the older ones.  Returns false if there was nothing to
 * remove. */
GL_PRIVATE bool watch_clear_slot(gl_loop *loop, int fd, int which, PyObject *only);
/* Puts `made` into the slot of a direction and steals its references and `file` (NULL: none), on
 * failure too.  For reading, first ends a listener on the number.  A replaced Handle is cancelled;
 * a Future that is replaced by a Future waits on; a new Handle drops all waiting Futures.  -1 with
 * an exception, and the slot is unchanged. */
GL_PRIVATE int watch_set_slot(gl_loop *loop, int fd, int which, gl_watch_slot made, PyObject *file);
/* Returns the fd that is watched for this object itself, or -1, without an exception. */
GL_PRIVATE int watch_find_by_file(gl_loop *loop, PyObject *file);
/* Deregisters the watch in Go and in the registry, if it is registered. */
GL_PRIVATE void watch_unregister(gl_loop *loop, gl_watch *w);
/* Runs a Handle unless it was cancelled, or resolves a Future with None.  -1 if an exception ends
 * the run of the loop. */
GL_PRIVATE int watch_run_waiter(gl_loop *loop, PyObject *waiter);
/* Returns a new Future that is resolved when the fd is ready once, or NULL with an exception.
 * slot.sock: the socket of the fd, borrowed, or NULL.  slot.refused: the kernel has just refused a
 * call in that direction, and no turn was made since. */
GL_PRIVATE PyObject *make_wait_future(gl_loop *loop, int fd, int which, gl_watch_slot slot);
