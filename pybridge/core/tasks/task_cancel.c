/*
 * task_cancel.c: Task.cancel(), by the state of the task.
 *
 * A waiting task cancels the future that it awaits.  A task in the ready queue or in its step sets
 * `must_cancel`, and its next step throws CancelledError.
 */
#include "tasks/private.h"

/* Cancels a pending task: its awaited future, or by a CancelledError in its next step.  Counts the
 * request, and an exception of the task counts as retrieved.  Returns 1: requested, 0: the task was
 * done, -1: error. */
static int
task_request_cancel(gl_task *task, PyObject *msg)
{
    task->log_tb = 0;
    if (task->state != GL_PENDING)
        return 0;
    task->num_cancels++;
    if (task->fut_waiter != NULL) {
        PyObject *fut = Py_NewRef(task->fut_waiter);
        int cancelled = cancel_awaited(fut, msg);
        Py_DECREF(fut);
        if (cancelled)
            return cancelled;
    }
    task->must_cancel = 1;
    Py_XSETREF(task->cancel_msg, Py_NewRef(msg));
    return 1;
}

GL_PRIVATE int
cancel_awaited(PyObject *fut, PyObject *msg)
{
    if (Py_TYPE(fut) == G.future_type)
        return future_set_cancelled((gl_future *)fut, msg);
    int cancelled = -1;
    if (gl_is_task(fut)) {
        /* A recursion check, since tasks can wait for each other in a circle. */
        if (Py_EnterRecursiveCall(" while calling a Python object") == 0) {
            cancelled = task_request_cancel((gl_task *)fut, msg);
            Py_LeaveRecursiveCall();
        }
        return cancelled;
    }
    return gl_take_bool(PyObject_CallMethodOneArg(fut, G.s_cancel, msg));
}

GL_PRIVATE PyObject *
task_cancel(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    /* asyncio's method works on the same fields and raises the error for wrong arguments. */
    if (nargs > 1 || kwnames != NULL)
        return gl_call_unbound(G.asyncio.Task_cancel, self, args, nargs, kwnames);
    int r = task_request_cancel((gl_task *)self, nargs ? args[0] : Py_None);
    return gl_bool_or_null(r);
}
