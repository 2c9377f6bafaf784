/*
 * watch.h: watching descriptors.
 *
 *   older_waiters.c       several Futures that wait at one place
 *   watch.c         what add_reader and its kin do; waiting for an fd once
 *   sockop.c        sock_recv, sock_recv_into, sock_sendall as coroutines
 */
#pragma once

#include "tasks/tasks.h"

/* One direction of a watched fd [GIL]. */
typedef struct gl_watch_slot {
    PyObject *waiter; /* owned: a Handle, or a Future that waits once; or NULL */
    PyObject *sock;   /* owned: the socket that a Future's owner waits for, or NULL */
    uint64_t turn;    /* in which it was taken: what that turn found is not for it */
    bool once;
    bool refused; /* the kernel has just refused a call in this direction */
} gl_watch_slot;

enum { GL_READING, GL_WRITING };

/* Futures that have waited at a place before the one that is there now: they wait still [GIL]. */
typedef struct gl_older_waiters {
    gl_watch_slot *slot; /* owned; the oldest first */
    uint32_t len, cap;
} gl_older_waiters;

typedef struct gl_watch {
    gl_watch_slot slot[2];
    gl_older_waiters older[2]; /* of each place */
    PyObject *file;            /* owned: the object that add_reader/_writer got, or NULL [GIL] */
    uint32_t id, gen;          /* of the registration, while `watched` [loop] */
    int fd;                    /* [made] */
    bool watched;              /* Go knows it [loop] */
} gl_watch;

/* The methods of the Loop that each has. */
GL_PRIVATE_DATA PyMethodDef *const gl_watch_methods;
GL_PRIVATE_DATA PyMethodDef *const gl_sockop_methods;

GL_PRIVATE int gl_sockop_init_type(PyObject *module);

/* One completion of a watch. */
GL_PRIVATE int gl_watch_complete(gl_loop *loop, int fd, const gl_completion *c);
/* Takes the number away from its watch before a transport or listener is registered.  What
 * it held is put in `out`, to be given to gl_watch_discard once no state is half-way. */
GL_PRIVATE void gl_watch_detach(gl_loop *loop, int fd, gl_watch *out);
GL_PRIVATE void gl_watch_discard(gl_watch *out);
/* For the registry: the watch of a number, and its end. */
GL_PRIVATE gl_fd_call gl_watch_traverse, gl_watch_free;
