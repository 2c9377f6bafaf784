/*
 * private.h: declarations that only the files of this room share.
 */
#pragma once

#include "observe/observe.h"

/* ---- python_stack.c ------------------------------------------------------------------------- */

/* The maximum number of attempts to walk a chain of frames.  An attempt fails if the thread changes
 * the chain meanwhile. */
#define MAX_WALK_ATTEMPTS 5

/* Reads the frames of a thread, innermost first, without the GIL, while the thread may run or end.
 * Stores at most `cap` frames in `to`, up to the frame `until`, which is not stored.  If there are
 * more than `cap` frames, the last place gets the outermost of them.  With `until` 0 it reads all
 * frames, and stops after `cap`.  *coroutine is the coroutine of the last frame that was read, or
 * 0.  Returns the number of stored frames; -1: the chain breaks, or this Python's frames can't be
 * read; ~n: n frames, and the chain ends without the frame `until`, as in a greenlet. */
GL_PRIVATE int python_walk_frames(PyThreadState *ts, uint64_t until, gl_raw_frame *to, int cap,
                                  uint64_t *coroutine);
/* Reads the address of a thread's innermost frame without the GIL; false: it can't be read. */
GL_PRIVATE bool python_innermost_frame(PyThreadState *ts, uint64_t *frame);
/* Reads the frames of the thread with this threading.get_ident() into `to`, which has 0 frames
 * before: none if the thread is not found or the chain breaks.  Requires the GIL and releases it; a
 * free-threaded build stops all other threads meanwhile. */
GL_PRIVATE void python_thread_stack(unsigned long id, gl_stack *to);
/* Fills in the types and field offsets of this CPython, by which Go reads code objects and
 * strings. */
GL_PRIVATE void python_fill_layout(gl_python *to);
/* Returns the state of the thread that owns the GIL, borrowed; NULL if it is unknown, as in 3.12
 * and without a GIL, or if no thread owns it.  Does not need the GIL. */
GL_PRIVATE PyThreadState *python_gil_holder(void);
