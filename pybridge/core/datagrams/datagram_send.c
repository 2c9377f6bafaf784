/*
 * datagram_send.c: sendto.
 *
 *   sendto() --> not blocked: the system call is made
 *       |            |  sent ............ done
 *       |            |  no room ......... blocked: queued, and the reactor is asked for room
 *       |            +- an OSError ...... error_received(), done
 *       +-------> else queued
 *
 * The queue is Python's (goloop/_internal/net/datagrams.py), and so is what sends it when the reactor
 * tells of room: kernels seldom lack it.
 *
 * Addresses in the plain forms (a literal and a port, a path) are translated here,
 * the one that the last datagram came from or went to not even that; whatever else
 * there is, and each error in it, is left to the socket's own sendto().
 */
#include "datagrams/datagram.h"

#include <errno.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* CPython ignores SIGPIPE */
#endif

#define SEND_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL)

/* ---- the system call ---------------------------------------------------------------- */

/* Finds the raw form of an address; false where the socket has to. */
static inline bool
datagram_target(gl_datagram *d, PyObject *addr, const uint8_t **raw, uint32_t *len)
{
    if (d->peer_last != NULL && d->peer_last->object == addr) {
        *raw = d->peer_last->raw;
        *len = d->peer_last->len;
        return *len > 0;
    }
    if (d->target != addr) {
        Py_CLEAR(d->target);
        if (!gl_address_raw(d->family, addr, d->target_raw, &d->target_len))
            return false;
        d->target = Py_NewRef(addr); /* nothing of it can change */
    }
    *raw = d->target_raw;
    *len = d->target_len;
    return true;
}

enum gl_sent {
    GL_SENT,
    GL_NO_ROOM,
    GL_TOLD,    /* an OSError is set, which the protocol is to be told */
    GL_REFUSED, /* the socket has raised for the address: the datagram is dropped and that reported */
    GL_BROKEN, /* another exception is set, which ends the transport */
};

/* What the exception that is set means, as asyncio sorts them. */
static enum gl_sent
sent_exception(void)
{
    if (PyErr_ExceptionMatches(PyExc_BlockingIOError) ||
        PyErr_ExceptionMatches(PyExc_InterruptedError)) {
        PyErr_Clear();
        return GL_NO_ROOM;
    }
    return PyErr_ExceptionMatches(PyExc_OSError) ? GL_TOLD : GL_BROKEN;
}

/* Whether the socket itself knows where to. */
static inline bool
by_send(const gl_datagram *d, PyObject *addr)
{
    return d->connected || (d->nameless && addr == Py_None);
}

static enum gl_sent
sent_by_socket(gl_datagram *d, PyObject *data, PyObject *addr)
{
    PyObject *sock = Py_NewRef(d->lease.owner ? d->lease.owner : Py_None);
    PyObject *r = PyObject_CallMethodObjArgs(sock, G.s_sendto, data, addr, NULL);
    Py_DECREF(sock);
    if (gl_drop_result(r) == 0)
        return GL_SENT;
    enum gl_sent what = sent_exception();
    bool refused = PyErr_ExceptionMatches(PyExc_TypeError) ||
                   PyErr_ExceptionMatches(PyExc_ValueError) ||
                   PyErr_ExceptionMatches(PyExc_OverflowError);
    return what == GL_BROKEN && refused ? GL_REFUSED : what;
}

/* Sends the bytes of a view.  The address is looked up last: __buffer__ and audit hooks
 * may have sent to another, or closed the transport. */
static enum gl_sent
sent_by_call(gl_datagram *d, const Py_buffer *view, PyObject *data, PyObject *addr)
{
    const uint8_t *raw = NULL;
    uint32_t len = 0;
    if (d->lease.number < 0)
        return GL_SENT;
    if (!by_send(d, addr) && !datagram_target(d, addr, &raw, &len))
        return sent_by_socket(d, data, addr);
    ssize_t n;
    do {
        n = gl_call_sendto(&d->lease, view->buf, (size_t)view->len, SEND_FLAGS, raw, len);
    } while (n < 0 && errno == EINTR);
    gl_count_sent(d->loop, n);
    if (n >= 0)
        return GL_SENT;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return GL_NO_ROOM;
    gl_set_oserror(errno);
    return sent_exception();
}

/* Sends one datagram, now. */
static enum gl_sent
datagram_send(gl_datagram *d, PyObject *data, PyObject *addr)
{
    if (!by_send(d, addr)) {
        const uint8_t *raw;
        uint32_t len;
        if (!datagram_target(d, addr, &raw, &len))
            return sent_by_socket(d, data, addr);
        PyObject *sock = Py_NewRef(d->lease.owner ? d->lease.owner : Py_None);
        int refused = PySys_Audit("socket.sendto", "OO", sock, addr);
        Py_DECREF(sock);
        if (refused < 0)
            return sent_exception();
    }
    Py_buffer view = {.obj = NULL};
    if (PyBytes_CheckExact(data)) {
        view.buf = PyBytes_AS_STRING(data);
        view.len = PyBytes_GET_SIZE(data);
    } else if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        return sent_exception();
    }
    enum gl_sent what = sent_by_call(d, &view, data, addr);
    PyBuffer_Release(&view);
    return what;
}

GL_PRIVATE int
datagram_tell_error(gl_datagram *d, PyObject *exc)
{
    PyObject *protocol = Py_XNewRef(d->protocol);
    int rc = exc == NULL ? -1 : 0;
    if (protocol != NULL && exc != NULL)
        rc = gl_drop_result(
            PyObject_CallMethodObjArgs((PyObject *)d, G.s__tell_error, protocol, exc, NULL));
    Py_XDECREF(protocol);
    Py_XDECREF(exc);
    return rc;
}

/* What follows GL_TOLD, GL_REFUSED and GL_BROKEN. */
static int
datagram_send_failed(gl_datagram *d, enum gl_sent what)
{
    if (what == GL_TOLD)
        return datagram_tell_error(d, gl_take_exception());
    if (what == GL_REFUSED)
        return gl_call_exception_handler(d->loop, "Invalid address of a datagram, which is dropped",
                                         (PyObject *)d, d->protocol);
    return gl_transport_fatal_current(&d->base, "Fatal write error on datagram transport");
}

/* ---- sendto() -------------------------------------------------------------------------- */

static int
datagram_enqueue(gl_datagram *d, PyObject *data, PyObject *addr)
{
    return gl_drop_result(
        PyObject_CallMethodObjArgs((PyObject *)d, G.s__enqueue, data, addr, NULL));
}

/* asyncio looks a host name up in sendto(), and the loop stands still meanwhile: -1 with
 * ValueError for one. */
static int
datagram_refuse_look_up(gl_datagram *d, PyObject *addr)
{
    const uint8_t *raw;
    uint32_t len;
    if ((d->family != AF_INET && d->family != AF_INET6) || addr == Py_None || by_send(d, addr) ||
        datagram_target(d, addr, &raw, &len))
        return 0;
    return gl_call_method((PyObject *)d, G.s__refuse_look_up, addr);
}

/* Whether the transport has a remote address: 1, 0, or -1 with an exception.  Programs may write any
 * object to _address, and asyncio asks for its truth: "", the peer of an unnamed Unix socket, is none. */
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

/* Finds the address to which a datagram goes: a new reference to `addr`, or to the remote address. */
static PyObject *
datagram_destination(gl_datagram *d, PyObject *addr, bool *remote)
{
    int has_remote = datagram_has_remote(d);
    if (has_remote > 0 && addr != Py_None && addr != d->address) {
        if (gl_call_method((PyObject *)d, G.s__check_address, addr) < 0)
            return NULL;
        has_remote = datagram_has_remote(d); /* the comparison may have written it */
    }
    if (has_remote < 0)
        return NULL;
    *remote = has_remote > 0;
    /* The truth of an object may have taken the attribute away. */
    if (*remote && d->address != NULL)
        addr = d->address;
    return Py_NewRef(addr);
}

/* What is to be done with a datagram whose arguments are good. */
static int
datagram_send_or_queue(gl_datagram *d, PyObject *data, PyObject *addr, bool remote)
{
    /* asyncio's own transport raises AttributeError where it is lost and has no
     * remote address. */
    if ((is_ending(d) && remote) || is_lost(d))
        return gl_late_write(&d->conn_lost, LATE_SEND);
    if (gl_loop_is_foreign(d->loop))
        return gl_loop_check_usable(d->loop);
    if (d->blocked)
        return datagram_enqueue(d, data, addr);
    gl_send_put_off(d->loop);
    enum gl_sent what = datagram_send(d, data, addr);
    if (what == GL_SENT)
        return 0;
    if (what != GL_NO_ROOM)
        return datagram_send_failed(d, what);
    d->blocked = true;
    if (gl_transport_sync(&d->base) == 0)
        return datagram_enqueue(d, data, addr);
    d->blocked = false;
    return -1;
}

GL_PRIVATE PyObject *
datagram_sendto(gl_datagram *d, PyObject *data, PyObject *addr)
{
    if (!PyBytes_Check(data) && !PyByteArray_Check(data) && !PyMemoryView_Check(data)) {
        gl_transport_refuse_data((PyObject *)d, data);
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
    /* Python's, so before the state is looked at. */
    int rc = datagram_refuse_look_up(d, destination);
    if (rc == 0)
        rc = datagram_send_or_queue(d, data, destination, remote);
    Py_DECREF(destination);
    return gl_none_or_null(rc);
}

/* ---- the kernel has room ------------------------------------------------------------------ */

/* _send(data, addr): False where there is none; what it raises is the caller's to sort. */
GL_PRIVATE PyObject *
datagram_send_method(gl_datagram *d, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2)
        return PyErr_Format(PyExc_TypeError, "_send() takes data and an address");
    if (is_lost(d))
        Py_RETURN_TRUE;
    if (gl_loop_check_usable(d->loop) < 0)
        return NULL;
    enum gl_sent what = datagram_send(d, args[0], args[1]);
    return what == GL_SENT || what == GL_NO_ROOM ? PyBool_FromLong(what == GL_SENT) : NULL;
}

/* _sent_all(): the queue is empty. */
GL_PRIVATE PyObject *
datagram_sent_all(gl_datagram *d, PyObject *Py_UNUSED(ignored))
{
    if (is_ending(d))
        Py_RETURN_NONE;
    d->blocked = false;
    return gl_none_or_null(is_closing(d) ? gl_transport_lost(&d->base, Py_None)
                                         : gl_transport_sync(&d->base));
}
