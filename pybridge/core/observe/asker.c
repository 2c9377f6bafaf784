/*
 * asker.c: accepts, without the GIL, the clients that ask this process about itself.
 *
 * A thread of Python's (goloop/_internal/observe/introspection.py) calls _next_asker() again and again.
 * Whom it gets waits in G.asker until the thread has the GIL.  Where that takes long, or the answer
 * does, the monitor takes that client, and all that come later (golib/monitor.c).
 *
 *     listener --- still ours? --- accept ---> G.asker --- the GIL ---> Python
 *                                                 '----- 0.5 s -------> the monitor
 *
 * The listener is a lease by its inode: in a program that closes all descriptors, to become a
 * daemon, the number is perhaps that of its own listener next, whose clients are none of ours.
 */
#include "observe/observe.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/epoll.h>
#else
#include <poll.h>
#endif

/* After so many that may not ask, or another failure, the next is kept waiting so long. */
#define REFUSED_MOST 16
static const struct timespec pause_time = {0, 20000000};

/* The process's own user and root.  No process is 0 but one of another PID namespace: containers
 * with one network see each other's abstract names, and each has a root. */
static bool
may_ask(int fd)
{
#if defined(SO_PEERCRED)
    struct ucred who;
    socklen_t n = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && who.pid != 0 &&
           (who.uid == 0 || who.uid == geteuid());
#else
    (void)fd;
    return true; /* the folder's mode keeps others out */
#endif
}

static bool
is_ours(int listener)
{
    struct stat now;
    return fstat(listener, &now) == 0 && now.st_dev == GL_READ(G.asker.dev) &&
           now.st_ino == GL_READ(G.asker.ino);
}

/* The next connection of a client that may ask, without waiting; -1 with errno, which is EBADF once
 * the listener is ours no more.  Needs no GIL. */
static int32_t
accept_asker(void)
{
    int listener = GL_READ(G.asker.listener);
    if (!is_ours(listener)) {
        errno = EBADF;
        return -1;
    }
#if defined(__linux__)
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
#else
    int fd = accept(listener, NULL, NULL);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
#endif
    if (fd >= 0 && !may_ask(fd)) {
        close(fd);
        fd = -1;
        errno = EPERM;
    }
    return fd;
}

/* Waits until there may be a connection; false where the socket was closed meanwhile.  poll(2) would
 * keep a socket that is closed, and its name, and go on with whatever has the number next. */
static bool
wait_for_asker(int listener, uint64_t ino)
{
#if defined(__linux__)
    struct epoll_event e = {.events = EPOLLIN};
    int epfd = epoll_create1(EPOLL_CLOEXEC);
    if (epfd < 0)
        return nanosleep(&pause_time, NULL), true;
    if (epoll_ctl(epfd, EPOLL_CTL_ADD, listener, &e) < 0)
        return close(epfd), false;
    (void)epoll_wait(epfd, &e, 1, -1);
    /* An epoll that knows our listener is ours. */
    e.events = 0;
    return GL_READ(G.asker.ino) == ino && is_ours(listener) &&
           epoll_ctl(epfd, EPOLL_CTL_MOD, listener, &e) == 0 && close(epfd) == 0;
#else
    struct pollfd p = {.fd = listener, .events = POLLIN};
    return poll(&p, 1, listener < 0 ? 0 : -1) >= 0 && GL_READ(G.asker.ino) == ino;
#endif
}

/* Waits for a connection; -1 once the listener is not this one, or ours no more.  Without the
 * GIL. */
static int
await_asker(uint64_t ino)
{
    for (int refused = 0;;) {
        if (!wait_for_asker(GL_READ(G.asker.listener), ino))
            return -1;
        int fd = accept_asker();
        if (fd >= 0 || errno == EBADF)
            return fd;
        if (errno == EAGAIN || (errno == EPERM && ++refused < REFUSED_MOST))
            continue; /* EAGAIN: the monitor was first */
        refused = 0;
        nanosleep(&pause_time, NULL);
    }
}

/* _next_asker(ino): the descriptor of the next connection to the listener that is this file, or
 * -1 where the listener has ended. */
static PyObject *
next_asker(PyObject *Py_UNUSED(module), PyObject *number)
{
    uint64_t ino = PyLong_AsUnsignedLongLong(number);
    int fd, got;
    if (ino == (uint64_t)-1 && PyErr_Occurred())
        return NULL;
    do {
        Py_BEGIN_ALLOW_THREADS
        GL_WRITE(G.asker.since, 0);
        fd = await_asker(ino);
        __atomic_store_n(&G.asker.fd, fd + 1, __ATOMIC_RELEASE);
        __atomic_store_n(&G.asker.since, fd < 0 ? 0 : gl_monotonic_ns(), __ATOMIC_RELEASE);
        Py_END_ALLOW_THREADS
        got = __atomic_exchange_n(&G.asker.fd, 0, __ATOMIC_ACQ_REL);
    } while (fd >= 0 && got == 0);
    return PyLong_FromLong(got - 1);
}

/* _set_asker(fd): the socket at which others ask, -1: none.  In a forked child: no connection
 * of the parent's waits there any more. */
static PyObject *
set_asker(PyObject *Py_UNUSED(module), PyObject *number)
{
    struct stat known = {0};
    int fd = (int)PyLong_AsLong(number);
    if (fd < 0 ? PyErr_Occurred() != NULL : fstat(fd, &known) < 0)
        return PyErr_Occurred() ? NULL : PyErr_SetFromErrno(PyExc_OSError);
    int waits = __atomic_exchange_n(&G.asker.fd, 0, __ATOMIC_ACQ_REL) - 1;
    GL_WRITE(G.asker.since, 0);
    if (waits >= 0)
        close(waits);
    GL_WRITE(G.asker.dev, known.st_dev);
    GL_WRITE(G.asker.ino, known.st_ino);
    GL_WRITE(G.asker.listener, fd);
    G.asker.next = accept_asker;
    Py_RETURN_NONE;
}

static PyMethodDef asker_functions[] = {
    {"_set_asker", GL_ONEARG(set_asker), PyDoc_STR("Where others ask: a listening socket, or -1.")},
    {"_next_asker", GL_ONEARG(next_asker),
     PyDoc_STR("Waits for the next client; a descriptor, or -1 where there is no such socket.")},
    {NULL, NULL, 0, NULL},
};

GL_PRIVATE int
gl_asker_init(PyObject *module)
{
    return PyModule_AddFunctions(module, asker_functions);
}
