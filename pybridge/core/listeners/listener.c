/*
 * listener.c: accepts the connections of one listening socket.
 *
 * Go accepts, and an ACCEPT completion has an fd with its two addresses.  For each connection this
 * file calls _accepted(), a method in goloop/_internal/net/server.py, in a copy of the context in
 * which the server was started.  The method takes over the fd, as a stream transport (_take) or as
 * a number (_detach); otherwise the fd is closed here.
 *
 *   listening --stop()--> stopped          the socket still belongs to its owner
 *       ^  |
 *       |  +-- out of fds or memory: the failed accept is reported; Go tries again
 *       +------+
 *
 * If a listener stops, turn.c closes its accepted fds for which _accepted() was not called yet.
 */
#include "listeners/listeners.h"

#include <errno.h>

/* The Python object of one listening socket. */
typedef struct gl_listener {
    PyObject_HEAD
    gl_loop *loop;
    gl_lease lease;           /* the socket's; its owner may close it at any time */
    PyObject *context;        /* owned: the context in which the server was started */
    const gl_endpoints *ends; /* the addresses of the accepted connection */
    int accepted_fd;          /* the accepted fd that _accepted() has not yet taken over; else -1 */
    uint32_t id, gen;         /* the registration's; valid while open */
    bool open;                /* registered with Go */
    GL_OWNER_LOOP
} gl_listener;

/* tp_new: a listener without a loop and a socket. */
static PyObject *
listener_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    gl_listener *l = (gl_listener *)type->tp_alloc(type, 0);
    if (l != NULL) {
        l->lease = GL_NO_LEASE;
        l->accepted_fd = -1;
    }
    return (PyObject *)l;
}

/* Registers the listener with Go and as the user of its number.  It accepts at most `max_accepts`
 * connections in a turn, with TCP_NODELAY if `tcp`.  Returns 0, or an errno and nothing is
 * registered. */
GL_NO_PYTHON static int
listener_register(gl_listener *l, gl_loop *loop, int max_accepts, bool tcp)
{
    int fd = gl_lease_fd(&l->lease);
    if (fd < 0)
        return EBADF;
    int32_t rc = gl_reactor_api(loop)->listener_open(loop->reactor, fd, gl_lease_word(&l->lease),
                                                     max_accepts, tcp ? GL_LISTEN_NODELAY : 0,
                                                     &l->id, &l->gen);
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

/* Checks that the listener is new and that it may use the leased socket, and makes the socket
 * non-blocking.  -1 with RuntimeError or OSError. */
static int
listener_prepare_socket(gl_listener *l, gl_loop *loop, const gl_lease *lease)
{
    if (l->loop != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the listener already has a socket");
        return -1;
    }
    if (gl_loop_check_usable(loop) < 0 || gl_fd_ensure_no_transport(loop, lease->fd, NULL) < 0)
        return -1;
    return gl_lease_nonblocking(lease);
}

/* Listener(loop, sock, context, max_accepts, tcp): starts to accept at most `max_accepts`
 * connections in a turn.  Makes the socket non-blocking and ends a watch of it.  -1 with TypeError,
 * RuntimeError (the loop or the socket can't be used) or OSError; the socket still belongs to the
 * caller. */
static int
listener_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"loop", "sock", "context", "max_accepts", "tcp", NULL};
    gl_listener *l = (gl_listener *)self;
    PyObject *loop, *sock, *context;
    int max_accepts, tcp;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO!ip:Listener", names, G.loop_type, &loop,
                                     &sock, &PyContext_Type, &context, &max_accepts, &tcp))
        return -1;
    GL_GUARD(loop);
    gl_loop *g = (gl_loop *)loop;
    gl_lease lease = GL_NO_LEASE;
    if (gl_lease_acquire(&lease, sock, false) < 0)
        return -1;
    if (listener_prepare_socket(l, g, &lease) < 0) {
        gl_lease_release(&lease);
        return -1;
    }
    GL_OWNER_LOOP_SET(l, loop);
    l->loop = (gl_loop *)Py_NewRef(loop);
    l->lease = lease;
    l->context = Py_NewRef(context);
    gl_watch ended_watch;
    gl_watch_detach(g, lease.fd, &ended_watch);
    int err = listener_register(l, g, max_accepts, tcp);
    gl_watch_discard(&ended_watch);
    if (err != 0)
        return gl_set_oserror(err);
    return 0;
}

/* Deregisters in Go, unless the loop is closed or foreign; the registry's entry and its reference
 * stay.  The caller keeps a reference. */
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

/* gl_reg_ops.unregister_on_loop_close. */
static void
listener_unregister_on_loop_close(PyObject *owner)
{
    listener_unregister((gl_listener *)owner);
}

/* stop(): deregisters the listener.  The socket stays open and belongs to its owner.  Does nothing
 * for a stopped listener; RuntimeError if the loop is closed or foreign. */
static PyObject *
listener_stop(gl_listener *l, PyObject *Py_UNUSED(ignored))
{
    if (!l->open)
        Py_RETURN_NONE;
    if (gl_loop_check_usable(l->loop) < 0)
        return NULL;
    uint32_t id = l->id;
    uint32_t gen = l->gen;
    listener_unregister(l);
    gl_reg_clear(l->loop, id, gen);
    Py_RETURN_NONE;
}

/* ---- one connection ----------------------------------------------------------- */

/* _take(cls, protocol, server, context): makes the accepted fd a transport of the class `cls`, and
 * returns it.  NULL with TypeError for wrong arguments, a wrong class or a second call, and the fd
 * then stays with the listener; any other as gl_stream_accepted(), which closes the fd, and the
 * connection is counted as refused. */
static PyObject *
listener_make_transport(gl_listener *l, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4 || l->accepted_fd < 0 || !PyContext_CheckExact(args[3])) {
        PyErr_SetString(PyExc_TypeError,
                        "_take() takes a class, protocol, server and context, once");
        return NULL;
    }
    const gl_accepted accepted = {l->accepted_fd, l->ends};
    PyObject *transport = NULL;
    if (gl_stream_class(args[0])) {
        l->accepted_fd = -1; /* the callee owns the fd, on failure too */
        transport = gl_stream_accepted((PyTypeObject *)args[0], l->loop, &accepted, args[1],
                                       args[2], args[3]);
        if (transport == NULL)
            l->loop->counts.connections_refused++;
    }
    return transport;
}

/* _detach(): returns the accepted fd, which then belongs to the caller; -1 if it was taken over
 * already. */
static PyObject *
listener_detach_fd(gl_listener *l, PyObject *Py_UNUSED(ignored))
{
    PyObject *fd = PyLong_FromLong(l->accepted_fd);
    if (fd != NULL)
        l->accepted_fd = -1;
    return fd;
}

/* _peer: the peer address that was accepted with the fd; None after the fd was taken over, or if
 * the kernel gave no address or one of an unknown family. */
static PyObject *
listener_peer_getter(gl_listener *l, void *Py_UNUSED(closure))
{
    PyObject *name = NULL;
    if (l->accepted_fd >= 0 && l->ends->peer_len > 0)
        name = gl_sockaddr_to_object(l->ends->peer, l->ends->peer_len);
    if (name != NULL || PyErr_Occurred())
        return name;
    return Py_NewRef(Py_None);
}

/* Handles an ACCEPT completion: calls _accepted(context, err, changed), and then closes the fd and
 * counts the connection as refused if that call has not taken the fd over.  `err` is the errno of
 * setting TCP_NODELAY, or 0; `changed`: the program has replaced methods of socket.socket. */
static int
listener_handle_accept(gl_listener *l, gl_loop *loop, const gl_completion *c)
{
    PyObject *context = PyContext_Copy(l->context);
    PyObject *r = NULL;
    l->accepted_fd = c->res;
    l->ends = c->ptr; /* part of the arena, valid until the next turn */
    if (context != NULL && PyContext_Enter(context) == 0) {
        /* True if the program has replaced methods of socket.socket. */
        bool changed =
            gl_replaced_methods(GL_RULE_SOCKET, (PyTypeObject *)G.socket_socket) & GL_OWN_STREAM;
        PyObject *err = PyLong_FromLong((long)c->arg);
        if (err != NULL)
            r = PyObject_CallMethodObjArgs((PyObject *)l, G.s__accepted, context, err,
                                           changed ? Py_True : Py_False, NULL);
        Py_XDECREF(err);
        gl_context_exit_keep_error(context);
    }
    Py_XDECREF(context);
    if (l->accepted_fd >= 0) {
        PyObject *exc = gl_take_exception();
        gl_call_close(l->accepted_fd);
        l->accepted_fd = -1;
        loop->counts.connections_refused++;
        gl_restore_exception(exc);
    }
    return gl_drop_result(r);
}

/* gl_reg_ops.complete: handles an accepted connection, or counts a failed accept and reports it by
 * _failed().  -1 if an exit exception ends the run of the loop; other exceptions go to
 * sys.unraisablehook. */
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
    /* An exception here is a MemoryError, or one of an exception handler. */
    return gl_unraisable_unless_leaving(rc, owner);
}

/* ---- the type ----------------------------------------------------------------------- */

/* tp_traverse: visits the loop, the lease's objects and the context. */
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

/* tp_finalize: deregisters the listener.  A registered listener is kept alive by its loop, so this
 * runs only if the loop is garbage too. */
static void
listener_finalize(PyObject *self)
{
    gl_listener *l = (gl_listener *)self;
    if (!l->open)
        return;
    PyObject *saved = gl_take_exception();
    uint32_t id = l->id;
    uint32_t gen = l->gen;
    listener_unregister(l);
    gl_reg_clear(l->loop, id, gen);
    gl_restore_exception(saved);
}

/* tp_clear: deregisters the listener and ends its lease; the socket belongs to its owner. */
static int
listener_clear(PyObject *self)
{
    gl_listener *l = (gl_listener *)self;
    /* The reactor reads the fd number inside the lease's owner while the listener is registered. */
    if (l->open)
        listener_finalize(self);
    gl_lease_release(&l->lease);
    Py_CLEAR(l->context);
    Py_CLEAR(l->loop);
    return 0;
}

/* tp_dealloc: deregisters the listener; the socket belongs to its owner. */
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
     PyDoc_STR("stop($self)\n--\n\nStop accepting connections; the socket stays open.")},
    {"_take", GL_FAST(listener_make_transport), NULL},
    {"_detach", GL_NOARGS(listener_detach_fd), NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef listener_getset[] = {
    {"_peer", (getter)listener_peer_getter, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef listener_members[] = {
    {"_accepted_fd", T_INT, offsetof(gl_listener, accepted_fd), READONLY, NULL},
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
    if (gl_type_make(&G.listener_type, module, &listener_spec, NULL) < 0)
        return -1;
    return GL_GUARD_TYPE(G.listener_type, gl_listener, owner_loop, NULL, GL_GUARD_DEALLOC);
}
