/*
 * watch.c: _add_reader, _add_writer and waiting for an fd once.
 *
 * Each direction of an fd has one slot: a Handle, called in each turn while the fd is ready, or a
 * Future that is resolved once (sock_recv and similar methods).  A later caller replaces the
 * waiter, as in asyncio.  But Futures wait together (older_waiters.c): readiness wakes all of them,
 * and each waiter with a refused call waits again.
 *
 *     empty --watch_set_slot--> set in turn n --ready in turn n+1 or later--> called
 *       ^                          |                (a Future: empty again)
 *       +------watch_clear_slot-------+
 *
 * A waiter gets the events of later turns only: the events of the turn in which the slot was set
 * belong to the previous waiter.
 *
 * The argument of add_reader is kept (`file`) while a slot is set.  remove_reader uses it to find
 * the watch after the object was closed and has no fd number.
 *
 * A socket that became ready for a Future is kept open until its task runs, one iteration later
 * (kept_sockets).  Otherwise a close() in between would let another file get the number before the
 * task makes the call for which it waited.  A close() of the task itself takes effect at once.
 */
#include "watch/private.h"

/* ---- the registration with Go ------------------------------------------------------------- */

/* Deregisters the watch. */
GL_NO_PYTHON static void
watch_unregister(gl_loop *loop, gl_watch *w)
{
    if (!w->watched)
        return;
    w->watched = false;
    (void)gl_reg_take(loop, w->id, w->gen); /* a watch has no owner */
    if (loop->go != NULL && !gl_loop_is_foreign(loop))
        gl_reactor_api(loop)->unregister(loop->reactor, w->id, w->gen);
}

/* Submits a wait after a refused call, which needs no call of Go: the submission is decoded before
 * the poll.  Returns false if the registration has to be updated now. */
GL_NO_PYTHON static bool
watch_submit_rearm(gl_loop *loop, const gl_watch *w, int which)
{
    const gl_watch_slot *other = &w->slot[!which];
    if (!w->watched || (other->waiter != NULL && !other->once))
        return false;
    loop->dirty = 1;
    gl_shared_lock(loop);
    int rc = gl_submit(loop, GL_SUB_WATCH_WAIT, w->id, w->gen,
                       which == GL_WRITING ? GL_WRITABLE : GL_READABLE);
    gl_shared_unlock(loop);
    if (rc < 0)
        PyErr_Clear();
    return rc == 0;
}

/* Updates the registration to the slots.  If both are empty, `leave` deregisters it; otherwise it
 * stays without interest, so that the next wait costs one call.  Returns 0 or an errno. */
GL_NO_PYTHON static int
watch_update_interest(gl_loop *loop, gl_watch *w, bool leave)
{
    static const uint32_t bits[2] = {GL_READABLE, GL_WRITABLE};
    uint32_t want = 0;
    uint32_t once = 0;
    for (int i = 0; i < 2; i++) {
        if (w->slot[i].waiter != NULL && w->slot[i].once)
            once |= bits[i];
        else if (w->slot[i].waiter != NULL)
            want |= bits[i];
    }
    if (leave && (want | once) == 0) {
        watch_unregister(loop, w);
        return 0;
    }
    if (want | once)
        loop->dirty = 1;
    int32_t r = 0;
    if (w->watched) {
        r = gl_reactor_api(loop)->watch_set(loop->reactor, w->id, w->gen, want, once);
    } else if (want | once) {
        r = gl_reactor_api(loop)->watch_open(loop->reactor, w->fd, want, once, &w->id, &w->gen);
        if (r >= 0) {
            w->watched = true;
            if (gl_reg_set(loop, w->id, w->gen, GL_REG_WATCH, NULL, w->fd) < 0) {
                PyErr_Clear();
                watch_unregister(loop, w);
                return ENOMEM;
            }
        }
    }
    return r < 0 ? -r : 0;
}

/* ---- the slots --------------------------------------------------------------------- */

/* Detaches the file object of a watch if both slots are empty; the caller drops the reference
 * last. */
static PyObject *
watch_detach_file(gl_watch *w)
{
    PyObject *file = NULL;
    if (w->slot[0].waiter == NULL && w->slot[1].waiter == NULL) {
        file = w->file;
        w->file = NULL;
    }
    return file;
}

/* Returns the fd that is watched for this very object, or -1. */
static int
watch_find_by_file(gl_loop *loop, PyObject *file)
{
    for (uint32_t i = 0; i < loop->regs_cap; i++) {
        if (loop->regs[i].kind != GL_REG_WATCH)
            continue;
        gl_fd *f = gl_fd_find(loop, loop->regs[i].fd);
        if (f != NULL && f->watch != NULL && f->watch->file == file)
            return f->watch->fd;
    }
    return -1;
}

/* Cancels a replaced waiter, as asyncio cancels a replaced handle. */
static void
watch_cancel_replaced(gl_watch_slot *old)
{
    if (old->waiter != NULL && gl_is_handle(old->waiter)) {
        PyObject *r = gl_handle_cancel(old->waiter, NULL);
        if (r == NULL)
            PyErr_WriteUnraisable(old->waiter);
        Py_XDECREF(r);
    }
    Py_CLEAR(old->waiter);
    Py_CLEAR(old->sock);
}

GL_NO_PYTHON GL_PRIVATE void
gl_watch_detach(gl_loop *loop, int fd, gl_watch *out)
{
    gl_fd *f = gl_fd_find(loop, fd);
    *out = (gl_watch){.fd = fd};
    if (f == NULL || f->watch == NULL)
        return;
    gl_watch *w = f->watch;
    watch_unregister(loop, w);
    memcpy(out->slot, w->slot, sizeof(out->slot));
    memcpy(out->older, w->older, sizeof(out->older));
    out->file = w->file;
    memset(w->slot, 0, sizeof(w->slot));
    memset(w->older, 0, sizeof(w->older));
    w->file = NULL;
}

/* Returns the watch of a number, and creates it if necessary; NULL with an exception. */
static gl_watch *
watch_find_or_make(gl_loop *loop, int fd)
{
    gl_fd *f = gl_fd_get(loop, fd);
    if (f == NULL || f->watch != NULL)
        return f ? f->watch : NULL;
    f->watch = PyMem_Calloc(1, sizeof(gl_watch));
    if (f->watch == NULL)
        PyErr_NoMemory();
    else
        f->watch->fd = fd;
    return f->watch;
}

/* Puts `made` into the slot and steals its references, on failure too.  `file` (stolen, may be
 * NULL) is the object with the fd. */
static int
watch_set_slot(gl_loop *loop, int fd, int which, gl_watch_slot made, PyObject *file)
{
    gl_watch *w = watch_find_or_make(loop, fd);
    PyObject *listener = NULL; /* of a server, which counts as a reader */
    if (w != NULL && which == GL_READING)
        listener = gl_fd_take_listener(loop, fd);
    gl_watch_slot out = made; /* to be released: the previous waiter, or `made` */
    int err = 0;
    if (w != NULL) {
        out = w->slot[which];
        made.turn = loop->turns;
        w->slot[which] = made;
        if (!made.refused || !watch_submit_rearm(loop, w, which))
            err = watch_update_interest(loop, w, false);
        if (err != 0) {
            w->slot[which] = out;
            out = made;
        } else if (file != NULL) {
            PyObject *before = w->file;
            w->file = file;
            file = before;
        }
    }
    bool placed = w != NULL && err == 0;
    PyObject *exc = NULL;
    gl_older_waiters dropped = {NULL, 0, 0};
    if (placed && !made.once) {
        dropped = w->older[which];
        w->older[which] = (gl_older_waiters){NULL, 0, 0};
    } else if (placed && out.once && out.waiter != NULL) {
        (void)older_waiters_add(&w->older[which], &out);
    }
    if (placed)
        watch_cancel_replaced(&out);
    else if (w == NULL)
        exc = gl_take_exception();
    else
        exc = gl_oserror(err);
    Py_CLEAR(out.waiter);
    Py_CLEAR(out.sock);
    Py_XDECREF(file);
    Py_XDECREF(listener);
    older_waiters_discard(&dropped);
    gl_restore_exception(exc);
    return placed ? 0 : -1;
}

GL_PRIVATE bool
watch_clear_slot(gl_loop *loop, int fd, int which, PyObject *only)
{
    gl_fd *f = gl_fd_find(loop, fd);
    gl_watch *w = f ? f->watch : NULL;
    if (w == NULL || w->slot[which].waiter == NULL)
        return false;
    gl_watch_slot old;
    if (only != NULL && w->slot[which].waiter != only) {
        if (!older_waiters_remove(&w->older[which], only, &old))
            return false;
        Py_CLEAR(old.waiter);
        Py_CLEAR(old.sock);
        return true;
    }
    old = w->slot[which];
    w->slot[which] = (gl_watch_slot){.waiter = NULL};
    gl_older_waiters dropped = {NULL, 0, 0};
    if (only != NULL) {
        (void)older_waiters_remove(&w->older[which], NULL, &w->slot[which]);
    } else {
        dropped = w->older[which];
        w->older[which] = (gl_older_waiters){NULL, 0, 0};
    }
    PyObject *file = watch_detach_file(w);
    /* The fd of a Handle is deregistered at once: its owner may close it next, and then a duplicate
     * of it would make a level-triggered watch report for ever. */
    if (loop->go != NULL && !gl_loop_is_foreign(loop))
        (void)watch_update_interest(loop, w, !old.once); /* a closed fd reports nothing */
    watch_cancel_replaced(&old);
    Py_XDECREF(file);
    older_waiters_discard(&dropped);
    return true;
}

GL_PRIVATE void
gl_watch_discard(gl_watch *out)
{
    for (int i = 0; i < 2; i++) {
        Py_CLEAR(out->slot[i].waiter);
        Py_CLEAR(out->slot[i].sock);
        older_waiters_discard(&out->older[i]);
    }
    Py_CLEAR(out->file);
}

GL_PRIVATE int
gl_watch_traverse(gl_fd *f, visitproc visit, void *arg)
{
    gl_watch *w = f->watch;
    if (w == NULL)
        return 0;
    for (int i = 0; i < 2; i++) {
        Py_VISIT(w->slot[i].waiter);
        Py_VISIT(w->slot[i].sock);
        for (uint32_t k = 0; k < w->older[i].len; k++) {
            Py_VISIT(w->older[i].slot[k].waiter);
            Py_VISIT(w->older[i].slot[k].sock);
        }
    }
    Py_VISIT(w->file);
    return 0;
}

GL_PRIVATE int
gl_watch_free(gl_fd *f, visitproc Py_UNUSED(visit), void *Py_UNUSED(arg))
{
    gl_watch *w = f->watch;
    f->watch = NULL;
    if (w != NULL) {
        gl_watch_discard(w);
        PyMem_Free(w);
    }
    return 0;
}

/* ---- sockets that became ready --------------------------------------------------------- */

/* Keeps a socket open until its waiter runs; steals the reference. */
static void
watch_keep_socket_open(gl_loop *loop, PyObject *sock, PyObject *waiter, int fd)
{
    if (gl_socket_has(sock, fd) &&
        gl_grow(&loop->kept_sockets, &loop->kept_sockets_cap, loop->kept_sockets_len,
                sizeof(gl_kept_socket), 16) &&
        gl_socket_keep_open(&loop->kept_sockets[loop->kept_sockets_len], sock, waiter))
        loop->kept_sockets_len++;
    else
        Py_DECREF(sock); /* the socket is not kept open: it may be closed before its waiter runs */
}

/* ---- completions -------------------------------------------------------------------------- */

static int
watch_run_waiter(gl_loop *loop, PyObject *waiter)
{
    if (gl_is_handle(waiter))
        return gl_handle_is_cancelled(waiter) ? 0 : gl_run_handle(loop, waiter);
    return gl_unraisable_unless_leaving(gl_future_set_none(waiter), waiter);
}

/* Keeps the sockets of older waiters open. */
static void
older_waiters_keep_sockets_open(gl_loop *loop, gl_older_waiters *older, int fd)
{
    for (uint32_t i = 0; i < older->len; i++) {
        PyObject *sock = older->slot[i].sock;
        older->slot[i].sock = NULL;
        if (sock != NULL)
            watch_keep_socket_open(loop, sock, older->slot[i].waiter, fd);
    }
}

/* Warns that a descriptor was closed while a Handle watched it; the watch has ended. */
static int
watch_warn_fd_closed(gl_loop *loop, int fd)
{
    int rc = gl_drop_result(PyObject_CallMethod((PyObject *)loop, GL_METHOD(_watch_lost), "i", fd));
    return gl_unraisable_unless_leaving(rc, (PyObject *)loop);
}

GL_PRIVATE int
gl_watch_complete(gl_loop *loop, int fd, const gl_completion *c)
{
    static const uint32_t bits[2] = {GL_READABLE, GL_WRITABLE};
    PyObject *ready[2] = {NULL, NULL};
    gl_older_waiters older[2] = {{NULL, 0, 0}, {NULL, 0, 0}};
    gl_fd *f = gl_fd_find(loop, fd);
    gl_watch *w = f ? f->watch : NULL;
    if (w == NULL)
        return 0;
    for (int i = 0; i < 2; i++) {
        gl_watch_slot *slot = &w->slot[i];
        if (!((uint32_t)c->res & bits[i]) || slot->waiter == NULL || slot->turn >= loop->turns)
            continue;
        if (!slot->once) {
            ready[i] = Py_NewRef(slot->waiter);
            continue;
        }
        gl_watch_slot taken = *slot;
        *slot = (gl_watch_slot){.waiter = NULL};
        older[i] = w->older[i];
        w->older[i] = (gl_older_waiters){NULL, 0, 0};
        older_waiters_keep_sockets_open(loop, &older[i], fd);
        ready[i] = taken.waiter;
        if (taken.sock != NULL)
            watch_keep_socket_open(loop, taken.sock, taken.waiter, fd);
    }
    PyObject *file = watch_detach_file(w);
    int result = 0;
    for (int i = 0; i < 2; i++) {
        for (uint32_t k = 0; k < older[i].len && result == 0; k++)
            result = watch_run_waiter(loop, older[i].slot[k].waiter);
        older_waiters_discard(&older[i]);
        if (ready[i] != NULL && result == 0)
            result = watch_run_waiter(loop, ready[i]);
        Py_XDECREF(ready[i]);
    }
    Py_XDECREF(file);
    if (result == 0 && c->arg != 0)
        result = watch_warn_fd_closed(loop, fd);
    return result;
}

/* ---- methods of Loop ---------------------------------------------------------- */

/* _add_reader(fd, callback, *args) and _add_writer: returns the Handle. */
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
    PyObject *h = gl_handle_new(self, &call);
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

static PyObject *
loop_ensure_fd_no_transport(gl_loop *self, PyObject *arg)
{
    long fd;
    if (!gl_fd_number(arg, &fd) ||
        (fd >= 0 && fd <= INT_MAX && gl_fd_ensure_no_transport(self, (int)fd, arg) < 0))
        return NULL;
    Py_RETURN_NONE;
}

GL_PRIVATE PyObject *
make_wait_future(gl_loop *loop, int fd, int which, gl_watch_slot slot)
{
    if (slot.sock != NULL && gl_socket_observe_close(slot.sock) < 0)
        return NULL;
    if (gl_loop_check_usable(loop) < 0)
        return NULL;
    PyObject *fut;
    if (gl_loop_has_own(loop, GL_OWN_CREATE_FUTURE))
        fut = PyObject_CallMethodNoArgs((PyObject *)loop, G.s_create_future);
    else
        fut = gl_new_future(loop);
    if (fut == NULL)
        return NULL;
    if (gl_loop_check_usable(loop) < 0) {
        Py_DECREF(fut);
        return NULL;
    }
    slot.waiter = Py_NewRef(fut);
    Py_XINCREF(slot.sock);
    slot.once = true;
    if (watch_set_slot(loop, fd, which, slot, NULL) < 0)
        Py_CLEAR(fut);
    return fut;
}

static PyObject *
wait_for_direction(gl_loop *self, PyObject *arg, int which)
{
    int fd = gl_fd_from_object(arg);
    if (fd < 0)
        return NULL;
    gl_watch_slot slot = {0};
    if (!PyLong_Check(arg))
        slot.sock = arg;
    return make_wait_future(self, fd, which, slot);
}

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
    static PyObject *loop_wait_##dir(gl_loop *self, PyObject *arg)                                 \
    {                                                                                              \
        return wait_for_direction(self, arg, which);                                               \
    }

WATCH_METHODS(reader, GL_READING)
WATCH_METHODS(writer, GL_WRITING)

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

/* Returns true if a Future in the slot waits for the socket with this count of users. */
static inline bool
slot_waits_for(const gl_watch_slot *slot, PyObject *users)
{
    return slot->once && gl_socket_has_users(slot->sock, users);
}

/* _waits(users, fd): returns True if a Future waits for the socket with this count of users; None:
 * the loop keeps the socket open. */
static PyObject *
loop_waits(gl_loop *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2)
        return PyErr_Format(PyExc_TypeError,
                            "_waits() takes 2 arguments: a count of users and an fd");
    int fd = gl_fd_from_object(args[1]);
    if (fd < 0)
        return NULL;
    for (uint32_t i = 0; i < self->kept_sockets_len; i++)
        if (gl_socket_has_users(self->kept_sockets[i].sock, args[0]))
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

#define WATCH_ENTRIES(dir, adjective)                                                              \
    {"_add_" #dir, GL_FAST(loop__add_##dir), NULL},                                                \
        {"_remove_" #dir, GL_ONEARG(loop__remove_##dir), NULL},                                    \
    {                                                                                              \
        "_wait_" adjective, GL_ONEARG(loop_wait_##dir), NULL                                       \
    }

static PyMethodDef watch_table[] = {
    WATCH_ENTRIES(reader, "readable"),
    WATCH_ENTRIES(writer, "writable"),
    {"_all_transports", GL_NOARGS(gl_fd_transports), NULL},
    {"_ensure_fd_no_transport", GL_ONEARG(loop_ensure_fd_no_transport), NULL},
    {"_waits", GL_FAST(loop_waits), NULL},
    {"_end_waits", GL_FAST(loop_end_waits),
     PyDoc_STR("_end_waits(users, fd): end the waits for a socket that is about to be closed.")},
    {"_forget_wait", GL_FAST(loop_forget_wait),
     PyDoc_STR(
         "_forget_wait(fd, future): clear the slot of a wait that has ended or was cancelled.")},
    {NULL, NULL, 0, NULL},
};
GL_PRIVATE PyMethodDef *const gl_watch_methods = watch_table;
