/*
 * private.h: what the files of this room alone share.
 */
#ifndef GOLOOP_TASKS_PRIVATE_H
#define GOLOOP_TASKS_PRIVATE_H

#include "tasks/tasks.h"

/* ---- current_task.c ---------------------------------------------------------------- */

/* A task begins and ends a step; RuntimeError where another one runs. */
GL_PRIVATE int current_enter(PyObject *loop, PyObject *task);
GL_PRIVATE int current_leave(PyObject *loop, PyObject *task);
/* ---- task_registry.c ----------------------------------------------------------------- */

GL_PRIVATE_INLINE void task_register(gl_task *task);
GL_PRIVATE_INLINE void task_unregister(gl_task *task);
/* ---- future.c ------------------------------------------------------------------------ */

/* All of these want a future with the layout, kept alive by the caller. */
GL_PRIVATE int future_add_callback(gl_future *f, PyObject *fn, PyObject *context);
/* Schedules the callbacks of a future that has just become done. */
GL_PRIVATE int future_schedule(gl_future *f);
GL_PRIVATE int future_settle(gl_future *f, PyObject *result);
GL_PRIVATE int future_fail(gl_future *f, PyObject *exc);
/* 1: cancelled now, 0: it was done before, -1: error.  `msg` may be NULL. */
GL_PRIVATE int future_set_cancelled(gl_future *f, PyObject *msg);
/* What a waiting task gets: 0 nothing to throw, 1 *exc (owned) is to be thrown. */
GL_PRIVATE int future_outcome(gl_future *f, PyObject **exc);
GL_PRIVATE PyObject *future_cancelled_error(gl_future *f);
GL_PRIVATE int future_traverse(PyObject *self, visitproc visit, void *arg);
GL_PRIVATE int future_clear(PyObject *self);
GL_PRIVATE PyObject *future_get_callbacks(PyObject *self, void *closure);
GL_PRIVATE PyObject *future_method_add(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                      PyObject *kwnames);
GL_PRIVATE PyObject *future_method_remove(PyObject *self, PyObject *fn);
/* ---- future_iter.c -------------------------------------------------------------------- */

/* Future.__await__() */
GL_PRIVATE PyObject *future_iter_new(PyObject *fut);
/* ---- wakeup.c --------------------------------------------------------------------------- */

/* A callable that wakes the task: what others see among a future's callbacks. */
GL_PRIVATE PyObject *wakeup_callable(gl_task *task);
/* A callable that steps the task, throwing `exc` where not NULL. */
GL_PRIVATE PyObject *step_callable(gl_task *task, PyObject *exc);
/* Schedules a step. */
GL_PRIVATE int step_soon(gl_task *task, PyObject *exc);
/* The coroutine yielded `result` (stolen): what the task does next. */
GL_PRIVATE int task_wait(gl_task *task, PyObject *result);
/* `fut`, which the task waited for, is done. */
GL_PRIVATE int task_wakeup(gl_task *task, PyObject *fut);
/* ---- task.c ------------------------------------------------------------------------------ */

/* Runs the coroutine up to its next yield; `exc`, if not NULL, is thrown into it. */
GL_PRIVATE int task_step(gl_task *task, PyObject *exc);
/* 1, 0 or -1 as future_set_cancelled. */
GL_PRIVATE int task_request_cancel(gl_task *task, PyObject *msg);

/* ---- current_task.c -------------------------------------------------------------------------- */

GL_PRIVATE_INLINE int current_leave_ring(char *ts, gl_loop *loop, PyObject *task);
/* Enter and leave for tasks out of the ring; `ts` is the thread state. */
GL_PRIVATE_INLINE int current_enter_ring(char *ts, gl_loop *loop, PyObject *task);
GL_PRIVATE PyObject *current_swap(PyObject *loop, PyObject *task);

/* ---- future.c -------------------------------------------------------------------------------- */

/* The `msg` of cancel(msg=None); -1 where asyncio has raised the argument error. */
GL_PRIVATE int parse_cancel(PyObject *self, PyObject *unbound, PyObject *const *args,
                            Py_ssize_t nargs, PyObject *kwnames, PyObject **msg);
/* unbound(self, *args, **kwargs) */
GL_PRIVATE PyObject *call_unbound(PyObject *unbound, PyObject *self, PyObject *const *args,
                                  Py_ssize_t nargs, PyObject *kwnames);

/* ---- task.c ---------------------------------------------------------------------------------- */

/* Fills a task whose Future part is initialised.  `coro` is a coroutine. */
GL_PRIVATE int task_fill(gl_task *task, PyObject *coro, PyObject *name, PyObject *context);

/* ---- wakeup.c -------------------------------------------------------------------------------- */

/* What the future has for the task: 0 nothing, 1 *exc is to be thrown, -1 error. */
GL_PRIVATE int wakeup_outcome(gl_task *task, PyObject *fut, PyObject **exc);
/* Nothing was ever, or is no longer, in the task: Task.__init__ has not run or failed. */
GL_PRIVATE void raise_uninitialized(void);

/* ---- the types, made by probe.c -------------------------------------------------------------- */

GL_PRIVATE_DATA PyType_Spec future_spec, future_iter_spec, task_spec, step_spec;
/* What Task has of Future. */
GL_PRIVATE_DATA PyGetSetDef future_getset[2];
#define GL_CALLBACK_METHODS                                                                   \
    {"add_done_callback", (PyCFunction)(void (*)(void))future_method_add,                  \
     METH_FASTCALL | METH_KEYWORDS,                                                           \
     PyDoc_STR("add_done_callback($self, fn, /, *, context=<unrepresentable>)\n--\n\n"        \
               "Call fn(self) by call_soon() once the future is done.")},                     \
    {"remove_done_callback", future_method_remove, METH_O,                                 \
     PyDoc_STR("remove_done_callback($self, fn, /)\n--\n\n"                                   \
               "Remove all instances of a callback; return how many there were.")}

#endif /* GOLOOP_TASKS_PRIVATE_H */
