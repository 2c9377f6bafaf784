/*
 * tasks.h: what the files of Future and Task share.
 *
 *   layout.h           the fields, per CPython version
 *   probe.c            are the fields where layout.h has them?  Switches the types on
 *   native_loop.c      may an entry go on this loop's ring directly?
 *   current_task.c     asyncio.current_task()
 *   task_registry.c    asyncio.all_tasks()
 *   future.c           goloop.Future
 *   future_iter.c      what `await fut` iterates over
 *   wakeup.c           a Task waits for a future, and is woken by it
 *   task.c             goloop.Task: the step, cancel, construction
 *   create_task.c      loop.create_task and loop.create_future
 *
 * The types exist only once the probe has passed (gl_tasks_native()); before that,
 * and for ever where it failed, the stdlib's classes are used and no struct of
 * layout.h is touched.
 */
#ifndef GOLOOP_TASKS_H
#define GOLOOP_TASKS_H

#include "state/state.h"
#include "tasks/layout.h"

/* ---- the types and what they need of asyncio (probe.c) ------------------------ */

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

static inline bool
gl_is_future(PyObject *o)
{
    return Py_TYPE(o) == G.future_type || Py_TYPE(o) == G.task_type;
}

/* An instance of a class whose C methods are known: ours or the stdlib's, exactly. */
static inline bool
gl_is_any_exact_future(PyObject *o)
{
    PyTypeObject *t = Py_TYPE(o);
    return t == G.future_type || t == G.task_type || t == G.asyncio.Future || t == G.asyncio.Task;
}

/* Has the fields of layout.h: any instance of _asyncio.Future or a subclass. */
static inline bool
gl_has_layout(PyObject *o)
{
    return gl_is_any_exact_future(o) || PyObject_TypeCheck(o, G.asyncio.Future);
}

/* Does the Task wait for that very object? */
static inline bool
gl_awaits(PyObject *task, PyObject *fut)
{
    return ((gl_task *)task)->fut_waiter == fut;
}
/* ---- for the rooms below ------------------------------------------------------------------ */

/* Removes the entry that the tasks of the ring have left. */
GL_PRIVATE void gl_current_flush(gl_loop *loop);
/* The callable in the place of a stored Task, and the task's context or NULL; owned. */
GL_PRIVATE PyObject *gl_wakeup_of(PyObject *task, PyObject **context);
/* The same, out of the ring: in the task's context, exceptions reported.  Takes over
 * the reference.  -1 where SystemExit or KeyboardInterrupt leaves the loop. */
GL_PRIVATE int gl_task_run(gl_loop *loop, gl_task *task);

/* ---- create_task.c --------------------------------------------------------------------------- */

GL_PRIVATE PyObject *gl_loop_create_future(gl_loop *self, PyObject *Py_UNUSED(ignored));
/* set_result(None) unless the future is done already. */
GL_PRIVATE int gl_future_set_none(PyObject *fut);
/* fut.done(): 1, 0, or -1 with an exception. */
GL_PRIVATE int gl_future_is_done(PyObject *fut);
/* A pending future of the loop. */
GL_PRIVATE PyObject *gl_new_future(gl_loop *loop);
GL_PRIVATE PyObject *gl_loop_create_task(gl_loop *self, PyObject *const *args, Py_ssize_t nargs,
                                         PyObject *kwnames);

/* ---- probe.c --------------------------------------------------------------------------------- */

/* asyncio's classes, for _peek; at import. */
GL_PRIVATE int gl_tasks_init(void);

#endif /* GOLOOP_TASKS_H */
