/*
 * registry.c: the registrations with the reactor, and the users of fd numbers.
 *
 * regs is indexed by the id that Go chose.  The generation is compared before a completion is
 * handled, so completions of an earlier registration are not delivered.
 *
 * fds has the present user of each number: a transport, or readers and writers (watch.c).  It is a
 * tree of three levels.  Its entries do not move until the loop closes, so a pointer to one stays
 * valid during a call that runs Python.
 */
#include "fds/fds.h"

#include <errno.h>

GL_NO_PYTHON GL_PRIVATE int
gl_reg_set(gl_loop *loop, uint32_t id, uint32_t gen, uint32_t kind, PyObject *owner, int fd)
{
    if (!gl_grow(&loop->regs, &loop->regs_cap, id, sizeof(*loop->regs), 64)) {
        PyErr_NoMemory();
        return -1;
    }
    gl_reg *r = &loop->regs[id];
    assert(r->owner == NULL); /* the previous owner of the id has cleared its entry */
    r->owner = Py_XNewRef(owner);
    r->gen = gen;
    r->kind = kind;
    r->fd = fd;
    return 0;
}

GL_NO_PYTHON GL_PRIVATE PyObject *
gl_reg_take(gl_loop *loop, uint32_t id, uint32_t gen)
{
    if (id >= loop->regs_cap || loop->regs[id].gen != gen)
        return NULL;
    gl_reg *r = &loop->regs[id];
    PyObject *owner = r->owner;
    r->owner = NULL;
    r->kind = GL_REG_FREE;
    return owner;
}

GL_PRIVATE void
gl_reg_clear(gl_loop *loop, uint32_t id, uint32_t gen)
{
    Py_XDECREF(gl_reg_take(loop, id, gen));
}

/* ---- the table of numbers ------------------------------------------------------ */

GL_PRIVATE_INLINE gl_fd *
gl_fd_find(gl_loop *loop, int fd)
{
    uint32_t i = (uint32_t)fd / GL_FD_LEAF;
    uint32_t branch = i / GL_FD_BRANCH;
    if (fd < 0 || branch >= loop->fds.branches || loop->fds.branch[branch] == NULL)
        return NULL;
    gl_fd_leaf *leaf = loop->fds.branch[branch]->leaf[i % GL_FD_BRANCH];
    if (leaf)
        return &leaf->fd[fd % GL_FD_LEAF];
    return NULL;
}

GL_PRIVATE gl_fd *
gl_fd_find_or_make(gl_loop *loop, int fd)
{
    gl_fd *f = gl_fd_find(loop, fd);
    if (f != NULL)
        return f;
    /* Only open fds use memory here. */
    if (fd < 0 || G.calls->exists(fd) < 0) {
        gl_set_oserror(EBADF);
        return NULL;
    }
    gl_fds *fds = &loop->fds;
    uint32_t i = (uint32_t)fd / GL_FD_LEAF;
    uint32_t branch = i / GL_FD_BRANCH;
    if (gl_grow(&fds->branch, &fds->branches, branch, sizeof(*fds->branch), 1)) {
        gl_fd_branch **b = &fds->branch[branch];
        if (*b == NULL)
            *b = PyMem_Calloc(1, sizeof(**b));
        if (*b != NULL)
            (*b)->leaf[i % GL_FD_BRANCH] = PyMem_Calloc(1, sizeof(gl_fd_leaf));
        f = gl_fd_find(loop, fd);
    }
    if (f == NULL)
        PyErr_NoMemory();
    return f;
}

GL_PRIVATE int
gl_fd_set_transport(gl_loop *loop, int fd, enum gl_reg_kind kind, PyObject *transport)
{
    gl_fd *f = gl_fd_find_or_make(loop, fd);
    if (f == NULL)
        return -1;
    f->kind = (uint8_t)kind;
    f->transport = transport;
    return 0;
}

GL_PRIVATE void
gl_fd_clear_transport(gl_loop *loop, int fd, PyObject *transport)
{
    gl_fd *f = gl_fd_find(loop, fd);
    if (f != NULL && f->transport == transport)
        f->transport = NULL;
}

GL_PRIVATE void
gl_fd_set_listener(gl_loop *loop, int fd)
{
    gl_fd *f = gl_fd_find_or_make(loop, fd);
    if (f == NULL)
        PyErr_Clear(); /* no memory */
    else if (f->transport == NULL)
        f->kind = GL_REG_LISTENER;
}

GL_NO_PYTHON GL_PRIVATE PyObject *
gl_fd_take_listener(gl_loop *loop, int fd)
{
    gl_fd *f = gl_fd_find(loop, fd);
    if (f == NULL || f->transport != NULL || f->kind != GL_REG_LISTENER)
        return NULL;
    f->kind = GL_REG_FREE;
    for (uint32_t id = 0; id < loop->regs_cap; id++) {
        gl_reg *r = &loop->regs[id];
        if (r->kind != GL_REG_LISTENER || r->fd != fd || r->owner == NULL)
            continue;
        G.reg_ops[GL_REG_LISTENER]->unregister_on_loop_close(r->owner);
        return gl_reg_take(loop, id, r->gen);
    }
    return NULL;
}

GL_PRIVATE int
gl_fd_ensure_no_transport(gl_loop *loop, int fd, PyObject *named)
{
    gl_fd *f = gl_fd_find(loop, fd);
    if (f == NULL || f->transport == NULL || !G.reg_ops[f->kind]->blocks_number(f->transport))
        return 0;
    PyObject *transport = gl_try_newref(f->transport);
    if (transport == NULL) /* the transport is being freed */
        return 0;
    if (named)
        PyErr_Format(PyExc_RuntimeError, "File descriptor %R is used by transport %R", named,
                     transport);
    else
        PyErr_Format(PyExc_RuntimeError, "File descriptor %d is used by transport %R", fd,
                     transport);
    Py_DECREF(transport);
    return -1;
}

/* ---- sockets that became ready ------------------------------------------------------- */

GL_PRIVATE void
gl_kept_sockets_release(gl_loop *loop)
{
    PyObject *exc = gl_take_exception();
    while (loop->kept_sockets_len > 0) {
        gl_kept_socket kept = loop->kept_sockets[--loop->kept_sockets_len];
        gl_socket_stop_keeping(&kept);
    }
    loop->kept_sockets_next = 0;
    gl_restore_exception(exc);
}

/* ---- the collector, and the end ---------------------------------------------------- */

GL_PRIVATE int
gl_fds_each(gl_fds *fds, gl_fd_call *each, visitproc visit, void *arg)
{
    for (uint32_t b = 0; b < fds->branches; b++) {
        for (int i = 0; fds->branch[b] != NULL && i < GL_FD_BRANCH; i++) {
            gl_fd_leaf *leaf = fds->branch[b]->leaf[i];
            for (int k = 0; leaf != NULL && k < GL_FD_LEAF; k++) {
                int r = each(&leaf->fd[k], visit, arg);
                if (r)
                    return r;
            }
        }
    }
    return 0;
}

/* A gl_fd_call: appends the number's transport to a list, unless the transport is being freed.
 * Runs no Python that could change the table.  -1 with MemoryError. */
static int
append_transport(gl_fd *f, visitproc Py_UNUSED(visit), void *list)
{
    PyObject *transport = f->transport ? gl_try_newref(f->transport) : NULL;
    int rc = 0;
    if (transport)
        rc = PyList_Append(list, transport);
    Py_XDECREF(transport);
    return rc;
}

GL_PRIVATE PyObject *
gl_fd_transports(gl_loop *loop, PyObject *Py_UNUSED(ignored))
{
    PyObject *list = PyList_New(0);
    if (list != NULL && gl_fds_each(&loop->fds, append_transport, NULL, list) < 0)
        Py_CLEAR(list);
    return list;
}

GL_PRIVATE bool
gl_reg_is_dormant(gl_loop *loop, uint32_t id, PyObject *owner)
{
    if (loop == NULL || id >= loop->regs_cap || loop->regs[id].owner != owner)
        return false;
    const gl_reg_ops *ops = G.reg_ops[loop->regs[id].kind];
    return ops != NULL && ops->is_dormant != NULL && ops->is_dormant(owner);
}

GL_PRIVATE int
gl_registry_traverse(gl_loop *loop, gl_fd_call *watch, visitproc visit, void *arg)
{
    for (uint32_t i = 0; i < loop->regs_cap; i++) {
        PyObject *owner = loop->regs[i].owner;
        if (owner != NULL && !gl_reg_is_dormant(loop, i, owner))
            Py_VISIT(owner);
    }
    for (uint32_t i = 0; i < loop->kept_sockets_len; i++) {
        Py_VISIT(loop->kept_sockets[i].sock);
        Py_VISIT(loop->kept_sockets[i].waiter);
    }
    return gl_fds_each(&loop->fds, watch, visit, arg);
}

GL_PRIVATE void
gl_registry_clear(gl_loop *loop, gl_fd_call *drop)
{
    gl_reg *regs = loop->regs;
    uint32_t regs_cap = loop->regs_cap;
    gl_fds fds = loop->fds;
    loop->regs = NULL;
    loop->regs_cap = 0;
    loop->fds = (gl_fds){NULL, 0};
    gl_kept_sockets_release(loop);
    PyMem_RawFree(loop->written);
    loop->written = NULL;
    loop->written_len = 0;
    loop->written_cap = 0;
    PyMem_RawFree(loop->kept_sockets);
    loop->kept_sockets = NULL;
    loop->kept_sockets_cap = 0;
    (void)gl_fds_each(&fds, drop, NULL, NULL);
    for (uint32_t b = 0; b < fds.branches; b++) {
        for (int i = 0; fds.branch[b] != NULL && i < GL_FD_BRANCH; i++)
            PyMem_Free(fds.branch[b]->leaf[i]);
        PyMem_Free(fds.branch[b]);
    }
    PyMem_RawFree(fds.branch);
    for (uint32_t i = 0; i < regs_cap; i++)
        Py_XDECREF(regs[i].owner);
    PyMem_RawFree(regs);
}
