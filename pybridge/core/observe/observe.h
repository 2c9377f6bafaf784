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

/* Adds a value (ns or a number; negative ones count as 0) to a histogram, `times` times. */
GL_PRIVATE_INLINE void gl_histogram_add(gl_histogram *h, int64_t value, uint64_t times);
/* Counts a receive of `n` bytes in the loop's metrics.  Does nothing if it failed (n < 0) or was
 * the end of the stream (0), and for a closed loop. */
GL_PRIVATE_INLINE void gl_count_received(gl_loop *loop, ssize_t n);
/* Counts a send of `n` bytes in the loop's metrics, and makes the loop poll in the next iteration.
 * Does nothing if the send failed (n < 0) or sent nothing, and for a closed loop. */
GL_PRIVATE_INLINE void gl_note_sent(gl_loop *loop, ssize_t n);
GL_PRIVATE_DATA PyMethodDef *const gl_metrics_methods;
/* Adds _open_loops() to _core, at import. */
GL_PRIVATE int gl_metrics_init(PyObject *module);

/* ---- watchdog.c ---------------------------------------------------------------- */

/* Sets the pointers by which Go reaches the watchdog's functions and data, in the shared block of a
 * new loop. */
GL_PRIVATE void gl_watchdog_init_shared(gl_shared *sh);
/* Stores the calling thread, its CPU clock and its innermost frame in the shared block, when it
 * begins to run the loop. */
GL_PRIVATE void gl_watchdog_set_thread(gl_loop *loop);
/* Stores the collector's time at the end of a poll; loop__block() counts from it. */
GL_PRIVATE_INLINE void gl_watchdog_poll_ended(gl_loop *loop);
/* Calls Loop._block_ended(seconds) at the end of an iteration that was reported as blocked, adds
 * its time to `time_blocked`, and marks the block as seen.  If another iteration has begun since,
 * the time is the limit.  Preserves a pending exception.  -1 if SystemExit or KeyboardInterrupt
 * ends the run of the loop; other exceptions go to sys.unraisablehook. */
GL_PRIVATE int gl_watchdog_block_ended(gl_loop *loop);
GL_PRIVATE_DATA PyMethodDef *const gl_watchdog_methods;
/* Adds the functions of watchdog.c to _core and fills in the layout for Go; at import. */
GL_PRIVATE int gl_watchdog_init(PyObject *module);

/* ---- trace.c -------------------------------------------------------------------- */

/* Returns the trace of the loop; NULL: the loop is not traced. */
static inline gl_trace *
gl_active_trace(gl_loop *loop)
{
    return loop->shared ? __atomic_load_n(&loop->shared->trace, __ATOMIC_RELAXED) : NULL;
}
/* Appends a record with the current time to the ring of `t`, over the oldest one if it is full.
 * `detail` has four bits, `value` 48. */
GL_PRIVATE_INLINE void gl_trace_add(gl_loop *loop, gl_trace *t, unsigned kind, unsigned detail,
                                    uint64_t value);
/* Records the call of a callable: the code object of a function or a bound method, the name of a
 * built-in function, or else the name of the object's type ("type" for a class that is called).
 * NULL is recorded without a name. */
GL_PRIVATE void gl_trace_call(gl_loop *loop, gl_trace *t, PyObject *callable);
/* Records the delivery of a completion by its kind, with the name of the protocol's class;
 * `protocol` may be NULL.  READY of a readable descriptor is recorded as DATA. */
GL_PRIVATE void gl_trace_completion(gl_loop *loop, gl_trace *t, const gl_completion *c,
                                    PyObject *protocol);
/* Records that a connection is made or lost (`kind` is GL_TRACE_MADE or GL_TRACE_LOST) with the
 * name of the protocol's class.  Does nothing if the loop is not traced. */
GL_PRIVATE void gl_trace_connection(gl_loop *loop, unsigned kind, PyObject *transport,
                                    PyObject *protocol);
/* Records a new task with the code of its coroutine, or the name of the coroutine's class, and at
 * most 56 bytes of its name, if the loop is traced.  `name` is a str, or the number of a default
 * name.  Clears the current exception then, so none may be set. */
GL_PRIVATE void gl_trace_task(gl_loop *loop, PyObject *task, PyObject *coro, PyObject *name);
/* Records the beginning or end of a garbage collection in the trace of each loop that this thread
 * runs. */
GL_PRIVATE void gl_trace_gc(bool begins);
/* Adds _trace() to _core, at import. */
GL_PRIVATE int gl_trace_init(PyObject *module);

/* ---- stopped_world.c ------------------------------------------------------------------ */

/* Adds the functions of stopped_world.c to _core, at import, if this Python needs them. */
GL_PRIVATE int gl_stopped_world_init(PyObject *module);
