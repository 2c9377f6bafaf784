/*
 * private.h: what the files of this room alone share.
 */
#pragma once

#include "tasks/tasks.h"

static inline bool
is_future(PyObject *o)
{
    return Py_TYPE(o) == G.future_type || Py_TYPE(o) == G.task_type;
}

/* An instance of a class whose C methods are known: ours or the stdlib's, exactly. */
static inline bool
is_any_exact_future(PyObject *o)
{
    PyTypeObject *t = Py_TYPE(o);
    return t == G.future_type || t == G.task_type || t == G.asyncio.Future || t == G.asyncio.Task;
}

/* Has the fields of layout.h: any instance of _asyncio.Future or a subclass. */
static inline bool
has_layout(PyObject *o)
{
    return is_any_exact_future(o) || PyObject_TypeCheck(o, G.asyncio.Future);
}

/* Whether the running task is asyncio's to know only when somebody asks. */
#if defined(GL_FREE_THREADED) && !GL_LAYOUT_AWAITED_BY
#define GL_LAZY_CURRENT 1
#else
#define GL_LAZY_CURRENT 0
#endif

/* Holds the lock of a future's loop to the end of the block. It may have been made just now. */
#ifdef GL_FREE_THREADED
#define GUARD_FUTURE(f)                                                                            \
    GL_GUARD(gl_as_loop(__atomic_load_n(&((gl_future *)(f))->loop, __ATOMIC_ACQUIRE)))
#else
#define GUARD_FUTURE(f) ((void)0)
#endif

/* ---- current_task.c -------------------------------------------------------------------------- */

/* A task begins and ends a step; RuntimeError where another one runs.  `ts` is the thread
 * state; `queued`: the task came out of the ready queue of `loop`, a gl_loop. */
GL_PRIVATE_INLINE int current_enter(char *ts, PyObject *loop, PyObject *task, bool queued);
GL_PRIVATE_INLINE int current_leave(char *ts, PyObject *loop, PyObject *task, bool queued);
#if GL_EAGER_TASKS
/* Makes `task` (None: no task) the current one; returns the one before, or None. */
GL_PRIVATE PyObject *current_swap(PyObject *loop, PyObject *task);
#endif

#if GL_LAZY_CURRENT
/* ---- current_task_ft.c ------------------------------------------------------------------------ */

/* The loop's thread: a step of `task` begins, or with NULL ends. */
GL_PRIVATE void current_set_lazily(gl_loop *loop, PyObject *task);
#endif

/* ---- task_registry.c ------------------------------------------------------------------------- */

/* Lists a task, or takes it out; nothing where that is so already. */
GL_PRIVATE_INLINE void task_register(gl_task *task);
GL_PRIVATE_INLINE void task_unregister(gl_task *task);
/* _core._live_tasks(): the tasks of our own list, all loops; before 3.14. */
GL_PRIVATE PyObject *core_live_tasks(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored));

/* ---- future.c: all want a future with the layout, kept alive by the caller ------------------- */

GL_PRIVATE int future_add_callback(gl_future *f, PyObject *fn, PyObject *context);
/* set_result and set_exception. */
GL_PRIVATE_INLINE int future_settle(gl_future *f, PyObject *result);
GL_PRIVATE int future_fail(gl_future *f, PyObject *exc);
/* 1: cancelled now, 0: it was done before, -1: error.  `msg` may be NULL. */
GL_PRIVATE int future_set_cancelled(gl_future *f, PyObject *msg);
/* A CancelledError as result() would raise it; new reference. */
GL_PRIVATE PyObject *future_cancelled_error(gl_future *f);
/* What a waiting task gets: 0 nothing to throw, 1 *exc (owned) is to be thrown. */
GL_PRIVATE int future_outcome(gl_future *f, PyObject **exc);
/* RuntimeError where Future.__init__ has not run, or the collector has cleared it. */
GL_PRIVATE_INLINE int future_ensure_alive(gl_future *f);

/* asyncio.Future.__init__. */
GL_PRIVATE int future_init_base(PyObject *self, PyObject *args, PyObject *kwds);
/* What Task has of Future. */
GL_PRIVATE int future_traverse(PyObject *self, visitproc visit, void *arg);
GL_PRIVATE int future_clear(PyObject *self);
GL_PRIVATE PyObject *future_method_add(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                       PyObject *kwnames);
GL_PRIVATE PyObject *future_method_remove(PyObject *self, PyObject *fn);
GL_PRIVATE_DATA PyGetSetDef future_getset[2];
#define GL_CALLBACK_METHODS                                                                        \
    {"add_done_callback", GL_FASTKW(future_method_add),                                            \
     PyDoc_STR("add_done_callback($self, fn, /, *, context=<unrepresentable>)\n--\n\n"             \
               "Call fn(self) by call_soon() once the future is done.")},                          \
    {                                                                                              \
        "remove_done_callback", future_method_remove, METH_O,                                      \
            PyDoc_STR("remove_done_callback($self, fn, /)\n--\n\n"                                 \
                      "Remove all instances of a callback; return how many there were.")           \
    }

/* Future.__await__() */
GL_PRIVATE PyObject *future_iter_new(PyObject *fut);
/* A callable that wakes the task: what others see among a future's callbacks. */
GL_PRIVATE PyObject *wakeup_callable(gl_task *task);
/* unbound(self, *args, **kwargs) */
GL_PRIVATE PyObject *call_unbound(PyObject *unbound, PyObject *self, PyObject *const *args,
                                  Py_ssize_t nargs, PyObject *kwnames);
/* ---- future_iter.c --------------------------------------------------------------------------- */

typedef struct gl_future_iter {
    PyObject_HEAD
    gl_future *future; /* to the end: another thread may be about to take its lock */
    bool exhausted;
} gl_future_iter;

#ifdef GL_FREE_THREADED
#define ITER_POOL false /* the allocator has one for each thread */
#else
#define ITER_POOL true
#endif

/* ---- wakeup.c -------------------------------------------------------------------------------- */

/* Of the callable that wakes a task. */
GL_PRIVATE_DATA PyMethodDef wakeup_def;
/* _core._step(task, error): a step of a TaskStepMethWrapper; throws the error unless it is None. */
GL_PRIVATE PyObject *core_step(PyObject *Py_UNUSED(module), PyObject *const *args,
                               Py_ssize_t nargs);
/* Schedules a step. */
GL_PRIVATE int step_soon(gl_task *task);
/* The coroutine yielded `result` (stolen): what the task does next. */
GL_PRIVATE_INLINE int task_wait(gl_task *task, PyObject *result);
/* What `fut`, which the task waited for and which is done, has for it: 0 nothing, 1 *exc
 * (owned) is to be thrown, -1 error. */
GL_PRIVATE int wakeup_outcome(gl_task *task, PyObject *fut, PyObject **exc);
/* Nothing was ever, or is no longer, in the task: Task.__init__ has not run or failed.  Keeps
 * an exception that is set; returns -1. */
GL_PRIVATE int raise_uninitialized(void);

/* ---- task.c ---------------------------------------------------------------------------------- */

/* Runs the coroutine up to its next yield; `exc`, if not NULL, is thrown into it. */
GL_PRIVATE int task_step(gl_task *task, PyObject *exc);
/* Cancels what a task waits for, a future of any kind: 1, 0 or -1 as future_set_cancelled. */
GL_PRIVATE int cancel_awaited(PyObject *fut, PyObject *msg);
/* Fills a task whose Future part is initialised.  `coro` is a coroutine. */
GL_PRIVATE int task_fill(gl_task *task, PyObject *coro, PyObject *name, PyObject *context);
#if GL_EAGER_TASKS
/* The first step at once, within the running task or callback. */
GL_PRIVATE int task_start_eagerly(gl_task *task);
#endif

/* ---- the types, made by probe.c -------------------------------------------------------------- */

GL_PRIVATE_DATA PyType_Spec future_spec, future_iter_spec, task_spec;
