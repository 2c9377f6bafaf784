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

#include "core.h"
#include "layout.h"

/* ---- strings that only these files need ------------------------------------------ */

#define GL_TASK_STRINGS(X)                                                     \
    X(cancel) X(coro) X(eager_start) X(get_loop) X(is_running) X(create_task)   \
    X(create_future) X(get_debug)

static struct gl_task_strings {
#define X(n) PyObject *n;
    GL_TASK_STRINGS(X)
#undef X
} T;

/* ---- the types and what they need of asyncio (probe.c) ------------------------ */

static PyTypeObject *gl_future_type, *gl_task_type; /* NULL until switched on */

static struct gl_asyncio {
    PyTypeObject *Future, *Task;        /* the C-accelerated classes */
    PyObject *iscoroutine;              /* asyncio.coroutines.iscoroutine */
    PyObject *BaseEventLoop_create_task;
    PyObject *Future_add_done_callback; /* unbound, for their argument errors */
    PyObject *Future_cancel, *Task_cancel;
    PyObject *create_task_names;        /* frozenset: keywords that create_task takes */
    bool wraps_stop_iteration;          /* set_exception(StopIteration()) is accepted */
    /* 3.14: offsets into the thread state; before: unused */
    Py_ssize_t ts_loop, ts_task, ts_tasks_head;
    PyObject *current_tasks;            /* before 3.14: _asyncio._current_tasks */
    PyObject *eager_tasks;              /* 3.12, 3.13: _asyncio._eager_tasks */
} A;

static inline bool
gl_tasks_native(void)
{
    return gl_task_type != NULL;
}

/* Exactly our types: their methods cannot be overridden. */
static inline bool
gl_is_task(PyObject *o)
{
    return Py_TYPE(o) == gl_task_type;
}

static inline bool
gl_is_future(PyObject *o)
{
    return Py_TYPE(o) == gl_future_type || Py_TYPE(o) == gl_task_type;
}

/* An instance of a class whose C methods are known: ours or the stdlib's, exactly. */
static inline bool
gl_is_any_exact_future(PyObject *o)
{
    PyTypeObject *t = Py_TYPE(o);
    return t == gl_future_type || t == gl_task_type || t == A.Future || t == A.Task;
}

/* Has the fields of layout.h: any instance of _asyncio.Future or a subclass. */
static inline bool
gl_has_layout(PyObject *o)
{
    return gl_is_any_exact_future(o) || PyObject_TypeCheck(o, A.Future);
}

/* ---- native_loop.c -------------------------------------------------------------- */

/* The loop, if entries may be put on its ring without asking its call_soon: a usable
 * goloop loop, not in debug mode, whose call_soon nobody has overridden.  Else NULL,
 * without an exception. */
static inline gl_loop *gl_native_loop(PyObject *loop);
/* loop.call_soon(callable[, arg], context=context) by the shortest way. */
static int gl_soon(PyObject *loop, PyObject *callable, PyObject *arg, PyObject *context);
/* Puts a Task on the ring; it will be stepped, or woken by its fut_waiter. */
static inline int gl_push_task(gl_loop *loop, gl_task *task);

/* ---- current_task.c ---------------------------------------------------------------- */

/* A task begins and ends a step; RuntimeError where another one runs. */
static int gl_current_enter(PyObject *loop, PyObject *task);
static int gl_current_leave(PyObject *loop, PyObject *task);
/* Removes the entry that the tasks of the ring have left. */
static void gl_current_flush(gl_loop *loop);

/* ---- task_registry.c ----------------------------------------------------------------- */

static inline void gl_task_register(gl_task *task);
static inline void gl_task_unregister(gl_task *task);

/* ---- future.c ------------------------------------------------------------------------ */

/* All of these want a future with the layout, kept alive by the caller. */
static int gl_future_add_callback(gl_future *f, PyObject *fn, PyObject *context);
/* Schedules the callbacks of a future that has just become done. */
static int gl_future_schedule(gl_future *f);
static int gl_future_set_result(gl_future *f, PyObject *result);
static int gl_future_set_exception(gl_future *f, PyObject *exc);
/* 1: cancelled now, 0: it was done before, -1: error.  `msg` may be NULL. */
static int gl_future_cancel(gl_future *f, PyObject *msg);
/* What a waiting task gets: 0 nothing to throw, 1 *exc (owned) is to be thrown. */
static int gl_future_outcome(gl_future *f, PyObject **exc);
static PyObject *gl_future_cancelled_error(gl_future *f);
static int gl_future_traverse(PyObject *self, visitproc visit, void *arg);
static int gl_future_clear(PyObject *self);
static PyObject *gl_future_get_callbacks(PyObject *self, void *closure);
static PyObject *gl_future_method_add(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                      PyObject *kwnames);
static PyObject *gl_future_method_remove(PyObject *self, PyObject *fn);

/* ---- future_iter.c -------------------------------------------------------------------- */

/* Future.__await__() */
static PyObject *gl_future_iter_new(PyObject *fut);

/* ---- wakeup.c --------------------------------------------------------------------------- */

/* A callable that wakes the task: what others see among a future's callbacks. */
static PyObject *gl_wakeup_callable(gl_task *task);
/* Does the Task wait for that very object? */
static inline bool
gl_awaits(PyObject *task, PyObject *fut)
{
    return ((gl_task *)task)->fut_waiter == fut;
}
/* The callable in the place of a stored Task, and the task's context or NULL; owned. */
static PyObject *gl_wakeup_of(PyObject *task, PyObject **context);
/* A callable that steps the task, throwing `exc` where not NULL. */
static PyObject *gl_step_callable(gl_task *task, PyObject *exc);
/* Schedules a step. */
static int gl_step_soon(gl_task *task, PyObject *exc);
/* The coroutine yielded `result` (stolen): what the task does next. */
static int gl_task_wait(gl_task *task, PyObject *result);
/* `fut`, which the task waited for, is done. */
static int gl_task_wakeup(gl_task *task, PyObject *fut);

/* ---- task.c ------------------------------------------------------------------------------ */

/* Runs the coroutine up to its next yield; `exc`, if not NULL, is thrown into it. */
static int gl_task_step(gl_task *task, PyObject *exc);
/* The same, out of the ring: in the task's context, exceptions reported.  Takes over
 * the reference.  -1 where SystemExit or KeyboardInterrupt leaves the loop. */
static int gl_task_run(gl_loop *loop, gl_task *task);
/* 1, 0 or -1 as gl_future_cancel. */
static int gl_task_cancel(gl_task *task, PyObject *msg);

#endif /* GOLOOP_TASKS_H */
