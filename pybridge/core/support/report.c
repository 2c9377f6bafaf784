/*
 * report.c: exceptions that nobody awaits go to loop.call_exception_handler, with
 * asyncio's message and context dict; SystemExit and KeyboardInterrupt leave the loop.
 */
#include "support/support.h"

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

GL_PRIVATE void
gl_restore_exception(PyObject *exc)
{
    PyObject *newer = exc != NULL && PyErr_Occurred() ? gl_take_exception() : NULL;
    if (newer != NULL) { /* as where a `finally` raises */
        PyException_SetContext(newer, exc);
        exc = newer;
    }
    if (exc == NULL)
        return;
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

GL_PRIVATE void
gl_context_exit(PyObject *context)
{
    PyObject *exc = gl_take_exception();
    gl_context_leave(context);
    gl_restore_exception(exc);
}

GL_PRIVATE bool
gl_exception_leaves(void)
{
    return PyErr_ExceptionMatches(PyExc_SystemExit) ||
           PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
}

GL_PRIVATE int
gl_unraisable_unless_leaving(int rc, PyObject *about)
{
    if (rc == 0 || gl_exception_leaves())
        return rc;
    PyErr_WriteUnraisable(about);
    return 0;
}

GL_PRIVATE void
gl_log_debug(PyObject *about, const char *format, const char *detail, PyObject *exc)
{
    PyObject *saved = gl_take_exception();
    PyObject *method = PyObject_GetAttr(G.logger, G.s_debug);
    PyObject *args = Py_BuildValue(detail ? "(sOs)" : "(sO)", format, about, detail);
    PyObject *kwargs = Py_BuildValue("{sO}", "exc_info", exc ? exc : Py_None);
    PyObject *r = method && args && kwargs ? PyObject_Call(method, args, kwargs) : NULL;
    if (r == NULL)
        PyErr_WriteUnraisable(about);
    Py_XDECREF(r);
    Py_XDECREF(kwargs);
    Py_XDECREF(args);
    Py_XDECREF(method);
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
    if (r == 0)
        r = gl_call_method((PyObject *)loop, G.s_call_exception_handler, context);
    Py_DECREF(context);
    return r;
}

GL_PRIVATE int
gl_report_exception_object(gl_loop *loop, const char *message, PyObject *exc,
                           PyObject *transport, PyObject *protocol)
{
    PyObject *text = PyUnicode_FromString(message);
    int r = text ? gl_report(loop, text, exc, transport ? G.s_transport : NULL, transport,
                             protocol ? G.s_protocol : NULL, protocol, NULL)
                 : -1;
    Py_XDECREF(text);
    return r;
}

GL_PRIVATE int
gl_report_stray(gl_loop *loop, const char *message, PyObject *transport, PyObject *protocol)
{
    if (gl_exception_leaves())
        return -1;
    /* First, for taking the exception may run Python. */
    PyObject *owner = Py_NewRef(protocol ? protocol : Py_None), *exc = gl_take_exception();
    int r = gl_report_exception_object(loop, message, exc, transport, owner);
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
