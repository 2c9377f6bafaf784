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

/* Makes `task` the running task of `loop` at the beginning of a step; `ts` is the thread state.
 * `queued`: the task is an entry of the loop's ready queue, and `loop` is a gl_loop.  -1 with
 * RuntimeError if another task runs, or (from 3.14 on) another loop. */
GL_PRIVATE_INLINE int current_task_enter(char *ts, PyObject *loop, PyObject *task, bool queued);
/* Ends the step of `task`: no task runs afterwards; before 3.14 the entry of a `queued` task
 * becomes stale instead of being removed.  -1 with RuntimeError if another task runs, which then
 * stays the running task. */
GL_PRIVATE_INLINE int current_task_leave(char *ts, PyObject *loop, PyObject *task, bool queued);
#if GL_EAGER_TASKS
/* Makes `task` the running task (None: no task), whichever task runs.  Returns the previous one, a
 * new reference, or None.  For the eager start of a task. */
GL_PRIVATE PyObject *current_task_swap(PyObject *loop, PyObject *task);
#endif

#if GL_CURRENT_TASK_IN_LOOP
/* ---- current_task_ft.c ---------------------------------------------------------------------- */

/* Stores the task whose step begins (borrowed), or NULL at the end of the step, and then removes a
 * published task from the dict.  Only for the loop's thread. */
GL_PRIVATE void loop_set_current_task(gl_loop *loop, PyObject *task);
#endif

/* ---- task_registry.c ------------------------------------------------------------------------- */

/* Adds the task, without a reference, to its list for all_tasks(), unless it is listed already. */
GL_PRIVATE_INLINE void task_register(gl_task *task);
/* Removes the task from its list, unless it is not listed. */
GL_PRIVATE_INLINE void task_unregister(gl_task *task);
/* _core._live_tasks(): a new list of the pending goloop.Tasks of all loops; before 3.14. */
GL_PRIVATE PyObject *core_live_tasks(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored));

/* ---- future_callbacks.c: each future must have the layout, and the caller owns a reference --- */

/* Adds the callback `fn`, called with the future in `context`; schedules it at once if the future
 * is done.  Makes new references.  -1 with RuntimeError if the future is not initialised. */
GL_PRIVATE int future_add_callback(gl_future *f, PyObject *fn, PyObject *context);
/* Schedules all callbacks of a future that has just become done, and drops them; a task (a Task or
 * an instance of a subclass) is also unregistered, before anything is scheduled.  On failure the
 * callbacks that follow the failed one are lost. */
GL_PRIVATE int future_schedule_callbacks(gl_future *f);
/* Future.add_done_callback(fn, *, context=None), also of Task: adds the callback, or schedules it
 * if the future is done.  Without a context the callback runs in a copy of the current one.
 * Returns None.  NULL as future_add_callback(); for wrong arguments asyncio's method raises the
 * error. */
GL_PRIVATE PyObject *future_method_add_done_callback(PyObject *self, PyObject *const *args,
                                                     Py_ssize_t nargs, PyObject *kwnames);
/* Future.remove_done_callback(fn), also of Task: removes all callbacks that equal `fn` and returns
 * their number as an int.  Runs Python, for the comparisons. */
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

/* Creates the callable that wakes the task, which programs see among a future's callbacks; it has a
 * reference to the task.  NULL with MemoryError. */
GL_PRIVATE PyObject *wakeup_callable(gl_task *task);

/* ---- future.c: each future must have the layout, and the caller owns a reference ------------- */

/* Stores the result of a pending future, a new reference, and schedules the callbacks.  -1 with
 * InvalidStateError if the future is done, or with the exception of scheduling; the future is done
 * then. */
GL_PRIVATE_INLINE int future_finish(gl_future *f, PyObject *result);
/* Stores the exception of a pending future and schedules the callbacks.  `exc` may be a class.  -1
 * with InvalidStateError if the future is done, with TypeError for a wrong `exc`, or with the
 * exception of scheduling. */
GL_PRIVATE int future_fail(gl_future *f, PyObject *exc);
/* Cancels a pending future and schedules the callbacks.  Returns 1: cancelled now, 0: done before,
 * -1: the scheduling failed.  `msg` (may be NULL) becomes the argument of the CancelledError.  In
 * each case an exception of the future counts as retrieved. */
GL_PRIVATE int future_set_cancelled(gl_future *f, PyObject *msg);
/* Returns the CancelledError of a cancelled future as a new reference: the stored exception, which
 * the future then no longer has, or a new one with the cancel message. */
GL_PRIVATE PyObject *future_take_cancelled_error(gl_future *f);
/* Reads the outcome of a future for a task that awaited it.  Returns 1 with the exception to throw
 * in *exc (owned), or 0 if there is none.  An error, such as InvalidStateError for a pending
 * future, is also returned in *exc; none is set.  Marks the exception as retrieved. */
GL_PRIVATE int future_exception_to_throw(gl_future *f, PyObject **exc);
/* Calls asyncio.Future.__init__(); the tp_init of Future without the GIL, and a part of Task's.
 * Without the GIL a registered task is unregistered first. */
GL_PRIVATE int future_init_base(PyObject *self, PyObject *args, PyObject *kwds);
/* tp_traverse of Future, and a part of Task's: visits the objects of layout.h and the dict. */
GL_PRIVATE int future_traverse(PyObject *self, visitproc visit, void *arg);
/* tp_clear of Future, and a part of Task's: clears the objects of layout.h and the dict. */
GL_PRIVATE int future_clear(PyObject *self);

/* ---- future_iter.c --------------------------------------------------------------------------- */

/* Implements Future.__await__() and Future.__iter__(), also of Task: creates the iterator, or takes
 * a freed one from the pool.  NULL with RuntimeError if the future is not initialised, or
 * MemoryError. */
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

/* Schedules a step that does not depend on a future: the first one, or after a yield of None.  A
 * Task on a goloop loop becomes an entry of the ready queue; any other gets a
 * TaskStepMethWrapper. */
GL_PRIVATE int schedule_step(gl_task *task);
/* Lets the task wait for the object that its coroutine yielded, and schedules the next step for
 * None; steals `result`.  A wrong object becomes an error that the next step throws. */
GL_PRIVATE_INLINE int task_wait(gl_task *task, PyObject *result);
/* Reads the outcome of `fut`, which the task awaited and which is done.  Returns 1 with the
 * exception to throw in *exc (owned), 0 if there is none, or -1: error.  Removes the record that
 * the task awaits the future. */
GL_PRIVATE int wakeup_exception_to_throw(gl_task *task, PyObject *fut, PyObject **exc);
/* Sets RuntimeError for a task whose __init__() has not run or has failed, unless an exception is
 * set already.  Returns -1. */
GL_PRIVATE int raise_uninitialized(void);

/* ---- task_step.c ----------------------------------------------------------------------------- */

/* Runs one step as the current task: the coroutine up to its next yield.  `exc`, if not NULL, is
 * thrown into the coroutine.  -1 with the exception of the step itself, SystemExit or
 * KeyboardInterrupt, or with RuntimeError if the task is not initialised. */
GL_PRIVATE int task_step(gl_task *task, PyObject *exc);
/* The method definition of the callable that wakes a task. */
GL_PRIVATE_DATA PyMethodDef wakeup_def;
/* _core._step(task, error): runs a step and throws the error into the coroutine unless it is None.
 * Called by TaskStepMethWrapper.  NULL with TypeError, or with the exception of the step itself. */
GL_PRIVATE PyObject *core_step(PyObject *Py_UNUSED(module), PyObject *const *args,
                               Py_ssize_t nargs);
#if GL_EAGER_TASKS
/* Runs the first step inside of the running task or callback, and registers the task unless the
 * step ends it; an ended task drops its coroutine.  -1 with the exception of the step itself,
 * SystemExit or KeyboardInterrupt. */
GL_PRIVATE int task_start_eagerly(gl_task *task);
#endif

/* ---- task_cancel.c --------------------------------------------------------------------------- */

/* Cancels the awaited future, of any class; a Task is asked as by its cancel().  Returns 1:
 * cancelled or requested, 0: it was done, -1: error (RecursionError for tasks that wait for each
 * other in a circle). */
GL_PRIVATE int cancel_awaited(PyObject *fut, PyObject *msg);
/* Task.cancel(msg=None): True if the task was pending.  For wrong arguments asyncio's method raises
 * the error. */
GL_PRIVATE PyObject *task_cancel(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *kwnames);

/* ---- task.c ---------------------------------------------------------------------------------- */

/* Fills in a task whose Future part is initialised.  `coro` is a coroutine; `name` and `context`
 * may be NULL or None: a default name, a copy of the current context.  Makes new references.  -1
 * with TypeError for a wrong context. */
GL_PRIVATE int task_init_fields(gl_task *task, PyObject *coro, PyObject *name, PyObject *context);

/* ---- the types, created by probe.c ----------------------------------------------------------- */

GL_PRIVATE_DATA PyType_Spec future_spec, future_iter_spec, task_spec;
