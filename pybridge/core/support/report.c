/*
 * report.c: passes exceptions outside of tasks to loop.call_exception_handler, with asyncio's
 * message and context dict; SystemExit and KeyboardInterrupt end the loop's run instead.
 */
#include "support/support.h"

GL_PRIVATE PyObject *
gl_take_exception(void)
{
#if GL_HAS_RAISED_EXCEPTION
    return PyErr_GetRaisedException();
#else
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    PyErr_NormalizeException(&type, &value, &tb);
    if (tb && value)
        PyException_SetTraceback(value, tb);
    Py_XDECREF(type);
    Py_XDECREF(tb);
    return value;
#endif
}

GL_PRIVATE void
gl_restore_exception(PyObject *exc)
{
    if (exc == NULL)
        return;
    if (PyErr_Occurred()) { /* as after a `finally` that raises */
        PyObject *newer = gl_take_exception();
        PyException_SetContext(newer, exc);
        exc = newer;
    }
#if GL_HAS_RAISED_EXCEPTION
    PyErr_SetRaisedException(exc);
#else
    PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(exc)), exc, PyException_GetTraceback(exc));
#endif
}

GL_PRIVATE_INLINE void
gl_context_exit(PyObject *context)
{
    if (PyContext_Exit(context) < 0)
        PyErr_WriteUnraisable(context);
}

GL_PRIVATE void
gl_context_exit_keep_error(PyObject *context)
{
    PyObject *exc = gl_take_exception();
    gl_context_exit(context);
    gl_restore_exception(exc);
}

GL_PRIVATE bool
gl_is_exit_exception(void)
{
    return PyErr_ExceptionMatches(PyExc_SystemExit) ||
           PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
}

GL_PRIVATE int
gl_unraisable_unless_leaving(int rc, PyObject *about)
{
    if (rc == 0 || gl_is_exit_exception())
        return rc;
    PyErr_WriteUnraisable(about);
    return 0;
}

GL_PRIVATE void
gl_log_debug(PyObject *about, const char *format)
{
    PyObject *saved = gl_take_exception();
    if (gl_drop_result(PyObject_CallFunction(G.log_debug, "Os", about, format)) < 0)
        PyErr_WriteUnraisable(about);
    gl_restore_exception(saved);
}

GL_PRIVATE int
gl_call_exception_handler(gl_loop *loop, const char *message, PyObject *transport,
                          PyObject *protocol)
{
    if (gl_is_exit_exception())
        return -1;
    /* A reference first: gl_take_exception() may run Python. */
    PyObject *owner = gl_ref_or_none(protocol);
    PyObject *exc = gl_take_exception();
    int r = gl_drop_result(PyObject_CallMethod((PyObject *)loop, GL_METHOD(_event_failed), "sOOO",
                                               message, exc, transport, owner));
    Py_DECREF(owner);
    Py_DECREF(exc);
    return r;
}

GL_PRIVATE PyObject *
gl_oserror(int err)
{
    return PyObject_CallFunction(PyExc_OSError, "is", err, strerror(err));
}

GL_PRIVATE int
gl_set_oserror(int err)
{
    errno = err;
    PyErr_SetFromErrno(PyExc_OSError);
    return -1;
}
