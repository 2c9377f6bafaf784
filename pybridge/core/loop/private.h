/*
 * private.h: declarations of this room's own files.
 */
#pragma once

#include "loop/loop.h"

/* Methods of the Loop that the other files define. */
GL_PRIVATE_DATA PyMethodDef *const call_soon_methods;
GL_PRIVATE_DATA PyMethodDef *const turn_methods;

/* ---- turn.c ---------------------------------------------------------------------------------- */

/* Closes the accepted sockets of undelivered completions, when the loop is closed. */
GL_PRIVATE void dispatch_drop(gl_loop *loop);
