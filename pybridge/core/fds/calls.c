/*
 * calls.c: the system calls on descriptors of connections.
 *
 * A call takes a lease, never a number (except gl_call_close()), and is made through a table of
 * functions, G.calls, as Go uses its Calls.  The table has the operating system's functions.  While
 * there is another system (goloop/_internal/system.py) it has those of golib, which pass each call
 * to the system of the number, or fail if a test requires it.
 */
#include "fds/fds.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Calls sendto(2) with the parameter types of gl_calls: glibc's own prototype has a union for the
 * address. */
static ssize_t
kernel_sendto(int fd, const void *buf, size_t n, int flags, const void *to, socklen_t len)
{
    return sendto(fd, buf, n, flags, to, len);
}

/* Sets O_NONBLOCK unless it is set.  A result >= 0, or -1 with errno. */
static int
kernel_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || flags & O_NONBLOCK)
        return flags;
    return fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

/* Returns a duplicate of the descriptor, close-on-exec and not below 3.  -1 with errno. */
static int
kernel_dup(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

/* Returns a negative number if the descriptor is not open. */
static int
kernel_exists(int fd)
{
    return fcntl(fd, F_GETFD);
}

/* The kernel's own calls. */
static const gl_calls kernel_calls = {
    .recv = recv,
    .send = send,
    .sendto = kernel_sendto,
    .shutdown = shutdown,
    .nonblocking = kernel_nonblocking,
    .dup = kernel_dup,
    .exists = kernel_exists,
    .close = close,
};

/* Returns the descriptor of a valid lease, or -1 with EBADF in errno. */
static inline int
valid_fd(const gl_lease *l)
{
    int fd = gl_lease_fd(l);
    if (fd < 0)
        errno = EBADF;
    return fd;
}

/* Defines one call: its result type, its name in the table, and its parameters after the
 * descriptor, as declared and as passed. */
#define LEASED(type, name, declared, passed)                                                       \
    GL_PRIVATE type gl_call_##name(const gl_lease *l declared)                                     \
    {                                                                                              \
        int fd = valid_fd(l);                                                                      \
        return fd < 0 ? -1 : G.calls->name(fd passed);                                             \
    }
#define _(...) , __VA_ARGS__
LEASED(ssize_t, recv, _(void *p, size_t n, int flags), _(p, n, flags))
LEASED(ssize_t, send, _(const void *p, size_t n, int flags), _(p, n, flags))
LEASED(ssize_t, sendto, _(const void *p, size_t n, int flags, const void *to, socklen_t len),
       _(p, n, flags, to, len))
LEASED(int, shutdown, _(int how), _(how))
LEASED(int, nonblocking, , )
LEASED(int, dup, , )
#undef LEASED
#undef _

GL_PRIVATE void
gl_call_close(int fd)
{
    const gl_calls *calls = G.calls;
    Py_BEGIN_ALLOW_THREADS
    calls->close(fd);
    Py_END_ALLOW_THREADS
}

/* _ask_system(request): passes the request, a writable buffer, to a system other than the operating
 * system (golib/system.go), which writes the answer into the buffer.  Returns the result of that
 * call as an int.  Then sets the system calls of all threads, and the clock of this thread, as the
 * existing systems require.  NULL with ImportError (no library), TypeError or BufferError. */
static PyObject *
ask_system(PyObject *Py_UNUSED(module), PyObject *request)
{
    gl_system system = {NULL, NULL};
    Py_buffer b;
    const char *message;
    const gl_table *go = gl_library_open(&message);
    if (go == NULL)
        return PyErr_Format(PyExc_ImportError, "%s", message);
    if (PyObject_GetBuffer(request, &b, PyBUF_WRITABLE) < 0)
        return NULL;
    int32_t n = go->system_request(b.buf, (int32_t)Py_MIN(b.len, INT32_MAX));
    PyBuffer_Release(&b);
    (void)go->system_get(&system);
    if (system.calls != NULL)
        G.calls = system.calls;
    else
        G.calls = &kernel_calls;
    gl_thread_clock = system.clock;
    return PyLong_FromLong(n);
}

static PyMethodDef calls_functions[] = {
    {"_ask_system", GL_ONEARG(ask_system),
     PyDoc_STR("Passes a request to a system other than the operating system.")},
    {NULL, NULL, 0, NULL},
};

GL_PRIVATE int
gl_calls_init(PyObject *module)
{
    G.calls = &kernel_calls;
    return PyModule_AddFunctions(module, calls_functions);
}
