/*
 * tasks.h: goloop.Future and goloop.Task, as the rooms below see them.
 *
 *   layout.h           the fields, per CPython version
 *   probe.c            are the fields where layout.h has them?  Switches the types on
 *   current_task.c     asyncio.current_task()
 *   current_task_ft.c   the same in 3.13 without the GIL
 *   task_registry.c    asyncio.all_tasks()
 *   future.c           goloop.Future
 *   future_iter.c      what `await fut` iterates over
 *   wakeup.c           a Task waits for a future, and is woken by it
 *   task.c             goloop.Task: the step, cancel, construction
 *   create_task.c      loop.create_task and loop.create_future
 *
 * The types exist only once the probe has passed (gl_tasks_native()); before that,
 * and for ever where it failed, the stdlib's classes are used and no struct of
 * layout.h is touched.  This room has no state but in G (support.h) and in the loop.
 */
#pragma once

#include "queue/queue.h"
#include "tasks/layout.h"

/* asyncio's classes, and the functions of the module for tasks/layout_check.py; at import. */
GL_PRIVATE int gl_tasks_init(PyObject *module);

/* ---- which objects they are ---------------------------------------------------------------- */

static inline bool
gl_tasks_native(void)
{
    return G.task_type != NULL;
}

/* Exactly our types: their methods cannot be overridden. */
static inline bool
gl_is_task(PyObject *o)
{
    return Py_TYPE(o) == G.task_type;
}

/* Does the Task wait for that very object? */
static inline bool
gl_awaits(PyObject *task, PyObject *fut)
{
    return ((gl_task *)task)->fut_waiter == fut;
}

/* ---- steps ----------------------------------------------------------------------------------- */

#ifdef GL_FREE_THREADED
/* tp_hash of the Loop (current_task_ft.c). */
GL_PRIVATE Py_hash_t gl_loop_hash(PyObject *self);
#endif
/* Steps or wakes a task out of the ready queue: in its context, exceptions reported.  Takes
 * over the reference.  -1 where SystemExit or KeyboardInterrupt leaves the loop. */
GL_PRIVATE int gl_task_run(gl_loop *loop, gl_task *task);
/* Removes the entry that such tasks have left in asyncio's table of current tasks. */
GL_PRIVATE void gl_clear_stale_current_task(gl_loop *loop);
/* The callable in the place of a stored Task, and the task's context or NULL; owned. */
GL_PRIVATE PyObject *gl_wakeup_of(PyObject *task, PyObject **context);

/* ---- future_iter.c --------------------------------------------------------------------------- */

/* Sets StopIteration(value). */
GL_PRIVATE void gl_set_stop_iteration(PyObject *value);

/* ---- create_task.c --------------------------------------------------------------------------- */

GL_PRIVATE PyObject *gl_loop_create_task(gl_loop *self, PyObject *const *args, Py_ssize_t nargs,
                                         PyObject *kwnames);
GL_PRIVATE PyObject *gl_loop_create_future(gl_loop *self, PyObject *Py_UNUSED(ignored));
/* A pending future of the loop. */
GL_PRIVATE PyObject *gl_new_future(gl_loop *loop);
/* fut.done(): 1, 0, or -1 with an exception. */
GL_PRIVATE int gl_future_is_done(PyObject *fut);
/* set_result(None) unless the future is done already. */
GL_PRIVATE int gl_future_set_none(PyObject *fut);
