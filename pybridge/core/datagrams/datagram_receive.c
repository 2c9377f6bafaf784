/*
 * datagram_receive.c: what was received, on its way to the protocol.
 *
 * Go receives what is there for all sockets before the first protocol is called, so
 * the state is looked at again before each call of Python: an earlier callback of
 * the same turn may have closed this transport, paused it, or given it another
 * protocol.  What came for a closing one is dropped, as asyncio drops what it does
 * not read any more.  What came for a paused one, or for one whose protocol has had its
 * share of this turn's time, is held, in order, and delivered by _deliver_paused_data, which
 * resume_reading or the next iteration calls; receiving goes on behind that.
 *
 * A server hears from the same peers again and again, so the tuples of their
 * addresses are kept in a small table: a hash of the raw address names the one place
 * where it can be.  There is one place until a second peer comes.
 */
#include "datagrams/datagram.h"

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

/* More places, empty ones, where there is memory. */
static void
peers_grow(gl_datagram *d)
{
    gl_peer *bigger = PyMem_Calloc(PEERS, sizeof(*bigger));
    if (bigger == NULL)
        return;
    datagram_clear_peers(d);
    d->peers = bigger;
    d->peers_mask = PEERS - 1;
}

GL_PRIVATE void
datagram_clear_peers(gl_datagram *d)
{
    d->last_sender = NULL;
    for (uint32_t i = 0; i <= d->peers_mask; i++)
        Py_CLEAR(d->peers[i].object);
    if (d->peers != d->peers_inline)
        PyMem_Free(d->peers);
    d->peers = d->peers_inline;
    d->peers_mask = 0;
}

static PyObject *
peer_address(const gl_packet *p)
{
    PyObject *object = gl_address_object(p->addr, p->addr_len);
    if (object == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_OSError, "datagram from an address of an unknown family");
    return object;
}

/* The sender's address as an object; new reference. */
static inline PyObject *
datagram_find_sender(gl_datagram *d, const gl_packet *p)
{
    uint32_t len = p->addr_len;
    if (len == 0 || len > sizeof(d->peers->raw))
        return peer_address(p);
    uint32_t hash = peer_hash(p->addr, len);
    gl_peer *peer = &d->peers[hash & d->peers_mask];
    if (peer->object == NULL || peer->len != len || memcmp(peer->raw, p->addr, len) != 0) {
        PyObject *object = peer_address(p);
        if (object == NULL)
            return NULL;
        if (peer->object != NULL && d->peers_mask == 0) {
            peers_grow(d);
            peer = &d->peers[hash & d->peers_mask];
        }
        Py_XSETREF(peer->object, object);
        peer->len = len;
        memcpy(peer->raw, p->addr, len);
    }
    d->last_sender = peer;
    return Py_NewRef(peer->object);
}

/* ---- delivery ------------------------------------------------------------------------ */

static inline int
datagram_deliver_packet(gl_datagram *d, PyObject *data, PyObject *addr)
{
    PyObject *protocol = Py_NewRef(d->protocol);
    PyObject *args[4] = {NULL, protocol, data, addr};
    int rc = gl_drop_result(PyObject_VectorcallMethod(G.s_datagram_received, args + 1,
                                                      3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL));
    Py_DECREF(protocol);
    return rc;
}

/* Whether the socket has had its share of this turn: as much time as the iteration had taken
 * before the first datagram of all sockets, at least SHARE_MIN, and one callback. */
GL_PRIVATE bool
datagram_budget_exhausted(gl_transport *t)
{
    gl_datagram *d = (gl_datagram *)t;
    int64_t now = gl_monotonic_ns();
    if (d->share_turn == d->loop->turns)
        return now >= d->share_end;
    d->share_turn = d->loop->turns;
    if (d->loop->share == 0)
        d->loop->share = Py_MAX(now - d->loop->shared->now, SHARE_MIN);
    d->share_end = now + d->loop->share;
    return false;
}

/* Keeps what can't be delivered now, the rest of what the reactor had brought; takes over
 * the item.  The reactor is silent until it is delivered, which resume_reading sees to
 * after a pause. */
static int
datagram_keep_paused_data(gl_datagram *d, PyObject *item)
{
    return gl_transport_keep_paused_data(&d->base, item, false) < 0 ||
                   (!d->paused && (gl_transport_schedule_delivery(&d->base) < 0 ||
                                   gl_transport_update_interest(&d->base) < 0))
               ? gl_transport_fatal_current(&d->base, "Fatal read error on datagram transport")
               : 0;
}

static inline bool
datagram_must_wait(gl_datagram *d)
{
    return d->paused || d->paused_data != NULL || datagram_budget_exhausted(&d->base);
}

static int
datagram_handle_packet(gl_datagram *d, const gl_completion *c)
{
    const gl_packet *p = c->ptr;
    PyObject *data = PyBytes_FromStringAndSize((const char *)(p + 1), (Py_ssize_t)c->arg);
    PyObject *addr = data ? datagram_find_sender(d, p) : NULL;
    int rc;
    if (addr == NULL) {
        rc = gl_transport_fatal_current(&d->base, "Fatal read error on datagram transport");
    } else if (datagram_must_wait(d)) {
        rc = datagram_keep_paused_data(d, PyTuple_Pack(2, data, addr));
    } else {
        rc = datagram_deliver_packet(d, data, addr);
    }
    Py_XDECREF(data);
    Py_XDECREF(addr);
    return rc;
}

static int
datagram_handle_error(gl_datagram *d, int err)
{
    PyObject *exc = gl_oserror(err);
    return exc == NULL             ? -1
           : datagram_must_wait(d) ? datagram_keep_paused_data(d, exc)
                                   : datagram_report_error(d, exc);
}

GL_PRIVATE int
datagram_complete(gl_loop *loop, PyObject *owner, const gl_completion *c)
{
    gl_datagram *d = (gl_datagram *)owner;
    if (is_ending(d) || d->protocol == NULL || (is_closing(d) && c->kind != GL_CMP_READY))
        return 0;
    /* The transport may be lost, and its context with it, before we are back. */
    PyObject *context = Py_NewRef(d->context);
    int rc = PyContext_Enter(context);
    if (rc == 0) {
        switch (c->kind) {
        case GL_CMP_DATAGRAM:
            rc = datagram_handle_packet(d, c);
            break;
        case GL_CMP_DATAGRAM_ERROR:
            rc = datagram_handle_error(d, c->res);
            break;
        case GL_CMP_READY:
            rc = gl_call_method(owner, G.s__drain, NULL);
            break;
        default:
            break;
        }
        gl_context_exit_keep_error(context);
    }
    Py_DECREF(context);
    return rc < 0 ? gl_call_exception_handler(loop, "Exception in callback of a datagram transport",
                                              owner, d->protocol)
                  : 0;
}

/* A held item: a datagram with its address, or an error. */
GL_PRIVATE int
datagram_deliver_item(gl_transport *t, PyObject *item)
{
    gl_datagram *d = (gl_datagram *)t;
    return PyTuple_CheckExact(item)
               ? datagram_deliver_packet(d, PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1))
               : datagram_report_error(d, Py_NewRef(item));
}
