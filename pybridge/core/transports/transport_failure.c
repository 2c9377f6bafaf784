/*
 * transport_failure.c: errors that end a transport, also where Python fails for want of memory.
 *
 * asyncio's way is two calls of Python: _fatal_error() reports the exception and calls
 * _force_close(), which schedules connection_lost().  Each of these steps needs memory, so after a
 * MemoryError they may fail too.  But a connection that goes on after some of its bytes were lost
 * has a gap that neither side sees.  So C ends the transport by itself:
 *
 *   gl_transport_fatal_error        calls _fatal_error(); if that fails, ends the transport
 *   gl_transport_end_without_memory ends the transport after a MemoryError that was not handled
 *     gl_transport_force_close      (transport.c) discards, deregisters
 *       gl_transport_schedule_lost  schedules connection_lost(); without memory for the handle the
 *                                   transport is put into the loop's list of unscheduled ends
 *   gl_transports_schedule_ends     each iteration schedules the ends in that list
 *
 * The list is linked by a field of the transports, so that it needs no memory.
 */
#include "transports/transports.h"

/* Schedules connection_lost(exc) of an ending transport.  Without memory the loop's next iteration
 * schedules it.  -1 with an exception other than MemoryError. */
GL_PRIVATE int
gl_transport_schedule_lost(gl_transport *t, PyObject *exc)
{
    if (gl_transport_call_soon(t, G.s__call_connection_lost, exc) == 0)
        return 0;
    if (t->loop == NULL || !PyErr_ExceptionMatches(PyExc_MemoryError))
        return -1;
    PyErr_Clear();
    if (t->end_error != NULL || is_lost(t))
        return 0; /* it is in the list already, or needs no end */
    t->end_error = Py_NewRef(exc);
    gl_transport **last = &t->loop->unscheduled_ends;
    while (*last != NULL)
        last = &(*last)->next_end;
    *last = (gl_transport *)Py_NewRef(t);
    return 0;
}

/* Takes the first transport from a list of unscheduled ends; a new reference to it, and its error
 * in *exc. */
GL_NO_PYTHON static gl_transport *
take_end(gl_transport **list, PyObject **exc)
{
    gl_transport *t = *list;
    *list = t->next_end;
    t->next_end = NULL;
    *exc = t->end_error;
    t->end_error = NULL;
    return t;
}

/* Schedules connection_lost() of the transports in the loop's list.  Those for which there is still
 * no memory are in the list again afterwards. */
GL_PRIVATE void
gl_transports_schedule_ends(gl_loop *loop)
{
    gl_transport *list = loop->unscheduled_ends;
    loop->unscheduled_ends = NULL;
    while (list != NULL) {
        PyObject *exc;
        gl_transport *t = take_end(&list, &exc);
        if (!is_lost(t) && gl_transport_schedule_lost(t, exc) < 0)
            PyErr_WriteUnraisable((PyObject *)t);
        Py_DECREF(exc);
        Py_DECREF(t);
    }
}

/* Drops the loop's list, when the loop is closed: connection_lost() is not called, as for scheduled
 * calls.  Runs Python. */
GL_PRIVATE void
gl_transports_drop_ends(gl_loop *loop)
{
    while (loop->unscheduled_ends != NULL) {
        PyObject *exc;
        gl_transport *t = take_end(&loop->unscheduled_ends, &exc);
        Py_DECREF(exc);
        Py_DECREF(t);
    }
}

/* Ends a transport with `exc`, unless it is ending or its loop is foreign.  Keeps the current
 * exception. */
GL_PRIVATE void
gl_transport_end(gl_transport *t, PyObject *exc)
{
    if (is_ending(t) || t->loop == NULL || gl_loop_is_foreign(t->loop))
        return;
    PyObject *current = gl_take_exception();
    if (gl_transport_force_close(t, exc) < 0)
        PyErr_WriteUnraisable((PyObject *)t);
    gl_restore_exception(current);
}

/* If the current exception is a MemoryError, ends the transport with it: received bytes or a step
 * may be lost.  Keeps the exception. */
GL_PRIVATE void
gl_transport_end_without_memory(gl_transport *t)
{
    if (!PyErr_ExceptionMatches(PyExc_MemoryError))
        return;
    PyObject *exc = gl_take_exception();
    gl_transport_end(t, exc);
    gl_restore_exception(exc);
}

/* Calls the method _fatal_error(exc, message), which reports the exception and ends the transport.
 * If the method fails, C ends the transport.  Does nothing for a lost transport.  -1 with an
 * exception of that call. */
GL_PRIVATE int
gl_transport_fatal_error(gl_transport *t, PyObject *exc, const char *message)
{
    if (is_lost(t))
        return 0;
    int rc = gl_drop_result(
        PyObject_CallMethod((PyObject *)t, GL_METHOD(_fatal_error), "Os", exc, message));
    if (rc < 0)
        gl_transport_end(t, exc);
    return rc;
}

/* Ends the transport with the current exception, by _fatal_error().  Returns 0 with the exception
 * cleared; -1 with SystemExit or KeyboardInterrupt still set, or with an exception of
 * _fatal_error(). */
GL_PRIVATE int
gl_transport_fatal_current(gl_transport *t, const char *message)
{
    if (gl_is_exit_exception())
        return -1;
    PyObject *exc = gl_take_exception();
    int rc = gl_transport_fatal_error(t, exc, message);
    Py_DECREF(exc);
    return rc;
}
