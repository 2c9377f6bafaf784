/*
 * datagram.c: construction and registration of datagram transports, and the type
 * goloop._core.DatagramTransport, which goloop/_internal/net/datagrams.py completes.
 *
 * The type has the same bases as asyncio's own type: _FlowControlMixin, from which it inherits the
 * methods for the write limits, and DatagramTransport.
 */
#include "datagrams/datagram.h"

/* ---- the reactor ------------------------------------------------------------- */

/* transport_ops.is_receiving: true if the transport is open, not paused and without paused data.
 * The reactor receives for it then. */
static bool
datagram_is_receiving(gl_transport *t)
{
    return t->phase == GL_OPEN && !t->paused && t->paused_data == NULL;
}

/* Returns the directions that the reactor should watch: GL_READABLE if the transport is receiving,
 * GL_WRITABLE if datagrams are queued. */
static uint32_t
datagram_interest(gl_datagram *d)
{
    uint32_t interest = 0;
    if (datagram_is_receiving(&d->base))
        interest |= GL_READABLE;
    if (d->blocked)
        interest |= GL_WRITABLE;
    return interest;
}

/* transport_ops.register_fd: registers fd with Go for the present interest, and makes the next
 * iteration poll.  Returns 0 or -errno. */
GL_NO_PYTHON static int32_t
datagram_register_fd(gl_transport *t, int fd)
{
    gl_datagram *d = (gl_datagram *)t;
    d->interest = datagram_interest(d);
    d->loop->dirty = 1;
    return gl_reactor_api(d->loop)->datagram_open(d->loop->reactor, fd, gl_lease_word(&d->lease),
                                                  d->interest, &d->id, &d->gen);
}

/* transport_ops.update_interest: sends changed directions to Go, and registers the transport when
 * it has a direction for the first time.  Does nothing without a change.  -1 with RuntimeError (the
 * loop is closed or foreign) or OSError. */
static int
datagram_update_interest(gl_transport *t)
{
    gl_datagram *d = (gl_datagram *)t;
    uint32_t want = datagram_interest(d);
    if (!d->registered && want != 0)
        return gl_transport_register(t);
    if (!d->registered || want == d->interest)
        return 0;
    if (gl_loop_check_usable(d->loop) < 0)
        return -1;
    int32_t rc = gl_reactor_api(d->loop)->datagram_set(d->loop->reactor, d->id, d->gen, want);
    if (rc < 0)
        return gl_set_oserror(-rc);
    d->interest = want;
    d->loop->dirty = 1;
    return 0;
}

/* ---- construction ------------------------------------------------------------------ */

/* DatagramTransport(loop, sock, protocol, ...): constructs the transport and schedules
 * connection_made.  `address`: the remote address, or a false object for none; `connected`: the
 * socket has a peer; `nameless`: that peer is an unnamed Unix socket.  On failure the socket still
 * belongs to the caller. */
static int
datagram_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"loop",  "sock",   "protocol",  "address",  "waiter",
                            "extra", "family", "connected", "nameless", NULL};
    gl_datagram *d = (gl_datagram *)self;
    transport_arguments a = TRANSPORT_ARGUMENTS;
    PyObject *address = Py_None;
    int family = AF_UNSPEC;
    int connected = 0;
    int nameless = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|OOOipp:DatagramTransport", names,
                                     G.loop_type, &a.loop, &a.file, &a.protocol, &address,
                                     &a.waiter, &a.given_extra, &family, &connected, &nameless))
        return -1;
    int fixed = PyObject_IsTrue(address);
    if (fixed < 0)
        return -1;
    GL_GUARD(a.loop);
    int rc = gl_transport_construct(&d->base, &a);
    if (rc == 0) {
        d->address = Py_NewRef(fixed ? address : Py_None);
        d->family = family;
        d->connected = connected;
        d->peer_unnamed = nameless;
        rc = gl_transport_schedule_connection_made(&d->base, a.waiter);
        if (rc < 0)
            gl_transport_fail_construction(&d->base);
    }
    gl_transport_arguments_clear(&a);
    return rc;
}

/* transport_ops.start: starts receiving.  An error ends the transport by _fatal_error(); -1 as
 * gl_transport_fatal_current(). */
static int
datagram_start(gl_transport *t)
{
    if (gl_transport_update_interest(t) < 0)
        return gl_transport_fatal_current(t, "Fatal error on transport");
    return 0;
}

/* ---- closing ------------------------------------------------------------------------ */

/* transport_ops.close: schedules connection_lost.  With queued datagrams it only stops receiving,
 * and _sent_all() ends the transport. */
static int
datagram_close(gl_transport *t)
{
    if (!((gl_datagram *)t)->blocked)
        return gl_transport_schedule_connection_lost(t, Py_None);
    return gl_transport_update_interest(t); /* connection_lost follows the last datagram */
}

/* ---- the end ---------------------------------------------------------------------------- */

/* transport_ops.discard_queue: drops the queued datagrams; the transport then counts as not
 * blocked.  May run Python. */
static void
datagram_discard_queue(gl_transport *t)
{
    gl_datagram *d = (gl_datagram *)t;
    d->queued = 0;
    d->blocked = false;
    Py_CLEAR(d->queue);
}

/* transport_ops.free_memory: drops the cached addresses, and frees the table of peers. */
static void
datagram_free_memory(gl_transport *t)
{
    gl_datagram *d = (gl_datagram *)t;
    Py_CLEAR(d->last_target);
    datagram_clear_peers(d);
}

/* tp_traverse: visits the remote address, the queue and the base. */
static int
datagram_traverse(PyObject *self, visitproc visit, void *arg)
{
    gl_datagram *d = (gl_datagram *)self;
    Py_VISIT(d->address);
    Py_VISIT(d->queue);
    /* last_target and the addresses of peers consist of strings and numbers */
    return gl_transport_traverse(&d->base, visit, arg);
}

/* tp_clear: clears the base, the remote address and the queue. */
static int
datagram_clear(PyObject *self)
{
    gl_datagram *d = (gl_datagram *)self;
    gl_transport_clear(&d->base);
    Py_CLEAR(d->address);
    Py_CLEAR(d->queue);
    return 0;
}

/* ---- the type --------------------------------------------------------------------------- */

/* transport_ops.prepare_delivery: true if received datagrams wait for delivery. */
static bool
datagram_prepare_delivery(gl_transport *t)
{
    return t->paused_data != NULL;
}

static const transport_ops datagram_transport_ops = {
    .kind = GL_REG_DATAGRAM,
    .register_fd = datagram_register_fd,
    .update_interest = datagram_update_interest,
    .start = datagram_start,
    .close = datagram_close,
    .discard_queue = datagram_discard_queue,
    .free_memory = datagram_free_memory,
    .prepare_delivery = datagram_prepare_delivery,
    .deliver_item = datagram_deliver_item,
    .begin_or_check_share = datagram_begin_or_check_share,
    .is_receiving = datagram_is_receiving,
};

/* tp_new: a transport in GL_EMPTY. */
static PyObject *
datagram_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    gl_datagram *d = (gl_datagram *)gl_transport_alloc(type, &datagram_transport_ops);
    if (d == NULL)
        return NULL;
    d->slot_protocol_paused = Py_NewRef(Py_False);
    d->peers = d->peers_inline;
    return (PyObject *)d;
}

static const gl_params sendto_params =
    GL_PARAMS("_SelectorDatagramTransport.sendto", 1, 2, false, GL_NAME(data), GL_NAME(addr));

/* sendto(data, addr=None): parses the arguments and calls datagram_sendto().  NULL with TypeError
 * for wrong arguments. */
static PyObject *
datagram_sendto_method(gl_datagram *d, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *value[2];
    if (gl_args(&sendto_params, d, args, nargs, kwnames, value) < 0)
        return NULL;
    return datagram_sendto(d, value[0], value[1] ? value[1] : Py_None);
}

static PyMethodDef datagram_methods[] = {
    {"sendto", GL_FASTKW(datagram_sendto_method),
     PyDoc_STR("sendto($self, data, addr=None)\n--\n\n"
               "Send a datagram, to the remote address if addr is None.  Does not block.")},
    {"_send", GL_FAST(datagram_send_method), NULL},
    {"_sent_all", GL_NOARGS(datagram_sent_all), NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef datagram_members[] = {
    TRANSPORT_MEMBERS,
    {"_conn_lost", T_UINT, offsetof(gl_datagram, conn_lost), READONLY, NULL},
    {"_sock", T_OBJECT, offsetof(gl_datagram, lease.owner), READONLY, NULL},
    {"_address", T_OBJECT, offsetof(gl_datagram, address), 0, NULL},
    {"_buffer_size", T_PYSSIZET, offsetof(gl_datagram, queued), 0, NULL},
    {"_blocked", T_BOOL, offsetof(gl_datagram, blocked), READONLY, NULL},
    {"_parcels", T_OBJECT, offsetof(gl_datagram, queue), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot datagram_slots[] = {
    {Py_tp_doc, PyDoc_STR("A datagram socket as an asyncio.DatagramTransport.")},
    {Py_tp_new, datagram_new},
    {Py_tp_init, datagram_init},
    {Py_tp_traverse, datagram_traverse},
    {Py_tp_clear, datagram_clear},
    {Py_tp_finalize, gl_transport_finalize},
    {Py_tp_dealloc, gl_transport_dealloc},
    {Py_tp_methods, datagram_methods},
    {Py_tp_members, datagram_members},
    {0, NULL},
};

static PyType_Spec datagram_spec = {
    .name = "goloop._core.DatagramTransport",
    .basicsize = sizeof(gl_datagram),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = datagram_slots,
};

static const gl_reg_ops datagram_ops = {
    .complete = datagram_complete,
    .unregister_on_loop_close = gl_transport_unregister_on_loop_close,
    .blocks_number = gl_transport_blocks_number,
};

GL_PRIVATE int
gl_datagram_init_type(PyObject *module)
{
    G.reg_ops[GL_REG_DATAGRAM] = &datagram_ops;
    PyTypeObject *type = gl_transport_make_type(module, &datagram_spec, "_FlowControlMixin",
                                                "DatagramTransport", GL_MAX_PACKET);
    return gl_drop_result((PyObject *)type); /* the module has it */
}
