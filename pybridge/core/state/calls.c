/*
 * calls.c: the door to the kernel for descriptors that carry a connection.
 *
 * A call takes a lease, never a number, and a test can make the next call of a kind fail
 * with any errno, as Go's tests do with the reactor's Calls:
 *
 *     _core._fail_call("send", errno.ECONNRESET, after=2, times=1)
 *
 * Guarded by the GIL.
 */
#include "state/private.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

enum gl_call {
    GL_CALL_RECV,
    GL_CALL_SEND,
    GL_CALL_SENDTO,
    GL_CALL_SHUTDOWN,
    GL_CALL_SETSOCKOPT,
    GL_CALL_FCNTL,
    GL_CALL_DUP,
    GL_CALLS,
};

static const char *const call_names[GL_CALLS] = {"recv",       "send",  "sendto", "shutdown",
                                                 "setsockopt", "fcntl", "dup"};

/* Whether this call is to fail; sets errno. */
static bool
call_faulty(enum gl_call call)
{
    if (G.call_fault.call != (int)call)
        return false;
    if (G.call_fault.after > 0) {
        G.call_fault.after--;
        return false;
    }
    G.call_fault.left--;
    errno = G.call_fault.err;
    return true;
}

/* The descriptor to use, or -1 with errno. */
static inline int
call_enter(const gl_lease *l, enum gl_call call)
{
    if (G.call_fault.left > 0 && call_faulty(call))
        return -1;
    int fd = gl_lease_fd(l);
    if (fd < 0)
        errno = EBADF;
    return fd;
}

GL_PRIVATE ssize_t
gl_call_recv(const gl_lease *l, void *buf, size_t n, int flags)
{
    int fd = call_enter(l, GL_CALL_RECV);
    return fd < 0 ? -1 : recv(fd, buf, n, flags);
}

GL_PRIVATE ssize_t
gl_call_send(const gl_lease *l, const void *buf, size_t n, int flags)
{
    int fd = call_enter(l, GL_CALL_SEND);
    return fd < 0 ? -1 : send(fd, buf, n, flags);
}

GL_PRIVATE ssize_t
gl_call_sendto(const gl_lease *l, const void *buf, size_t n, int flags, const void *addr,
               socklen_t len)
{
    int fd = call_enter(l, GL_CALL_SENDTO);
    return fd < 0 ? -1 : sendto(fd, buf, n, flags, addr, len);
}

GL_PRIVATE int
gl_call_shutdown(const gl_lease *l, int how)
{
    int fd = call_enter(l, GL_CALL_SHUTDOWN);
    return fd < 0 ? -1 : shutdown(fd, how);
}

GL_PRIVATE int
gl_call_nodelay(const gl_lease *l)
{
    int fd = call_enter(l, GL_CALL_SETSOCKOPT), one = 1;
    return fd < 0 ? -1 : setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

GL_PRIVATE int
call_nonblocking(const gl_lease *l)
{
    int fd = call_enter(l, GL_CALL_FCNTL);
    int flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);
    if (flags < 0)
        return -1;
    return flags & O_NONBLOCK ? 0 : fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

/* A duplicate of the lease's descriptor, close-on-exec. */
GL_PRIVATE int
call_dup(const gl_lease *l)
{
    int fd = call_enter(l, GL_CALL_DUP);
    return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

GL_PRIVATE void
gl_call_close(int fd)
{
    Py_BEGIN_ALLOW_THREADS
    close(fd);
    Py_END_ALLOW_THREADS
}

GL_PRIVATE PyObject *
gl_core_fail_call(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"call", "errno", "after", "times", NULL};
    const char *name;
    int err;
    unsigned long after = 0, times = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "si|kk:_fail_call", names, &name, &err, &after,
                                     &times))
        return NULL;
    for (int i = 0; i < GL_CALLS; i++) {
        if (strcmp(name, call_names[i]) != 0)
            continue;
        G.call_fault.call = (enum gl_call)i;
        G.call_fault.err = err;
        G.call_fault.after = after;
        G.call_fault.left = times;
        Py_RETURN_NONE;
    }
    return PyErr_Format(PyExc_ValueError, "no such call: %s", name);
}
