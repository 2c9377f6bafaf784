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
#include "fds/fds.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* sendto's own prototype has a union for the address. */
static ssize_t
kernel_sendto(int fd, const void *buf, size_t n, int flags, const void *to, socklen_t len)
{
    return sendto(fd, buf, n, flags, to, len);
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
    .nonblocking = kernel_nonblocking,
    .dup = kernel_dup,
    .exists = kernel_exists,
    .fstat = fstat,
    .read = read,
    .close = close,
};

/* Of each call that a lease can make: what it returns, its name in the table and in _fail_call,
 * and its parameters behind the descriptor, declared and passed. */
#define _(...) , __VA_ARGS__
#define CALLS(X)                                                                              \
    X(ssize_t, recv, "recv", _(void *p, size_t n, int flags), _(p, n, flags))                 \
    X(ssize_t, send, "send", _(const void *p, size_t n, int flags), _(p, n, flags))           \
    X(ssize_t, sendto, "sendto",                                                              \
      _(const void *p, size_t n, int flags, const void *to, socklen_t len),                   \
      _(p, n, flags, to, len))                                                                \
    X(int, shutdown, "shutdown", _(int how), _(how))                                          \
    X(int, nonblocking, "fcntl", , )                                                          \
    X(int, dup, "dup", , )

/* The descriptor to use, or -1 with errno. */
static inline int
call_fd(const gl_lease *l)
{
    int fd = gl_lease_fd(l);
    if (fd < 0)
        errno = EBADF;
    return fd;
}

#define LEASED(type, name, text, declared, passed)                                            \
    GL_PRIVATE type gl_call_##name(const gl_lease *l declared)                                \
    {                                                                                         \
        int fd = call_fd(l);                                                                  \
        return fd < 0 ? -1 : G.calls->name(fd passed);                                        \
    }
CALLS(LEASED)

GL_PRIVATE void
gl_call_close(int fd)
{
    const gl_calls *calls = G.calls;
    Py_BEGIN_ALLOW_THREADS
    calls->close(fd);
    Py_END_ALLOW_THREADS
}

/* ---- faults ----------------------------------------------------------------------- */

#define NUMBER(type, name, text, declared, passed) FAULT_##name,
enum fault { CALLS(NUMBER) };
#define TEXT(type, name, text, declared, passed) text,
static const char *const fault_names[] = {CALLS(TEXT)};

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

#define FAULTY(type, name, text, declared, passed)                                            \
    static type faulty_##name(int fd declared)                                                \
    {                                                                                         \
        return faulty(FAULT_##name) ? -1 : kernel_calls.name(fd passed);                      \
    }
CALLS(FAULTY)

#define ENTRY(type, name, text, declared, passed) .name = faulty_##name,
static const gl_calls faulty_calls = {
    CALLS(ENTRY)
    .exists = kernel_exists,
    .fstat = fstat,
    .read = read,
    .close = close,
};

#undef _
#undef CALLS
#undef LEASED
#undef NUMBER
#undef TEXT
#undef FAULTY
#undef ENTRY

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

static PyMethodDef calls_functions[] = {
    {"_fail_call", GL_KEYWORDS(fail_call),
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
