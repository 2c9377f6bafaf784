/*
 * observe.h: what a loop does, await_chain from outside.
 *
 *   metrics.c      what a loop has done, in figures
 *   watchdog.c     an iteration that lasts too long is reported while it lasts
 *   python_stack.c the Python stack of another thread, read without the GIL
 *   stopped.c      what a coroutine is doing, read in a stopped world (3.13 without the GIL)
 *   trace.c        notes what a loop does, while somebody traces it
 */
#pragma once

#include "fds/fds.h"

/* ---- metrics.c ------------------------------------------------------------------ */

/* Notes a value, ns or a number, so many times. */
GL_PRIVATE_INLINE void gl_histogram_add(gl_histogram *h, int64_t value, uint64_t times);
/* Note what a call has received or sent: bytes, or < 0. */
GL_PRIVATE_INLINE void gl_count_received(gl_loop *loop, ssize_t n);
GL_PRIVATE_INLINE void gl_count_sent(gl_loop *loop, ssize_t n);
GL_PRIVATE_DATA PyMethodDef *const gl_metrics_methods;
GL_PRIVATE int gl_metrics_init(PyObject *module);

/* ---- watchdog.c ---------------------------------------------------------------- */

/* The shared block gets what the watchdog knows. */
GL_PRIVATE void gl_watchdog_init_shared(gl_shared *sh);
/* This thread begins to run the loop. */
GL_PRIVATE void gl_watchdog_set_thread(gl_loop *loop);
/* A poll has ended. */
GL_PRIVATE_INLINE void gl_watchdog_poll_ended(gl_loop *loop);
/* The iteration that was reported has ended; runs Python.  -1 where SystemExit or
 * KeyboardInterrupt leaves the loop. */
GL_PRIVATE int gl_watchdog_block_ended(gl_loop *loop);
GL_PRIVATE_DATA PyMethodDef *const gl_watchdog_methods;
GL_PRIVATE int gl_watchdog_init(PyObject *module);

/* ---- trace.c -------------------------------------------------------------------- */

/* NULL while nobody traces the loop. */
static inline gl_trace *
gl_active_trace(gl_loop *loop)
{
    return loop->shared ? __atomic_load_n(&loop->shared->trace, __ATOMIC_RELAXED) : NULL;
}
/* Notes a record of abi.h; `own` has four bits. */
GL_PRIVATE_INLINE void gl_trace_add(gl_loop *loop, gl_trace *t, unsigned kind, unsigned own,
                                    uint64_t value);
/* A callable, or NULL, is called. */
GL_PRIVATE void gl_trace_call(gl_loop *loop, gl_trace *t, PyObject *callable);
/* A completion is handed to the protocol, or NULL. */
GL_PRIVATE void gl_trace_completion(gl_loop *loop, gl_trace *t, const gl_completion *c,
                               PyObject *protocol);
/* These look whether the loop is traced.  A connection is made or lost: GL_TRACE_MADE or _LOST. */
GL_PRIVATE void gl_trace_connection(gl_loop *loop, unsigned kind, PyObject *transport,
                                    PyObject *protocol);
/* A task is made.  The coroutine and the name that it has got. */
GL_PRIVATE void gl_trace_task(gl_loop *loop, PyObject *task, PyObject *coro, PyObject *name);
/* Python's collector runs in this thread. */
GL_PRIVATE void gl_trace_gc(bool begins);
GL_PRIVATE int gl_trace_init(PyObject *module);

/* ---- stopped.c ------------------------------------------------------------------ */

GL_PRIVATE int gl_stopped_world_init(PyObject *module);
