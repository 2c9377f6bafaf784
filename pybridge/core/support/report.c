/*
 * report.c: exceptions that nobody awaits go to loop.call_exception_handler, with
 * asyncio's message and context dict; SystemExit and KeyboardInterrupt leave the loop.
 */
#include "support/support.h"

/* The exception that is set, normalised, with its traceback; clears it.  Owned. */
GL_PRIVATE PyObject *
gl_take_exception(void)
{
#if PY_VERSION_HEX >= 0x030C0000
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

/* Sets an exception object as the current one; takes over the reference. */
GL_PRIVATE void
gl_restore_exception(PyObject *exc)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyErr_SetRaisedException(exc);
#else
    PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(exc)), exc, PyException_GetTraceback(exc));
#endif
}

GL_PRIVATE_INLINE void
gl_context_leave(PyObject *context)
{
    if (PyContext_Exit(context) < 0)
        PyErr_WriteUnraisable(context);
}

/* Leaves a context while an exception may be set. */
GL_PRIVATE void
gl_context_exit(PyObject *context)
{
    if (!PyErr_Occurred()) {
        gl_context_leave(context);
        return;
    }
    PyObject *exc = gl_take_exception();
    if (PyContext_Exit(context) < 0)
        PyErr_WriteUnraisable(context);
    gl_restore_exception(exc);
}

GL_PRIVATE void
gl_log_debug(PyObject *about, const char *format, const char *detail, PyObject *exc)
{
    PyObject *saved = PyErr_Occurred() ? gl_take_exception() : NULL;
    PyObject *method = PyObject_GetAttr(G.logger, G.s_debug), *args = NULL, *kwargs = NULL;
    PyObject *r = NULL;
    if (method != NULL)
        args = detail ? Py_BuildValue("(sOs)", format, about, detail)
                      : Py_BuildValue("(sO)", format, about);
    if (args != NULL && exc != NULL)
        kwargs = Py_BuildValue("{sO}", "exc_info", exc);
    if (args != NULL && (exc == NULL || kwargs != NULL))
        r = PyObject_Call(method, args, kwargs);
    if (r == NULL)
        PyErr_WriteUnraisable(about);
    Py_XDECREF(r);
    Py_XDECREF(kwargs);
    Py_XDECREF(args);
    Py_XDECREF(method);
    if (saved != NULL)
        gl_restore_exception(saved);
}

/* Calls the handler with {'message', 'exception', ...}.  `exc` may be NULL. */
GL_PRIVATE int
gl_report(gl_loop *loop, PyObject *message, PyObject *exc, PyObject *key1, PyObject *value1,
          PyObject *key2, PyObject *value2, PyObject *source_traceback)
{
    PyObject *context = PyDict_New();
    if (context == NULL)
        return -1;
    int r = PyDict_SetItem(context, G.s_message, message);
    if (r == 0 && exc)
        r = PyDict_SetItem(context, G.s_exception, exc);
    if (r == 0 && key1)
        r = PyDict_SetItem(context, key1, value1);
    if (r == 0 && key2)
        r = PyDict_SetItem(context, key2, value2);
    if (r == 0 && source_traceback && source_traceback != Py_None)
        r = PyDict_SetItem(context, G.s_source_traceback, source_traceback);
    if (r == 0) {
        PyObject *res =
            PyObject_CallMethodOneArg((PyObject *)loop, G.s_call_exception_handler, context);
        if (res == NULL)
            r = -1;
        Py_XDECREF(res);
    }
    Py_DECREF(context);
    return r;
}

GL_PRIVATE int
gl_report_exception_object(gl_loop *loop, const char *message, PyObject *exc,
                           PyObject *transport, PyObject *protocol)
{
    PyObject *text = PyUnicode_FromString(message);
    if (text == NULL)
        return -1;
    int r = gl_report(loop, text, exc, transport ? G.s_transport : NULL, transport,
                      protocol ? G.s_protocol : NULL, protocol, NULL);
    Py_DECREF(text);
    return r;
}

GL_PRIVATE int
gl_report_stray(gl_loop *loop, const char *message, PyObject *transport, PyObject *protocol)
{
    if (PyErr_ExceptionMatches(PyExc_SystemExit) ||
        PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
        return -1;
    PyObject *exc = gl_take_exception();
    PyObject *owner = Py_NewRef(protocol ? protocol : Py_None);
    int r = gl_report_exception_object(loop, message, exc, transport, owner);
    Py_DECREF(owner);
    Py_DECREF(exc);
    return r;
}

GL_PRIVATE PyObject *
gl_oserror(int err)
{
    PyObject *args = Py_BuildValue("(is)", err, strerror(err));
    if (args == NULL)
        return NULL;
    PyObject *exc = PyObject_Call(PyExc_OSError, args, NULL);
    Py_DECREF(args);
    return exc;
}

/* Sets the OSError of an errno; returns -1. */
GL_PRIVATE int
gl_set_oserror(int err)
{
    errno = err;
    PyErr_SetFromErrno(PyExc_OSError);
    return -1;
}
