/*
 * transport_registration.c: a transport's registration with the reactor, and its end.
 */
#include "transports/transports.h"

#include <errno.h>

/* Ends the registration in Go; the registry's entry stays. */
GL_NO_PYTHON static void
transport_deregister(gl_transport *t)
{
    gl_reactor_api(t->loop)->unregister(t->loop->reactor, t->id, t->gen);
}

/* Registers fd with Go and in the registry.  Returns 0, or an errno and nothing is registered. */
GL_NO_PYTHON static int
transport_add_registration(gl_transport *t, int fd)
{
    gl_loop *loop = t->loop;
    int32_t rc = t->ops->register_fd(t, fd);
    if (rc < 0)
        return -rc;
    if (gl_reg_set(loop, t->id, t->gen, t->ops->kind, (PyObject *)t, fd) < 0) {
        PyErr_Clear();
        transport_deregister(t);
        return ENOMEM;
    }
    t->registered = true;
    return 0;
}

GL_PRIVATE bool
transport_number_is_used(gl_transport *t, gl_loop *loop, int fd)
{
    gl_fd *f = gl_fd_find(loop, fd);
    if (f == NULL)
        return false;
    gl_watch *w = f->watch;
    return (f->transport != NULL && f->transport != (PyObject *)t) ||
           (w != NULL && w->watched && (w->slot[0].waiter != NULL || w->slot[1].waiter != NULL));
}

GL_PRIVATE int
gl_transport_register(gl_transport *t)
{
    if (gl_loop_check_usable(t->loop) < 0)
        return -1;
    if (t->ops->shares_number && transport_number_is_used(t, t->loop, t->lease.fd) &&
        gl_lease_duplicate(&t->lease) < 0)
        return -1;
    int fd = gl_lease_fd(&t->lease);
    if (fd < 0)
        return gl_set_oserror(EBADF);
    gl_watch ended_watch;
    gl_watch_detach(t->loop, fd, &ended_watch);
    int err = transport_add_registration(t, fd);
    int rc;
    if (err == 0)
        rc = t->ops->update_interest(t);
    else
        rc = gl_set_oserror(err);
    PyObject *exc = gl_take_exception();
    gl_watch_discard(&ended_watch);
    gl_restore_exception(exc);
    return rc;
}

GL_PRIVATE void
gl_transport_unregister(gl_transport *t)
{
    PyObject *owner = NULL;
    if (t->registered) {
        gl_loop *loop = t->loop;
        bool foreign = gl_loop_is_foreign(loop);
        t->registered = false;
        if (!foreign && loop->go != NULL)
            transport_deregister(t);
        owner = gl_reg_take(loop, t->id, t->gen);
    }
    t->ops->discard_queue(t);
    Py_XDECREF(owner);
}

GL_PRIVATE int
gl_transport_update_interest(gl_transport *t)
{
    if (is_ending(t))
        return 0;
    return t->ops->update_interest(t);
}

GL_PRIVATE void
gl_transport_unregister_on_loop_close(PyObject *owner)
{
    gl_transport *t = (gl_transport *)owner;
    if (!t->registered)
        return;
    t->registered = false;
    if (t->loop != NULL && t->loop->go != NULL && !gl_loop_is_foreign(t->loop))
        transport_deregister(t);
    gl_lease_stop_counting(&t->lease);
}

GL_PRIVATE bool
gl_transport_blocks_number(PyObject *transport)
{
    gl_transport *t = (gl_transport *)transport;
    return !is_closing(t) && gl_lease_fd(&t->lease) >= 0;
}
