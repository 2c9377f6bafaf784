/*
 * wakeup.c: a Task waits for a future, and the future wakes the task.
 *
 *   the coroutine yields                      the task
 *   ------------------------------------      ----------------------------------------
 *   a goloop.Future or Task, on a goloop      becomes the future's callback0; the finished
 *   loop (wait_exact)                         future pushes it to the ready queue
 *   a Future or Task of asyncio (wait_exact)  adds a wakeup callable; call_soon calls it
 *   any other awaitable (wait_general)        adds a wakeup callable by slow_path.py
 *   None (schedule_step)                      is scheduled again
 *   anything else (wait_general)              gets a RuntimeError by a scheduled step
 *
 * The errors for wrong objects are raised by goloop/_internal/tasks/slow_path.py.
 *
 * The general path uses two callables, which run a step (task_step.c).  Their names are the ones of
 * asyncio, because they appear in logs and reprs: `TaskStepMethWrapper` (in slow_path.py) and the
 * built-in method `Task.task_wakeup`.
 */
#include "tasks/private.h"

GL_PRIVATE int
raise_uninitialized(void)
{
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "uninitialized Task object");
    return -1;
}

GL_PRIVATE int
schedule_step(gl_task *task)
{
    gl_loop *loop = NULL;
    if (gl_is_task((PyObject *)task))
        loop = gl_loop_if_native(task->loop);
    if (loop != NULL)
        return gl_push_task(loop, (PyObject *)task);
    PyObject *step = PyObject_CallOneArg(G.asyncio.step, (PyObject *)task);
    PyObject *context = Py_XNewRef(task->context);
    int r = -1;
    if (context == NULL)
        raise_uninitialized();
    else if (step != NULL)
        r = gl_schedule_on_any_loop(task->loop, step, NULL, context);
    Py_XDECREF(context);
    Py_XDECREF(step);
    return r;
}

/* ---- waiting -------------------------------------------------------------------------- */

#if GL_LAYOUT_AWAITED_BY

/* Records in the future, for debugging tools, that `task` awaits it. */
static int
awaited_by_add(gl_future *fut, PyObject *task)
{
    if (fut->awaited_by == NULL) {
        fut->awaited_by = Py_NewRef(task);
        return 0;
    }
    /* The hash of a subclass's instance runs Python, which may initialise the future again. */
    PyObject *before = Py_NewRef(fut->awaited_by);
    int r;
    if (fut->awaited_by_is_set) {
        r = PySet_Add(before, task);
    } else {
        PyObject *set = PySet_New(NULL);
        r = -1;
        if (set != NULL && PySet_Add(set, task) == 0)
            r = PySet_Add(set, before);
        if (r == 0 && fut->awaited_by == before) {
            fut->awaited_by_is_set = 1;
            Py_SETREF(fut->awaited_by, Py_NewRef(set));
        }
        Py_XDECREF(set);
    }
    Py_DECREF(before);
    return r;
}

/* Removes the record that `task` awaits `fut`, if there is one. */
static inline int
awaited_by_discard(gl_future *fut, PyObject *task)
{
    if (fut->awaited_by == task) {
        fut->awaited_by = NULL;
        Py_DECREF(task); /* the caller owns another reference */
        return 0;
    }
    if (fut->awaited_by == NULL || !fut->awaited_by_is_set)
        return 0;
    PyObject *set = Py_NewRef(fut->awaited_by);
    int r = PySet_Discard(set, task);
    Py_DECREF(set);
    if (r < 0)
        return -1;
    return 0;
}

#else

#define awaited_by_add(fut, task) ((void)(task), 0)
#define awaited_by_discard(fut, task) 0

#endif

/* Sets the awaited future of the task.  If cancel() was called in the step that has just yielded,
 * cancels the future; if the future is done already, the next step is cancelled. */
static inline int
set_awaited_future(gl_task *task, PyObject *fut)
{
    Py_XSETREF(task->fut_waiter, Py_NewRef(fut));
    if (!task->must_cancel)
        return 0;
    PyObject *msg = gl_ref_or_none(task->cancel_msg);
    int cancelled = cancel_awaited(fut, msg);
    Py_DECREF(msg);
    if (cancelled > 0)
        task->must_cancel = 0;
    if (cancelled < 0)
        return -1;
    return 0;
}

/* Waits for an exact instance of one of the four classes of is_exact_future(): the task becomes the
 * future's callback0, or adds a wakeup callable. */
static int
wait_exact(gl_task *task, PyObject *result)
{
    gl_future *fut = (gl_future *)result;
    int r = -1;
    if (awaited_by_add(fut, (PyObject *)task) < 0)
        return -1;
    fut->blocking = 0;
    if (fut->callback0 == NULL && fut->callbacks == NULL && fut->state == GL_PENDING &&
        is_native_future(result) && gl_is_task((PyObject *)task) && gl_loop_if_native(task->loop)) {
        fut->callback0 = Py_NewRef((PyObject *)task);
        fut->context0 = Py_NewRef(Py_None);
        return set_awaited_future(task, result);
    }
    PyObject *context;
    PyObject *wakeup = gl_wakeup_with_context((PyObject *)task, &context);
    if (context != NULL)
        r = future_add_callback(fut, wakeup, context);
    else
        raise_uninitialized();
    Py_XDECREF(context);
    Py_XDECREF(wakeup);
    if (r < 0)
        return -1;
    return set_awaited_future(task, result);
}

/* Waits for any object with the methods of a future, by these methods.  For another object
 * slow_path.py schedules a step that throws an error into the coroutine; the result is 0. */
static int
wait_general(gl_task *task, PyObject *result)
{
    PyObject *context;
    PyObject *wakeup = gl_wakeup_with_context((PyObject *)task, &context);
    int waits = -1;
    if (context != NULL)
        waits = gl_take_bool(PyObject_CallFunctionObjArgs(G.asyncio.wait, (PyObject *)task, result,
                                                          task->loop, wakeup, context, NULL));
    else
        raise_uninitialized();
    Py_XDECREF(context);
    Py_XDECREF(wakeup);
    if (waits <= 0)
        return waits;
    if (has_future_layout(result) && awaited_by_add((gl_future *)result, (PyObject *)task) < 0)
        return -1;
    return set_awaited_future(task, result);
}

GL_PRIVATE_INLINE int
task_wait(gl_task *task, PyObject *result)
{
    gl_future *fut = (gl_future *)result;
    int r;
    if (result == Py_None)
        r = schedule_step(task);
    else if (is_exact_future(result) && fut->loop == task->loop && fut->blocking &&
             result != (PyObject *)task)
        r = wait_exact(task, result);
    else
        r = wait_general(task, result);
    Py_DECREF(result);
    return r;
}

/* ---- waking ---------------------------------------------------------------------------- */

GL_PRIVATE int
wakeup_exception_to_throw(gl_task *task, PyObject *fut, PyObject **exc)
{
    *exc = NULL;
    if (has_future_layout(fut) && awaited_by_discard((gl_future *)fut, (PyObject *)task) < 0)
        return -1;
    if (is_exact_future(fut))
        return future_exception_to_throw((gl_future *)fut, exc);
    PyObject *result = PyObject_CallMethodNoArgs(fut, G.s_result);
    if (result != NULL) {
        Py_DECREF(result);
        return 0;
    }
    *exc = gl_take_exception();
    return 1;
}
