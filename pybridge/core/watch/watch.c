/*
 * watch.c: the slots of a watched fd, their registration with Go, and the completions of watches.
 *
 * Each direction of an fd has one slot: a Handle, called in each turn while the fd is ready, or a
 * Future that is resolved once (sock_recv and similar methods).  A later caller replaces the
 * waiter, as in asyncio.  But Futures wait together (older_waiters.c): readiness wakes all of them,
 * and each waiter with a refused call waits again.
 *
 *     empty --watch_set_slot--> set in turn n --ready in turn n+1 or later--> called
 *       ^                             |                (a Future: empty again)
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
 * task makes the call for which it waited.  A close() of the task itself takes effect at once.  If
 * the loop stops before the task runs, a close() has the call made first (watch_methods.c).
 */
#include "watch/private.h"

/* ---- the registration with Go ------------------------------------------------------------- */

GL_NO_PYTHON GL_PRIVATE void
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
 * the poll, and the next iteration polls.  Returns false, without an exception, if the registration
 * has to be updated now: there is none, a Handle watches the other direction, or there is no
 * memory. */
GL_NO_PYTHON static bool
watch_submit_rearm(gl_loop *loop, const gl_watch *w, int which)
{
    const gl_watch_slot *other = &w->slot[!which];
    if (!w->watched || (other->waiter != NULL && !other->once))
        return false;
    uint32_t events = GL_READABLE;
    if (which == GL_WRITING)
        events = GL_WRITABLE;
    loop->dirty = 1;
    gl_shared_lock(loop);
    int rc = gl_submit(loop, GL_SUB_WATCH_WAIT, w->id, w->gen, events);
    gl_shared_unlock(loop);
    if (rc < 0)
        PyErr_Clear();
    return rc == 0;
}

/* Updates the registration to the slots, and creates it if a slot is set; the next iteration polls.
 * If both slots are empty, the registration ends if `deregister` is true, and otherwise stays
 * without interest, so that the next wait costs one call.  Returns 0 or an errno; sets no
 * exception. */
GL_NO_PYTHON static int
watch_update_interest(gl_loop *loop, gl_watch *w, bool deregister)
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
    if (deregister && (want | once) == 0) {
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
    if (r < 0)
        return -r;
    return 0;
}

/* ---- the slots --------------------------------------------------------------------- */

/* Detaches the file object of a watch if both slots are empty, and returns its reference, which the
 * caller drops last; NULL if there is none or a slot is set. */
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

GL_PRIVATE int
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

/* Drops the references of a replaced waiter.  A Handle is cancelled, as in asyncio; an exception
 * goes to sys.unraisablehook. */
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

/* Returns the watch of a number, and creates it if necessary. */
static gl_watch *
watch_find_or_make(gl_loop *loop, int fd)
{
    gl_fd *f = gl_fd_find_or_make(loop, fd);
    if (f == NULL)
        return NULL;
    if (f->watch != NULL)
        return f->watch;
    f->watch = PyMem_Calloc(1, sizeof(gl_watch));
    if (f->watch == NULL)
        PyErr_NoMemory();
    else
        f->watch->fd = fd;
    return f->watch;
}

GL_PRIVATE int
watch_set_slot(gl_loop *loop, int fd, int which, gl_watch_slot made, PyObject *file)
{
    gl_watch *w = watch_find_or_make(loop, fd);
    PyObject *listener = NULL; /* a server's, which counts as a reader */
    if (w != NULL && which == GL_READING)
        listener = gl_fd_take_listener(loop, fd);
    gl_watch_slot out = made; /* released at the end: the previous waiter, or `made` */
    int err = 0;
    bool waits_on = false; /* the previous Future becomes an older waiter */
    if (w != NULL) {
        out = w->slot[which];
        waits_on = made.once && out.once && out.waiter != NULL;
        made.turn = loop->turns;
        w->slot[which] = made;
        if (waits_on && !older_waiters_reserve(&w->older[which]))
            err = ENOMEM;
        else if (!made.refused || !watch_submit_rearm(loop, w, which))
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
    } else if (placed && waits_on) {
        older_waiters_add(&w->older[which], &out);
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
    if (!placed)
        return -1;
    return 0;
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

/* A gl_fd_call: visits the references of the number's watch, for the garbage collector. */
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

/* A gl_fd_call: frees the number's watch, when the loop closes. */
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

/* Keeps the socket of a slot, if it has one, open until its waiter runs; steals the reference.  If
 * that is impossible, the reference is dropped: the socket may then be closed before its waiter
 * runs. */
static void
watch_keep_socket_open(gl_loop *loop, const gl_watch_slot *slot, int fd)
{
    PyObject *sock = slot->sock;
    if (sock == NULL)
        return;
    if (gl_socket_has_number(sock, fd) &&
        gl_grow(&loop->kept_sockets, &loop->kept_sockets_cap, loop->kept_sockets_len,
                sizeof(gl_kept_socket), 16) &&
        gl_socket_keep_open(&loop->kept_sockets[loop->kept_sockets_len], sock, slot->waiter))
        loop->kept_sockets[loop->kept_sockets_len++].op = slot->op;
    else
        Py_DECREF(sock);
}

/* ---- completions -------------------------------------------------------------------------- */

GL_PRIVATE int
watch_run_waiter(gl_loop *loop, PyObject *waiter)
{
    if (gl_is_handle(waiter)) {
        if (gl_handle_is_cancelled(waiter))
            return 0;
        return gl_run_handle(loop, waiter);
    }
    return gl_unraisable_unless_leaving(gl_future_set_none(waiter), waiter);
}

/* Moves the sockets of older waiters to the kept ones, which stay open until the tasks of these
 * waiters run. */
static void
older_waiters_keep_sockets_open(gl_loop *loop, gl_older_waiters *older, int fd)
{
    for (uint32_t i = 0; i < older->len; i++) {
        gl_watch_slot ready = older->slot[i];
        older->slot[i].sock = NULL;
        watch_keep_socket_open(loop, &ready, fd);
    }
}

/* Calls Loop._watch_lost(fd), which warns that a descriptor was closed while a Handle watched it;
 * the watch has ended.  -1 if SystemExit or KeyboardInterrupt ends the run of the loop; other
 * exceptions go to sys.unraisablehook. */
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
        watch_keep_socket_open(loop, &taken, fd);
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

/* ---- waiting once ------------------------------------------------------------------------ */

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
