/*
 * lease.h: a descriptor, and the right to use it.
 *
 * A descriptor's number is no identity: once its owner has closed it, the kernel gives
 * the number to the next file, and a user that goes on reads somebody else's bytes or
 * sends to somebody else.  So nothing here makes a system call on a bare number that somebody
 * else may close.  A lease says whose the number is:
 *
 *   owner          word               the number is good
 *   ------------------------------------------------------------------------------------
 *   NULL           NULL               always: accepted or duplicated by us, closed by us
 *   socket, file   inside the owner   while the owner's own field still has it
 *   anything else  NULL               always: `own` is a duplicate that we use instead
 *
 * A socket.socket also counts its users (`_io_refs`, as its makefile() does).  A counted
 * lease is one of these users: the owner's close() takes effect when the lease ends, so
 * the number stays the connection's for as long as bytes wait for it.
 *
 *   empty --gl_lease_acquire--> held --gl_lease_close--> empty   the owner is closed
 *                             |
 *                             +----gl_lease_release--> empty   the owner keeps it
 *
 * The reactor gets the address of the word and compares before each of its calls, so
 * the owner must outlive the registration: leave the reactor first, then end the lease.
 */
#pragma once

#include "threads/threads.h"

#include <sys/socket.h>

typedef struct gl_lease {
    PyObject *owner;     /* owned, or NULL */
    PyObject *backing;   /* owned: whose field `word` is, where not the owner's; or NULL */
    const int32_t *word; /* where the owner keeps its number, or NULL */
    int number;          /* the owner's number, or ours; -1: empty */
    int own;             /* a duplicate that is used instead of `number`, or -1 */
    bool counted;        /* one of the owner's _io_refs is ours */
} gl_lease;

#define GL_NO_LEASE ((gl_lease){.number = -1, .own = -1})

/* The descriptor to use, or -1 where the lease is empty or its owner has another
 * number, or none, by now.  Runs no Python. */
static inline int
gl_lease_fd(const gl_lease *l)
{
    if (l->own >= 0)
        return l->own;
    return l->word == NULL || __atomic_load_n(l->word, __ATOMIC_RELAXED) == l->number ? l->number
                                                                                      : -1;
}

/* What the reactor is to compare with the number before it makes a call, or NULL.  It only reads;
 * cgo knows no const. */
static inline int32_t *
gl_lease_word(const gl_lease *l)
{
    return l->own >= 0 ? NULL : (int32_t *)l->word;
}

/* A lease of the descriptor that `owner` tells by its fileno(); takes a reference.
 * `counted`: keep a socket open until the lease ends.  -1 with ValueError where there is none,
 * or OSError. */
GL_PRIVATE int gl_lease_acquire(gl_lease *l, PyObject *owner, bool counted);
/* Makes the descriptor non-blocking.  -1 with OSError. */
GL_PRIVATE int gl_lease_nonblocking(const gl_lease *l);
/* A socket object was made over the descriptor of a lease without owner; takes a
 * reference. */
GL_PRIVATE void gl_lease_set_owner(gl_lease *l, PyObject *owner);
/* Uses a duplicate from now on.  -1 with OSError. */
GL_PRIVATE int gl_lease_duplicate(gl_lease *l);
/* Ends the lease and closes the descriptor, by the owner's close() where there is one;
 * gives up the GIL meanwhile.  -1 with the exception of that close(). */
GL_PRIVATE int gl_lease_close(gl_lease *l);
/* Ends the lease; the owner keeps its descriptor, unless it was closed meanwhile: then it
 * is closed now.  An exception goes to sys.unraisablehook. */
GL_PRIVATE void gl_lease_release(gl_lease *l);

/* Whether a socket has just this number now. */
GL_PRIVATE bool gl_socket_has(PyObject *sock, int number);
/* The number of a plain socket.socket now; -1 once it is closed. */
GL_PRIVATE int gl_socket_number(PyObject *sock);
/* One more of a socket's users; false where it does not count them.  Runs no Python. */
GL_PRIVATE bool gl_socket_add_user(PyObject *sock);

/* A socket that turned ready, and whose waiter has not run yet: its close() takes effect
 * afterwards. */
typedef struct gl_kept_socket {
    PyObject *sock;   /* owned; NULL: it was let go of */
    PyObject *waiter; /* owned: the waiter's Future; NULL once that runs */
    bool counted;     /* one of its _io_refs is ours; else these tell of its close() */
} gl_kept_socket;

/* Has a socket's close() end what waits for it, where it counts its users.  -1 with an
 * exception. */
GL_PRIVATE int gl_socket_observe_close(PyObject *sock);
/* Whether this object is the count of a socket's users.  `sock` may be NULL. */
GL_PRIVATE bool gl_socket_has_users(PyObject *sock, PyObject *users);
/* Holds a socket, whose reference is taken over where this is true. */
GL_PRIVATE bool gl_socket_keep_open(gl_kept_socket *held, PyObject *sock, PyObject *waiter);
/* Ends a hold; closes the socket where its owner has closed it meanwhile.  Runs Python then. */
GL_PRIVATE void gl_socket_stop_keeping(gl_kept_socket *held);
/* The waiter runs now: a close() from here on is its own, or a thread's, and takes effect at once.
 * Where the socket was closed before, it stays open until the iteration has run what was ready. */
GL_PRIVATE void gl_kept_socket_end(gl_loop *loop, PyObject *waiter);

/* ---- calls.c: the system calls on leased descriptors --------------------------------------
 *
 * G.calls is the one door of this extension to the kernel for descriptors that carry a connection or
 * are watched.  While there are simulated kernels, or a test wants calls to fail, another table looks
 * which kernel has the number. */
typedef struct gl_calls { /* mirrored by golib/simulation_linux.go */
    ssize_t (*recv)(int fd, void *buf, size_t n, int flags);
    ssize_t (*send)(int fd, const void *buf, size_t n, int flags);
    ssize_t (*sendto)(int fd, const void *buf, size_t n, int flags, const void *to, socklen_t len);
    int (*shutdown)(int fd, int how);
    int (*nonblocking)(int fd); /* fcntl: O_NONBLOCK */
    int (*dup)(int fd);         /* fcntl: close-on-exec */
    int (*exists)(int fd);      /* -1 where nothing is open under the number */
    int (*close)(int fd);
} gl_calls;

/* Each gives -1 and errno like its namesake; EBADF where the lease's owner has gone. */
GL_PRIVATE ssize_t gl_call_recv(const gl_lease *l, void *buf, size_t n, int flags);
/* The most that is asked of one call on a stream, as Go's maxSend: a send of hundreds of megabytes
 * goes on as long as its reader keeps pace; this much is copied in some milliseconds. */
#define GL_SEND_MOST (4 * 1024 * 1024)
GL_PRIVATE ssize_t gl_call_send(const gl_lease *l, const void *buf, size_t n, int flags);
GL_PRIVATE ssize_t gl_call_sendto(const gl_lease *l, const void *buf, size_t n, int flags,
                                  const void *addr, socklen_t len);
GL_PRIVATE int gl_call_shutdown(const gl_lease *l, int how);
GL_PRIVATE int gl_call_nonblocking(const gl_lease *l);
GL_PRIVATE int gl_call_dup(const gl_lease *l);
/* close(2) without the GIL: it may wait (SO_LINGER). */
GL_PRIVATE void gl_call_close(int fd);
