/*
 * observe.h: metrics, watchdog, stacks and traces of loops.
 *
 *   metrics.c        counters and histograms of a loop
 *   watchdog.c       reports an iteration that lasts too long while it lasts; samples; gc time
 *   python_stack.c   reads the Python stack of another thread without the GIL
 *   stopped_world.c  reads the await chain of a coroutine in a stopped world (3.13 without the GIL)
 *   trace.c          records the activity of a loop during a trace
 */
#pragma once

#include "fds/fds.h"

/* ---- metrics.c ------------------------------------------------------------------ */

/* Adds a value (ns or a number) to a histogram, `times` times. */
GL_PRIVATE_INLINE void gl_histogram_add(gl_histogram *h, int64_t value, uint64_t times);
/* Count the bytes that a system call received or sent; n < 0: the call failed, and nothing is
 * counted.  A send also makes the loop poll in the next iteration. */
GL_PRIVATE_INLINE void gl_count_received(gl_loop *loop, ssize_t n);
GL_PRIVATE_INLINE void gl_count_sent(gl_loop *loop, ssize_t n);
GL_PRIVATE_DATA PyMethodDef *const gl_metrics_methods;
GL_PRIVATE int gl_metrics_init(PyObject *module);

/* ---- watchdog.c ---------------------------------------------------------------- */

/* Sets the watchdog's pointers in the shared block of a new loop. */
GL_PRIVATE void gl_watchdog_init_shared(gl_shared *sh);
/* Stores this thread, its CPU clock and its innermost frame as those that run the loop. */
GL_PRIVATE void gl_watchdog_set_thread(gl_loop *loop);
/* Stores the collector's time at the end of a poll, from which a report of the iteration counts. */
GL_PRIVATE_INLINE void gl_watchdog_poll_ended(gl_loop *loop);
/* Calls Loop._block_ended() at the end of a reported iteration, and counts its time.  Preserves a
 * pending exception.  Returns -1 if SystemExit or KeyboardInterrupt ends the run of the loop; other
 * exceptions go to sys.unraisablehook. */
GL_PRIVATE int gl_watchdog_block_ended(gl_loop *loop);
GL_PRIVATE_DATA PyMethodDef *const gl_watchdog_methods;
GL_PRIVATE int gl_watchdog_init(PyObject *module);

/* ---- trace.c -------------------------------------------------------------------- */

/* Returns the trace of the loop; NULL: the loop is not traced. */
static inline gl_trace *
gl_active_trace(gl_loop *loop)
{
    return loop->shared ? __atomic_load_n(&loop->shared->trace, __ATOMIC_RELAXED) : NULL;
}
/* Adds a record: a kind GL_TRACE_*, its detail of four bits, and its value of 48 bits. */
GL_PRIVATE_INLINE void gl_trace_add(gl_loop *loop, gl_trace *t, unsigned kind, unsigned detail,
                                    uint64_t value);
/* Records the call of `callable`: the code object of a function or a bound method, the name of a
 * built-in function, or else the name of its type; NULL: without a name. */
GL_PRIVATE void gl_trace_call(gl_loop *loop, gl_trace *t, PyObject *callable);
/* Records the delivery of a completion to a protocol; NULL: no protocol. */
GL_PRIVATE void gl_trace_completion(gl_loop *loop, gl_trace *t, const gl_completion *c,
                                    PyObject *protocol);
/* The functions below do nothing if the loop is not traced.
 * Records that a connection is made or lost; `kind` is GL_TRACE_MADE or GL_TRACE_LOST. */
GL_PRIVATE void gl_trace_connection(gl_loop *loop, unsigned kind, PyObject *transport,
                                    PyObject *protocol);
/* Records a new task with its coroutine and its name.  Clears the current exception if the loop is
 * traced, so none may be set. */
GL_PRIVATE void gl_trace_task(gl_loop *loop, PyObject *task, PyObject *coro, PyObject *name);
/* Records that Python's collector begins or ends in this thread. */
GL_PRIVATE void gl_trace_gc(bool begins);
GL_PRIVATE int gl_trace_init(PyObject *module);

/* ---- stopped_world.c ------------------------------------------------------------------ */

GL_PRIVATE int gl_stopped_world_init(PyObject *module);
