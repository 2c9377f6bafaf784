/*
 * lease.h: a descriptor, and the right to use it.
 *
 * A descriptor's number does not identify a file: after its owner has closed it, the kernel gives
 * the number to the next file, and a user that continues would read from or send to another
 * connection.  So no system call is made on a bare number that other code may close.  A lease
 * records the owner of the number:
 *
 *   owner          word               the number is valid
 *   ------------------------------------------------------------------------------------
 *   NULL           NULL               always: accepted or duplicated by goloop, which closes it
 *   socket, file   inside the owner   while the owner's own field still contains it
 *   anything else  NULL               always: `own` is a duplicate that is used instead
 *
 * A socket.socket also counts its users (`_io_refs`, as its makefile() does).  A counted
 * lease is one of these users: the owner's close() takes effect when the lease ends, so
 * the number belongs to the connection as long as bytes are pending.
 *
 *   empty --gl_lease_acquire--> held --gl_lease_close--> empty   the owner is closed
 *                             |
 *                             +----gl_lease_release--> empty   the owner, or the caller, keeps it
 *
 * The reactor gets the address of the word and compares it before each of its calls, so the owner
 * must outlive the registration: unregister first, then end the lease.
 */
#pragma once

#include "threads/threads.h"

#include <sys/socket.h>

/* A descriptor and the right to use it.  Passed on by assignment: the source is then set to
 * GL_NO_LEASE. */
typedef struct gl_lease {
    PyObject *owner;     /* owned, or NULL */
    PyObject *backing;   /* owned: the object that contains `word`, if not the owner; or NULL */
    const int32_t *word; /* the field with the number inside the owner, or NULL */
    int fd;              /* the owner's number, or ours; -1: empty */
    int own;             /* our duplicate, which is used instead of `fd`; or -1 */
    bool counted;        /* the lease is one of the owner's _io_refs */
} gl_lease;

/* An empty lease. */
#define GL_NO_LEASE ((gl_lease){.fd = -1, .own = -1})

/* Returns the descriptor to use, or -1 if the lease is empty or its owner now has another number,
 * or none.  Runs no Python. */
static inline int
gl_lease_fd(const gl_lease *l)
{
    if (l->own >= 0)
        return l->own;
    if (l->word != NULL && __atomic_load_n(l->word, __ATOMIC_RELAXED) != l->fd)
        return -1;
    return l->fd;
}

/* Returns the word that the reactor compares with the number before each call, or NULL.  The
 * reactor only reads it; cgo has no const. */
static inline int32_t *
gl_lease_word(const gl_lease *l)
{
    if (l->own >= 0)
        return NULL;
    return (int32_t *)l->word;
}

/* Acquires a lease of the descriptor that owner.fileno() returns; makes a new reference to `owner`.
 * `counted`: keeps a socket open until the lease ends.  An object with an unknown layout is leased
 * by a duplicate.  -1 with ValueError (no descriptor), OSError (EBADF: the object itself has
 * another number) or an exception of fileno(), and *l is unchanged.  Runs Python. */
GL_PRIVATE int gl_lease_acquire(gl_lease *l, PyObject *owner, bool counted);
/* Makes the descriptor non-blocking, because the reactor reads and writes without a check of
 * O_NONBLOCK, and a blocking socket would block the loop.  -1 with OSError. */
GL_PRIVATE int gl_lease_nonblocking(const gl_lease *l);
/* Makes the socket object `owner`, created over the descriptor, the owner of a lease that has none;
 * makes a new reference to it.  If the socket has the lease's number, the lease also uses its
 * number word and becomes one of its users (its close() waits for the lease).  The caller must then
 * update the registration in Go. */
GL_PRIVATE void gl_lease_set_owner(gl_lease *l, PyObject *owner);
/* Duplicates the descriptor, unless that was done before.  The lease uses the duplicate from now
 * on, and closes it at its end.  -1 with OSError. */
GL_PRIVATE int gl_lease_duplicate(gl_lease *l);
/* Stops keeping the owner open: from now on its close() takes effect at once, and one that was
 * called meanwhile does now.  An exception goes to sys.unraisablehook.  Keeps the current
 * exception. */
GL_PRIVATE void gl_lease_stop_counting(gl_lease *l);
/* Ends the lease and closes the descriptor, by the owner's close() if there is an owner; releases
 * the GIL meanwhile.  -1 with the exception of that close(); the lease is empty then too. */
GL_PRIVATE int gl_lease_close(gl_lease *l);
/* Ends the lease without closing the descriptor, which then belongs to the owner, or to the caller
 * if the lease has no owner.  A delayed close() of the owner happens now; its exception goes to
 * sys.unraisablehook.  Keeps the current exception. */
GL_PRIVATE void gl_lease_release(gl_lease *l);

/* Returns true if the object is a socket that has this number now. */
GL_PRIVATE bool gl_socket_has_number(PyObject *sock, int fd);
/* Returns the present number of a plain socket.socket, -1 after close().  With an unknown layout it
 * calls fileno(), and returns -1 for an exception, which is cleared. */
GL_PRIVATE int gl_socket_number(PyObject *sock);
/* Makes the caller one of the socket's users, so that the socket's close() waits for the caller.
 * Returns false, without an exception, if the socket does not count its users or without memory.
 * Runs no Python. */
GL_PRIVATE bool gl_socket_add_user(PyObject *sock);

/* A socket that became ready, with a waiter that has not run yet.  The socket's close() takes
 * effect after the waiter has run. */
typedef struct gl_kept_socket {
    PyObject *sock;   /* owned; NULL: released */
    PyObject *waiter; /* owned: the waiter's Future; NULL from its run on */
    PyObject *op;     /* borrowed: as in gl_watch_slot, or NULL */
    bool counted;     /* counted in the socket's _io_refs; else the count reports its close() */
} gl_kept_socket;

/* Gives the socket a count of users that reports its close(), so that a close() ends the waits for
 * the socket.  Does nothing if the socket has such a count, or does not count its users. */
GL_PRIVATE int gl_socket_observe_close(PyObject *sock);
/* Returns true if `users` is the object in which the socket counts its users.  `sock` may be
 * NULL. */
GL_PRIVATE bool gl_socket_has_users(PyObject *sock, PyObject *users);
/* Starts to keep a socket open for `waiter`: fills *kept, with a new reference to `waiter`, and
 * steals the reference to the socket.  Becomes one of the socket's users, unless its count reports
 * close().  Returns false, without an exception, if the socket does not count its users or without
 * memory; then nothing is stolen. */
GL_PRIVATE bool gl_socket_keep_open(gl_kept_socket *kept, PyObject *sock, PyObject *waiter);
/* Stops keeping a socket open and drops the references.  If its owner has closed the socket
 * meanwhile, it is really closed now, which runs Python; an exception goes to
 * sys.unraisablehook. */
GL_PRIVATE void gl_socket_stop_keeping(gl_kept_socket *kept);
/* When the loop stops: closes the sockets that were closed while they were kept open, because the
 * loop may never run again.  The open sockets are kept on for their waiters, unless the loop counts
 * as a user, for whom close() would have to wait.  Keeps the current exception. */
GL_PRIVATE void gl_kept_sockets_run_ends(gl_loop *loop);
/* Ends the keeping of the waiter's socket, because the waiter runs, and drops the reference to the
 * waiter.  A socket that was closed before stays open until the iteration has run the ready queue.
 * Does nothing if no socket is kept for the waiter. */
GL_PRIVATE void gl_kept_socket_end(gl_loop *loop, PyObject *waiter);

/* ---- calls.c: the system calls on leased descriptors --------------------------------------
 * The extension makes all system calls on descriptors of connections and watches through G.calls.
 * While there is another system than the operating system, or a test with failing calls, it points
 * to another table, which finds the system of the number. */
typedef struct gl_calls { /* golib has the other table, with the same order of members */
    ssize_t (*recv)(int fd, void *buf, size_t n, int flags);
    ssize_t (*send)(int fd, const void *buf, size_t n, int flags);
    ssize_t (*sendto)(int fd, const void *buf, size_t n, int flags, const void *to, socklen_t len);
    int (*shutdown)(int fd, int how);
    int (*nonblocking)(int fd); /* fcntl: O_NONBLOCK */
    int (*dup)(int fd);         /* fcntl: close-on-exec */
    int (*exists)(int fd);      /* < 0 if the number is not open */
    int (*close)(int fd);
} gl_calls;

/* The calls on a leased descriptor.  Each returns the result of its system call, or -1 with errno;
 * EBADF if the lease is no longer valid. */
GL_PRIVATE ssize_t gl_call_recv(const gl_lease *l, void *buf, size_t n, int flags);
/* The maximum of one send on a stream in bytes, like maxSendBytes in transports/stream.go.  A send
 * of hundreds of megabytes would go on as long as its reader keeps pace; this amount is copied in
 * some milliseconds. */
#define GL_MAX_SEND (4 * 1024 * 1024)
GL_PRIVATE ssize_t gl_call_send(const gl_lease *l, const void *buf, size_t n, int flags);
GL_PRIVATE ssize_t gl_call_sendto(const gl_lease *l, const void *buf, size_t n, int flags,
                                  const void *addr, socklen_t len);
GL_PRIVATE int gl_call_shutdown(const gl_lease *l, int how);
GL_PRIVATE int gl_call_nonblocking(const gl_lease *l);
GL_PRIVATE int gl_call_dup(const gl_lease *l);
/* Closes a descriptor without the GIL, because close(2) may wait (SO_LINGER).  Errors are
 * ignored. */
GL_PRIVATE void gl_call_close(int fd);
