/*
 * tasks.h: the interface of goloop.Future and goloop.Task for the rooms below.
 *
 *   layout.h           the fields, per CPython version
 *   probe.c            compares layout.h with the running CPython and creates the types
 *   current_task.c     asyncio.current_task()
 *   current_task_ft.c  asyncio.current_task() in 3.13 without the GIL
 *   task_registry.c    asyncio.all_tasks()
 *   future_callbacks.c the callbacks of a future
 *   future.c           goloop.Future
 *   future_iter.c      the iterator of `await fut`
 *   wakeup.c           a Task waits for a future, which wakes it
 *   task_step.c        goloop.Task: its steps
 *   task_cancel.c      goloop.Task: cancel()
 *   task.c             goloop.Task: construction and the type
 *   create_task.c      loop.create_task and loop.create_future
 *
 * The types exist only after the probe has passed (gl_tasks_native()).  Before that, and if the
 * probe fails, goloop uses the stdlib's classes and no struct of layout.h.  The room's state is in
 * G (support.h) and in the loop.
 */
#pragma once

#include "queue/queue.h"
#include "tasks/layout.h"

/* Imports asyncio's classes and adds the functions for layout_check.py; when _core is imported. */
GL_PRIVATE int gl_tasks_init(PyObject *module);

/* ---- types of objects ---------------------------------------------------------------------- */

/* Returns true if goloop.Future and goloop.Task exist. */
static inline bool
gl_tasks_native(void)
{
    return G.task_type != NULL;
}

/* Returns true if an object is exactly a goloop.Task, whose methods cannot be overridden. */
static inline bool
gl_is_task(PyObject *o)
{
    return Py_TYPE(o) == G.task_type;
}

/* Returns true if the Task waits for exactly this object. */
static inline bool
gl_task_awaits(PyObject *task, PyObject *fut)
{
    return ((gl_task *)task)->fut_waiter == fut;
}

/* ---- steps ----------------------------------------------------------------------------------- */

#ifdef GL_FREE_THREADED
/* hash(loop): publishes the running task in asyncio's dict first, since each lookup of the loop in
 * the dict computes the hash; if no task runs, waits until no other thread publishes one.  Returns
 * the object's default hash. */
GL_PRIVATE Py_hash_t gl_loop_hash(PyObject *self);
#endif
/* Runs the step of a task that was an entry of the ready queue, in the task's context: a wakeup if
 * the task awaited a future, else a plain step.  Reports an exception of the step itself.  Steals
 * the reference.  -1 if an exception ends the run of the loop: SystemExit, KeyboardInterrupt, or an
 * exception of the report. */
GL_PRIVATE int gl_task_run(gl_loop *loop, gl_task *task);
/* Removes the stale entry of gl_task_run() from asyncio's dict of current tasks.  Keeps the current
 * exception. */
GL_PRIVATE void gl_clear_stale_current_task(gl_loop *loop);

/* ---- future_callbacks.c --------------------------------------------------------------------- */

/* Creates the wakeup callable of a task, and sets *context to the task's context; both are owned.
 * *context is NULL if the callable is NULL, and, without an exception, for a task whose __init__()
 * has not run. */
GL_PRIVATE PyObject *gl_wakeup_with_context(PyObject *task, PyObject **context);

/* ---- future_iter.c --------------------------------------------------------------------------- */

/* Sets StopIteration(value) as the current exception, or MemoryError; `value` is borrowed and may
 * be any object. */
GL_PRIVATE void gl_set_stop_iteration(PyObject *value);

/* ---- create_task.c --------------------------------------------------------------------------- */

/* loop.create_task(): chooses one of the three paths of create_task.c by the loop's settings and
 * the keywords.  Returns a new Task, or the result of a task factory.  NULL with RuntimeError if
 * the loop can't be used, or with another exception. */
GL_PRIVATE PyObject *gl_loop_create_task(gl_loop *self, PyObject *const *args, Py_ssize_t nargs,
                                         PyObject *kwnames);
/* loop.create_future(): a pending future of the loop. */
GL_PRIVATE PyObject *gl_loop_create_future(gl_loop *self, PyObject *Py_UNUSED(ignored));
/* Creates a pending future of the loop: a goloop.Future without a call of its __init__().  In debug
 * mode it calls the class; if goloop.Future does not exist, it calls asyncio.Future. */
GL_PRIVATE PyObject *gl_new_future(gl_loop *loop);
/* Returns fut.done() as 1 or 0; reads the field of an exact goloop.Future. */
GL_PRIVATE int gl_future_is_done(PyObject *fut);
/* Calls fut.set_result(None) unless the future, of any class, is done. */
GL_PRIVATE int gl_future_set_none(PyObject *fut);
