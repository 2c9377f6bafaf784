/*
 * report.c: passes exceptions outside of tasks to loop.call_exception_handler, with asyncio's
 * message and context dict; SystemExit and KeyboardInterrupt end the loop's run instead.
 */
#include "support/support.h"

/* Clears the current exception and returns it, owned, with its traceback; NULL if none is set. */
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

/* Sets an exception as the current one; steals the reference, and ignores NULL.  If another one is
 * set already, that one stays and gets `exc` as its context. */
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

/* Exits a contextvars context.  Requires that no exception is set; a failure goes to
 * sys.unraisablehook. */
GL_PRIVATE_INLINE void
gl_context_exit(PyObject *context)
{
    if (PyContext_Exit(context) < 0)
        PyErr_WriteUnraisable(context);
}

/* Exits a contextvars context and preserves the current exception. */
GL_PRIVATE void
gl_context_exit_keep_error(PyObject *context)
{
    PyObject *exc = gl_take_exception();
    gl_context_exit(context);
    gl_restore_exception(exc);
}

/* Returns true if the current exception ends the loop's run: SystemExit or KeyboardInterrupt; false
 * if none is set. */
GL_PRIVATE bool
gl_is_exit_exception(void)
{
    return PyErr_ExceptionMatches(PyExc_SystemExit) ||
           PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
}

/* Passes an exception that does not end the loop's run to sys.unraisablehook, with `about`, and
 * returns 0.  Returns `rc` if it is 0, or -1 with SystemExit or KeyboardInterrupt still set. */
GL_PRIVATE int
gl_unraisable_unless_leaving(int rc, PyObject *about)
{
    if (rc == 0 || gl_is_exit_exception())
        return rc;
    PyErr_WriteUnraisable(about);
    return 0;
}

/* Logs a line at debug level: `format` is a %-format for the object `about`.  Preserves the current
 * exception; a failure goes to sys.unraisablehook. */
GL_PRIVATE void
gl_log_debug(PyObject *about, const char *format)
{
    PyObject *saved = gl_take_exception();
    if (gl_drop_result(PyObject_CallFunction(G.log_debug, "Os", about, format)) < 0)
        PyErr_WriteUnraisable(about);
    gl_restore_exception(saved);
}

/* Passes the current exception to loop.call_exception_handler() with `message`, and clears it.
 * `protocol` may be NULL for None.  Returns 0; -1 for SystemExit and KeyboardInterrupt, which stay
 * set, and -1 with the handler's exception if it raised. */
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

/* Creates an OSError, of the subclass for the errno; NULL with an exception if that fails. */
GL_PRIVATE PyObject *
gl_oserror(int err)
{
    return PyObject_CallFunction(PyExc_OSError, "is", err, strerror(err));
}

/* Sets an OSError, of the subclass for the errno, as the current exception; returns -1. */
GL_PRIVATE int
gl_set_oserror(int err)
{
    errno = err;
    PyErr_SetFromErrno(PyExc_OSError);
    return -1;
}
