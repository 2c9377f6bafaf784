/*
 * task_step.c: the steps of a goloop.Task, from an entry of the ready queue to the next yield.
 *
 * Functions of one step:
 *
 *     gl_task_run                an entry of the ready queue (queue/scheduling.c)
 *       wakeup_exception_to_throw      wakeup.c: the exception of the awaited future, or none
 *       step_as_current          sets asyncio.current_task() (current_task.c)
 *         step_coroutine         sends None to the coroutine or throws into it
 *           task_wait            it yielded: wait_exact | wait_general | schedule_step
 *           finish_with_result   it returned
 *           finish_with_exception  it raised
 *       report_step_error        the step itself failed: Loop._step_failed()
 *
 *     task_step                  a step by asyncio's callables: wakeup_call, core_step
 *     task_start_eagerly         the first step, inside of create_task() or Task()
 *
 * The ready queue contains the Task itself, so that a step needs neither a Handle nor a
 * callable nor a tuple of arguments.  The task tells the kind of its entry: with a
 * `fut_waiter` the entry is a wakeup, without one a plain step.
 *
 * Rules for memory: the caller of each function here owns a reference to the task.  The
 * functions own references to the coroutine, the exception and the future while foreign code
 * can run, and read the fields again afterwards.
 */
#include "tasks/private.h"

/* ---- the step --------------------------------------------------------------------------- */

/* Clears a StopIteration that is set, stores its value in *result (owned) and returns true.
 * Returns false for another exception, which stays set. */
static inline bool
take_stop_iteration_value(PyObject **result)
{
    if (!PyErr_ExceptionMatches(PyExc_StopIteration))
        return false;
    PyObject *exc = gl_take_exception();
    *result = Py_NewRef(((PyStopIterationObject *)exc)->value);
    Py_DECREF(exc);
    return true;
}

/* Throws `exc` into the coroutine.  Returns the outcome as PyIter_Send() does, and stores the
 * yielded or returned object in *result (owned). */
static inline PySendResult
throw_into(PyObject *coro, PyObject *exc, PyObject **result)
{
    *result = PyObject_CallMethodOneArg(coro, G.s_throw, exc);
    if (*result != NULL)
        return PYGEN_NEXT;
    if (take_stop_iteration_value(result))
        return PYGEN_RETURN;
    return PYGEN_ERROR;
}

/* Sets the result of a task whose coroutine returned `value` (stolen), or cancels the task if
 * cancel() was called in its last step.  -1 with an exception of scheduling the callbacks. */
static int
finish_with_result(gl_task *task, PyObject *value)
{
    int r;
    if (task->must_cancel) {
        /* cancel() was called in the last step. */
        task->must_cancel = 0;
        PyObject *msg = Py_XNewRef(task->cancel_msg);
        r = future_set_cancelled((gl_future *)task, msg);
        Py_XDECREF(msg);
        if (r > 0)
            r = 0;
    } else {
        r = future_finish((gl_future *)task, value);
    }
    Py_DECREF(value);
    return r;
}

/* Finishes the task of a coroutine that raised the current exception: cancels it for
 * CancelledError, or else stores the exception.  Returns 0 with the exception cleared; -1 with
 * SystemExit or KeyboardInterrupt still set, or with an exception of scheduling the callbacks. */
static int
finish_with_exception(gl_task *task)
{
    bool cancelled = PyErr_ExceptionMatches(G.asyncio_CancelledError);
    PyObject *exc = gl_take_exception();
    if (cancelled) {
        Py_XSETREF(task->cancelled_exc, exc);
        if (future_set_cancelled((gl_future *)task, NULL) < 0)
            return -1;
        return 0;
    }
    if (future_fail((gl_future *)task, exc) < 0) {
        Py_DECREF(exc);
        return -1;
    }
    if (PyErr_GivenExceptionMatches(exc, PyExc_KeyboardInterrupt) ||
        PyErr_GivenExceptionMatches(exc, PyExc_SystemExit)) {
        gl_restore_exception(exc);
        return -1;
    }
    Py_DECREF(exc);
    return 0;
}

#if GL_TASK_STEP_HAS_TWO_UNDERSCORES
#define ALREADY_DONE "__step(): already done: %R %R"
#else
#define ALREADY_DONE "_step(): already done: %R %R"
#endif

/* Runs the coroutine to its next yield, return or exception, and lets the task wait or finishes it.
 * `exc`, if not NULL, is thrown into the coroutine; a pending cancel() replaces it by a
 * CancelledError.  -1 with InvalidStateError if the task is done, with the exception of the step
 * itself, SystemExit or KeyboardInterrupt; an exception that the task stores is none. */
static inline int
step_coroutine(gl_task *task, PyObject *exc)
{
    if (task->state != GL_PENDING) {
        PyErr_Format(G.asyncio_InvalidStateError, ALREADY_DONE, task, exc ? exc : Py_None);
        return -1;
    }
    PyObject *thrown = NULL; /* the CancelledError of this step, owned */
    if (task->must_cancel) {
        if (exc == NULL || !PyErr_GivenExceptionMatches(exc, G.asyncio_CancelledError)) {
            thrown = future_take_cancelled_error((gl_future *)task);
            if (thrown == NULL)
                return -1;
            exc = thrown;
        }
        task->must_cancel = 0;
    }
    Py_CLEAR(task->fut_waiter);
    if (task->coro == NULL) {
        Py_XDECREF(thrown);
        return raise_uninitialized();
    }
    PyObject *coro = Py_NewRef(task->coro);
    PyObject *result = NULL;
    PySendResult outcome;
    if (exc == NULL) {
        outcome = PyIter_Send(coro, Py_None, &result);
    } else {
        outcome = throw_into(coro, exc, &result);
        Py_XDECREF(thrown);
    }
    int r;
    if (outcome == PYGEN_NEXT)
        r = task_wait(task, result);
    else if (outcome == PYGEN_RETURN)
        r = finish_with_result(task, result);
    else
        r = finish_with_exception(task);
    Py_DECREF(coro);
    return r;
}

/* Runs one step while asyncio.current_task() is the task.  `queued`: see current_task_enter().  -1
 * as step_coroutine(), or with RuntimeError if another task runs. */
static inline int
step_as_current(gl_task *task, PyObject *loop, PyObject *exc, bool queued)
{
    char *ts = (char *)PyThreadState_Get(); /* a step stays on its thread */
    if (current_task_enter(ts, loop, (PyObject *)task, queued) < 0)
        return -1;
    if (step_coroutine(task, exc) == 0)
        return current_task_leave(ts, loop, (PyObject *)task, queued);
    /* An error of current_task_leave() gets the step's exception as its __context__. */
    PyObject *raised = gl_take_exception();
    (void)current_task_leave(ts, loop, (PyObject *)task, queued);
    gl_restore_exception(raised);
    return -1;
}

GL_PRIVATE int
task_step(gl_task *task, PyObject *exc)
{
    if (task->loop == NULL)
        return raise_uninitialized();
    PyObject *loop = Py_NewRef(task->loop);
    int r = step_as_current(task, loop, exc, false);
    Py_DECREF(loop);
    return r;
}

/* ---- asyncio's callables --------------------------------------------------------------------- */

/* The body of the wakeup callable, a done callback: runs a step of the task `self` with the outcome
 * of `fut`.  Returns None, or NULL with the exception of the step itself. */
static PyObject *
wakeup_call(PyObject *self, PyObject *fut)
{
    PyObject *exc;
    GUARD_FUTURE(self);
    if (wakeup_exception_to_throw((gl_task *)self, fut, &exc) < 0)
        return NULL;
    int r = task_step((gl_task *)self, exc);
    Py_XDECREF(exc);
    return gl_none_or_null(r);
}

GL_PRIVATE PyMethodDef wakeup_def = {"task_wakeup", wakeup_call, METH_O, NULL};

GL_PRIVATE PyObject *
core_step(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2 || !gl_tasks_native() || !PyObject_TypeCheck(args[0], G.task_type)) {
        PyErr_SetString(PyExc_TypeError, "_step() takes a goloop.Task and an exception or None");
        return NULL;
    }
    GUARD_FUTURE(args[0]);
    return gl_none_or_null(task_step((gl_task *)args[0], args[1] == Py_None ? NULL : args[1]));
}

/* ---- entries of the ready queue -------------------------------------------------------------- */

/* Reports the current exception as asyncio reports an exception of the step's Handle, by
 * Loop._step_failed().  `waited_for`: the awaited future, or NULL.  Returns 0 with the exception
 * cleared; -1 with SystemExit or KeyboardInterrupt still set, or with an exception of the
 * report. */
static int
report_step_error(gl_loop *loop, gl_task *task, PyObject *waited_for)
{
    if (gl_is_exit_exception())
        return -1;
    PyObject *exc = gl_take_exception();
    PyObject *wakeup = waited_for ? wakeup_callable(task) : Py_NewRef(Py_None);
    if (wakeup == NULL) {
        Py_XDECREF(exc);
        return -1;
    }
    PyObject *awaited = waited_for ? waited_for : Py_None;
    PyObject *context = task->context ? task->context : Py_None;
    int r = gl_drop_result(PyObject_CallMethod((PyObject *)loop, GL_METHOD(_step_failed), "OOOOO",
                                               task, wakeup, awaited, exc, context));
    Py_DECREF(wakeup);
    Py_XDECREF(exc);
    return r;
}

GL_PRIVATE_INLINE int
gl_task_run(gl_loop *loop, gl_task *task)
{
    PyObject *context = task->context;
    PyObject *fut = Py_XNewRef(task->fut_waiter);
    int r = -1;
    if (context == NULL) {
        raise_uninitialized();
    } else {
        Py_INCREF(context);
        if (PyContext_Enter(context) == 0) {
            PyObject *exc = NULL;
            if (fut == NULL || wakeup_exception_to_throw(task, fut, &exc) >= 0)
                r = step_as_current(task, (PyObject *)loop, exc, true);
            Py_XDECREF(exc);
            if (r == 0)
                gl_context_exit(context);
            else
                gl_context_exit_keep_error(context);
        }
        Py_DECREF(context);
    }
    if (r < 0)
        r = report_step_error(loop, task, fut);
    Py_XDECREF(fut);
    Py_DECREF(task);
    return r;
}

/* ---- the eager start ------------------------------------------------------------------------ */

#if GL_EAGER_TASKS

GL_PRIVATE int
task_start_eagerly(gl_task *task)
{
    PyObject *loop = Py_NewRef(task->loop);
    PyObject *context = Py_NewRef(task->context);
    int r = -1;
    PyObject *before = current_task_swap(loop, (PyObject *)task);
    if (before == NULL)
        goto done;
    task_register(task);
    if (PyContext_Enter(context) == 0) {
        r = step_coroutine(task, NULL);
        gl_context_exit_keep_error(context);
    }
    PyObject *exc = r < 0 ? gl_take_exception() : NULL;
    PyObject *current = current_task_swap(loop, before);
    Py_XDECREF(current);
    Py_DECREF(before);
    if (current == NULL)
        r = -1;
    if (exc)
        gl_restore_exception(exc);
    if (task->state != GL_PENDING) {
        task_unregister(task);
        Py_CLEAR(task->coro);
    }
done:
    if (r < 0)
        task->log_destroy_pending = 0; /* the caller gets the exception instead */
    Py_DECREF(context);
    Py_DECREF(loop);
    return r;
}

#endif
