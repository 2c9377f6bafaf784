/*
 * datagram_send.c: sendto, and the queue of what the kernel had no room for.
 *
 *   sendto() --> queue empty: the system call is made
 *       |            |  sent ............ done
 *       |            |  no room ......... queued, and the reactor is asked for room
 *       |            +- an OSError ...... error_received(), done
 *       +-------> else queued
 *
 * When the reactor tells of room the queue is sent from its head, in order, until
 * it is empty, the kernel has no room, or one fails.
 *
 * Addresses in the plain forms (a literal and a port, a path) are translated here,
 * the one that the last datagram came from or went to not even that; whatever else
 * there is, and each error in it, is left to the socket's own sendto().
 */
#include "packets/datagram.h"

#include <errno.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* CPython ignores SIGPIPE */
#endif

#define SEND_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL)

/* ---- the queue ------------------------------------------------------------------ */

static int
parcel_grow(gl_datagram *d)
{
    uint32_t capacity = d->parcel ? d->parcel_mask + 1 : 0, more = capacity ? capacity * 2 : 16;
    gl_parcel *bigger =
        more > UINT32_MAX / 4 ? NULL : PyMem_Malloc((size_t)more * sizeof(gl_parcel));
    if (bigger == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0; i < d->parcel_count; i++)
        bigger[i] = d->parcel[(d->parcel_head + i) & d->parcel_mask];
    PyMem_Free(d->parcel);
    d->parcel = bigger;
    d->parcel_head = 0;
    d->parcel_mask = more - 1;
    return 0;
}

static inline Py_ssize_t
parcel_size(gl_parcel p)
{
    return PyBytes_GET_SIZE(p.data) + PARCEL_HEADER;
}

/* Takes over the references, on failure too. */
static int
parcel_push(gl_datagram *d, gl_parcel p)
{
    if ((d->parcel == NULL || d->parcel_count > d->parcel_mask) && parcel_grow(d) < 0) {
        Py_DECREF(p.data);
        Py_DECREF(p.addr);
        return -1;
    }
    d->parcel[(d->parcel_head + d->parcel_count) & d->parcel_mask] = p;
    d->parcel_count++;
    d->queued += parcel_size(p);
    return 0;
}

/* The references become the caller's. */
static gl_parcel
parcel_pop(gl_datagram *d)
{
    gl_parcel p = d->parcel[d->parcel_head];
    d->parcel_head = (d->parcel_head + 1) & d->parcel_mask;
    d->parcel_count--;
    d->queued -= parcel_size(p);
    return p;
}

/* Back to the head, where it was: whatever ran meanwhile may have filled its place,
 * but not more. */
static int
parcel_unpop(gl_datagram *d, gl_parcel p)
{
    if ((d->parcel == NULL || d->parcel_count > d->parcel_mask) && parcel_grow(d) < 0) {
        Py_DECREF(p.data);
        Py_DECREF(p.addr);
        return -1;
    }
    d->parcel_head = (d->parcel_head - 1) & d->parcel_mask;
    d->parcel[d->parcel_head] = p;
    d->parcel_count++;
    d->queued += parcel_size(p);
    return 0;
}

GL_PRIVATE void
datagram_drop_queue(gl_datagram *d)
{
    gl_parcel *parcel = d->parcel;
    uint32_t head = d->parcel_head, mask = d->parcel_mask, count = d->parcel_count;
    d->parcel = NULL;
    d->parcel_head = d->parcel_mask = d->parcel_count = 0;
    d->queued = 0;
    d->blocked = false;
    for (uint32_t i = 0; i < count; i++) {
        Py_DECREF(parcel[(head + i) & mask].data);
        Py_DECREF(parcel[(head + i) & mask].addr);
    }
    PyMem_Free(parcel);
}

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
    GL_TOLD,   /* an OSError is set, which the protocol is to be told */
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
    return gl_done(r) < 0 ? sent_exception() : GL_SENT;
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
        rc = gl_call_method(protocol, G.s_error_received, exc);
    Py_XDECREF(protocol);
    Py_XDECREF(exc);
    return rc;
}

/* What follows GL_TOLD and GL_BROKEN. */
static int
datagram_send_failed(gl_datagram *d, enum gl_sent what)
{
    if (what == GL_TOLD)
        return datagram_tell_error(d, gl_take_exception());
    return gl_transport_fatal_current(&d->base, "Fatal write error on datagram transport");
}

/* ---- sendto() -------------------------------------------------------------------------- */

static int
datagram_enqueue(gl_datagram *d, PyObject *data, PyObject *addr)
{
    PyObject *bytes = PyBytes_CheckExact(data) ? Py_NewRef(data) : PyBytes_FromObject(data);
    if (bytes == NULL)
        return -1;
    if (is_ending(d)) { /* nobody would send it any more */
        Py_DECREF(bytes);
        return 0;
    }
    if (parcel_push(d, (gl_parcel){bytes, Py_NewRef(addr)}) < 0)
        return -1;
    return gl_transport_call_apart(&d->base, (PyObject *)d, G.s__maybe_pause_protocol);
}

/* Whether `addr` may be sent to: 1, or -1 with ValueError. */
static int
datagram_check_address(gl_datagram *d, PyObject *addr)
{
    if (addr == Py_None || addr == d->address)
        return 1;
    PyObject *address = Py_NewRef(d->address);
    int same = PyObject_RichCompareBool(addr, address, Py_EQ);
    if (same == 0) {
        same = -1;
        PyErr_Format(PyExc_ValueError, "Invalid address: must be None or %S", address);
    }
    Py_DECREF(address);
    return same;
}

/* asyncio looks a host name up in sendto(), and the loop stands still meanwhile: -1 with
 * ValueError for one. */
static int
datagram_refuse_look_up(gl_datagram *d, PyObject *addr)
{
    const uint8_t *raw;
    uint32_t len;
    if ((d->family != AF_INET && d->family != AF_INET6) || addr == Py_None ||
        by_send(d, addr) || datagram_target(d, addr, &raw, &len))
        return 0;
    return gl_call_method((PyObject *)d, G.s__refuse_look_up, addr);
}

/* What is to be done with a datagram whose arguments are good. */
static int
datagram_send_or_queue(gl_datagram *d, PyObject *data, PyObject *addr)
{
    /* asyncio's own transport raises AttributeError where it is lost and has no
     * remote address. */
    if ((is_ending(d) && d->fixed) || is_lost(d))
        return gl_late_write(&d->conn_lost, LATE_SEND);
    if (gl_loop_is_foreign(d->loop))
        return gl_loop_check_usable(d->loop);
    if (d->parcel_count > 0)
        return datagram_enqueue(d, data, addr);
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
        PyObject *name = PyType_GetName(Py_TYPE(data));
        if (name != NULL)
            PyErr_Format(PyExc_TypeError, "data argument must be a bytes-like object, not %R",
                         name);
        Py_XDECREF(name);
        return NULL;
    }
#if PY_VERSION_HEX < 0x030D0000
    Py_ssize_t size = PyObject_Size(data);
    if (size < 0)
        return NULL;
    if (size == 0) /* before 3.13 these are not sent */
        Py_RETURN_NONE;
#endif
    if (d->fixed) {
        if (datagram_check_address(d, addr) < 0)
            return NULL;
        addr = d->address;
    }
    Py_INCREF(addr);
    int rc = datagram_refuse_look_up(d, addr); /* Python's, so before the state is looked at */
    if (rc == 0)
        rc = datagram_send_or_queue(d, data, addr);
    Py_DECREF(addr);
    return gl_none_or_null(rc);
}

/* ---- the kernel has room ------------------------------------------------------------------ */

GL_PRIVATE int
datagram_drain(gl_datagram *d)
{
    while (d->parcel_count > 0) {
        gl_parcel p = parcel_pop(d);
        enum gl_sent what = datagram_send(d, p.data, p.addr);
        if (what == GL_NO_ROOM && !is_ending(d)) {
            if (parcel_unpop(d, p) < 0)
                return -1;
            break;
        }
        Py_DECREF(p.data);
        Py_DECREF(p.addr);
        if (what == GL_TOLD || what == GL_BROKEN)
            return datagram_send_failed(d, what); /* the rest has its turn, as in asyncio */
        if (is_ending(d))
            return 0;
    }
    if (d->slot_protocol_paused == Py_True &&
        gl_call_method((PyObject *)d, G.s__maybe_resume_protocol, NULL) < 0)
        return -1; /* the call may have sent more */
    if (d->parcel_count > 0 || is_ending(d))
        return 0;
    d->blocked = false;
    return is_closing(d) ? gl_transport_lost(&d->base, Py_None) : gl_transport_sync(&d->base);
}
