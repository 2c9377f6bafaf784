/*
 * watch_methods.c: the methods of Loop that register and end watches: _add_reader(),
 * _remove_reader(), _wait_readable(), their counterparts for writing, and the ends of waits.
 *
 * goloop/_internal/loop/ and goloop/_internal/net/ call them; watch.c has the slots.
 */
#include "watch/private.h"

/* ---- methods of Loop ---------------------------------------------------------- */

/* _add_reader(fd, callback, *args) and _add_writer: watches the direction in place of its previous
 * waiter, and returns the Handle.  NULL as gl_fd_from_object(), with RuntimeError if the loop can't
 * be used, or with OSError. */
static PyObject *
watch_add(gl_loop *self, const gl_params *params, PyObject *const *args, Py_ssize_t nargs,
          int which)
{
    PyObject *named[2];
    if (gl_args(params, self, args, nargs, NULL, named) < 0)
        return NULL;
    int fd = gl_fd_from_object(args[0]);
    if (fd < 0 || gl_loop_check_usable(self) < 0)
        return NULL;
    const gl_call call = {args[1], args + 2, nargs - 2, NULL};
    PyObject *h = gl_handle_new(G.handle_type, self, &call);
    if (h == NULL)
        return NULL;
    gl_handle_track(h);
    /* A garbage collection during gl_handle_new() may have closed the loop. */
    if (gl_loop_check_usable(self) < 0) {
        Py_DECREF(h);
        return NULL;
    }
    gl_watch_slot made = {.waiter = Py_NewRef(h)};
    PyObject *file = PyLong_Check(args[0]) ? NULL : Py_NewRef(args[0]);
    if (watch_set_slot(self, fd, which, made, file) < 0)
        Py_CLEAR(h);
    return h;
}

/* _remove_reader(fd) and _remove_writer: removes the waiters of a direction.  Returns True if there
 * was one, else False, also for a closed loop.  A listener on the number counts as a reader, as in
 * asyncio.  NULL with ValueError for an invalid fd that no watch has, or with another exception of
 * fileno(). */
static PyObject *
watch_remove(gl_loop *self, PyObject *arg, int which)
{
    long number = -1;
    if (!gl_fd_number(arg, &number) && !PyErr_ExceptionMatches(PyExc_ValueError))
        return NULL;
    PyErr_Clear();
    /* For a closed file object asyncio searches the registrations. */
    int fd = -1;
    if (number >= 0 && number <= INT_MAX)
        fd = (int)number;
    else if (!self->closed)
        fd = watch_find_by_file(self, arg);
    if (fd < 0 && number < 0 && !self->closed)
        return PyErr_Format(PyExc_ValueError, "Invalid file descriptor: %ld", number);
    if (fd < 0 || self->closed)
        Py_RETURN_FALSE;
    bool removed = watch_clear_slot(self, fd, which, NULL);
    if (!removed && which == GL_READING) {
        PyObject *listener = gl_fd_take_listener(self, fd); /* a reader in asyncio */
        removed = listener != NULL;
        Py_XDECREF(listener);
    }
    return PyBool_FromLong(removed);
}

/* _ensure_fd_no_transport(fd): returns None, or raises RuntimeError if an open transport uses the
 * fd, and ValueError for an object without fileno(). */
static PyObject *
loop_ensure_fd_no_transport(gl_loop *self, PyObject *arg)
{
    long fd;
    if (!gl_fd_number(arg, &fd) ||
        (fd >= 0 && fd <= INT_MAX && gl_fd_ensure_no_transport(self, (int)fd, arg) < 0))
        return NULL;
    Py_RETURN_NONE;
}

/* _wait_readable(sock[, early]) and _wait_writable: returns a new Future that is resolved with None
 * when the socket or the fd is ready once.  `sock` is an int or an object with fileno(), which is
 * kept until then; closing a socket object ends the wait.  `early` is called if the loop stops with
 * a ready socket that is closed before the next run; the caller keeps it until _forget_wait().  A
 * Handle of this direction is replaced and cancelled, and for reading a listener on the number
 * ends; other Futures go on waiting.  NULL as gl_fd_from_object() or create_future(), with
 * RuntimeError if the loop can't be used, or with TypeError, OSError or MemoryError. */
static PyObject *
wait_for_direction(gl_loop *self, PyObject *const *args, Py_ssize_t nargs, int which)
{
    if (nargs < 1 || nargs > 2)
        return PyErr_Format(PyExc_TypeError, "a wait takes a socket and an early call");
    int fd = gl_fd_from_object(args[0]);
    if (fd < 0)
        return NULL;
    gl_watch_slot slot = {.op = nargs == 2 ? args[1] : NULL};
    if (!PyLong_Check(args[0]))
        slot.sock = args[0];
    return make_wait_future(self, fd, which, slot);
}

/* Defines the methods _add_, _remove_ and _wait_ of a direction. */
#define WATCH_METHODS(dir, which)                                                                  \
    static PyObject *loop__add_##dir(gl_loop *self, PyObject *const *args, Py_ssize_t n)           \
    {                                                                                              \
        static const gl_params params = {"_add_" #dir, 2, 2, true, 2, {0}};                        \
        return watch_add(self, &params, args, n, which);                                           \
    }                                                                                              \
    static PyObject *loop__remove_##dir(gl_loop *self, PyObject *fd)                               \
    {                                                                                              \
        return watch_remove(self, fd, which);                                                      \
    }                                                                                              \
    static PyObject *loop_wait_##dir(gl_loop *self, PyObject *const *args, Py_ssize_t n)           \
    {                                                                                              \
        return wait_for_direction(self, args, n, which);                                           \
    }

WATCH_METHODS(reader, GL_READING)
WATCH_METHODS(writer, GL_WRITING)

/* _forget_wait(fd, future): removes a Future whose task was cancelled or has run from both
 * directions of the fd, and stops keeping its socket open.  Returns None; does nothing for a closed
 * loop. */
static PyObject *
loop_forget_wait(gl_loop *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2)
        return PyErr_Format(PyExc_TypeError,
                            "_forget_wait() takes 2 arguments: an fd and a future");
    int fd = gl_fd_from_object(args[0]);
    if (fd < 0)
        return NULL;
    if (!self->closed) {
        (void)watch_clear_slot(self, fd, GL_READING, args[1]);
        (void)watch_clear_slot(self, fd, GL_WRITING, args[1]);
        gl_kept_socket_end(self, args[1]);
    }
    Py_RETURN_NONE;
}

/* Returns true if a Future in the slot waits for the socket with this counter of users. */
static inline bool
slot_waits_for(const gl_watch_slot *slot, PyObject *users)
{
    return slot->once && gl_socket_has_users(slot->sock, users);
}

/* Returns true if the loop goes on keeping a socket open for a waiter that has not run.  A loop
 * that does not run stops keeping it open: the waiter's call is made now (sockop_attempt_early()),
 * before the socket is closed.  Runs Python. */
static bool
end_keeping_unless_needed(gl_loop *self, PyObject *users)
{
    for (uint32_t i = 0; i < self->kept_sockets_len; i++) {
        gl_kept_socket *kept = &self->kept_sockets[i];
        if (!gl_socket_has_users(kept->sock, users))
            continue;
        if (self->running || kept->counted)
            return true;
        gl_kept_socket ended = *kept;
        *kept = (gl_kept_socket){.sock = NULL};
        Py_XINCREF(ended.op);
        if (ended.op != NULL && !gl_loop_is_foreign(self)) /* else the bytes are the parent's */
            sockop_attempt_early(ended.op);
        Py_XDECREF(ended.op);
        Py_XDECREF(ended.waiter);
        Py_DECREF(ended.sock);
    }
    return false;
}

/* _before_close(users, fd): called before a socket is closed; `users` is its counter object
 * (ObservedRefCount), which identifies the socket.  True if a Future waits for it, None if the loop
 * keeps it open for a waiter that has not run yet, else False.  Deregisters a watch without
 * waiters.  NULL with TypeError for wrong arguments, or as gl_fd_from_object(). */
static PyObject *
loop_before_close(gl_loop *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2)
        return PyErr_Format(PyExc_TypeError,
                            "_before_close() takes 2 arguments: a count of users and an fd");
    int fd = gl_fd_from_object(args[1]);
    if (fd < 0)
        return NULL;
    if (end_keeping_unless_needed(self, args[0]))
        Py_RETURN_NONE;
    gl_fd *f = gl_fd_find(self, fd);
    gl_watch *w = f ? f->watch : NULL;
    if (w == NULL)
        Py_RETURN_FALSE;
    /* Events of a duplicate, for example in a child process, would wake the loop. */
    if (w->slot[0].waiter == NULL && w->slot[1].waiter == NULL)
        watch_unregister(self, w);
    return PyBool_FromLong(slot_waits_for(&w->slot[0], args[0]) ||
                           slot_waits_for(&w->slot[1], args[0]));
}

/* _end_waits(users, fd): called before a socket is closed.  Removes the Futures of its sock_* calls
 * from both directions and resolves each now, so that its call fails on the closed fd.  `users` is
 * the socket's counter object, which identifies the socket.  Returns None, or NULL with SystemExit
 * or KeyboardInterrupt. */
static PyObject *
loop_end_waits(gl_loop *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2)
        return PyErr_Format(PyExc_TypeError,
                            "_end_waits() takes 2 arguments: a count of users and an fd");
    int fd = gl_fd_from_object(args[1]);
    if (fd < 0)
        return NULL;
    int rc = 0;
    for (int which = 0; which < 2 && rc == 0; which++) {
        bool ended = true;
        while (ended && rc == 0) { /* the older waiters too */
            gl_fd *f = self->closed ? NULL : gl_fd_find(self, fd);
            if (f == NULL || f->watch == NULL || !slot_waits_for(&f->watch->slot[which], args[0]))
                break;
            PyObject *waiter = Py_NewRef(f->watch->slot[which].waiter);
            ended = watch_clear_slot(self, fd, which, waiter);
            if (ended)
                rc = watch_run_waiter(self, waiter);
            Py_DECREF(waiter);
        }
    }
    return gl_none_or_null(rc);
}

/* The entries in the table of methods for one use of WATCH_METHODS. */
#define WATCH_ENTRIES(dir, adjective)                                                              \
    {"_add_" #dir, GL_FAST(loop__add_##dir), NULL},                                                \
        {"_remove_" #dir, GL_ONEARG(loop__remove_##dir), NULL},                                    \
    {                                                                                              \
        "_wait_" adjective, GL_FAST(loop_wait_##dir), NULL                                         \
    }

static PyMethodDef watch_table[] = {
    WATCH_ENTRIES(reader, "readable"),
    WATCH_ENTRIES(writer, "writable"),
    {"_all_transports", GL_NOARGS(gl_fd_transports), NULL},
    {"_ensure_fd_no_transport", GL_ONEARG(loop_ensure_fd_no_transport), NULL},
    {"_before_close", GL_FAST(loop_before_close), NULL},
    {"_end_waits", GL_FAST(loop_end_waits),
     PyDoc_STR("_end_waits(users, fd): end the waits for a socket that is about to be closed.")},
    {"_forget_wait", GL_FAST(loop_forget_wait),
     PyDoc_STR(
         "_forget_wait(fd, future): clear the slot of a wait that has ended or was cancelled.")},
    {NULL, NULL, 0, NULL},
};
GL_PRIVATE PyMethodDef *const gl_watch_methods = watch_table;
