/*
 * private.h: what the files of this room alone share.
 */
#pragma once

#include "observe/observe.h"

/* ---- python_stack.c --------------------------------------------------------------------------- */

/* A chain of frames that breaks, because its thread runs on, is walked again up to so often. */
#define WALK_ATTEMPTS_MAX 5

/* The frames of a thread, innermost first, without the GIL: it may run on, or end.  How many, up to a
 * frame that is not told (0: none); the last place is the outermost's, whose coroutine is told too.
 * -1: the chain breaks; ~n: it ends elsewhere, as that of a greenlet. */
GL_PRIVATE int python_walk_frames(PyThreadState *ts, uint64_t until, gl_raw_frame *to, int room,
                           uint64_t *coroutine);
/* The frame in which a thread is; false where that can't be told. */
GL_PRIVATE bool python_innermost_frame(PyThreadState *ts, uint64_t *frame);
/* The frames of the thread with that identifier of Python's; none where the chain breaks.  With the
 * GIL; a free-threaded build stops all other threads meanwhile. */
GL_PRIVATE void python_thread_stack(unsigned long id, gl_stack *to);
GL_PRIVATE void python_fill_layout(gl_python *to);
/* The thread that has the GIL, or NULL where that can't be told.  Without the GIL. */
GL_PRIVATE PyThreadState *python_gil_holder(void);
