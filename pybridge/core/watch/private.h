/*
 * private.h: the functions that only the files of this room share.
 */
#pragma once

#include "watch/watch.h"

/* ---- older_waiters.c ------------------------------------------------------------------------- */

/* Drops the references to all older Futures and their sockets.  Runs Python, so the list is emptied
 * first. */
GL_PRIVATE void older_waiters_discard(gl_older_waiters *older);
/* Makes room in the list for one more Future.  Returns false, without an exception, if out of
 * memory. */
GL_PRIVATE bool older_waiters_reserve(gl_older_waiters *older);
/* Moves the waiter of the slot `old` to the list as the newest one.  The caller has called
 * older_waiters_reserve(). */
GL_PRIVATE void older_waiters_add(gl_older_waiters *older, gl_watch_slot *old);
/* Moves the entry of the Future `waiter`, or of the newest one if NULL, to *out.  Returns false if
 * there is none. */
GL_PRIVATE bool older_waiters_remove(gl_older_waiters *older, const PyObject *waiter,
                                     gl_watch_slot *out);

/* ---- sockop.c -------------------------------------------------------------------------------- */

/* The operation of a coroutine, and its state (see above). */
enum sockop_kind { OP_RECV, OP_RECV_INTO, OP_SENDALL };
enum sockop_state { OP_CREATED, OP_WAITING, OP_FINISHED };

/* A coroutine of sock_recv(), sock_recv_into() or sock_sendall(). */
typedef struct {
    PyObject_HEAD
    PyObject *weakrefs;
    gl_loop *loop;
    PyObject *sock;
    PyObject *arg;    /* n, the buffer, or the data */
    PyObject *wait;   /* the Future of the wait, or NULL */
    Py_buffer view;   /* sendall; view.obj is NULL before the first step */
    PyObject *result; /* the result of a call that was made before the socket was closed, or NULL */
    PyObject *failure;           /* ... or its exception, or NULL */
    Py_ssize_t size;             /* recv: n; sendall: bytes sent */
    Py_ssize_t call_max;         /* sendall: maximum of one send, in bytes */
    const char *name, *qualname; /* as asyncio's coroutine has them */
    int fd;                      /* the fd number of `wait` */
    uint8_t kind;                /* sockop_kind */
    uint8_t state;               /* sockop_state */
    char running;                /* a step is running */
    bool refused;                /* the last call returned EAGAIN, and that ended the step */
    GL_OWNER_LOOP
} sockop;

/* ---- sockop_calls.c -------------------------------------------------------------------------- */

/* An attempt is one system call, or several of sendall.  Returns 1 with the result of the operation
 * in *result, or 0 if the operation has to wait for the fd.  After sockop_attempt_early() it
 * returns that outcome. */
GL_PRIVATE int sockop_attempt(sockop *op, PyObject **result);
/* Makes the call of an operation whose socket is ready, before the socket is closed; the task gets
 * the outcome when the loop runs again.  asyncio makes the call when it polls.  `self` is a SockOp,
 * or the EarlyCall of goloop/_internal/net/sockets.py.  Runs Python.  Sets no exception. */
GL_PRIVATE void sockop_attempt_early(PyObject *self);

/* ---- watch.c --------------------------------------------------------------------------------- */

/* Removes the waiter of a direction and updates the registration; a Handle is cancelled.  If `only`
 * is not NULL, only that waiter is removed, and an older Future may take its slot; with NULL all
 * older ones are dropped too.  Returns false if there was nothing to remove. */
GL_PRIVATE bool watch_clear_slot(gl_loop *loop, int fd, int which, PyObject *only);
/* Puts `made` into the slot of a direction and steals its references, on failure too.  For reading,
 * first ends a listener on the number, as asyncio does; the listener has ended even if the
 * registration fails afterwards.  A replaced Handle is cancelled.  A Future that is replaced by a
 * Future waits on in the list of older waiters.  If `made` is a Handle, the references to all
 * waiting Futures are dropped; the Futures are not cancelled.  `file` (stolen, may be NULL) is the
 * object with the fd.  Runs Python.  On failure the slot is unchanged. */
GL_PRIVATE int watch_set_slot(gl_loop *loop, int fd, int which, gl_watch_slot made, PyObject *file);
/* Returns the fd that is watched for this object itself, or -1, without an exception. */
GL_PRIVATE int watch_find_by_file(gl_loop *loop, PyObject *file);
/* Deregisters the watch in Go and in the registry, if it is registered.  The waiters stay in their
 * slots. */
GL_PRIVATE void watch_unregister(gl_loop *loop, gl_watch *w);
/* Runs a Handle unless it was cancelled, or resolves a Future with None.  -1 if an exception ends
 * the run of the loop; other exceptions are reported. */
GL_PRIVATE int watch_run_waiter(gl_loop *loop, PyObject *waiter);
/* Makes a Future that is resolved when the fd is ready once in the direction `which`, and puts it
 * into the slot; returns a new reference.  slot.sock: the socket of the fd, borrowed, or NULL.
 * slot.refused: the kernel has just refused a call in that direction, and no turn was made
 * since. */
GL_PRIVATE PyObject *make_wait_future(gl_loop *loop, int fd, int which, gl_watch_slot slot);
