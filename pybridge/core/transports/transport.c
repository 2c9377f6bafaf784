/*
 * transport.c: the life of a transport of any kind: construction, closing,
 * connection_lost; and the finalizer of a transport that was not closed.  transports.h draws the
 * states, and transport_registration.c has the registration with the reactor.
 *
 *   gl_transport_construct                 lease of the descriptor, arguments: GL_STARTING
 *   gl_transport_schedule_connection_made
 *     gl_transport_start_method            after connection_made: GL_OPEN, receiving starts
 *   transport_close                        close(): GL_CLOSING, or GL_ENDING at once
 *   gl_transport_force_close               abort(), an error: GL_ENDING
 *     transport_schedule_end               unregisters, schedules connection_lost
 *       gl_transport_schedule_lost         transport_schedule.c: also without memory
 *   gl_transport_connection_lost           connection_lost, closes the descriptor: GL_LOST
 *
 * asyncio's transports make some calls in an iteration of their own: connection_made, the start of
 * receiving, connection_lost.  These calls are scheduled here too, in asyncio's order, so that a
 * program sees the same sequence.
 */
#include "transports/transports.h"

GL_PRIVATE int
gl_transport_check_usable(gl_transport *t)
{
    if (t->loop != NULL)
        return gl_loop_check_usable(t->loop);
    return 0;
}

/* ---- the fd number -------------------------------------------------------------- */

/* Removes this transport from the table of fd numbers.  Does nothing without a loop. */
static void
transport_clear_fd_user(gl_transport *t)
{
    if (t->loop != NULL)
        gl_fd_clear_transport(t->loop, t->fd_in_repr, (PyObject *)t);
}

/* ---- paused data --------------------------------------------------------------------- */

GL_PRIVATE int
gl_transport_keep_paused_data(gl_transport *t, PyObject *item, bool front)
{
    int rc = -1;
    if (item == NULL)
        return -1;
    if (t->paused_data == NULL) {
        /* Never an empty list: paused_data is NULL or has a first item. */
        t->paused_data = PyList_New(1);
        if (t->paused_data != NULL) {
            PyList_SET_ITEM(t->paused_data, 0, item);
            return 0;
        }
    } else {
        if (front)
            rc = PyList_Insert(t->paused_data, 0, item);
        else
            rc = PyList_Append(t->paused_data, item);
    }
    Py_DECREF(item);
    return rc;
}

GL_PRIVATE void
gl_transport_discard_paused_data(gl_transport *t)
{
    t->paused_end = 0;
    Py_CLEAR(t->paused_data); /* lint: allow check-commit: own bytes, addresses, exceptions */
}

/* ---- construction -------------------------------------------------------------------- */

GL_PRIVATE gl_transport *
gl_transport_alloc(PyTypeObject *type, const transport_ops *ops)
{
    gl_transport *t = (gl_transport *)type->tp_alloc(type, 0);
    if (t == NULL)
        return NULL;
    gl_enable_try((PyObject *)t);
    t->ops = ops;
    t->lease = GL_NO_LEASE;
    t->fd_in_repr = -1;
    t->phase = GL_EMPTY;
    t->conn_lost = 1;
    t->high_water = Py_NewRef(G.high_default);
    t->low_water = Py_NewRef(G.low_default);
    return t;
}

/* Acquires the lease of the descriptor, and makes the dict and the context.  May run Python.  -1
 * with TypeError for a wrong context, RuntimeError if the loop can't be used, or as
 * gl_lease_acquire(). */
static int
transport_prepare_arguments(gl_transport *t, transport_arguments *a)
{
    if (a->given_context != Py_None && !PyContext_CheckExact(a->given_context)) {
        PyErr_Format(PyExc_TypeError, "context must be a contextvars.Context, not %.100s",
                     Py_TYPE(a->given_context)->tp_name);
        return -1;
    }
    /* A pipe is not kept open by its transport, as in asyncio. */
    if (gl_loop_check_usable((gl_loop *)a->loop) < 0 ||
        gl_lease_acquire(&a->lease, a->file, !t->ops->shares_number) < 0)
        return -1;
    if (a->given_extra == Py_None)
        a->extra = PyDict_New();
    else
        a->extra = Py_NewRef(a->given_extra);
    if (a->given_context == Py_None)
        a->context = PyContext_CopyCurrent();
    else
        a->context = Py_NewRef(a->given_context);
    if (a->extra == NULL || a->context == NULL)
        return -1;
    return 0;
}

/* Checks the state again, which Python code may have changed, and makes the descriptor
 * non-blocking.  -1 with OSError, or with RuntimeError: the transport is constructed already, the
 * loop can't be used, or another transport uses the number. */
static int
transport_prepare_fd(gl_transport *t, transport_arguments *a)
{
    gl_loop *loop = (gl_loop *)a->loop;
    if (t->phase != GL_EMPTY) {
        PyErr_Format(PyExc_RuntimeError, "the transport already has a %s",
                     t->ops->shares_number ? "pipe" : "socket");
        return -1;
    }
    if (gl_loop_check_usable(loop) < 0 ||
        (!t->ops->shares_number && gl_fd_ensure_no_transport(loop, a->lease.fd, NULL) < 0))
        return -1;
    return gl_lease_nonblocking(&a->lease);
}

GL_NO_PYTHON GL_PRIVATE int
gl_transport_attach_fd(gl_transport *t, transport_arguments *a)
{
    gl_loop *loop = (gl_loop *)a->loop;
    int fd = a->lease.fd;
    if (!(t->ops->shares_number && transport_number_is_used(t, loop, fd)) &&
        gl_fd_set_transport(loop, fd, t->ops->kind, (PyObject *)t) < 0)
        return -1;
    PyObject *before = t->extra; /* released by the caller */
    t->extra = a->extra;
    a->extra = before;
    t->context = a->context;
    a->context = NULL;
    t->lease = a->lease;
    a->lease = GL_NO_LEASE;
    t->fd_in_repr = fd;
    GL_OWNER_LOOP_SET(t, loop);
    t->loop = (gl_loop *)Py_NewRef(loop);
    t->protocol = Py_NewRef(a->protocol);
    t->phase = GL_STARTING;
    t->conn_lost = 0;
    return 0;
}

GL_PRIVATE int
gl_transport_construct(gl_transport *t, transport_arguments *a)
{
    if (transport_prepare_arguments(t, a) < 0 || transport_prepare_fd(t, a) < 0)
        return -1;
    return gl_transport_attach_fd(t, a);
}

GL_PRIVATE void
gl_transport_arguments_clear(transport_arguments *a)
{
    gl_lease_release(&a->lease);
    Py_CLEAR(a->extra);
    Py_CLEAR(a->context);
}

GL_PRIVATE int
gl_transport_schedule_connection_made(gl_transport *t, PyObject *waiter)
{
    PyObject *protocol = Py_XNewRef(t->protocol);
    PyObject *made = NULL;
    if (protocol)
        made = PyObject_GetAttr(protocol, G.s_connection_made);
    Py_XDECREF(protocol);
    if (made == NULL)
        return gl_error_status(); /* without an exception: it was lost */
    int rc = 0;
    if (t->loop != NULL)
        rc = gl_schedule_on_own_loop(t->loop, made, (PyObject *)t, t->context);
    Py_DECREF(made);
    if (rc < 0)
        return -1;
    return gl_transport_call_soon(t, G.s__start, waiter);
}

GL_PRIVATE int
gl_transport_call_in_context_copy(gl_transport *t, PyObject *object, PyObject *method)
{
    PyObject *context = t->context ? PyContext_Copy(t->context) : PyContext_CopyCurrent();
    int rc = -1;
    if (context != NULL && PyContext_Enter(context) == 0) {
        rc = gl_call_method(object, method, NULL);
        gl_context_exit_keep_error(context);
    }
    Py_XDECREF(context);
    return rc;
}

/* Sets GL_LOST, removes the transport from the table of fd numbers, and drops the references to the
 * loop and the protocol; runs Python. */
static void
transport_release_loop_and_protocol(gl_transport *t)
{
    transport_clear_fd_user(t);
    t->phase = GL_LOST;
    Py_CLEAR(t->protocol);
    Py_CLEAR(t->loop);
}

GL_PRIVATE int
gl_transport_fail_construction(gl_transport *t)
{
    PyObject *exc = gl_take_exception();
    if (t->conn_lost == 0)
        t->conn_lost = 1;
    if (t->lease.owner != NULL)
        gl_lease_release(&t->lease);
    transport_release_loop_and_protocol(t);
    gl_restore_exception(exc);
    return -1;
}

/* Calls waiter.set_result(None) unless the waiter was cancelled. */
static int
wake_waiter(PyObject *waiter)
{
    int cancelled = gl_take_bool(PyObject_CallMethodNoArgs(waiter, G.s_cancelled));
    if (cancelled < 0)
        return -1;
    if (cancelled)
        return 0;
    return gl_call_method(waiter, G.s_set_result, Py_None);
}

GL_PRIVATE PyObject *
gl_transport_start_method(gl_transport *t, PyObject *waiter)
{
    if (t->phase == GL_STARTING) {
        t->phase = GL_OPEN;
        gl_trace_connection(t->loop, GL_TRACE_MADE, (PyObject *)t, t->protocol);
    }
    if (!is_ending(t) && t->ops->start(t) < 0)
        return NULL;
    if (waiter != Py_None && wake_waiter(waiter) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- closing ------------------------------------------------------------------------ */

/* Discards the paused data and the write queue, deregisters the transport and schedules
 * connection_lost(exc), after GL_ENDING was set.  If drains_input is set, the last received bytes
 * are delivered first, unless that can't be scheduled for want of memory.  -1 with an exception
 * other than MemoryError. */
static int
transport_schedule_end(gl_transport *t, PyObject *exc)
{
    if (t->drains_input) {
        if (t->ops->schedule_input_drain(t, exc) == 0)
            return 0;
        if (!PyErr_ExceptionMatches(PyExc_MemoryError))
            return -1;
        PyErr_Clear();
        t->drains_input = false;
    }
    gl_transport_discard_paused_data(t);
    gl_transport_unregister(t);
    return gl_transport_schedule_lost(t, exc);
}

GL_PRIVATE int
gl_transport_schedule_connection_lost(gl_transport *t, PyObject *exc)
{
    t->phase = GL_ENDING;
    t->conn_lost++;
    return transport_schedule_end(t, exc);
}

GL_PRIVATE int
gl_transport_force_close(gl_transport *t, PyObject *exc)
{
    if (is_ending(t)) {
        t->drains_input = false;
        return 0;
    }
    if (gl_loop_is_foreign(t->loop))
        return gl_loop_check_usable(t->loop);
    t->phase = GL_ENDING;
    t->conn_lost++;
    PyObject *failed = NULL;
    if (t->ops->flush_before_abort != NULL)
        failed = t->ops->flush_before_abort(t);
    /* The kernel reports a reset once.  After a receive that failed with it the send fails with
     * EPIPE; asyncio, which had sent earlier, reports the reset. */
    bool replaces = failed != NULL && !PyErr_GivenExceptionMatches(exc, PyExc_OSError);
    int rc = transport_schedule_end(t, replaces ? failed : exc);
    Py_XDECREF(failed);
    return rc;
}

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

GL_PRIVATE void
gl_transport_end_without_memory(gl_transport *t)
{
    if (!PyErr_ExceptionMatches(PyExc_MemoryError))
        return;
    PyObject *exc = gl_take_exception();
    gl_transport_end(t, exc);
    gl_restore_exception(exc);
}

GL_PRIVATE int
transport_close(gl_transport *t)
{
    if (is_closing(t)) {
        t->drains_input = false;
        return 0;
    }
    if (gl_loop_is_foreign(t->loop))
        return gl_loop_check_usable(t->loop);
    uint8_t before = t->phase;
    t->phase = GL_CLOSING;
    gl_transport_discard_paused_data(t);
    int rc = t->ops->close(t);
    if (rc < 0 && t->phase == GL_CLOSING)
        t->phase = before;
    return rc;
}

/* Sets the phase GL_ENDING unless the transport is in a later phase, makes asyncio's count
 * _conn_lost at least 1, and clears drains_input. */
GL_NO_PYTHON static void
transport_set_ending(gl_transport *t)
{
    if (!is_ending(t))
        t->phase = GL_ENDING;
    t->drains_input = false;
    if (t->conn_lost == 0)
        t->conn_lost = 1;
}

/* Closes the descriptor, and removes its number from the table of fd numbers.  Sets the forced
 * polls by which a peer in the same loop gets its last bytes.  -1 with the exception of the owner's
 * close(). */
static int
transport_close_descriptor(gl_transport *t)
{
    transport_clear_fd_user(t);
    if (t->loop != NULL)
        t->loop->forced_polls_left = FORCED_POLLS_AFTER_CLOSE;
    return gl_lease_close(&t->lease);
}

/* Calls connection_lost(exc) of the protocol, if there is one.  -1 with its exception. */
static int
transport_call_connection_lost(gl_transport *t, PyObject *exc)
{
    PyObject *protocol = Py_XNewRef(t->protocol);
    if (protocol == NULL)
        return 0;
    int rc = gl_call_method(protocol, G.s_connection_lost, exc);
    Py_DECREF(protocol);
    return rc;
}

/* After a failed step (rc < 0) moves its exception into *error.  An earlier one is dropped, as in a
 * chain of `finally` clauses. */
static void
keep_last_failure(int rc, PyObject **error)
{
    if (rc < 0)
        Py_XSETREF(*error, gl_take_exception());
}

GL_PRIVATE int
gl_transport_connection_lost(gl_transport *t, PyObject *exc)
{
    if (is_lost(t))
        return 0;
    if (gl_loop_is_foreign(t->loop))
        return gl_loop_check_usable(t->loop);
    transport_set_ending(t);
    gl_trace_connection(t->loop, GL_TRACE_LOST, (PyObject *)t, t->protocol);
    PyObject *error = NULL;
    keep_last_failure(transport_call_connection_lost(t, exc), &error);
    if (!is_lost(t)) /* otherwise the protocol called _call_connection_lost again */
        gl_transport_unregister(t);
    if (!is_lost(t)) {
        gl_transport_discard_paused_data(t);
        keep_last_failure(transport_close_descriptor(t), &error);
        transport_release_loop_and_protocol(t);
        if (t->ops->after_connection_lost != NULL)
            keep_last_failure(t->ops->after_connection_lost(t), &error);
    }
    gl_restore_exception(error);
    if (error != NULL)
        return -1;
    return 0;
}

/* ---- the end ---------------------------------------------------------------------------- */

GL_PRIVATE void
gl_transport_finalize(PyObject *self)
{
    gl_transport *t = (gl_transport *)self;
    if (t->lease.fd < 0)
        return;
    PyObject *saved = gl_take_exception();
    if (!t->warned_unclosed) {
        t->warned_unclosed = true;
        if (PyErr_ResourceWarning(self, 1, "unclosed transport %R", self) < 0)
            PyErr_WriteUnraisable(self);
    }
    transport_set_ending(t);
    if (t->loop != NULL)
        gl_transport_unregister(t);
    if (transport_close_descriptor(t) < 0)
        PyErr_WriteUnraisable(self);
    if (t->ops->after_finalize != NULL && t->ops->after_finalize(t) < 0)
        PyErr_WriteUnraisable(self);
    gl_restore_exception(saved);
}

GL_PRIVATE int
gl_transport_traverse(gl_transport *t, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(t));
    Py_VISIT(t->extra);
    Py_VISIT(t->high_water);
    Py_VISIT(t->slot_loop);
    Py_VISIT(t->low_water);
    Py_VISIT(t->slot_protocol_paused);
    Py_VISIT(t->dict);
    Py_VISIT(t->loop);
    Py_VISIT(t->protocol);
    Py_VISIT(t->lease.owner);
    Py_VISIT(t->lease.backing);
    Py_VISIT(t->context);
    Py_VISIT(t->paused_data);
    Py_VISIT(t->end_error);
    Py_VISIT(t->next_end);
    if (t->registered && gl_reg_is_dormant(t->loop, t->id, (PyObject *)t))
        Py_VISIT(t);
    GL_OWNER_LOOP_VISIT(t);
    return 0;
}

GL_PRIVATE void
gl_transport_clear(gl_transport *t)
{
    /* The reactor reads the fd number inside the lease's owner while the transport is registered,
     * and a registered transport needs its loop to unregister. */
    if (t->registered && t->loop != NULL)
        gl_transport_unregister(t);
    if (!t->registered)
        gl_lease_release(&t->lease);
    Py_CLEAR(t->extra);
    Py_CLEAR(t->high_water);
    Py_CLEAR(t->slot_loop);
    Py_CLEAR(t->low_water);
    Py_CLEAR(t->slot_protocol_paused);
    Py_CLEAR(t->dict);
    Py_CLEAR(t->context);
    Py_CLEAR(t->paused_data);
    Py_CLEAR(t->end_error);
    Py_CLEAR(t->next_end);
    if (!t->registered && t->phase != GL_EMPTY)
        transport_release_loop_and_protocol(t);
    else
        Py_CLEAR(t->protocol);
}

GL_PRIVATE void
gl_transport_dealloc(PyObject *self)
{
    gl_transport *t = (gl_transport *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (PyObject_CallFinalizerFromDealloc(self) < 0)
        return; /* resurrected */
    PyObject_GC_UnTrack(self);
    /* Before the callbacks of weak references, which may search for the transport. */
    transport_clear_fd_user(t);
    if (t->weakrefs != NULL)
        PyObject_ClearWeakRefs(self);
    /* A subclass may have a __del__ that does not call ours. */
    if (t->lease.owner == NULL)
        (void)gl_lease_close(&t->lease);
    t->ops->discard_queue(t);
    t->registered = false;
    type->tp_clear(self);
    t->ops->free_memory(t);
    GL_OWNER_LOOP_CLEAR(t);
    type->tp_free(self);
    Py_DECREF(type);
}
