/*
 * calls.c: the door to the kernel for descriptors that carry a connection.
 *
 * A call takes a lease, never a number, and goes through a table of functions, G.calls, as Go's
 * go through its Calls: the kernel's, or with simulated kernels golib/simulation_linux.go's, which sends
 * each call to the kernel that has the number.  A test can make the next call of a kind fail:
 *
 *     _core._fail_call("send", errno.ECONNRESET, after=2, times=1)
 *
 * Guarded by the GIL.
 */
#include "fds/fds.h"

#include <errno.h>
#include <fcntl.h>
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
    .read = read, .close = close,
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

#define NUMBER(type, name, text, declared, passed) FAULT_##name,
enum fault { CALLS(NUMBER) };
#define TEXT(type, name, text, declared, passed) text,
static const char *const fault_names[] = {CALLS(TEXT)};

/* Whether a test wants this call to fail; sets errno. */
static inline bool
faulty(enum fault call)
{
    if (G.call_fault.left == 0 || G.call_fault.call != (int)call || /* not this, or not yet */
        (G.call_fault.after > 0 && G.call_fault.after--))
        return false;
    G.call_fault.left--;
    errno = G.call_fault.err;
    return true;
}

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
        return fd < 0 || faulty(FAULT_##name) ? -1 : G.calls->name(fd passed);                \
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

#undef _
#undef CALLS
#undef NUMBER
#undef TEXT
#undef LEASED

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
        Py_RETURN_NONE;
    }
    return PyErr_Format(PyExc_ValueError, "no such call: %s", name);
}

/* _simulate(request): a writable buffer, which golib/simulation_linux.go reads and answers in.  Then this
 * thread's clock and everybody's calls are what the simulations that there are now ask for. */
static PyObject *
simulate(PyObject *Py_UNUSED(module), PyObject *request)
{
    void *doors[2] = {NULL, NULL};
    Py_buffer b;
    const char *message;
    const gl_table *go = gl_library(&message);
    if (go == NULL)
        return PyErr_Format(PyExc_ImportError, "%s", message);
    if (PyObject_GetBuffer(request, &b, PyBUF_WRITABLE) < 0)
        return NULL;
    int32_t n = go->describe(GL_SIMULATE, b.buf, (int32_t)Py_MIN(b.len, INT32_MAX));
    PyBuffer_Release(&b);
    (void)go->describe(GL_SIMULATED, (char *)doors, sizeof doors);
    G.calls = doors[0] != NULL ? doors[0] : &kernel_calls;
    *(void **)&gl_thread_clock = doors[1];
    return PyLong_FromLong(n);
}

static PyMethodDef calls_functions[] = {
    {"_fail_call", GL_KEYWORDS(fail_call),
     PyDoc_STR("_fail_call(call, errno, after=0, times=1): the next such system calls on "
               "connections fail; for tests.")},
    {"_simulate", GL_ONEARG(simulate), PyDoc_STR("Asks for something of a simulated kernel.")},
    {NULL, NULL, 0, NULL},
};

GL_PRIVATE int
gl_calls_init(PyObject *module)
{
    G.calls = &kernel_calls;
    return PyModule_AddFunctions(module, calls_functions);
}
