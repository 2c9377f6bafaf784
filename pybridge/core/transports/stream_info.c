/*
 * stream_info.c: what a stream tells about itself: extra info, asyncio's private
 * attributes that other code reads, repr.
 *
 * An accepted connection has no Python socket and no `extra` until somebody asks.
 * Then the socket object is made over the fd, once, and owns it from there on.
 */
#include "transports/stream.h"

#include <sys/socket.h>

/* ---- the raw names ------------------------------------------------------------- */

GL_PRIVATE int
stream_note_raw(gl_stream *s, const gl_endpoints *ends)
{
    uint32_t peer = ends->peer_len, local = ends->local_len;
    if (peer > GL_SOCKADDR_MAX)
        peer = GL_SOCKADDR_MAX;
    if (local > GL_SOCKADDR_MAX)
        local = GL_SOCKADDR_MAX;
    if (peer + local == 0)
        return 0;
    s->raw = PyMem_Malloc(peer + local);
    if (s->raw == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(s->raw, ends->peer, peer);
    memcpy(s->raw + peer, ends->local, local);
    s->peer_len = (uint8_t)peer;
    s->local_len = (uint8_t)local;
    return 0;
}

/* ---- the socket ------------------------------------------------------------------- */

GL_PRIVATE PyObject *
socket_from_fd(int fd)
{
    PyObject *args = PyTuple_New(0), *kwargs = Py_BuildValue("{si}", "fileno", fd), *sock = NULL;
    if (args != NULL && kwargs != NULL)
        sock = PyObject_Call(G.socket_socket, args, kwargs);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    if (sock == NULL)
        return NULL;
    PyObject *r = PyObject_CallMethodOneArg(sock, G.s_setblocking, Py_False);
    if (r == NULL) {
        /* The fd stays the caller's. */
        PyObject *exc = gl_take_exception();
        Py_XDECREF(PyObject_CallMethodNoArgs(sock, G.s_detach));
        Py_DECREF(sock);
        gl_restore_exception(exc);
        return NULL;
    }
    Py_DECREF(r);
    return sock;
}

/* From now on Go compares, too. */
static void
stream_tell_owner(gl_stream *s)
{
    if (s->open && !gl_loop_is_foreign(s->loop) && stream_sync(s) < 0)
        PyErr_Clear(); /* no memory: the count of users still keeps the socket open */
}

static PyObject *
stream_socket(gl_stream *s)
{
    if (s->lease.owner != NULL)
        return s->lease.owner;
    if (s->lease.number < 0)
        return Py_None; /* lint: allow return-singleton: borrowed, as the owner is */
    int fd = s->lease.number;
    PyObject *sock = socket_from_fd(fd);
    if (sock == NULL)
        return NULL;
    if (s->lease.owner == NULL && s->lease.number == fd) {
        gl_lease_found_owner(&s->lease, sock);
        Py_DECREF(sock); /* the lease has it */
        stream_tell_owner(s);
        return sock;
    }
    /* Another thread was faster, or closed the stream: this one must not close. */
    PyObject *r = PyObject_CallMethodNoArgs(sock, G.s_detach);
    Py_DECREF(sock);
    if (r == NULL)
        return NULL;
    Py_DECREF(r);
    return s->lease.owner != NULL ? s->lease.owner : Py_None;
}

/* A closed socket of the right family, for who asks a lost connection for it. */
static PyObject *
stream_closed_socket(gl_stream *s)
{
    sa_family_t family = AF_INET;
    const uint8_t *raw = s->local_len ? s->raw + s->peer_len : s->raw;
    if (raw != NULL)
        memcpy(&family, raw + offsetof(struct sockaddr, sa_family), sizeof(family));
    PyObject *sock = PyObject_CallFunction(G.socket_socket, "ii", (int)family, SOCK_STREAM);
    PyObject *r = sock ? PyObject_CallMethodNoArgs(sock, G.s_close) : NULL;
    if (r == NULL)
        Py_CLEAR(sock);
    Py_XDECREF(r);
    return sock;
}

/* ---- extra -------------------------------------------------------------------------- */

static PyObject *
stream_make_socket_entry(gl_stream *s)
{
    PyObject *sock = Py_XNewRef(stream_socket(s));
    if (sock == Py_None) {
        Py_DECREF(sock);
        sock = stream_closed_socket(s);
    }
    if (sock == NULL)
        return NULL;
    PyObject *entry = transport_socket(sock, (PyObject *)s);
    Py_DECREF(sock);
    return entry;
}

/* From the raw address, else (a family that is not known here) from the socket. */
static PyObject *
stream_make_name(gl_stream *s, const uint8_t *raw, uint8_t len, PyObject *method)
{
    if (len > 0) {
        PyObject *name = gl_address_object(raw, len);
        if (name != NULL || PyErr_Occurred())
            return name;
    }
    PyObject *sock = Py_XNewRef(stream_socket(s));
    if (sock == NULL || sock == Py_None)
        return sock;
    PyObject *name = stream_ask_name(sock, method);
    Py_DECREF(sock);
    return name;
}

/* Puts one entry into extra if it still waits to be made. */
static int
stream_fill_entry(gl_stream *s, bool *lazy, PyObject *key)
{
    if (!*lazy)
        return 0;
    PyObject *value = lazy == &s->lazy_socket ? stream_make_socket_entry(s)
                      : lazy == &s->lazy_peername
                          ? stream_make_name(s, s->raw, s->peer_len, G.s_getpeername)
                          : stream_make_name(s, s->raw ? s->raw + s->peer_len : NULL,
                                             s->local_len, G.s_getsockname);
    if (value == NULL)
        return -1;
    int rc = 0;
    if (*lazy) { /* making it ran Python */
        if (s->extra == NULL)
            s->extra = PyDict_New();
        rc = s->extra ? PyObject_SetItem(s->extra, key, value) : -1;
        if (rc == 0)
            *lazy = false;
    }
    Py_DECREF(value);
    return rc;
}

static int
stream_fill_extra(gl_stream *s)
{
    if (stream_fill_entry(s, &s->lazy_socket, G.s_socket) < 0 ||
        stream_fill_entry(s, &s->lazy_sockname, G.s_sockname) < 0 ||
        stream_fill_entry(s, &s->lazy_peername, G.s_peername) < 0)
        return -1;
    if (s->extra == NULL)
        s->extra = PyDict_New();
    return s->extra ? 0 : -1;
}

/* Whether `name` is the key; keys are interned nearly everywhere. */
static bool
is_key(PyObject *name, PyObject *key)
{
    return name == key || (PyUnicode_Check(name) && PyUnicode_Compare(name, key) == 0);
}

static PyObject *
stream_extra_info(gl_stream *s, PyObject *name, PyObject *fallback)
{
    int rc = 0;
    if (s->lazy_peername && is_key(name, G.s_peername))
        rc = stream_fill_entry(s, &s->lazy_peername, G.s_peername);
    else if (s->lazy_socket && is_key(name, G.s_socket))
        rc = stream_fill_entry(s, &s->lazy_socket, G.s_socket);
    else if (s->lazy_sockname && is_key(name, G.s_sockname))
        rc = stream_fill_entry(s, &s->lazy_sockname, G.s_sockname);
    if (rc < 0)
        return NULL;
    if (s->extra == NULL && (s->extra = PyDict_New()) == NULL)
        return NULL;
    /* The name's __eq__ may put another dict in its place, or take the value out. */
    PyObject *extra = Py_NewRef(s->extra), *value;
    if (PyDict_CheckExact(extra)) {
        value = Py_XNewRef(PyDict_GetItemWithError(extra, name));
        if (value == NULL && !PyErr_Occurred())
            value = Py_NewRef(fallback);
    } else {
        value = PyObject_CallMethod(extra, "get", "OO", name, fallback);
    }
    Py_DECREF(extra);
    if (value != NULL && is_key(name, G.s_socket))
        stream_flush_visible((PyObject *)s);
    return value;
}

GL_PRIVATE PyObject *
stream_get_extra_info(gl_stream *s, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", "default", NULL};
    PyObject *name, *fallback = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:get_extra_info", names, &name, &fallback))
        return NULL;
    return stream_extra_info(s, name, fallback);
}

static PyObject *
stream_extra_getter(gl_stream *s, void *Py_UNUSED(closure))
{
    if (stream_fill_extra(s) < 0)
        return NULL;
    return Py_NewRef(s->extra);
}

static int
stream_extra_setter(gl_stream *s, PyObject *value, void *Py_UNUSED(closure))
{
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "_extra can't be deleted");
        return -1;
    }
    s->lazy_socket = s->lazy_peername = s->lazy_sockname = false;
    Py_XSETREF(s->extra, Py_NewRef(value));
    return 0;
}

/* ---- attributes that other code reads --------------------------------------------------- */

/* Whoever has the socket itself may send on it, or shut it down, as soon as write() has
 * returned. */
static PyObject *
stream_sock_getter(gl_stream *s, void *Py_UNUSED(closure))
{
    PyObject *sock = Py_XNewRef(stream_socket(s));
    s->exposed = true;
    stream_flush_visible((PyObject *)s);
    return sock;
}

static PyObject *
stream_conn_lost_getter(gl_stream *s, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(s->conn_lost);
}

static PyObject *
stream_flag_getter(gl_stream *s, void *offset)
{
    return PyBool_FromLong(*((bool *)((char *)s + (uintptr_t)offset)));
}

static PyObject *
stream_object_getter(gl_stream *s, void *offset)
{
    PyObject *o = *(PyObject **)((char *)s + (uintptr_t)offset);
    return Py_NewRef(o ? o : Py_None);
}

static PyObject *
stream_connected_getter(gl_stream *s, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(s->fd_shown >= 0);
}

#define STREAM_FLAG(name, field)                                                          \
    {name, (getter)stream_flag_getter, NULL, NULL, (void *)offsetof(gl_stream, field)}
#define STREAM_OBJECT(name, field)                                                        \
    {name, (getter)stream_object_getter, NULL, NULL, (void *)offsetof(gl_stream, field)}

static PyGetSetDef stream_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"_extra", (getter)stream_extra_getter, (setter)stream_extra_setter, NULL, NULL},
    {"_sock", (getter)stream_sock_getter, NULL, NULL, NULL},
    {"_conn_lost", (getter)stream_conn_lost_getter, NULL, NULL, NULL},
    {"_protocol_connected", (getter)stream_connected_getter, NULL, NULL, NULL},
    STREAM_FLAG("_closing", closing),
    STREAM_FLAG("_paused", paused),
    STREAM_FLAG("_eof", eof),
    STREAM_FLAG("_protocol_paused", protocol_paused),
    STREAM_OBJECT("_loop", loop),
    STREAM_OBJECT("_protocol", protocol),
    STREAM_OBJECT("_server", server),
    STREAM_OBJECT("_empty_waiter", empty_waiter),
    STREAM_OBJECT("_high_water", high_water),
    STREAM_OBJECT("_low_water", low_water),
    {NULL, NULL, NULL, NULL, NULL},
};

/* ---- repr ----------------------------------------------------------------------------------- */

GL_PRIVATE PyObject *
stream_repr(PyObject *self)
{
    gl_stream *s = (gl_stream *)self;
    const char *state = s->lease.number < 0 ? " closed" : s->closing ? " closing" : "";
    PyObject *name = PyType_GetName(Py_TYPE(self)), *text = NULL;
    if (name == NULL)
        return NULL;
    if (s->loop == NULL || s->loop->closed)
        text = PyUnicode_FromFormat("<%U%s fd=%d>", name, state, s->fd_shown);
    else
        text = PyUnicode_FromFormat("<%U%s fd=%d read=%s write=<%s, bufsize=%zd>>", name, state,
                                    s->fd_shown,
                                    stream_reading_wanted(s) ? "polling" : "idle",
                                    stream_queued(s) > 0 ? "polling" : "idle", stream_queued(s));
    Py_DECREF(name);
    return text;
}
