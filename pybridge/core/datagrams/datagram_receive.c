/*
 * datagram_receive.c: received datagrams on their way to the protocol.
 *
 * Go receives for all sockets before the first protocol is called, so the state is checked again
 * before each call of Python: an earlier callback of the same turn may have closed or paused this
 * transport, or set another protocol.  Datagrams for a closing transport are dropped, because
 * asyncio no longer reads then.  Datagrams for a paused transport, or for a protocol that has used
 * up its share of this turn's time, become paused data, in order.  _deliver_paused_data() delivers
 * them, after resume_reading() or in the next iteration.  Receiving goes on after that.
 *
 * A server receives from the same peers repeatedly, so the tuples of their addresses are kept in a
 * small hash table.  The hash of a raw address selects the only entry that may contain it; a new
 * address replaces an older one there.  The table has one entry until a second peer sends.
 */
#include "datagrams/datagram.h"

/* ---- addresses --------------------------------------------------------------------- */

/* Hashes a raw address of `len` bytes. */
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

/* Replaces the table of one entry by an empty table of PEERS entries.  Without memory the old table
 * stays; sets no exception. */
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

/* Converts a datagram's raw address to a Python address; a new reference.  NULL with OSError for an
 * unknown family. */
static PyObject *
peer_address(const gl_packet *p)
{
    PyObject *object = gl_sockaddr_to_object(p->addr, p->addr_len);
    if (object == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_OSError, "datagram from an address of an unknown family");
    return object;
}

/* Returns the sender's address as a Python object: the cached one, or a new one, which replaces
 * another address in its entry of the table.  Stores the entry in last_sender.  The address of an
 * unnamed sender, or a very long one, is not cached.  A new reference. */
static inline PyObject *
datagram_cache_sender(gl_datagram *d, const gl_packet *p)
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

/* Calls datagram_received(data, addr) of the protocol.  -1 with its exception. */
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

GL_PRIVATE bool
datagram_begin_or_check_share(gl_transport *t)
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

/* Adds an item that can't be delivered now to the paused data.  If reading is not paused, the
 * delivery is scheduled for the next iteration, and the socket is not read until then.  Steals the
 * item, which may be NULL with an exception set.  Returns 0, also after a failure, which ends the
 * transport by _fatal_error(); -1 as gl_transport_fatal_current(). */
static int
datagram_keep_paused_data(gl_datagram *d, PyObject *item)
{
    int rc = gl_transport_keep_paused_data(&d->base, item, false);
    if (rc == 0 && !d->paused) {
        rc = gl_transport_schedule_delivery(&d->base);
        if (rc == 0)
            rc = gl_transport_update_interest(&d->base);
    }
    if (rc < 0)
        return gl_transport_fatal_current(&d->base, "Fatal read error on datagram transport");
    return 0;
}

/* Returns true if a received datagram or error becomes paused data: reading is paused, earlier
 * items wait, or the socket's share of the turn is used up, which begins the share if necessary. */
static inline bool
datagram_must_wait(gl_datagram *d)
{
    return d->paused || d->paused_data != NULL || datagram_begin_or_check_share(&d->base);
}

/* Handles a DATAGRAM completion: delivers the datagram, or stores it as paused data.  An error of
 * goloop's own ends the transport; -1 with an exception of the protocol. */
static int
datagram_handle_packet(gl_datagram *d, const gl_completion *c)
{
    const gl_packet *p = c->ptr;
    PyObject *data = PyBytes_FromStringAndSize((const char *)(p + 1), (Py_ssize_t)c->arg);
    if (data == NULL)
        return gl_transport_fatal_current(&d->base, "Fatal read error on datagram transport");
    PyObject *addr = datagram_cache_sender(d, p);
    if (addr == NULL) {
        Py_DECREF(data);
        return gl_transport_fatal_current(&d->base, "Fatal read error on datagram transport");
    }
    int rc;
    if (datagram_must_wait(d))
        rc = datagram_keep_paused_data(d, PyTuple_Pack(2, data, addr));
    else
        rc = datagram_deliver_packet(d, data, addr);
    Py_DECREF(data);
    Py_DECREF(addr);
    return rc;
}

/* Handles a DATAGRAM_ERROR completion with the errno `err`: calls error_received() with the
 * OSError, or appends the OSError to the paused data. */
static int
datagram_handle_error(gl_datagram *d, int err)
{
    PyObject *exc = gl_oserror(err);
    if (exc == NULL)
        return -1;
    if (datagram_must_wait(d))
        return datagram_keep_paused_data(d, exc);
    return datagram_report_error(d, exc);
}

GL_PRIVATE int
datagram_complete(gl_loop *loop, PyObject *owner, const gl_completion *c)
{
    gl_datagram *d = (gl_datagram *)owner;
    if (is_ending(d) || d->protocol == NULL || (is_closing(d) && c->kind != GL_CMP_READY))
        return 0;
    /* The callback may lose the transport, and with it the context. */
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
    if (rc < 0)
        return gl_call_exception_handler(loop, "Exception in callback of a datagram transport",
                                         owner, d->protocol);
    return 0;
}

GL_PRIVATE int
datagram_deliver_item(gl_transport *t, PyObject *item)
{
    gl_datagram *d = (gl_datagram *)t;
    if (PyTuple_CheckExact(item))
        return datagram_deliver_packet(d, PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1));
    return datagram_report_error(d, Py_NewRef(item));
}
