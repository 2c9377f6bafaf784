/*
 * private.h: what the files of this room alone share.
 */
#pragma once

#include "watch/watch.h"

/* ---- earlier.c ------------------------------------------------------------------------------- */

/* Drops the Futures that waited earlier. */
GL_PRIVATE void earlier_drop(gl_earlier *earlier);
/* Lets a Future that has lost its place to another one wait on.  False where there is no memory. */
GL_PRIVATE bool earlier_add(gl_earlier *earlier, gl_place *old);
/* Takes one out: that of `waiter`, or the last where that is NULL.  False where there is none. */
GL_PRIVATE bool earlier_take(gl_earlier *earlier, const PyObject *waiter, gl_place *out);

/* ---- watch.c --------------------------------------------------------------------------------- */

/* Empties a place; `only` (may be NULL): just if it holds that object.  True: it was taken. */
GL_PRIVATE bool watch_unplace(gl_loop *loop, int fd, int which, PyObject *only);
/* A Future that is done when the fd is ready once; `sock` is the socket whose number it is,
 * or NULL.  `refused`: the kernel has just refused a call in that direction, and the loop has not
 * turned since. */
GL_PRIVATE PyObject *wait_fd(gl_loop *loop, int fd, int which, gl_place place);
