/*
 * listener.c: accepting connections of one listening socket.
 *
 * Go accepts; what arrives here is a fd with its two addresses.  For each, _accepted() is called,
 * a method of goloop/_internal/net/streams.py, in a copy of the context that the server was started in.
 * It takes the fd, as a stream transport or as a number, or it is closed here.
 *
 *   listening --stop()--> stopped          the socket itself is its owner's
 *       ^  |
 *       |  +-- out of fds or memory: accept fails, is reported; Go tries again
 *       +------+
 *
 * A fd that was accepted and not yet handed out when its listener stops is closed
 * by turn.c.
 */
#include "listeners/listeners.h"

#include <errno.h>

typedef struct gl_listener {
    PyObject_HEAD
    gl_loop *loop;
    gl_lease lease; /* of the socket, whose owner may close it under us */
    PyObject *context;
    const gl_endpoints *ends; /* of `number` */
    int number;               /* accepted, and nobody has taken it; else -1 */
    uint32_t id, gen;         /* valid while open */
    bool open;
    GL_OWNER_LOOP
} gl_listener;

static PyObject *
listener_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    gl_listener *l = (gl_listener *)type->tp_alloc(type, 0);
    if (l != NULL) {
        l->lease = GL_NO_LEASE;
        l->number = -1;
    }
    return (PyObject *)l;
}

/* Begins to listen; 0 or an errno. */
GL_NO_PYTHON static int
listener_register(gl_listener *l, gl_loop *loop, int most, bool tcp)
{
    int fd = gl_lease_fd(&l->lease);
    if (fd < 0)
        return EBADF;
    int32_t rc =
        gl_reactor_api(loop)->listener_open(loop->reactor, fd, gl_lease_word(&l->lease), most,
                                            tcp ? GL_LISTEN_NODELAY : 0, &l->id, &l->gen);
    if (rc < 0)
        return -rc;
    if (gl_reg_set(loop, l->id, l->gen, GL_REG_LISTENER, (PyObject *)l, fd) < 0) {
        PyErr_Clear();
        gl_reactor_api(loop)->unregister(loop->reactor, l->id, l->gen);
        return ENOMEM;
    }
    gl_fd_set_listener(loop, fd);
    l->open = true;
    loop->dirty = 1;
    return 0;
}

/* Whether the listener may begin on the leased socket. */
static int
listener_check(gl_listener *l, gl_loop *loop, const gl_lease *lease)
{
    if (l->loop != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the listener has a socket already");
        return -1;
    }
    return gl_loop_check_usable(loop) < 0 ||
                   gl_fd_ensure_no_transport(loop, lease->number, NULL) < 0 ||
                   gl_lease_nonblocking(lease) < 0
               ? -1
               : 0;
}

/* Listener(loop, sock, context, most, tcp): at most so many are accepted in a turn. */
static int
listener_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"loop", "sock", "context", "most", "tcp", NULL};
    gl_listener *l = (gl_listener *)self;
    PyObject *loop, *sock, *context;
    int most, tcp;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO!ip:Listener", names, G.loop_type, &loop,
                                     &sock, &PyContext_Type, &context, &most, &tcp))
        return -1;
    GL_GUARD(loop);
    gl_loop *g = (gl_loop *)loop;
    gl_lease lease = GL_NO_LEASE;
    if (gl_lease_acquire(&lease, sock, false) < 0)
        return -1;
    if (listener_check(l, g, &lease) < 0) {
        gl_lease_release(&lease);
        return -1;
    }
    GL_OWNER_LOOP_SET(l, loop);
    l->loop = (gl_loop *)Py_NewRef(loop);
    l->lease = lease;
    l->context = Py_NewRef(context);
    gl_watch left;
    gl_watch_detach(g, lease.number, &left);
    int err = listener_register(l, g, most, tcp);
    gl_watch_discard(&left);
    return err != 0 ? gl_set_oserror(err) : 0;
}

/* Leaves the reactor. Keep a reference. */
static void
listener_unregister(gl_listener *l)
{
    if (!l->open)
        return;
    l->open = false;
    gl_loop *loop = l->loop;
    if (loop->go != NULL && !gl_loop_is_foreign(loop))
        gl_reactor_api(loop)->unregister(loop->reactor, l->id, l->gen);
}

static void
listener_unregister_on_loop_close(PyObject *owner)
{
    listener_unregister((gl_listener *)owner);
}

static PyObject *
listener_stop(gl_listener *l, PyObject *Py_UNUSED(ignored))
{
    if (!l->open)
        Py_RETURN_NONE;
    if (gl_loop_check_usable(l->loop) < 0)
        return NULL;
    uint32_t id = l->id, gen = l->gen;
    listener_unregister(l);
    gl_reg_clear(l->loop, id, gen);
    Py_RETURN_NONE;
}

/* ---- one connection ----------------------------------------------------------- */

/* _take(cls, protocol, server, context): a transport over the fd. */
static PyObject *
listener_make_transport(gl_listener *l, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4 || l->number < 0 || !PyContext_CheckExact(args[3])) {
        PyErr_SetString(PyExc_TypeError,
                        "_take() takes a class, protocol, server and context, once");
        return NULL;
    }
    int fd = l->number;
    PyObject *transport = NULL;
    if (gl_stream_class(args[0])) {
        l->number = -1; /* taken over, on failure too */
        transport = gl_stream_accepted((PyTypeObject *)args[0], l->loop, fd, l->ends, args[1],
                                       args[2], args[3]);
        l->loop->counts.connections_refused += transport == NULL;
    }
    return transport;
}

/* _detach(): the fd, which becomes the caller's. */
static PyObject *
listener_detach_fd(gl_listener *l, PyObject *Py_UNUSED(ignored))
{
    PyObject *number = PyLong_FromLong(l->number);
    if (number != NULL)
        l->number = -1;
    return number;
}

/* The fd's peer, as far as it came with it. */
static PyObject *
listener_peer_getter(gl_listener *l, void *Py_UNUSED(closure))
{
    PyObject *name = l->number >= 0 && l->ends->peer_len
                         ? gl_address_object(l->ends->peer, l->ends->peer_len)
                         : NULL;
    return name != NULL || PyErr_Occurred() ? name : Py_NewRef(Py_None);
}

static int
listener_handle_accept(gl_listener *l, gl_loop *loop, const gl_completion *c)
{
    PyObject *context = PyContext_Copy(l->context), *r = NULL;
    l->number = c->res;
    l->ends = c->ptr; /* the arena lives as long as the turn's completions */
    if (context != NULL && PyContext_Enter(context) == 0) {
        /* Whether a program has changed all sockets. */
        bool changed = gl_replaced(GL_RULE_SOCKET, (PyTypeObject *)G.socket_socket) & GL_OWN_STREAM;
        PyObject *err = PyLong_FromLong((long)c->arg);
        if (err != NULL)
            r = PyObject_CallMethodObjArgs((PyObject *)l, G.s__accepted, context, err,
                                           changed ? Py_True : Py_False, NULL);
        Py_XDECREF(err);
        gl_context_exit_keep_error(context);
    }
    Py_XDECREF(context);
    if (l->number >= 0) {
        PyObject *exc = gl_take_exception();
        gl_call_close(l->number);
        l->number = -1;
        loop->counts.connections_refused++;
        gl_restore_exception(exc);
    }
    return gl_drop_result(r);
}

static int
listener_complete(gl_loop *loop, PyObject *owner, const gl_completion *c)
{
    int rc = 0;
    if (c->kind == GL_CMP_ACCEPT) {
        GL_PROBE(accept, loop->shared->number, c->res);
        rc = listener_handle_accept((gl_listener *)owner, loop, c);
    } else if (c->kind == GL_CMP_ACCEPT_ERROR) {
        loop->counts.accept_failures++;
        rc = gl_drop_result(PyObject_CallMethod(owner, GL_METHOD(_failed), "iO", c->res,
                                                c->arg == 1 ? Py_True : Py_False));
    }
    /* An exception here: there is no memory, or a handler of exceptions has raised. */
    return gl_unraisable_unless_leaving(rc, owner);
}

/* ---- the type ----------------------------------------------------------------------- */

static int
listener_traverse(PyObject *self, visitproc visit, void *arg)
{
    gl_listener *l = (gl_listener *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(l->loop);
    Py_VISIT(l->lease.owner);
    Py_VISIT(l->lease.backing);
    Py_VISIT(l->context);
    GL_OWNER_LOOP_VISIT(l);
    return 0;
}

/* A registered listener is kept alive by its loop; this runs where the loop itself
 * is garbage. */
static void
listener_finalize(PyObject *self)
{
    gl_listener *l = (gl_listener *)self;
    if (!l->open)
        return;
    PyObject *saved = gl_take_exception();
    uint32_t id = l->id, gen = l->gen;
    listener_unregister(l);
    gl_reg_clear(l->loop, id, gen);
    gl_restore_exception(saved);
}

static int
listener_clear(PyObject *self)
{
    gl_listener *l = (gl_listener *)self;
    /* The reactor looks into the lease's owner as long as it knows the listener. */
    if (l->open)
        listener_finalize(self);
    gl_lease_release(&l->lease);
    Py_CLEAR(l->context);
    Py_CLEAR(l->loop);
    return 0;
}

static void
listener_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (PyObject_CallFinalizerFromDealloc(self) < 0)
        return;
    PyObject_GC_UnTrack(self);
    listener_clear(self);
    GL_OWNER_LOOP_CLEAR((gl_listener *)self);
    type->tp_free(self);
    Py_DECREF(type);
}

static const gl_reg_ops listener_ops = {
    .complete = listener_complete,
    .unregister_on_loop_close = listener_unregister_on_loop_close,
};

static PyMethodDef listener_methods[] = {
    {"stop", GL_NOARGS(listener_stop),
     PyDoc_STR("stop($self)\n--\n\nAccept no more; the socket stays open.")},
    {"_take", GL_FAST(listener_make_transport), NULL},
    {"_detach", GL_NOARGS(listener_detach_fd), NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef listener_getset[] = {
    {"_peer", (getter)listener_peer_getter, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef listener_members[] = {
    {"_number", T_INT, offsetof(gl_listener, number), READONLY, NULL},
    {"_open", T_BOOL, offsetof(gl_listener, open), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot listener_slots[] = {
    {Py_tp_doc, PyDoc_STR("Accepts the connections of one listening socket.")},
    {Py_tp_new, listener_new},
    {Py_tp_init, listener_init},
    {Py_tp_traverse, listener_traverse},
    {Py_tp_clear, listener_clear},
    {Py_tp_finalize, listener_finalize},
    {Py_tp_dealloc, listener_dealloc},
    {Py_tp_methods, listener_methods},
    {Py_tp_members, listener_members},
    {Py_tp_getset, listener_getset},
    {0, NULL},
};

static PyType_Spec listener_spec = {
    .name = "goloop._core.Listener",
    .basicsize = sizeof(gl_listener),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = listener_slots,
};

GL_PRIVATE int
gl_listener_init_type(PyObject *module)
{
    G.reg_ops[GL_REG_LISTENER] = &listener_ops;
    return gl_type_make(&G.listener_type, module, &listener_spec, NULL) < 0
               ? -1
               : GL_GUARD_TYPE(G.listener_type, gl_listener, home, NULL, GL_GUARD_ENDS);
}
