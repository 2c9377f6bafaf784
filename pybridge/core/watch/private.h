/*
 * private.h: what the files of this room alone share.
 */
#pragma once

#include "watch/watch.h"

/* ---- older_waiters.c ------------------------------------------------------------------------- */

/* Drops the Futures that waited earlier. */
GL_PRIVATE void older_waiters_discard(gl_older_waiters *older);
/* Lets a Future that has lost its place to another one wait on.  False where there is no memory. */
GL_PRIVATE bool older_waiters_add(gl_older_waiters *older, gl_watch_slot *old);
/* Takes one out: that of `waiter`, or the last where that is NULL.  False where there is none. */
GL_PRIVATE bool older_waiters_remove(gl_older_waiters *older, const PyObject *waiter,
                                     gl_watch_slot *out);

/* ---- watch.c --------------------------------------------------------------------------------- */

/* Empties a place; `only` (may be NULL): just if it holds that object.  True: it was taken. */
GL_PRIVATE bool watch_clear_slot(gl_loop *loop, int fd, int which, PyObject *only);
/* A Future that is done when the fd is ready once; `sock` is the socket whose number it is,
 * or NULL.  `refused`: the kernel has just refused a call in that direction, and the loop has not
 * turned since. */
GL_PRIVATE PyObject *make_wait_future(gl_loop *loop, int fd, int which, gl_watch_slot slot);
