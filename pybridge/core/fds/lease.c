/*
 * lease.c: the right to use a descriptor; lease.h draws its states.
 *
 * A socket.socket and a FileIO have their fd number directly after the object's head, -1 without
 * one.  This layout is checked at import on objects without a number.  On a Python with another
 * layout each descriptor is duplicated, as it is for any other object with a fileno().
 */
#include "fds/fds.h"

#include <errno.h>
#include <unistd.h>

/* Returns the address of the fd number in a socket.socket or a FileIO. */
static inline const int32_t *
object_number_word(PyObject *o)
{
    return (const int32_t *)((const char *)o + sizeof(PyObject));
}

/* ---- sockets ------------------------------------------------------------------- */

/* Returns true for a _socket.socket whose layout is known. */
static inline bool
is_socket(PyObject *o)
{
    return G.lease.socket_base != NULL && PyObject_TypeCheck(o, G.lease.socket_base);
}

GL_PRIVATE bool
gl_socket_has_number(PyObject *sock, int fd)
{
    return is_socket(sock) && *object_number_word(sock) == fd;
}

GL_PRIVATE int
gl_socket_number(PyObject *sock)
{
    if (G.lease.socket_base != NULL)
        return *object_number_word(sock);
    PyObject *fd_object = PyObject_CallMethodNoArgs(sock, G.s_fileno);
    long fd = -1;
    if (fd_object)
        fd = PyLong_AsLong(fd_object);
    Py_XDECREF(fd_object);
    PyErr_Clear();
    return (int)fd;
}

/* Returns the address of a __slots__ field of a socket. */
static inline PyObject **
socket_slot(PyObject *sock, Py_ssize_t offset)
{
    return (PyObject **)((char *)sock + offset);
}

/* Returns the value of a slot of a socket, a new reference; NULL, without an exception, if the slot
 * is empty.  Python code uses the slot too, so without a GIL the socket's own lock guards it. */
static PyObject *
slot_value(PyObject *sock, Py_ssize_t offset)
{
    PyObject *value;
    GL_LOCK_OBJECT(sock);
    value = Py_XNewRef(*socket_slot(sock, offset));
    GL_UNLOCK_OBJECT();
    return value;
}

/* Returns true if `count` is an ObservedRefCount (goloop/_internal/loop/descriptors.py), which
 * reports the socket's close().  `count` may be NULL. */
static inline bool
is_observed_count(PyObject *count)
{
    return count != NULL && (PyObject *)Py_TYPE(count) == G.ObservedRefCount && PyLong_Check(count);
}

/* Adds `change` to the number of a socket's users.  Returns false, with the number unchanged, if
 * the slot has no plain or observed int, for an overflow or without memory; sets no exception.  The
 * dropped value is an int, so no Python runs; the new value is a plain int. */
static bool
slot_add_users(PyObject **slot, long change)
{
    if (*slot == NULL || !(PyLong_CheckExact(*slot) || is_observed_count(*slot)))
        return false;
    int overflow;
    long users = PyLong_AsLongAndOverflow(*slot, &overflow);
    bool good = !overflow && users >= 0 && users < LONG_MAX && users + change >= 0;
    PyObject *sum = NULL;
    if (good)
        sum = PyLong_FromLong(users + change);
    if (sum != NULL) {
        PyObject *before = *slot;
        __atomic_store_n(slot, sum, __ATOMIC_RELEASE);
        Py_DECREF(before);
    }
    PyErr_Clear();
    return sum != NULL;
}

/* Like slot_add_users(), with the socket's own lock in a build without the GIL. */
static bool
socket_add_users(PyObject *sock, long change)
{
    bool good;
    GL_LOCK_OBJECT(sock);
    good = slot_add_users(socket_slot(sock, G.lease.io_refs), change);
    GL_UNLOCK_OBJECT();
    return good;
}

/* Returns true if the socket's count of users reports the socket's close(). */
static bool
observes_close(PyObject *sock)
{
    PyObject *count = slot_value(sock, G.lease.io_refs);
    bool observed = is_observed_count(count);
    Py_XDECREF(count);
    return observed;
}

/* Returns true for a socket.socket, which counts its users, if the slots of that class are
 * known. */
static inline bool
is_counted(PyObject *sock)
{
    return G.lease.io_refs >= 0 && PyObject_TypeCheck(sock, (PyTypeObject *)G.socket_socket);
}

GL_PRIVATE bool
gl_socket_add_user(PyObject *sock)
{
    return is_counted(sock) && socket_add_users(sock, 1);
}

/* Removes one of a socket's users.  If the socket was closed meanwhile, it is really closed now,
 * which runs Python; an exception goes to sys.unraisablehook.  Does nothing for a socket that the
 * garbage collector has cleared. */
static void
socket_release(PyObject *sock)
{
    PyObject *users = slot_value(sock, G.lease.io_refs);
    PyObject *closed = slot_value(sock, G.lease.closed);
    bool gone = users == NULL || closed == NULL; /* cleared by the garbage collector */
    bool plain = !gone && closed == Py_False && PyLong_CheckExact(users);
    Py_XDECREF(users);
    Py_XDECREF(closed);
    if (gone)
        return;
    if (plain)
        (void)socket_add_users(sock, -1);
    else if (gl_call_method(sock, G.s__decref_socketios, NULL) < 0)
        PyErr_WriteUnraisable(sock); /* the delayed close of the socket failed */
}

/* ---- sockets with waiters ------------------------------------------------ */

GL_PRIVATE int
gl_socket_observe_close(PyObject *sock)
{
    if (!is_counted(sock) || observes_close(sock))
        return 0;
    return gl_call_method(G.ObservedRefCount, G.s_notice, sock);
}

GL_PRIVATE bool
gl_socket_has_users(PyObject *sock, PyObject *users)
{
    return sock != NULL && is_counted(sock) &&
           GL_READ(*socket_slot(sock, G.lease.io_refs)) == users;
}

GL_PRIVATE bool
gl_socket_keep_open(gl_kept_socket *kept, PyObject *sock, PyObject *waiter)
{
    bool is_observed = is_counted(sock) && observes_close(sock);
    if (!is_observed && !gl_socket_add_user(sock))
        return false;
    *kept = (gl_kept_socket){.sock = sock, .waiter = Py_NewRef(waiter), .counted = !is_observed};
    return true;
}

/* Returns true if close() of the socket was called. */
static inline bool
is_closed(PyObject *sock)
{
    return GL_READ(*socket_slot(sock, G.lease.closed)) == Py_True;
}

GL_PRIVATE void
gl_socket_stop_keeping(gl_kept_socket *kept)
{
    if (kept->sock != NULL && kept->counted)
        socket_release(kept->sock);
    else if (kept->sock != NULL && is_closed(kept->sock) &&
             gl_call_method(kept->sock, G.s_close, NULL) < 0)
        PyErr_WriteUnraisable(kept->sock); /* the delayed close of the socket failed */
    Py_CLEAR(kept->sock);
    Py_CLEAR(kept->waiter);
}

GL_PRIVATE void
gl_kept_socket_end(gl_loop *loop, PyObject *waiter)
{
    /* The waiters usually run in the order in which their sockets became ready. */
    for (uint32_t i = loop->kept_sockets_next; i < loop->kept_sockets_len; i++) {
        gl_kept_socket *kept = &loop->kept_sockets[i];
        if (kept->waiter != waiter)
            continue;
        gl_kept_socket gone = {.waiter = waiter, .counted = kept->counted};
        kept->waiter = NULL;
        kept->op = NULL;
        if (i == loop->kept_sockets_next)
            loop->kept_sockets_next++;
        if (!is_closed(kept->sock)) {
            gone.sock = kept->sock;
            kept->sock = NULL;
        }
        gl_socket_stop_keeping(&gone);
        return;
    }
}

GL_PRIVATE void
gl_kept_sockets_run_ends(gl_loop *loop)
{
    /* For a waiter that has not run, close() first makes the call for which it waits
     * (end_keeping_unless_needed() in watch_methods.c). */
    PyObject *exc = gl_take_exception();
    for (uint32_t i = loop->kept_sockets_len; i-- > 0;) {
        if (i >= loop->kept_sockets_len)
            continue; /* Python has run, and released some */
        gl_kept_socket kept = loop->kept_sockets[i];
        if (kept.waiter != NULL && !kept.counted) {
            if (!is_closed(kept.sock))
                continue;
            Py_INCREF(kept.sock);
            if (gl_call_method(kept.sock, G.s_close, NULL) < 0)
                PyErr_WriteUnraisable(kept.sock);
            Py_DECREF(kept.sock);
            continue;
        }
        loop->kept_sockets[i] = loop->kept_sockets[--loop->kept_sockets_len];
        gl_socket_stop_keeping(&kept);
    }
    loop->kept_sockets_next = 0;
    gl_restore_exception(exc);
}

/* ---- files ---------------------------------------------------------------------- */

/* Returns the FileIO of a file object of the io module (the object itself if it is one), or NULL
 * without an exception; a new reference. */
static PyObject *
raw_file(PyObject *o)
{
    bool buffered = false;
    for (size_t i = 0; i < Py_ARRAY_LENGTH(G.lease.buffered); i++)
        buffered = buffered || Py_TYPE(o) == G.lease.buffered[i];
    PyObject *raw = buffered ? PyObject_GetAttr(o, G.s_raw) : Py_NewRef(o);
    if (raw == NULL)
        PyErr_Clear(); /* detached */
    else if (!PyObject_TypeCheck(raw, G.lease.file))
        Py_CLEAR(raw);
    return raw;
}

/* ---- taking --------------------------------------------------------------------- */

GL_PRIVATE int
gl_lease_acquire(gl_lease *l, PyObject *owner, bool counted)
{
    gl_lease made = GL_NO_LEASE;
    if (is_socket(owner))
        made.word = object_number_word(owner);
    else if (G.lease.file != NULL)
        made.backing = raw_file(owner);
    if (made.backing != NULL)
        made.word = object_number_word(made.backing);
    /* fileno() may run Python; nothing after it does. */
    made.fd = gl_fd_from_object(owner);
    if (made.fd < 0) {
        Py_XDECREF(made.backing);
        return -1;
    }
    made.owner = Py_NewRef(owner);
    int rc = 0;
    if (made.word == NULL)
        rc = gl_lease_duplicate(&made);
    else if (*made.word != made.fd)
        rc = gl_set_oserror(EBADF);
    if (rc < 0) {
        gl_lease_release(&made);
        return -1;
    }
    made.counted = counted && is_socket(owner) && gl_socket_add_user(owner);
    *l = made;
    return 0;
}

GL_PRIVATE int
gl_lease_nonblocking(const gl_lease *l)
{
    if (gl_call_nonblocking(l) < 0)
        return gl_set_oserror(errno);
    return 0;
}

GL_PRIVATE void
gl_lease_set_owner(gl_lease *l, PyObject *owner)
{
    l->owner = Py_NewRef(owner);
    if (gl_socket_has_number(owner, l->fd)) {
        l->word = object_number_word(owner);
        l->counted = gl_socket_add_user(owner);
    }
}

GL_PRIVATE int
gl_lease_duplicate(gl_lease *l)
{
    if (l->own >= 0)
        return 0;
    int fd = gl_call_dup(l);
    if (fd < 0)
        return gl_set_oserror(errno);
    l->own = fd;
    return 0;
}

/* ---- ending --------------------------------------------------------------------- */

/* Moves the lease into a local one, because ending it runs Python, and leaves *l empty.  Closes the
 * duplicate, and drops the reference `backing`. */
static gl_lease
lease_move_out(gl_lease *l)
{
    gl_lease out = *l;
    *l = GL_NO_LEASE;
    if (out.own >= 0)
        gl_call_close(out.own);
    Py_CLEAR(out.backing);
    return out;
}

GL_PRIVATE void
gl_lease_stop_counting(gl_lease *l)
{
    if (!l->counted)
        return;
    PyObject *exc = gl_take_exception();
    l->counted = false;
    PyObject *owner = Py_NewRef(l->owner);
    socket_release(owner);
    Py_DECREF(owner);
    gl_restore_exception(exc);
}

GL_PRIVATE int
gl_lease_close(gl_lease *l)
{
    gl_lease out = lease_move_out(l);
    if (out.owner == NULL) {
        if (out.fd >= 0)
            gl_call_close(out.fd);
        return 0;
    }
    if (out.counted)
        socket_release(out.owner);
    int rc = gl_call_method(out.owner, G.s_close, NULL);
    Py_DECREF(out.owner);
    return rc;
}

GL_PRIVATE void
gl_lease_release(gl_lease *l)
{
    PyObject *exc = gl_take_exception();
    gl_lease out = lease_move_out(l);
    if (out.counted)
        socket_release(out.owner);
    Py_XDECREF(out.owner);
    gl_restore_exception(exc);
}

/* Returns the class if its new instances have the number -1 directly after the head; a new
 * reference.  Otherwise, and after any error, NULL without an exception. */
static PyTypeObject *
class_if_number_follows_head(const char *module, const char *name)
{
    PyObject *cls = gl_import_attr(module, name);
    PyObject *empty = NULL;
    if (cls && PyType_Check(cls))
        empty = ((PyTypeObject *)cls)->tp_new((PyTypeObject *)cls, G.empty_tuple, NULL);
    bool known = empty != NULL &&
                 Py_TYPE(empty)->tp_basicsize >= (Py_ssize_t)(sizeof(PyObject) + sizeof(int32_t)) &&
                 *object_number_word(empty) == -1;
    Py_XDECREF(empty);
    PyErr_Clear();
    if (!known)
        Py_CLEAR(cls);
    return (PyTypeObject *)cls;
}

GL_PRIVATE int
gl_lease_init(PyObject *Py_UNUSED(module))
{
    static const char *const names[] = {"BufferedReader", "BufferedWriter", "BufferedRandom"};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(names); i++) {
        G.lease.buffered[i] = (PyTypeObject *)gl_import_attr("io", names[i]);
        if (G.lease.buffered[i] == NULL)
            return -1;
    }
    G.lease.socket_base = class_if_number_follows_head("_socket", "socket");
    G.lease.file = class_if_number_follows_head("io", "FileIO");
    G.lease.io_refs = gl_slot_offset(G.socket_socket, "_io_refs");
    G.lease.closed = gl_slot_offset(G.socket_socket, "_closed");
    if (G.lease.closed < 0)
        G.lease.io_refs = -1;
    return 0;
}
