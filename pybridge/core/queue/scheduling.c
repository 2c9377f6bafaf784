/*
 * scheduling.c: schedules callbacks and tasks on a loop's ready queue, and runs one entry.
 *
 * Called with the GIL, on the loop's own thread.
 */
#include "queue/private.h"

GL_PRIVATE_INLINE int
gl_ready_add(gl_loop *loop, PyObject *entry)
{
#ifdef GL_FREE_THREADED
    if (gl_inbox_any(loop) && gl_inbox_join(loop) < 0)
        return -1;
#endif
    return gl_ready_push(&loop->ready, entry, 0);
}

GL_PRIVATE_INLINE int
push_new_handle(gl_loop *loop, PyObject *callable, PyObject *arg, PyObject *context)
{
    const gl_call call = {callable, &arg, arg != NULL, context};
    PyObject *h = gl_handle_new(G.handle_type, loop, &call);
    if (h == NULL)
        return -1;
    int r = gl_ready_add(loop, h);
    if (r < 0)
        Py_DECREF(h);
    return r;
}

/* Calls loop.call_soon(callable[, arg][, context=context]) as a Python method, and drops its
 * result; `arg` and `context` may be NULL. */
static int
call_soon_method(PyObject *loop, PyObject *callable, PyObject *arg, PyObject *context)
{
    /* A replaced call_soon may drop the caller's references. */
    PyObject *stack[4] = {Py_NewRef(loop), Py_NewRef(callable), NULL, NULL};
    size_t n = 2;
    if (arg)
        stack[n++] = Py_NewRef(arg);
    stack[n] = Py_XNewRef(context);
    PyObject *handle = PyObject_VectorcallMethod(
        G.s_call_soon, stack, n | PY_VECTORCALL_ARGUMENTS_OFFSET, context ? G.kw_context : NULL);
    for (size_t i = 0; i <= n; i++)
        Py_XDECREF(stack[i]);
    return gl_drop_result(handle);
}

GL_PRIVATE int
gl_schedule_on_own_loop(gl_loop *loop, PyObject *callable, PyObject *arg, PyObject *context)
{
    if (gl_loop_has_own(loop, GL_OWN_CALL_SOON))
        return call_soon_method((PyObject *)loop, callable, arg, context);
    if (gl_loop_check_usable(loop) < 0)
        return -1;
    return push_new_handle(loop, callable, arg, context);
}

GL_PRIVATE int
gl_schedule_on_any_loop(PyObject *loop, PyObject *callable, PyObject *arg, PyObject *context)
{
    gl_loop *native = gl_loop_if_native(loop);
    if (native) {
        GL_GUARD(native);
        Py_INCREF(native); /* creating a handle may run the garbage collector */
        int r = push_new_handle(native, callable, arg, context);
        Py_DECREF(native);
        return r;
    }
    if (loop == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "Future object is not initialized.");
        return -1;
    }
    return call_soon_method(loop, callable, arg, context);
}

GL_PRIVATE_INLINE int
gl_push_task(gl_loop *loop, PyObject *task)
{
    Py_INCREF(task);
    if (gl_ready_add(loop, task) < 0) {
        Py_DECREF(task);
        return -1;
    }
    return 0;
}

/* ---- running entries, with debug mode's stopwatch ---------------------------- */

GL_PRIVATE int
gl_log_slow(gl_loop *loop, PyObject *entry, int64_t before)
{
    return gl_drop_result(PyObject_CallMethod((PyObject *)loop, GL_METHOD(_log_slow), "Od", entry,
                                              (double)(gl_monotonic_ns() - before) / 1e9));
}

GL_PRIVATE int
gl_run_handle(gl_loop *loop, PyObject *handle)
{
    gl_trace *t = gl_active_trace(loop);
    if (t != NULL)
        gl_trace_call(loop, t, ((gl_handle_head *)handle)->callback);
    if (!loop->debug)
        return handle_run(loop, handle);
    Py_XSETREF(loop->current_handle, Py_NewRef(handle));
    int64_t before = gl_monotonic_ns();
    int r = handle_run(loop, handle);
    if (r == 0)
        r = gl_log_slow(loop, handle, before);
    Py_CLEAR(loop->current_handle);
    return r;
}
