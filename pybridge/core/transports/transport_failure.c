/*
 * transport_failure.c: errors that end a transport, also where Python fails for want of memory.
 *
 * asyncio's way is two calls of Python: _fatal_error() reports the exception and calls
 * _force_close(), which schedules connection_lost().  Each of these steps needs memory, so after a
 * MemoryError they may fail too.  But a connection that goes on after some of its bytes were lost
 * has a gap that neither side sees.  So C ends the transport by itself:
 *
 *   gl_transport_fatal_error        calls _fatal_error(); if that fails, ends the transport
 *   gl_transport_end_without_memory (transport.c) ends the transport after a MemoryError that was
 *                                   not handled
 *     gl_transport_force_close      (transport.c) discards, deregisters
 *       gl_transport_schedule_lost  (transport_schedule.c) schedules connection_lost()
 */
#include "transports/transports.h"

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
