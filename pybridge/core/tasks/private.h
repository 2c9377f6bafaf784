/*
 * private.h: declarations that only the files of this room share.
 */
#pragma once

#include "tasks/tasks.h"

/* Returns true if an object is exactly a goloop.Future or a goloop.Task. */
static inline bool
is_native_future(PyObject *o)
{
    return Py_TYPE(o) == G.future_type || Py_TYPE(o) == G.task_type;
}

/* Returns true if an object is exactly a Future or a Task of goloop or of the stdlib, whose C
 * methods are known. */
static inline bool
is_exact_future(PyObject *o)
{
    PyTypeObject *t = Py_TYPE(o);
    return t == G.future_type || t == G.task_type || t == G.asyncio.Future || t == G.asyncio.Task;
}

/* Returns true if an object has the fields of layout.h: an instance of _asyncio.Future or a
 * subclass. */
static inline bool
has_future_layout(PyObject *o)
{
    return is_exact_future(o) || PyObject_TypeCheck(o, G.asyncio.Future);
}

/* Returns 0 if the future has a loop, or -1 with RuntimeError: Future.__init__() has not run, or
 * the collector has cleared the future. */
static inline int
future_ensure_initialized(gl_future *f)
{
    if (f->loop != NULL)
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "Future object is not initialized.");
    return -1;
}

/* 1 if the loop stores its running task, and asyncio's dict gets the task only on request
 * (current_task_ft.c). */
#if defined(GL_FREE_THREADED) && !GL_LAYOUT_AWAITED_BY
#define GL_CURRENT_TASK_IN_LOOP 1
#else
#define GL_CURRENT_TASK_IN_LOOP 0
#endif

/* Locks the loop of a future until the end of the block.  The load pairs with the store of a
 * thread that has just created the future. */
#ifdef GL_FREE_THREADED
#define GUARD_FUTURE(f)                                                                            \
    GL_GUARD(gl_as_loop(__atomic_load_n(&((gl_future *)(f))->loop, __ATOMIC_ACQUIRE)))
#else
#define GUARD_FUTURE(f) ((void)0)
#endif

/* ---- current_task.c -------------------------------------------------------------------------- */

/* Begin and end a step of a task; -1 with RuntimeError if another task runs.  `ts` is the thread
 * state; `queued`: the task is an entry of the ready queue of `loop`, a gl_loop. */
GL_PRIVATE_INLINE int current_task_enter(char *ts, PyObject *loop, PyObject *task, bool queued);
GL_PRIVATE_INLINE int current_task_leave(char *ts, PyObject *loop, PyObject *task, bool queued);
#if GL_EAGER_TASKS
/* Makes `task` (None: no task) the current task.  Returns the previous one or None, a new
 * reference; NULL with an exception. */
GL_PRIVATE PyObject *current_task_swap(PyObject *loop, PyObject *task);
#endif

#if GL_CURRENT_TASK_IN_LOOP
/* ---- current_task_ft.c ---------------------------------------------------------------------- */

/* Stores the task whose step begins, or NULL at the end of a step.  The loop's thread only. */
GL_PRIVATE void loop_set_current_task(gl_loop *loop, PyObject *task);
#endif

/* ---- task_registry.c ------------------------------------------------------------------------- */

/* Add a task to its list, or remove it; without effect if it is listed, or not listed, already. */
GL_PRIVATE_INLINE void task_register(gl_task *task);
GL_PRIVATE_INLINE void task_unregister(gl_task *task);
/* _core._live_tasks(): a new list of the pending goloop.Tasks of all loops; before 3.14.  NULL with
 * an exception. */
GL_PRIVATE PyObject *core_live_tasks(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored));

/* ---- future_callbacks.c: each future must have the layout, and the caller owns a reference --- */

/* Adds a callback, or schedules it if the future is done.  Makes new references.  -1 with an
 * exception. */
GL_PRIVATE int future_add_callback(gl_future *f, PyObject *fn, PyObject *context);
/* Schedules all callbacks of a future that has just become done, and drops them.  -1 with an
 * exception, and the callbacks that follow the failed one are lost. */
GL_PRIVATE int future_schedule_callbacks(gl_future *f);
/* Methods and the attribute `_callbacks` of Future, which Task has too. */
GL_PRIVATE PyObject *future_method_add_done_callback(PyObject *self, PyObject *const *args,
                                                     Py_ssize_t nargs, PyObject *kwnames);
GL_PRIVATE PyObject *future_method_remove_done_callback(PyObject *self, PyObject *fn);
GL_PRIVATE_DATA PyGetSetDef future_getset[2];
/* The entries of add_done_callback() and remove_done_callback() in a table of methods. */
#define GL_CALLBACK_METHODS                                                                        \
    {"add_done_callback", GL_FASTKW(future_method_add_done_callback),                              \
     PyDoc_STR("add_done_callback($self, fn, /, *, context=<unrepresentable>)\n--\n\n"             \
               "Call fn(self) by call_soon() once the future is done.")},                          \
    {                                                                                              \
        "remove_done_callback", future_method_remove_done_callback, METH_O,                        \
            PyDoc_STR("remove_done_callback($self, fn, /)\n--\n\n"                                 \
                      "Remove all instances of a callback; return how many there were.")           \
    }

/* Creates the callable that wakes the task, which programs see among a future's callbacks.  NULL
 * with MemoryError. */
GL_PRIVATE PyObject *wakeup_callable(gl_task *task);

/* ---- future.c: each future must have the layout, and the caller owns a reference ------------- */

/* Implement set_result() and set_exception().  -1 with InvalidStateError if the future is done, or
 * with another exception. */
GL_PRIVATE_INLINE int future_finish(gl_future *f, PyObject *result);
GL_PRIVATE int future_fail(gl_future *f, PyObject *exc);
/* Cancels the future.  Returns 1: cancelled now, 0: done before, -1: error.  `msg` may be NULL. */
GL_PRIVATE int future_set_cancelled(gl_future *f, PyObject *msg);
/* Returns the CancelledError that result() would raise, a new reference: the stored exception,
 * which the future then no longer has, or a new one.  NULL with an exception. */
GL_PRIVATE PyObject *future_cancelled_error(gl_future *f);
/* Stores the exception to throw into an awaiting task in *exc (owned): 1, or 0 if there is none.
 * Errors, such as InvalidStateError for a pending future, are stored too; none is set. */
GL_PRIVATE int future_outcome(gl_future *f, PyObject **exc);
/* Calls asyncio.Future.__init__().  -1 with an exception. */
GL_PRIVATE int future_init_base(PyObject *self, PyObject *args, PyObject *kwds);
/* Parts of Future that Task has too. */
GL_PRIVATE int future_traverse(PyObject *self, visitproc visit, void *arg);
GL_PRIVATE int future_clear(PyObject *self);

/* ---- future_iter.c --------------------------------------------------------------------------- */

/* Implements Future.__await__().  NULL with an exception. */
GL_PRIVATE PyObject *future_iter_new(PyObject *fut);
/* FutureIter, the iterator of `await fut`. */
typedef struct gl_future_iter {
    PyObject_HEAD
    gl_future *future; /* owned until the end: another thread may be about to lock its loop */
    bool exhausted;
} gl_future_iter;

#ifdef GL_FREE_THREADED
#define ITER_POOL false /* the allocator has free lists for each thread */
#else
#define ITER_POOL true
#endif

/* ---- wakeup.c -------------------------------------------------------------------------------- */

/* The method definition of the callable that wakes a task. */
GL_PRIVATE_DATA PyMethodDef wakeup_def;
/* _core._step(task, error): runs a step for a TaskStepMethWrapper; throws the error unless it is
 * None. */
GL_PRIVATE PyObject *core_step(PyObject *Py_UNUSED(module), PyObject *const *args,
                               Py_ssize_t nargs);
/* Schedules a step without an awaited future.  -1 with an exception. */
GL_PRIVATE int schedule_step(gl_task *task);
/* Lets the task wait for the object that its coroutine yielded (stolen).  -1 with an exception. */
GL_PRIVATE_INLINE int task_wait(gl_task *task, PyObject *result);
/* Stores the exception to throw for `fut`, which the task awaited and which is done, in *exc
 * (owned): 1, or 0 if there is none, -1: error. */
GL_PRIVATE int wakeup_outcome(gl_task *task, PyObject *fut, PyObject **exc);
/* Raises RuntimeError for a task without fields: Task.__init__ has not run or has failed.  An
 * exception that is set already stays; returns -1. */
GL_PRIVATE int raise_uninitialized(void);

/* ---- task_step.c ----------------------------------------------------------------------------- */

/* Runs the coroutine up to its next yield; `exc`, if not NULL, is thrown into the coroutine.  -1
 * with the exception of the step itself, SystemExit or KeyboardInterrupt. */
GL_PRIVATE int task_step(gl_task *task, PyObject *exc);
#if GL_EAGER_TASKS
/* Runs the first step inside of the running task or callback.  -1 as task_step(). */
GL_PRIVATE int task_start_eagerly(gl_task *task);
#endif

/* ---- task_cancel.c --------------------------------------------------------------------------- */

/* Cancels the awaited future, of any class: 1, 0 or -1 as future_set_cancelled(). */
GL_PRIVATE int cancel_awaited(PyObject *fut, PyObject *msg);
/* Implements Task.cancel(). */
GL_PRIVATE PyObject *task_cancel(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *kwnames);

/* ---- task.c ---------------------------------------------------------------------------------- */

/* Fills a task whose Future part is initialised.  `coro` is a coroutine.  -1 with an exception. */
GL_PRIVATE int task_init_fields(gl_task *task, PyObject *coro, PyObject *name, PyObject *context);

/* ---- the types, created by probe.c ----------------------------------------------------------- */

GL_PRIVATE_DATA PyType_Spec future_spec, future_iter_spec, task_spec;
