/*
 * private.h: what the files of this room alone share.
 */
#pragma once

#include "watch/watch.h"

/* ---- watch.c --------------------------------------------------------------------------------- */

/* Empties a place; `only` (may be NULL): just if it holds that object.  True: it was taken. */
GL_PRIVATE bool watch_unplace(gl_loop *loop, int fd, int which, PyObject *only);
/* A Future that is done when the fd is ready once; `sock` is the socket whose number it is,
 * or NULL.  `refused`: the kernel has just refused a call in that direction, and the loop has not
 * turned since. */
GL_PRIVATE PyObject *wait_fd(gl_loop *loop, int fd, int which, gl_place place);
