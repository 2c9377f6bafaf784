/*
 * transport_schedule.c: schedules methods of a transport on its loop.
 *
 * connection_lost() is scheduled also without memory for its handle: then the transport is put into
 * the loop's list of unscheduled ends, and the loop's next iteration schedules the call
 * (gl_transports_retry_unscheduled_ends).  The list is linked by a field of the transports, so that
 * it needs no memory.  Callers: transport.c, transport_failure.c; loop/turn.c and loop/loop_type.c.
 */
#include "transports/transports.h"

GL_PRIVATE int
gl_transport_call_soon(gl_transport *t, PyObject *name, PyObject *arg)
{
    PyObject *method = PyObject_GetAttr((PyObject *)t, name);
    if (method == NULL)
        return -1;
    /* Python code since the check of the caller may have ended the transport. */
    int rc = 0;
    if (t->loop != NULL)
        rc = gl_schedule_on_own_loop(t->loop, method, arg, t->context);
    Py_DECREF(method);
    return rc;
}

GL_PRIVATE int
gl_transport_schedule_lost(gl_transport *t, PyObject *exc)
{
    if (gl_transport_call_soon(t, G.s__call_connection_lost, exc) == 0)
        return 0;
    if (t->loop == NULL || !PyErr_ExceptionMatches(PyExc_MemoryError))
        return -1;
    PyErr_Clear();
    if (t->end_error != NULL || is_lost(t))
        return 0; /* in the list already, or already lost */
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
take_unscheduled_end(gl_transport **list, PyObject **exc)
{
    gl_transport *t = *list;
    *list = t->next_end;
    t->next_end = NULL;
    *exc = t->end_error;
    t->end_error = NULL;
    return t;
}

GL_PRIVATE void
gl_transports_retry_unscheduled_ends(gl_loop *loop)
{
    gl_transport *list = loop->unscheduled_ends;
    loop->unscheduled_ends = NULL;
    while (list != NULL) {
        PyObject *exc;
        gl_transport *t = take_unscheduled_end(&list, &exc);
        if (!is_lost(t) && gl_transport_schedule_lost(t, exc) < 0)
            PyErr_WriteUnraisable((PyObject *)t);
        Py_DECREF(exc);
        Py_DECREF(t);
    }
}

GL_PRIVATE void
gl_transports_drop_unscheduled_ends(gl_loop *loop)
{
    while (loop->unscheduled_ends != NULL) {
        PyObject *exc;
        gl_transport *t = take_unscheduled_end(&loop->unscheduled_ends, &exc);
        Py_DECREF(exc);
        Py_DECREF(t);
    }
}
