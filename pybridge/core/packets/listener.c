/*
 * listener.c: accepting connections of one listening socket.
 *
 * Go accepts; what arrives here is a fd with its two addresses.  For each, a
 * protocol is made in a copy of the context that the server was started in, and a
 * stream transport over the fd.  Where several loops share the listener, `on_accept` is called
 * with a socket object and its address instead, and where a program has replaced methods of
 * socket.socket, the loop's _accept_shared.
 *
 *   listening --stop()--> stopped          the socket itself is its owner's
 *       ^  |
 *       |  +-- out of fds or memory: accept fails, is reported; Go tries again
 *       +------+
 *
 * A fd that was accepted and not yet handed out when its listener stops is closed
 * by turn.c.
 */
#include "packets/packets.h"

#include <errno.h>

typedef struct gl_listener {
    PyObject_HEAD
    gl_loop *loop;
    gl_lease lease;               /* of the socket, whose owner may close it under us */
    PyObject *protocol_factory;
    PyObject *on_accept;          /* or NULL */
    PyObject *server;
    PyObject *context;
    uint32_t id, gen;             /* valid while open */
    bool open;
    GL_HOME
} gl_listener;

static PyObject *
listener_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    gl_listener *l = (gl_listener *)type->tp_alloc(type, 0);
    if (l != NULL)
        l->lease = GL_NO_LEASE;
    return (PyObject *)l;
}

/* What asyncio accepts in one iteration. */
static int
accepts_per_turn(int backlog)
{
#if PY_VERSION_HEX >= 0x030E0000
    /* asyncio tries one accept more than `backlog` in a turn since 3.14. */
    if (backlog < INT_MAX)
        backlog++;
#endif
    return backlog < 1 ? 1 : backlog;
}

/* Begins to listen; 0 or an errno. */
GL_NO_PYTHON static int
listener_register(gl_listener *l, gl_loop *loop, int backlog, bool tcp)
{
    int fd = gl_lease_fd(&l->lease);
    if (fd < 0)
        return EBADF;
    int32_t rc = gl_enter(loop)->listener_open(loop->reactor, fd, gl_lease_word(&l->lease),
                                         accepts_per_turn(backlog),
                                         tcp ? GL_LISTEN_NODELAY : 0, &l->id, &l->gen);
    if (rc < 0)
        return -rc;
    if (gl_reg_set(loop, l->id, l->gen, GL_REG_LISTENER, (PyObject *)l, fd) < 0) {
        PyErr_Clear();
        gl_enter(loop)->listener_close(loop->reactor, l->id, l->gen, 0);
        return ENOMEM;
    }
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

static int
listener_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"loop",    "sock",    "protocol_factory", "server",
                            "backlog", "context", "on_accept",        NULL};
    gl_listener *l = (gl_listener *)self;
    PyObject *loop, *sock, *factory, *server, *context, *on_accept = Py_None;
    int backlog;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OOOiO!|O:Listener", names, G.loop_type,
                                     &loop, &sock, &factory, &server, &backlog,
                                     &PyContext_Type, &context, &on_accept))
        return -1;
    GL_GUARD(loop);
    gl_loop *g = (gl_loop *)loop;
    gl_lease lease = GL_NO_LEASE;
    int tcp = on_accept == Py_None ? gl_socket_is_tcp(sock) : 0;
    if (tcp < 0 || gl_lease_take(&lease, sock, false) < 0)
        return -1;
    if (listener_check(l, g, &lease) < 0) {
        gl_lease_return(&lease);
        return -1;
    }
#ifdef GL_FREE_THREADED
    gl_home_set(&l->home, Py_NewRef(loop));
#endif
    l->loop = (gl_loop *)Py_NewRef(loop);
    l->lease = lease;
    l->protocol_factory = Py_NewRef(factory);
    l->on_accept = on_accept == Py_None ? NULL : Py_NewRef(on_accept);
    l->server = Py_NewRef(server);
    l->context = Py_NewRef(context);
    gl_watch left;
    gl_watch_release(g, lease.number, &left);
    int err = listener_register(l, g, backlog, tcp);
    gl_watch_drop(&left);
    return err != 0 ? gl_set_oserror(err) : 0;
}

/* Leaves the reactor. Keep a reference. */
static void
listener_leave(gl_listener *l)
{
    if (!l->open)
        return;
    l->open = false;
    gl_loop *loop = l->loop;
    if (loop->go != NULL && !gl_loop_is_foreign(loop))
        gl_enter(loop)->listener_close(loop->reactor, l->id, l->gen, 0);
}

static void
listener_orphan(PyObject *owner)
{
    listener_leave((gl_listener *)owner);
}

static PyObject *
listener_stop(gl_listener *l, PyObject *Py_UNUSED(ignored))
{
    if (!l->open)
        Py_RETURN_NONE;
    if (gl_loop_check_usable(l->loop) < 0)
        return NULL;
    uint32_t id = l->id, gen = l->gen;
    listener_leave(l);
    gl_reg_clear(l->loop, id, gen);
    Py_RETURN_NONE;
}

/* ---- one connection ----------------------------------------------------------- */

/* socket.socket(fileno=fd), non-blocking as asyncio's accepted sockets are.  On failure the
 * fd stays open. */
static PyObject *
socket_from_fd(int fd)
{
    PyObject *args = PyTuple_New(0), *kwargs = Py_BuildValue("{si}", "fileno", fd), *sock = NULL;
    if (args != NULL && kwargs != NULL)
        sock = PyObject_Call(G.socket_socket, args, kwargs);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    if (sock == NULL)
        return NULL;
    if (gl_call_method(sock, G.s_setblocking, Py_False) < 0) {
        /* The fd stays the caller's. */
        PyObject *exc = gl_take_exception();
        Py_XDECREF(PyObject_CallMethodNoArgs(sock, G.s_detach));
        Py_DECREF(sock);
        gl_restore_exception(exc);
        return NULL;
    }
    return sock;
}

/* A name for the log or for on_accept; None where it can't be told. */
static PyObject *
listener_peer(PyObject *sock, const gl_endpoints *ends)
{
    PyObject *name = ends->peer_len ? gl_address_object(ends->peer, ends->peer_len) : NULL;
    if (name == NULL && !PyErr_Occurred())
        name = PyObject_CallMethodNoArgs(sock, G.s_getpeername);
    if (name == NULL && PyErr_ExceptionMatches(PyExc_OSError)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return name;
}

/* Debug mode's line for each connection.  The fd stays the caller's. */
static int
listener_log(gl_listener *l, int fd, const gl_endpoints *ends)
{
    PyObject *sock = socket_from_fd(fd);
    PyObject *peer = sock ? listener_peer(sock, ends) : NULL, *r = NULL;
    if (peer != NULL)
        r = PyObject_CallMethod(G.logger, "debug", "sOOO", "%r got a new connection from %r: %r",
                                l->server, peer, sock);
    Py_XDECREF(peer);
    int rc = gl_done(r);
    if (sock != NULL) {
        PyObject *exc = gl_take_exception();
        if (gl_call_method(sock, G.s_detach, NULL) < 0)
            rc = -1;
        Py_DECREF(sock);
        gl_restore_exception(exc);
    }
    return rc;
}

/* The exception that is set, in debug mode to the handler with asyncio's words; asyncio
 * is silent about it otherwise. */
static int
listener_report(gl_loop *loop, PyObject *protocol)
{
    loop->counts.connections_refused++;
    if (gl_exception_leaves())
        return -1;
    PyObject *exc = gl_take_exception();
    int rc = 0;
    if (loop->debug)
        rc = gl_report_exception_object(loop,
                                        "Error on transport creation for incoming connection",
                                        exc, NULL, protocol);
    Py_DECREF(exc);
    return rc;
}

/* As asyncio does, the protocol is made first and the connection dropped then where Go could
 * not set TCP_NODELAY. */
static int
listener_accept_protocol(gl_listener *l, gl_loop *loop, const gl_completion *c,
                         PyObject *context)
{
    int fd = c->res, err = (int)c->arg;
    const gl_endpoints *ends = c->ptr; /* the arena lives as long as the turn's completions */
    PyObject *factory = Py_NewRef(l->protocol_factory), *server = Py_NewRef(l->server);
    PyObject *protocol = NULL, *transport = NULL;
    bool owned = true;
    if (!loop->debug || listener_log(l, fd, ends) == 0)
        protocol = PyObject_CallNoArgs(factory);
    if (protocol != NULL && err != 0) {
        gl_set_oserror(err);
    } else if (protocol != NULL) {
        owned = false; /* taken over, on failure too */
        transport = gl_stream_accepted(loop, fd, ends, protocol, server, context);
    }
    if (owned)
        gl_call_close(fd);
    int rc = transport == NULL ? listener_report(loop, protocol) : 0;
    Py_XDECREF(transport);
    Py_XDECREF(protocol);
    Py_DECREF(server);
    Py_DECREF(factory);
    return rc;
}

static int
listener_accept_callable(gl_listener *l, gl_loop *loop, int fd, const gl_endpoints *ends)
{
    PyObject *callable = Py_XNewRef(l->on_accept), *factory = Py_NewRef(l->protocol_factory);
    PyObject *sock = socket_from_fd(fd);
    if (sock == NULL)
        gl_call_close(fd);
    PyObject *peer = sock ? listener_peer(sock, ends) : NULL, *r = NULL;
    if (peer != NULL && callable != NULL)
        r = PyObject_CallFunctionObjArgs(callable, sock, peer, NULL);
    else if (peer != NULL)
        r = PyObject_CallMethod((PyObject *)loop, "_accept_shared", "OOOO", factory, l->server, sock,
                                peer);
    Py_XDECREF(peer);
    Py_XDECREF(sock);
    Py_DECREF(factory);
    Py_XDECREF(callable);
    return gl_done(r) < 0 ? listener_report(loop, NULL) : 0;
}

static int
listener_accepted(gl_listener *l, gl_loop *loop, const gl_completion *c)
{
    PyObject *context = PyContext_Copy(l->context);
    if (context == NULL || PyContext_Enter(context) < 0) {
        Py_XDECREF(context);
        gl_call_close(c->res);
        return listener_report(loop, NULL);
    }
    bool by_python = l->on_accept != NULL || /* or a program has changed all sockets */
                     (gl_replaced(GL_RULE_SOCKET, (PyTypeObject *)G.socket_socket) & GL_OWN_STREAM);
    int rc = by_python ? listener_accept_callable(l, loop, c->res, c->ptr)
                       : listener_accept_protocol(l, loop, c, context);
    gl_context_exit(context);
    Py_DECREF(context);
    return rc;
}

static int
listener_failed(gl_listener *l, gl_loop *loop, int err, bool goes_on)
{
    loop->counts.accept_failures++;
    PyObject *exc = gl_oserror(err), *message = NULL, *sock = NULL;
    int rc = -1;
    if (exc == NULL)
        return -1;
    if (goes_on) {
        message = PyUnicode_FromString("socket.accept() out of system resource");
        if (message != NULL)
            sock = PyObject_CallOneArg(G.TransportSocket, l->lease.owner ? l->lease.owner : Py_None);
        if (sock != NULL)
            rc = gl_report(loop, message, exc, G.s_socket, sock, NULL, NULL, NULL);
    } else {
        rc = gl_report_exception_object(loop, "Exception in callback of a listener: accept failed",
                                        exc, NULL, NULL);
    }
    Py_XDECREF(message);
    Py_XDECREF(sock);
    Py_DECREF(exc);
    return rc;
}

static int
listener_complete(gl_loop *loop, PyObject *owner, const gl_completion *c)
{
    gl_listener *l = (gl_listener *)owner;
    int rc = 0;
    if (c->kind == GL_CMP_ACCEPT)
        rc = listener_accepted(l, loop, c);
    else if (c->kind == GL_CMP_ACCEPT_ERROR)
        rc = listener_failed(l, loop, c->res, c->arg == 1);
    /* An exception here: there is no memory, or a handler of exceptions has raised. */
    return gl_unraisable_unless_leaving(rc, owner);
}

/* ---- the type ----------------------------------------------------------------------- */

static PyObject *
listener_repr(PyObject *self)
{
    gl_listener *l = (gl_listener *)self;
    return PyUnicode_FromFormat("<Listener %s %R>", l->open ? "on" : "stopped, of",
                                l->lease.owner ? l->lease.owner : Py_None);
}

static int
listener_traverse(PyObject *self, visitproc visit, void *arg)
{
    gl_listener *l = (gl_listener *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(l->loop);
    Py_VISIT(l->lease.owner);
    Py_VISIT(l->lease.backing);
    Py_VISIT(l->protocol_factory);
    Py_VISIT(l->on_accept);
    Py_VISIT(l->server);
    Py_VISIT(l->context);
#ifdef GL_FREE_THREADED
    Py_VISIT(l->home.loop);
#endif
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
    listener_leave(l);
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
    gl_lease_return(&l->lease);
    Py_CLEAR(l->protocol_factory);
    Py_CLEAR(l->on_accept);
    Py_CLEAR(l->server);
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
#ifdef GL_FREE_THREADED
    Py_CLEAR(((gl_listener *)self)->home.loop);
#endif
    type->tp_free(self);
    Py_DECREF(type);
}

static const gl_reg_ops listener_ops = {
    .complete = listener_complete,
    .orphan = listener_orphan,
};

static PyMethodDef listener_methods[] = {
    {"stop", GL_NOARGS(listener_stop),
     PyDoc_STR("stop($self)\n--\n\nAccept no more; the socket stays open.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot listener_slots[] = {
    {Py_tp_doc, PyDoc_STR("Accepts the connections of one listening socket.")},
    {Py_tp_new, listener_new},
    {Py_tp_init, listener_init},
    {Py_tp_repr, listener_repr},
    {Py_tp_traverse, listener_traverse},
    {Py_tp_clear, listener_clear},
    {Py_tp_finalize, listener_finalize},
    {Py_tp_dealloc, listener_dealloc},
    {Py_tp_methods, listener_methods},
    {0, NULL},
};

static PyType_Spec listener_spec = {
    .name = "goloop._core.Listener",
    .basicsize = sizeof(gl_listener),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
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
