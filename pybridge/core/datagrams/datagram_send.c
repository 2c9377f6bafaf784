/*
 * datagram_send.c: sendto.
 *
 *   sendto() --> not blocked: the system call is made
 *       |            |  sent ............ done
 *       |            |  no room ......... blocked: queued, and the reactor watches for room
 *       |            +- an OSError ...... error_received(), done
 *       +-------> else queued
 *
 * The queue, and the code that sends it when the reactor reports room, are in Python
 * (goloop/_internal/net/datagrams.py), because kernels rarely lack room.
 *
 * Addresses in the plain forms (a literal and a port, a path) are converted here.  The raw forms of
 * the last sender and the last destination are cached.  All other addresses, and each error in an
 * address, are left to the socket's own sendto().
 */
#include "datagrams/datagram.h"

#include <errno.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* CPython ignores SIGPIPE */
#endif

/* The flags of each send: it neither blocks nor raises SIGPIPE. */
#define SEND_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL)

/* ---- the system call ---------------------------------------------------------------- */

/* Stores the raw form of an address in *raw: the cached one of the last sender or destination, or a
 * new one, which replaces the cached destination.  Returns false, without an exception, if the
 * socket itself has to convert the address.  *raw is valid until the next call. */
static inline bool
datagram_cache_raw_address(gl_datagram *d, PyObject *addr, const uint8_t **raw, uint32_t *len)
{
    if (d->last_sender != NULL && d->last_sender->object == addr) {
        *raw = d->last_sender->raw;
        *len = d->last_sender->len;
        return *len > 0;
    }
    if (d->last_target != addr) {
        Py_CLEAR(d->last_target);
        if (!gl_sockaddr_from_object(d->family, addr, d->last_target_raw, &d->last_target_len))
            return false;
        d->last_target = Py_NewRef(addr); /* immutable */
    }
    *raw = d->last_target_raw;
    *len = d->last_target_len;
    return true;
}

/* The results of an attempt to send a datagram. */
enum send_result {
    SEND_DONE,
    SEND_BLOCKED,            /* the kernel has no room */
    SEND_FAILED_OS_ERROR,    /* an OSError is set, for error_received() */
    SEND_FAILED_BAD_ADDRESS, /* the socket rejects the address: the datagram is dropped */
    SEND_FAILED_FATAL,       /* another exception is set, which ends the transport */
};

/* Returns the result for the current exception, as asyncio classifies it: SEND_BLOCKED for
 * BlockingIOError and InterruptedError, which are cleared; SEND_FAILED_OS_ERROR for another
 * OSError, else SEND_FAILED_FATAL, and the exception stays set. */
static enum send_result
classify_send_exception(void)
{
    if (PyErr_ExceptionMatches(PyExc_BlockingIOError) ||
        PyErr_ExceptionMatches(PyExc_InterruptedError)) {
        PyErr_Clear();
        return SEND_BLOCKED;
    }
    if (PyErr_ExceptionMatches(PyExc_OSError))
        return SEND_FAILED_OS_ERROR;
    return SEND_FAILED_FATAL;
}

/* Returns true if the destination is the peer of the socket, so that no address is passed to the
 * system call. */
static inline bool
destination_is_implied(const gl_datagram *d, PyObject *addr)
{
    return d->connected || (d->peer_unnamed && addr == Py_None);
}

/* Sends a datagram by sock.sendto(data, addr), which converts the address.  TypeError, ValueError
 * and OverflowError give SEND_FAILED_BAD_ADDRESS; the exception stays set.  Runs Python. */
static enum send_result
send_by_socket_method(gl_datagram *d, PyObject *data, PyObject *addr)
{
    PyObject *sock = gl_ref_or_none(d->lease.owner);
    PyObject *r = PyObject_CallMethodObjArgs(sock, G.s_sendto, data, addr, NULL);
    Py_DECREF(sock);
    if (gl_drop_result(r) == 0)
        return SEND_DONE;
    enum send_result what = classify_send_exception();
    bool refused = PyErr_ExceptionMatches(PyExc_TypeError) ||
                   PyErr_ExceptionMatches(PyExc_ValueError) ||
                   PyErr_ExceptionMatches(PyExc_OverflowError);
    if (what == SEND_FAILED_FATAL && refused)
        return SEND_FAILED_BAD_ADDRESS;
    return what;
}

/* Sends the bytes of a view, or drops them if the descriptor is closed (SEND_DONE).  The address is
 * converted last, because __buffer__ and audit hooks may have used another address, or closed the
 * transport. */
static enum send_result
send_by_system_call(gl_datagram *d, const Py_buffer *view, PyObject *data, PyObject *addr)
{
    const uint8_t *raw = NULL;
    uint32_t len = 0;
    if (d->lease.fd < 0)
        return SEND_DONE;
    if (!destination_is_implied(d, addr) && !datagram_cache_raw_address(d, addr, &raw, &len))
        return send_by_socket_method(d, data, addr);
    ssize_t n;
    do {
        n = gl_call_sendto(&d->lease, view->buf, (size_t)view->len, SEND_FLAGS, raw, len);
    } while (n < 0 && errno == EINTR);
    gl_note_sent(d->loop, n);
    if (n >= 0)
        return SEND_DONE;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return SEND_BLOCKED;
    gl_set_oserror(errno);
    return classify_send_exception();
}

/* Sends one datagram to `addr`, or to the socket's peer.  With an address it raises the audit event
 * socket.sendto, whose hook may refuse the call.  An exception is classified as in
 * classify_send_exception() and send_by_socket_method().  Runs Python. */
static enum send_result
datagram_send(gl_datagram *d, PyObject *data, PyObject *addr)
{
    if (!destination_is_implied(d, addr)) {
        const uint8_t *raw;
        uint32_t len;
        if (!datagram_cache_raw_address(d, addr, &raw, &len))
            return send_by_socket_method(d, data, addr);
        PyObject *sock = gl_ref_or_none(d->lease.owner);
        int refused = PySys_Audit("socket.sendto", "OO", sock, addr);
        Py_DECREF(sock);
        if (refused < 0)
            return classify_send_exception();
    }
    Py_buffer view = {.obj = NULL};
    if (PyBytes_CheckExact(data)) {
        view.buf = PyBytes_AS_STRING(data);
        view.len = PyBytes_GET_SIZE(data);
    } else if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        return classify_send_exception();
    }
    enum send_result what = send_by_system_call(d, &view, data, addr);
    PyBuffer_Release(&view);
    return what;
}

GL_PRIVATE int
datagram_report_error(gl_datagram *d, PyObject *exc)
{
    PyObject *protocol = Py_XNewRef(d->protocol);
    int rc = 0;
    if (exc == NULL)
        rc = -1;
    if (protocol != NULL && exc != NULL)
        rc = gl_drop_result(PyObject_CallMethodObjArgs((PyObject *)d, G.s__call_error_received,
                                                       protocol, exc, NULL));
    Py_XDECREF(protocol);
    Py_XDECREF(exc);
    return rc;
}

/* Handles a failed send, whose exception is set: calls error_received() (SEND_FAILED_OS_ERROR),
 * reports a bad address to the loop's exception handler, or ends the transport (SEND_FAILED_FATAL).
 * Clears the exception; does nothing else for a transport that the send itself has lost, by Python
 * code of the data or of the address.  -1 with an exception that leaves sendto(). */
static int
datagram_send_failed(gl_datagram *d, enum send_result what)
{
    if (is_lost(d) && !gl_is_exit_exception()) {
        PyErr_Clear();
        return 0;
    }
    if (what == SEND_FAILED_OS_ERROR)
        return datagram_report_error(d, gl_take_exception());
    if (what == SEND_FAILED_BAD_ADDRESS)
        return gl_call_exception_handler(d->loop,
                                         "A datagram was dropped, because its address is invalid",
                                         (PyObject *)d, d->protocol);
    return gl_transport_fatal_current(&d->base, "Fatal write error on datagram transport");
}

/* ---- sendto() -------------------------------------------------------------------------- */

/* Appends a datagram to the queue, by _enqueue() in Python, which also pauses the protocol. */
static int
datagram_enqueue(gl_datagram *d, PyObject *data, PyObject *addr)
{
    return gl_drop_result(
        PyObject_CallMethodObjArgs((PyObject *)d, G.s__enqueue, data, addr, NULL));
}

/* Refuses an address with a host name: asyncio resolves it in sendto(), and so blocks the loop.
 * Returns 0, or -1 with ValueError. */
static int
datagram_check_no_host_name(gl_datagram *d, PyObject *addr)
{
    const uint8_t *raw;
    uint32_t len;
    if ((d->family != AF_INET && d->family != AF_INET6) || addr == Py_None ||
        destination_is_implied(d, addr) || datagram_cache_raw_address(d, addr, &raw, &len))
        return 0;
    return gl_call_method((PyObject *)d, G.s__refuse_look_up, addr);
}

/* Returns 1 if the transport has a remote address, else 0.  Programs may set any object as
 * _address, and asyncio tests its truth: "", the peer of an unnamed Unix socket, is false. */
static int
datagram_has_remote(const gl_datagram *d)
{
    if (d->address == NULL || d->address == Py_None)
        return 0;
    PyObject *address = Py_NewRef(d->address);
    int truth = PyObject_IsTrue(address);
    Py_DECREF(address);
    return truth;
}

/* Returns the address to which a datagram goes: a new reference to `addr`, or to the remote
 * address.  *remote: the transport has a remote address.  NULL with ValueError if `addr` differs
 * from the remote address. */
static PyObject *
datagram_destination(gl_datagram *d, PyObject *addr, bool *remote)
{
    int has_remote = datagram_has_remote(d);
    if (has_remote > 0 && addr != Py_None && addr != d->address) {
        if (gl_call_method((PyObject *)d, G.s__check_address, addr) < 0)
            return NULL;
        has_remote = datagram_has_remote(d); /* the comparison may have set it */
    }
    if (has_remote < 0)
        return NULL;
    *remote = has_remote > 0;
    /* The truth test may have deleted the attribute. */
    if (*remote && d->address != NULL)
        addr = d->address;
    return Py_NewRef(addr);
}

/* Sends or queues a datagram with valid arguments; `remote` as in datagram_destination().  A
 * transport that has ended drops the datagram and counts it, with asyncio's warning.  A refused
 * datagram blocks the transport until the queue is sent. */
static int
datagram_send_or_queue(gl_datagram *d, PyObject *data, PyObject *addr, bool remote)
{
    /* asyncio's own transport raises AttributeError where it is lost and has no
     * remote address. */
    if ((is_ending(d) && remote) || is_lost(d))
        return gl_count_late_write(&d->conn_lost, LATE_WRITE_WARNING);
    if (gl_loop_is_foreign(d->loop))
        return gl_loop_check_usable(d->loop);
    if (d->blocked)
        return datagram_enqueue(d, data, addr);
    gl_flush_deferred_sends(d->loop);
    enum send_result what = datagram_send(d, data, addr);
    if (what == SEND_DONE)
        return 0;
    if (what != SEND_BLOCKED)
        return datagram_send_failed(d, what);
    d->blocked = true;
    if (gl_transport_update_interest(&d->base) == 0)
        return datagram_enqueue(d, data, addr);
    d->blocked = false;
    return -1;
}

GL_PRIVATE PyObject *
datagram_sendto(gl_datagram *d, PyObject *data, PyObject *addr)
{
    if (!PyBytes_Check(data) && !PyByteArray_Check(data) && !PyMemoryView_Check(data)) {
        gl_transport_set_data_error((PyObject *)d, data);
        return NULL;
    }
#if !GL_SENDS_EMPTY_DATAGRAMS
    Py_ssize_t size = PyObject_Size(data);
    if (size < 0)
        return NULL;
    if (size == 0)
        Py_RETURN_NONE;
#endif
    bool remote;
    PyObject *destination = datagram_destination(d, addr, &remote);
    if (destination == NULL)
        return NULL;
    /* Runs Python, so it precedes the check of the state. */
    int rc = datagram_check_no_host_name(d, destination);
    if (rc == 0)
        rc = datagram_send_or_queue(d, data, destination, remote);
    Py_DECREF(destination);
    return gl_none_or_null(rc);
}

/* ---- the kernel has room ------------------------------------------------------------------ */

GL_PRIVATE PyObject *
datagram_send_method(gl_datagram *d, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2)
        return PyErr_Format(PyExc_TypeError, "_send() takes 2 arguments: data and an address");
    if (is_lost(d))
        Py_RETURN_TRUE;
    if (gl_loop_check_usable(d->loop) < 0)
        return NULL;
    enum send_result what = datagram_send(d, args[0], args[1]);
    if (what == SEND_DONE || what == SEND_BLOCKED)
        return PyBool_FromLong(what == SEND_DONE);
    return NULL;
}

GL_PRIVATE PyObject *
datagram_sent_all(gl_datagram *d, PyObject *Py_UNUSED(ignored))
{
    if (is_ending(d))
        Py_RETURN_NONE;
    d->blocked = false;
    if (is_closing(d))
        return gl_none_or_null(gl_transport_connection_lost(&d->base, Py_None));
    return gl_none_or_null(gl_transport_update_interest(&d->base));
}
