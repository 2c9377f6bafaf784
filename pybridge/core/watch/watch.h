/*
 * watch.h: watches of descriptors.
 *
 *   older_waiters.c   older Futures that wait for the same direction of an fd
 *   watch.c           the slots of an fd, their registration with Go, and completions
 *   watch_methods.c   methods of Loop: _add_reader, _remove_reader, _wait_readable, ...
 *   sockop.c          sock_recv, sock_recv_into, sock_sendall as coroutines
 */
#pragma once

#include "tasks/tasks.h"

/* The waiter of one direction of a watched fd [GIL]. */
typedef struct gl_watch_slot {
    PyObject *waiter; /* owned: a Handle, or a Future that waits once; or NULL */
    PyObject *sock;   /* owned: the socket for which the Future waits, or NULL */
    /* Borrowed: the SockOp that waits, or the EarlyCall of goloop/_internal/net/sockets.py; or
     * NULL.  Its coroutine clears the slot before it releases the object. */
    PyObject *op;
    uint64_t turn; /* the turn that set the slot, whose events the previous waiter gets */
    bool once;     /* the waiter is a Future, which is removed after one event */
    bool refused;  /* the kernel has just refused a call in this direction */
} gl_watch_slot;

/* The directions: the index of a slot, the parameter `which` of functions. */
enum { GL_READING, GL_WRITING };

/* Futures that were replaced in a slot by a later one, and still wait [GIL]. */
typedef struct gl_older_waiters {
    gl_watch_slot *slot; /* owned; the oldest first */
    uint32_t len, cap;
} gl_older_waiters;

/* The watch of one fd.  An array has an entry for each direction. */
typedef struct gl_watch {
    gl_watch_slot slot[2];
    gl_older_waiters older[2];
    PyObject *file;   /* owned: the object that add_reader/_writer got, or NULL [GIL] */
    uint32_t id, gen; /* the registration's; valid while `watched` [loop] */
    int fd;           /* the watched number [made] */
    bool watched;     /* registered with Go [loop] */
} gl_watch;

/* The methods of Loop in watch_methods.c and sockop.c. */
GL_PRIVATE_DATA PyMethodDef *const gl_watch_methods;
GL_PRIVATE_DATA PyMethodDef *const gl_sockop_methods;

/* Adds SockOp, the type of the coroutines of sock_recv() and others, to the module and registers it
 * as a collections.abc.Coroutine, so that asyncio.iscoroutine() accepts it. */
GL_PRIVATE int gl_sockop_init_type(PyObject *module);

/* Handles one READY completion of a watch: runs the Handles of the ready directions, and resolves
 * and removes their Futures, the older ones too, whose sockets stay open until their tasks run.
 * Slots that were set in this turn are left alone.  Then warns of a closed descriptor (c->arg).  -1
 * if an exception ends the run of the loop. */
GL_PRIVATE int gl_watch_complete(gl_loop *loop, int fd, const gl_completion *c);
/* Ends the watch of a number before a transport or a listener is registered on it.  The references
 * of the watch are moved to `out` (none if the number has no watch), which the caller passes to
 * gl_watch_discard() when its own state is consistent. */
GL_PRIVATE void gl_watch_detach(gl_loop *loop, int fd, gl_watch *out);
/* Drops all references of a watch; runs Python. */
GL_PRIVATE void gl_watch_discard(gl_watch *out);
/* Functions for gl_registry_traverse() and gl_registry_clear(), which visit and free the watch of a
 * number. */
GL_PRIVATE gl_fd_call gl_watch_traverse, gl_watch_free;
