/*
 * watch.c: add_reader, add_writer and waiting for an fd once.
 *
 * Each direction of an fd has one place (gl_fd.reader, gl_fd.writer): a Handle,
 * called at each turn while the fd is ready, or a Future that is done once
 * (sock_recv and its kin).  Who comes later takes the place, as in asyncio.
 *
 * The object that add_reader was given is kept (gl_fd.file) as long as a place is
 * taken: remove_reader finds by it what was watched, also after the object was closed
 * and has no number any more.
 */
#include "core.h"

/* Tells Go what is wanted now. `f` is the entry of fd. */
static int
watch_update(gl_loop *loop, int fd)
{
    gl_fd *f = &loop->fds[fd];
    uint32_t want = 0, once = 0;
    if (gl_loop_check_own_thread(loop) < 0)
        return -1;
    if (f->reader)
        *(f->reader_once ? &once : &want) |= GL_READABLE;
    if (f->writer)
        *(f->writer_once ? &once : &want) |= GL_WRITABLE;
    int32_t r;
    if (f->watched) {
        r = loop->go->watch_set(loop->reactor, f->id, f->gen, want, once);
    } else if (want | once) {
        uint32_t id, gen;
        r = loop->go->watch_open(loop->reactor, fd, want, once, &id, &gen);
        if (r >= 0) {
            f->id = id;
            f->gen = gen;
            f->watched = true;
            if (gl_reg_set(loop, id, gen, GL_REG_WATCH, NULL, fd) < 0)
                return -1;
        }
    } else {
        r = 0;
    }
    return r < 0 ? gl_set_oserror(-r) : 0;
}

/* Takes the object of an fd whose places are both empty; the caller drops it last. */
static PyObject *
watch_take_file(gl_fd *f)
{
    PyObject *file = NULL;
    if (f->reader == NULL && f->writer == NULL) {
        file = f->file;
        f->file = NULL;
    }
    return file;
}

/* The fd that is watched for this very object, or -1. */
static int
watch_search(gl_loop *loop, PyObject *file)
{
    for (int fd = 0; fd < loop->fds_cap; fd++) {
        if (loop->fds[fd].file == file)
            return fd;
    }
    return -1;
}

/* Cancels what held a place, as asyncio cancels a replaced handle. */
static void
watch_displaced(PyObject *old)
{
    if (old == NULL)
        return;
    if (gl_is_handle(old)) {
        PyObject *r = handle_cancel(old, NULL);
        if (r == NULL)
            PyErr_WriteUnraisable(old);
        Py_XDECREF(r);
    }
    Py_DECREF(old);
}

/* Puts `waiter` (a new reference is taken) in the place.  `file` (stolen, may be NULL)
 * is the object whose number fd is. */
static int
watch_place(gl_loop *loop, int fd, bool write, PyObject *waiter, bool once, PyObject *file)
{
    gl_fd *f = gl_fd_get(loop, fd);
    if (f == NULL) {
        Py_XDECREF(file);
        return -1;
    }
    PyObject **place = write ? &f->writer : &f->reader;
    bool *place_once = write ? &f->writer_once : &f->reader_once;
    PyObject *old = *place;
    bool old_once = *place_once;
    *place = Py_NewRef(waiter);
    *place_once = once;
    if (watch_update(loop, fd) < 0) {
        f = &loop->fds[fd];
        *(write ? &f->writer : &f->reader) = old;
        *(write ? &f->writer_once : &f->reader_once) = old_once;
        Py_DECREF(waiter);
        Py_XDECREF(file);
        return -1;
    }
    if (file) {
        f = &loop->fds[fd];
        PyObject *old_file = f->file;
        f->file = file;
        file = old_file;
    }
    watch_displaced(old);
    Py_XDECREF(file);
    return 0;
}

/* Empties a place; `only` (may be NULL): just if it holds that object.
 * 1: it was taken, 0: it was not, -1: error. */
static int
watch_unplace(gl_loop *loop, int fd, bool write, PyObject *only)
{
    if (fd < 0 || fd >= loop->fds_cap)
        return 0;
    gl_fd *f = &loop->fds[fd];
    PyObject **place = write ? &f->writer : &f->reader;
    PyObject *old = *place;
    if (old == NULL || (only && old != only))
        return 0;
    if (gl_loop_check_own_thread(loop) < 0)
        return -1;
    bool was_once = write ? f->writer_once : f->reader_once;
    *place = NULL;
    PyObject *file = watch_take_file(f);
    int r = 0;
    if (loop->go && !gl_loop_is_foreign(loop)) {
        if (f->reader == NULL && f->writer == NULL && !was_once) {
            /* Leave the poller at once: the owner may close the fd next, and a
             * duplicate of it would make a level-triggered watch report for ever. */
            uint32_t id = f->id, gen = f->gen;
            f->watched = false;
            gl_reg_clear(loop, id, gen);
            loop->go->watch_close(loop->reactor, id, gen);
        } else {
            r = watch_update(loop, fd);
            if (r < 0)
                PyErr_Clear(); /* the owner closed the fd: nothing to be silent about */
            r = 0;
        }
    }
    watch_displaced(old);
    Py_XDECREF(file);
    return r < 0 ? -1 : 1;
}

/* One completion of a watch. */
static int
gl_watch_complete(gl_loop *loop, int fd, const gl_completion *c)
{
    PyObject *ready[2] = {NULL, NULL};
    gl_fd *f = &loop->fds[fd];
    if ((c->res & GL_READABLE) && f->reader) {
        ready[0] = Py_NewRef(f->reader);
        if (f->reader_once)
            Py_CLEAR(f->reader);
    }
    if ((c->res & GL_WRITABLE) && f->writer) {
        ready[1] = Py_NewRef(f->writer);
        if (f->writer_once)
            Py_CLEAR(f->writer);
    }
    PyObject *file = watch_take_file(f);
    int result = 0;
    for (int i = 0; i < 2; i++) {
        PyObject *w = ready[i];
        if (w == NULL)
            continue;
        if (result < 0) {
            Py_DECREF(w);
            continue;
        }
        if (gl_is_handle(w)) {
            if (!gl_handle_is_cancelled(w))
                result = gl_run_timed(loop, w);
        } else {
            result = gl_future_set_none(w);
            if (result < 0 && !PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) &&
                !PyErr_ExceptionMatches(PyExc_SystemExit)) {
                PyErr_WriteUnraisable(w);
                result = 0;
            }
        }
        Py_DECREF(w);
    }
    Py_XDECREF(file);
    return result;
}

/* ---- methods of Loop ---------------------------------------------------------- */

/* The first arguments of a public method, `wanted` of fd and callback, which may come
 * by name, since asyncio's are Python methods.  -1 with TypeError. */
static int
watch_arguments(const char *name, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                PyObject **found, Py_ssize_t wanted)
{
    static const char *const names[] = {"fd", "callback"};
    for (Py_ssize_t i = 0; i < wanted; i++)
        found[i] = i < nargs ? args[i] : NULL;
    Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    for (Py_ssize_t k = 0; k < nkw; k++) {
        PyObject *key = PyTuple_GET_ITEM(kwnames, k);
        Py_ssize_t i = 0;
        while (i < wanted && PyUnicode_CompareWithASCIIString(key, names[i]) != 0)
            i++;
        if (i == wanted || found[i]) {
            PyErr_Format(PyExc_TypeError,
                         i == wanted ? "%s() got an unexpected keyword argument '%U'"
                                     : "%s() got multiple values for argument '%U'",
                         name, key);
            return -1;
        }
        found[i] = args[nargs + k];
    }
    for (Py_ssize_t i = 0; i < wanted; i++) {
        if (found[i] == NULL) {
            PyErr_Format(PyExc_TypeError, "%s() missing 1 required positional argument: '%s'", name,
                         names[i]);
            return -1;
        }
    }
    return 0;
}

static PyObject *
watch_add(gl_loop *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, bool write,
          bool check, const char *name)
{
    PyObject *named[2];
    if (watch_arguments(name, args, nargs, kwnames, named, 2) < 0)
        return NULL;
    int fd = gl_fd_from_object(named[0]);
    if (fd < 0)
        return NULL;
    if (check && fd_ensure_no_transport_named(self, fd, named[0]) < 0)
        return NULL;
    if (gl_loop_check_usable(self) < 0)
        return NULL;
    PyObject *h = gl_handle_new(self, named[1], args + 2, nargs > 2 ? nargs - 2 : 0, NULL);
    if (h == NULL)
        return NULL;
    gl_handle_track(h);
    PyObject *file = PyLong_Check(named[0]) ? NULL : Py_NewRef(named[0]);
    if (watch_place(self, fd, write, h, false, file) < 0)
        Py_CLEAR(h);
    return h;
}

static PyObject *
watch_remove(gl_loop *self, PyObject *arg, bool write, bool check)
{
    long number = -1;
    bool known = fd_number(arg, &number);
    if (!known && (check || !PyErr_ExceptionMatches(PyExc_ValueError)))
        return NULL;
    PyErr_Clear();
    int fd;
    if (number > INT_MAX)
        return PyErr_Format(PyExc_ValueError, "Invalid file descriptor: %ld", number);
    if (number >= 0) {
        fd = (int)number;
        if (check && fd_ensure_no_transport_named(self, fd, arg) < 0)
            return NULL;
    } else {
        /* A file object that was closed meanwhile: asyncio searches for it among
         * what is registered. */
        fd = self->closed ? -1 : watch_search(self, arg);
        if (fd < 0 && !check)
            Py_RETURN_FALSE;
        if (fd < 0 && !self->closed)
            return PyErr_Format(PyExc_ValueError, "Invalid file descriptor: %ld", number);
    }
    if (self->closed)
        Py_RETURN_FALSE;
    int r = watch_unplace(self, fd, write, NULL);
    return r < 0 ? NULL : PyBool_FromLong(r);
}

#define WATCH_METHODS(dir, write)                                                             \
    static PyObject *loop_add_##dir(gl_loop *self, PyObject *const *args, Py_ssize_t n,       \
                                    PyObject *kwnames)                                        \
    {                                                                                         \
        PyObject *h = watch_add(self, args, n, kwnames, write, true, "add_" #dir);            \
        if (h == NULL)                                                                        \
            return NULL;                                                                      \
        Py_DECREF(h);                                                                         \
        Py_RETURN_NONE;                                                                       \
    }                                                                                         \
    static PyObject *loop__add_##dir(gl_loop *self, PyObject *const *args, Py_ssize_t n)      \
    {                                                                                         \
        return watch_add(self, args, n, NULL, write, false, "_add_" #dir);                    \
    }                                                                                         \
    static PyObject *loop_remove_##dir(gl_loop *self, PyObject *const *args, Py_ssize_t n,    \
                                       PyObject *kwnames)                                     \
    {                                                                                         \
        PyObject *fd;                                                                         \
        if (n > 1)                                                                            \
            return PyErr_Format(PyExc_TypeError, "remove_" #dir "() takes one argument");     \
        if (watch_arguments("remove_" #dir, args, n, kwnames, &fd, 1) < 0)                    \
            return NULL;                                                                      \
        return watch_remove(self, fd, write, true);                                           \
    }                                                                                         \
    static PyObject *loop__remove_##dir(gl_loop *self, PyObject *fd)                          \
    {                                                                                         \
        return watch_remove(self, fd, write, false);                                          \
    }

WATCH_METHODS(reader, false)
WATCH_METHODS(writer, true)

static PyObject *
loop_ensure_fd_no_transport(gl_loop *self, PyObject *arg)
{
    int fd = gl_fd_from_object(arg);
    if (fd < 0 || fd_ensure_no_transport_named(self, fd, arg) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* A Future that is done when the fd is ready once. */
static PyObject *
gl_wait_fd(gl_loop *loop, int fd, bool write)
{
    if (gl_loop_check_usable(loop) < 0)
        return NULL;
    PyObject *fut = gl_new_future(loop);
    if (fut == NULL)
        return NULL;
    if (watch_place(loop, fd, write, fut, true, NULL) < 0)
        Py_CLEAR(fut);
    return fut;
}

static PyObject *
loop__wait_readable(gl_loop *self, PyObject *arg)
{
    int fd = gl_fd_from_object(arg);
    return fd < 0 ? NULL : gl_wait_fd(self, fd, false);
}

static PyObject *
loop__wait_writable(gl_loop *self, PyObject *arg)
{
    int fd = gl_fd_from_object(arg);
    return fd < 0 ? NULL : gl_wait_fd(self, fd, true);
}

/* _forget_wait(fd, future): a wait that was given up; the place is emptied if the
 * future still has it. */
static PyObject *
loop__forget_wait(gl_loop *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "_forget_wait() takes an fd and a future");
        return NULL;
    }
    int fd = gl_fd_from_object(args[0]);
    if (fd < 0)
        return NULL;
    if (!self->closed) {
        if (watch_unplace(self, fd, false, args[1]) < 0 ||
            watch_unplace(self, fd, true, args[1]) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}
