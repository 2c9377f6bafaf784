/*
 * private.h: what the files of this room alone share.
 */
#pragma once

#include "loop/loop.h"

/* Their methods of the Loop. */
GL_PRIVATE_DATA PyMethodDef *const call_soon_methods;
GL_PRIVATE_DATA PyMethodDef *const turn_methods;

/* ---- turn.c ---------------------------------------------------------------------------------- */

/* At close: frees what undelivered completions carry. */
GL_PRIVATE void dispatch_drop(gl_loop *loop);
