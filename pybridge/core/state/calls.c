/*
 * calls.c: the door to the kernel for descriptors that carry a connection.
 *
 * A call takes a lease, never a number, and goes through a table of functions, G.calls, as Go's
 * go through its Calls.  It is the kernel's, until a test wants the next call of a kind to fail:
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
#include <sys/stat.h>
#include <unistd.h>

/* sendto's own prototype has a union for the address. */
static ssize_t
kernel_sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to,
              socklen_t len)
{
    return sendto(fd, buf, n, flags, to, len);
}

static int
kernel_nodelay(int fd)
{
    int one = 1;
    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static int
kernel_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || flags & O_NONBLOCK ? flags : fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

static int
kernel_dup(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

static int
kernel_exists(int fd)
{
    return fcntl(fd, F_GETFD);
}

static const gl_calls kernel_calls = {
    .recv = recv,
    .send = send,
    .sendto = kernel_sendto,
    .shutdown = shutdown,
    .nodelay = kernel_nodelay,
    .nonblocking = kernel_nonblocking,
    .dup = kernel_dup,
    .exists = kernel_exists,
    .fstat = fstat,
    .read = read,
    .close = close,
};

/* ---- faults ----------------------------------------------------------------------- */

enum fault { F_RECV, F_SEND, F_SENDTO, F_SHUTDOWN, F_SETSOCKOPT, F_FCNTL, F_DUP, F_FSTAT, F_READ };
static const char *const fault_names[] = {"recv",  "send", "sendto", "shutdown", "setsockopt",
                                          "fcntl", "dup",  "fstat",  "read"};

/* Whether this call is to fail; sets errno.  After the last of them the kernel is back. */
static bool
faulty(enum fault call)
{
    if (G.call_fault.call != (int)call)
        return false;
    if (G.call_fault.after > 0) {
        G.call_fault.after--;
        return false;
    }
    if (--G.call_fault.left == 0)
        G.calls = &kernel_calls;
    errno = G.call_fault.err;
    return true;
}

#define FAULTY(type, name, fault, parameters, ...)                                            \
    static type faulty_##name parameters                                                      \
    {                                                                                         \
        return faulty(fault) ? -1 : kernel_calls.name(__VA_ARGS__);                           \
    }
FAULTY(ssize_t, recv, F_RECV, (int fd, void *p, size_t n, int flags), fd, p, n, flags)
FAULTY(ssize_t, send, F_SEND, (int fd, const void *p, size_t n, int flags), fd, p, n, flags)
FAULTY(ssize_t, sendto, F_SENDTO,
       (int fd, const void *p, size_t n, int flags, const struct sockaddr *to, socklen_t len), fd,
       p, n, flags, to, len)
FAULTY(int, shutdown, F_SHUTDOWN, (int fd, int how), fd, how)
FAULTY(int, nodelay, F_SETSOCKOPT, (int fd), fd)
FAULTY(int, nonblocking, F_FCNTL, (int fd), fd)
FAULTY(int, dup, F_DUP, (int fd), fd)
FAULTY(int, fstat, F_FSTAT, (int fd, struct stat *st), fd, st)
FAULTY(ssize_t, read, F_READ, (int fd, void *p, size_t n), fd, p, n)

static const gl_calls faulty_calls = {
    .recv = faulty_recv,
    .send = faulty_send,
    .sendto = faulty_sendto,
    .shutdown = faulty_shutdown,
    .nodelay = faulty_nodelay,
    .nonblocking = faulty_nonblocking,
    .dup = faulty_dup,
    .exists = kernel_exists,
    .fstat = faulty_fstat,
    .read = faulty_read,
    .close = close,
};

/* _fail_call(call, errno, after=0, times=1): for tests; times=0 ends it. */
static PyObject *
fail_call(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"call", "errno", "after", "times", NULL};
    const char *name;
    int err;
    unsigned long after = 0, times = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "si|kk:_fail_call", names, &name, &err, &after,
                                     &times))
        return NULL;
    for (size_t i = 0; i < Py_ARRAY_LENGTH(fault_names); i++) {
        if (strcmp(name, fault_names[i]) != 0)
            continue;
        G.call_fault.call = (int)i;
        G.call_fault.err = err;
        G.call_fault.after = after;
        G.call_fault.left = times;
        G.calls = times > 0 ? &faulty_calls : &kernel_calls;
        Py_RETURN_NONE;
    }
    return PyErr_Format(PyExc_ValueError, "no such call: %s", name);
}

/* ---- calls on leases ---------------------------------------------------------------- */

/* The descriptor to use, or -1 with errno. */
static inline int
call_fd(const gl_lease *l)
{
    int fd = gl_lease_fd(l);
    if (fd < 0)
        errno = EBADF;
    return fd;
}

GL_PRIVATE ssize_t
gl_call_recv(const gl_lease *l, void *buf, size_t n, int flags)
{
    int fd = call_fd(l);
    return fd < 0 ? -1 : G.calls->recv(fd, buf, n, flags);
}

GL_PRIVATE ssize_t
gl_call_send(const gl_lease *l, const void *buf, size_t n, int flags)
{
    int fd = call_fd(l);
    return fd < 0 ? -1 : G.calls->send(fd, buf, n, flags);
}

GL_PRIVATE ssize_t
gl_call_sendto(const gl_lease *l, const void *buf, size_t n, int flags, const void *addr,
               socklen_t len)
{
    int fd = call_fd(l);
    return fd < 0 ? -1 : G.calls->sendto(fd, buf, n, flags, addr, len);
}

GL_PRIVATE int
gl_call_shutdown(const gl_lease *l, int how)
{
    int fd = call_fd(l);
    return fd < 0 ? -1 : G.calls->shutdown(fd, how);
}

GL_PRIVATE int
gl_call_nodelay(const gl_lease *l)
{
    int fd = call_fd(l);
    return fd < 0 ? -1 : G.calls->nodelay(fd);
}

GL_PRIVATE int
call_nonblocking(const gl_lease *l)
{
    int fd = call_fd(l);
    return fd < 0 ? -1 : G.calls->nonblocking(fd);
}

/* A duplicate of the lease's descriptor, close-on-exec. */
GL_PRIVATE int
call_dup(const gl_lease *l)
{
    int fd = call_fd(l);
    return fd < 0 ? -1 : G.calls->dup(fd);
}

GL_PRIVATE void
gl_call_close(int fd)
{
    const gl_calls *calls = G.calls;
    Py_BEGIN_ALLOW_THREADS
    calls->close(fd);
    Py_END_ALLOW_THREADS
}

static PyMethodDef calls_functions[] = {
    {"_fail_call", (PyCFunction)(void (*)(void))fail_call, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("_fail_call(call, errno, after=0, times=1): the next such system calls on "
               "connections fail; for tests.")},
    {NULL, NULL, 0, NULL},
};

GL_PRIVATE int
gl_calls_init(PyObject *module)
{
    G.calls = &kernel_calls;
    return PyModule_AddFunctions(module, calls_functions);
}
