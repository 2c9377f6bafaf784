/*
 * datagram_receive.c: what was received, on its way to the protocol.
 *
 * Go receives what is there for all sockets before the first protocol is called, so
 * the state is looked at again before each call of Python: an earlier callback of
 * the same turn may have closed this transport, paused it, or given it another
 * protocol.  What came for a closing one is dropped, as asyncio drops what it does
 * not read any more.  What came for a paused one is held, in order, and delivered by
 * _deliver_held, which resume_reading schedules; receiving goes on behind that.
 *
 * A server hears from the same peers again and again, so the tuples of their
 * addresses are kept in a small table: a hash of the raw address names the one place
 * where it can be.  The table grows with the number of peers, up to GL_PEERS_MAX.
 */
#include "transports/datagram.h"

/* ---- addresses --------------------------------------------------------------------- */

static inline uint32_t
peer_hash(const uint8_t *raw, uint32_t len)
{
    uint64_t h = len;
    for (uint32_t i = 0; i < len; i += 8) {
        uint64_t word = 0;
        memcpy(&word, raw + i, len - i < 8 ? len - i : 8);
        h = (h ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 32;
    }
    return (uint32_t)h;
}

/* Four times the places, empty but for what the old ones held. */
static void
peers_grow(gl_datagram *d)
{
    uint32_t count = (d->peers_mask + 1) * 4;
    gl_peer *bigger = PyMem_Calloc(count, sizeof(*bigger));
    if (bigger == NULL)
        return; /* what there is serves on */
    for (uint32_t i = 0; i <= d->peers_mask; i++) {
        gl_peer *old = &d->peers[i];
        if (old->object == NULL)
            continue;
        gl_peer *place = &bigger[peer_hash(old->raw, old->len) & (count - 1)];
        Py_XSETREF(place->object, old->object);
        place->len = old->len;
        memcpy(place->raw, old->raw, old->len);
    }
    if (d->peers != d->peers_inline)
        PyMem_Free(d->peers);
    memset(d->peers_inline, 0, sizeof(d->peers_inline));
    d->peers = bigger;
    d->peers_mask = count - 1;
}

GL_PRIVATE void
datagram_forget_peers(gl_datagram *d)
{
    d->peer_last = NULL;
    for (uint32_t i = 0; i <= d->peers_mask; i++)
        Py_CLEAR(d->peers[i].object);
    if (d->peers != d->peers_inline)
        PyMem_Free(d->peers);
    d->peers = d->peers_inline;
    d->peers_mask = 0;
}

/* The sender's address as an object; new reference. */
static inline PyObject *
datagram_peer(gl_datagram *d, const gl_packet *p)
{
    uint32_t len = p->addr_len;
    if (len == 0 || len > sizeof(d->peers->raw)) {
        PyObject *object = gl_address_object(p->addr, len);
        if (object == NULL && !PyErr_Occurred())
            PyErr_SetString(PyExc_OSError, "datagram from an address of an unknown family");
        return object;
    }
    uint32_t hash = peer_hash(p->addr, len);
    gl_peer *peer = &d->peers[hash & d->peers_mask];
    if (peer->object == NULL || peer->len != len || memcmp(peer->raw, p->addr, len) != 0) {
        PyObject *object = gl_address_object(p->addr, len);
        if (object == NULL) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_OSError, "datagram from an address of an unknown family");
            return NULL;
        }
        if (peer->object != NULL && d->peers_mask + 1 < GL_PEERS_MAX &&
            ++d->peers_missed > 2 * d->peers_mask + 2) {
            d->peers_missed = 0;
            d->peer_last = NULL;
            peers_grow(d);
            peer = &d->peers[hash & d->peers_mask];
        }
        Py_XSETREF(peer->object, object);
        peer->len = len;
        memcpy(peer->raw, p->addr, len);
    }
    d->peer_last = peer;
    return Py_NewRef(peer->object);
}

/* ---- delivery ------------------------------------------------------------------------ */

static inline int
datagram_deliver(gl_datagram *d, PyObject *data, PyObject *addr)
{
    PyObject *protocol = Py_NewRef(d->protocol);
    PyObject *args[4] = {NULL, protocol, data, addr};
    PyObject *r = PyObject_VectorcallMethod(G.s_datagram_received, args + 1,
                                            3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    Py_DECREF(protocol);
    Py_XDECREF(r);
    return r == NULL ? -1 : 0;
}

/* Keeps what came while paused; takes over the item.  The reactor was told to be
 * silent by the pause: this is the rest of what it had brought. */
static int
datagram_hold(gl_datagram *d, PyObject *item)
{
    int rc = -1;
    if (item != NULL && (d->held != NULL || (d->held = PyList_New(0)) != NULL))
        rc = PyList_Append(d->held, item);
    Py_XDECREF(item);
    return rc < 0 ? datagram_fatal_current(d, "Fatal read error on datagram transport") : 0;
}

static inline bool
datagram_must_hold(gl_datagram *d)
{
    return d->paused || d->held != NULL;
}

static int
datagram_came(gl_datagram *d, const gl_completion *c)
{
    const gl_packet *p = c->ptr;
    PyObject *data = PyBytes_FromStringAndSize((const char *)(p + 1), (Py_ssize_t)c->arg);
    PyObject *addr = data ? datagram_peer(d, p) : NULL;
    int rc;
    if (addr == NULL) {
        rc = datagram_fatal_current(d, "Fatal read error on datagram transport");
    } else if (datagram_must_hold(d)) {
        rc = datagram_hold(d, PyTuple_Pack(2, data, addr));
    } else {
        rc = datagram_deliver(d, data, addr);
    }
    Py_XDECREF(data);
    Py_XDECREF(addr);
    return rc;
}

static int
datagram_error_came(gl_datagram *d, int err)
{
    PyObject *exc = gl_oserror(err);
    return datagram_must_hold(d) ? datagram_hold(d, exc) : datagram_tell_error(d, exc);
}

GL_PRIVATE int
datagram_complete(gl_loop *loop, PyObject *owner, const gl_completion *c)
{
    gl_datagram *d = (gl_datagram *)owner;
    if (d->conn_lost || d->protocol == NULL || (d->closing && c->kind != GL_CMP_READY))
        return 0;
    /* The transport may be lost, and its context with it, before we are back. */
    PyObject *context = Py_NewRef(d->context);
    int rc = PyContext_Enter(context);
    if (rc == 0) {
        switch (c->kind) {
        case GL_CMP_DATAGRAM:
            rc = datagram_came(d, c);
            break;
        case GL_CMP_DATAGRAM_ERROR:
            rc = datagram_error_came(d, c->res);
            break;
        case GL_CMP_READY:
            rc = datagram_drain(d);
            break;
        default:
            break;
        }
        gl_context_exit(context);
    }
    Py_DECREF(context);
    return rc < 0 ? gl_report_stray(loop, "Exception in callback of a datagram transport", owner,
                                    d->protocol)
                  : 0;
}

/* ---- what was held ----------------------------------------------------------------------- */

static int
datagram_schedule_delivery(gl_datagram *d)
{
    if (d->delivering)
        return 0;
    if (datagram_call_soon(d, G.s__deliver_held, NULL) < 0)
        return -1;
    d->delivering = true;
    return 0;
}

static int
datagram_deliver_first(gl_datagram *d)
{
    PyObject *item = Py_NewRef(PyList_GET_ITEM(d->held, 0));
    if (PyList_SetSlice(d->held, 0, 1, NULL) < 0) {
        Py_DECREF(item);
        return -1;
    }
    int rc;
    if (PyTuple_CheckExact(item)) {
        rc = datagram_deliver(d, PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1));
        Py_DECREF(item);
    } else {
        rc = datagram_tell_error(d, item);
    }
    return rc;
}

GL_PRIVATE PyObject *
datagram_deliver_held_method(gl_datagram *d, PyObject *Py_UNUSED(ignored))
{
    int rc = 0;
    while (rc == 0 && d->held != NULL && !d->paused && !d->closing) {
        if (PyList_GET_SIZE(d->held) == 0) {
            Py_CLEAR(d->held);
            break;
        }
        rc = datagram_deliver_first(d);
    }
    d->delivering = false;
    if (d->closing)
        Py_CLEAR(d->held); /* bytes, addresses and exceptions of ours: no Python runs */
    PyObject *exc = rc < 0 ? gl_take_exception() : NULL;
    if (!d->paused && d->held != NULL)
        rc = datagram_schedule_delivery(d);
    else
        rc = datagram_sync(d);
    if (exc != NULL) {
        PyErr_Clear();
        gl_restore_exception(exc);
        return NULL;
    }
    if (rc < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- pause and resume ----------------------------------------------------------------------- */

GL_PRIVATE PyObject *
datagram_pause_reading(gl_datagram *d, PyObject *Py_UNUSED(ignored))
{
    if (d->closing || d->paused)
        Py_RETURN_NONE;
    if (gl_loop_is_foreign(d->loop)) {
        gl_loop_check_usable(d->loop);
        return NULL;
    }
    d->paused = true;
    if (!d->loop->closed && datagram_sync(d) < 0)
        return NULL;
    if (d->loop->debug)
        gl_log_debug((PyObject *)d, "%r pauses reading", NULL, NULL);
    Py_RETURN_NONE;
}

GL_PRIVATE PyObject *
datagram_resume_reading(gl_datagram *d, PyObject *Py_UNUSED(ignored))
{
    if (d->closing || !d->paused)
        Py_RETURN_NONE;
    if (gl_loop_check_usable(d->loop) < 0)
        return NULL;
    d->paused = false;
    if ((d->held != NULL ? datagram_schedule_delivery(d) : datagram_sync(d)) < 0)
        return NULL;
    if (d->loop->debug)
        gl_log_debug((PyObject *)d, "%r resumes reading", NULL, NULL);
    Py_RETURN_NONE;
}
