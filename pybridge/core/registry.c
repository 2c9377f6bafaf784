/*
 * registry.c: what the reactor knows, seen from C.
 *
 * regs is indexed by the id that Go chose.  The generation is compared before a
 * completion is handed on, so nothing of a registration that is gone is delivered.
 *
 * fds is indexed by fd number and says what uses the number now: a transport, or
 * readers and writers (add_reader, sock_recv).  A number whose watch has fired
 * stays registered but silent, so that the next wait costs one epoll_ctl; the entry
 * is dropped when a transport takes the number.
 */
#include "core.h"

static int
gl_reg_set(gl_loop *loop, uint32_t id, uint32_t gen, uint32_t kind, PyObject *owner, int fd)
{
    if (id >= loop->regs_cap) {
        uint32_t cap = loop->regs_cap ? loop->regs_cap : 64;
        while (cap <= id)
            cap *= 2;
        gl_reg *p = PyMem_Realloc(loop->regs, cap * sizeof(*p));
        if (p == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memset(p + loop->regs_cap, 0, (cap - loop->regs_cap) * sizeof(*p));
        loop->regs = p;
        loop->regs_cap = cap;
    }
    gl_reg *r = &loop->regs[id];
    PyObject *old = r->owner;
    r->owner = Py_XNewRef(owner);
    r->gen = gen;
    r->kind = kind;
    r->fd = fd;
    Py_XDECREF(old);
    return 0;
}

static void
gl_reg_clear(gl_loop *loop, uint32_t id, uint32_t gen)
{
    if (id >= loop->regs_cap || loop->regs[id].gen != gen)
        return;
    gl_reg *r = &loop->regs[id];
    PyObject *owner = r->owner;
    r->owner = NULL;
    r->kind = GL_REG_FREE;
    Py_XDECREF(owner);
}

static gl_fd *
gl_fd_get(gl_loop *loop, int fd)
{
    if (fd >= loop->fds_cap) {
        int cap = loop->fds_cap ? loop->fds_cap : 64;
        while (cap <= fd)
            cap *= 2;
        gl_fd *p = PyMem_Realloc(loop->fds, (size_t)cap * sizeof(*p));
        if (p == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        memset(p + loop->fds_cap, 0, (size_t)(cap - loop->fds_cap) * sizeof(*p));
        loop->fds = p;
        loop->fds_cap = cap;
    }
    return &loop->fds[fd];
}

static int
gl_fd_release_watch(gl_loop *loop, int fd)
{
    if (fd < 0 || fd >= loop->fds_cap || !loop->fds[fd].watched)
        return 0;
    gl_fd *f = &loop->fds[fd];
    uint32_t id = f->id, gen = f->gen;
    f->watched = false;
    PyObject *reader = f->reader, *writer = f->writer, *file = f->file;
    f->reader = f->writer = f->file = NULL;
    gl_reg_clear(loop, id, gen);
    if (loop->go)
        loop->go->watch_close(loop->reactor, id, gen);
    Py_XDECREF(reader);
    Py_XDECREF(writer);
    Py_XDECREF(file);
    return 0;
}

static void
gl_fd_set_transport(gl_loop *loop, int fd, PyObject *transport)
{
    if (fd < 0)
        return;
    if (transport == NULL && fd >= loop->fds_cap)
        return;
    gl_fd *f = gl_fd_get(loop, fd);
    if (f == NULL) {
        PyErr_Clear(); /* only the check for a doubly used fd is lost */
        return;
    }
    f->transport = transport;
}

/* The number that an int is or that an object's fileno() gives, which may be no fd's
 * (a closed socket says -1); false with ValueError. */
static bool
fd_number(PyObject *o, long *fd)
{
    if (PyLong_Check(o)) {
        *fd = PyLong_AsLong(o);
    } else {
        PyObject *n = PyObject_CallMethodNoArgs(o, G.s_fileno);
        PyObject *i = n ? PyNumber_Long(n) : NULL;
        Py_XDECREF(n);
        if (i == NULL) {
            if (PyErr_ExceptionMatches(PyExc_AttributeError) ||
                PyErr_ExceptionMatches(PyExc_TypeError) ||
                PyErr_ExceptionMatches(PyExc_ValueError)) {
                PyErr_Clear();
                PyErr_Format(PyExc_ValueError, "Invalid file object: %R", o);
            }
            return false;
        }
        *fd = PyLong_AsLong(i);
        Py_DECREF(i);
    }
    return *fd != -1 || !PyErr_Occurred();
}

/* The fd of an int or of an object with fileno(), as asyncio's selectors find it;
 * -1 with ValueError. */
static int
gl_fd_from_object(PyObject *o)
{
    long fd;
    if (!fd_number(o, &fd))
        return -1;
    if (fd < 0 || fd > INT_MAX) {
        PyErr_Format(PyExc_ValueError, "Invalid file descriptor: %ld", fd);
        return -1;
    }
    return (int)fd;
}

/* `named` is what the user passed, for the message; NULL: the number. */
static int
fd_ensure_no_transport_named(gl_loop *loop, int fd, PyObject *named)
{
    if (fd < 0 || fd >= loop->fds_cap || loop->fds[fd].transport == NULL)
        return 0;
    PyObject *transport = Py_NewRef(loop->fds[fd].transport);
    PyObject *closing = PyObject_CallMethod(transport, "is_closing", NULL);
    int r = closing ? PyObject_IsTrue(closing) : -1;
    Py_XDECREF(closing);
    if (r == 0) {
        if (named)
            PyErr_Format(PyExc_RuntimeError, "File descriptor %R is used by transport %R",
                         named, transport);
        else
            PyErr_Format(PyExc_RuntimeError, "File descriptor %d is used by transport %R", fd,
                         transport);
        r = -1;
    } else if (r == 1) {
        r = 0;
    }
    Py_DECREF(transport);
    return r;
}

static int
gl_fd_ensure_no_transport(gl_loop *loop, int fd)
{
    return fd_ensure_no_transport_named(loop, fd, NULL);
}

static int
gl_registry_traverse(gl_loop *loop, visitproc visit, void *arg)
{
    for (uint32_t i = 0; i < loop->regs_cap; i++)
        Py_VISIT(loop->regs[i].owner);
    for (int i = 0; i < loop->fds_cap; i++) {
        Py_VISIT(loop->fds[i].reader);
        Py_VISIT(loop->fds[i].writer);
        Py_VISIT(loop->fds[i].file);
    }
    return 0;
}

/* At close: nobody is told any more; the fds themselves are left to their owners. */
static void
gl_registry_clear(gl_loop *loop)
{
    gl_reg *regs = loop->regs;
    uint32_t regs_cap = loop->regs_cap;
    gl_fd *fds = loop->fds;
    int fds_cap = loop->fds_cap;
    loop->regs = NULL;
    loop->regs_cap = 0;
    loop->fds = NULL;
    loop->fds_cap = 0;
    for (int i = 0; i < fds_cap; i++) {
        Py_XDECREF(fds[i].reader);
        Py_XDECREF(fds[i].writer);
        Py_XDECREF(fds[i].file);
    }
    for (uint32_t i = 0; i < regs_cap; i++)
        Py_XDECREF(regs[i].owner);
    PyMem_Free(fds);
    PyMem_Free(regs);
}
