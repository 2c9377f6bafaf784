/*
 * fds.h: descriptors, and what uses them.
 *
 *   calls.c        the system calls on leased descriptors
 *   lease.c        whose a descriptor is, and until when; lease.h draws it
 *   registry.c     registrations (stream, listener, watch) by id, and what uses an fd
 *   receive_buffers.c        buffers for large receives
 *
 * gl_reg_ops, by which this room calls those below it:
 *
 *   complete  handles one completion of a live registration.  0, or -1 where SystemExit or
 *             KeyboardInterrupt leaves the loop.  The caller keeps `owner` alive
 *   orphan    Loop.close(): leaves the reactor before it goes, for a finalizer must not call
 *             Go afterwards
 *   blocks    of a transport: it is open, and keeps others from its number
 *   queued    of a stream: how many bytes the kernel has not taken yet.  Runs no Python
 */
#pragma once

#include "fds/lease.h"

typedef struct gl_reg { /* registry.c: by id [loop; never during a turn] */
    PyObject *owner;    /* owned while registered; of a watch: NULL */
    uint32_t gen;
    uint32_t kind;
    int fd; /* watch: index in fds */
} gl_reg;

typedef struct gl_fd {      /* registry.c: what uses a number [GIL] */
    PyObject *transport;    /* borrowed: a gl_stream or gl_datagram, or NULL */
    struct gl_watch *watch; /* watch.c: owned, kept until the loop closes; or NULL */
    uint8_t kind;           /* gl_reg_kind of the transport; without one GL_REG_LISTENER where
                             * a listener has begun on the number */
} gl_fd;

/* The table of numbers is a tree, which grows by what is open, not by the highest number.
 * Entries stay where they are until the loop closes. */
#define GL_FD_LEAF 64
#define GL_FD_BRANCH 512
typedef struct gl_fd_leaf {
    gl_fd fd[GL_FD_LEAF];
} gl_fd_leaf;
typedef struct gl_fd_branch {
    gl_fd_leaf *leaf[GL_FD_BRANCH];
} gl_fd_branch;

/* ---- registry.c -------------------------------------------------------------- */

/* Notes a registration under the id that Go gave; takes a new reference to owner. */
GL_PRIVATE int gl_reg_set(gl_loop *loop, uint32_t id, uint32_t gen, uint32_t kind, PyObject *owner,
                          int fd);
/* Forgets it (gives the reference, which may be NULL, to the caller, or drops it).  Any later
 * completion of it is ignored. */
GL_PRIVATE PyObject *gl_reg_take(gl_loop *loop, uint32_t id, uint32_t gen);
GL_PRIVATE void gl_reg_clear(gl_loop *loop, uint32_t id, uint32_t gen);
/* For the collector: whether the registry has this owner, and the reactor nothing to tell it. */
GL_PRIVATE bool gl_reg_is_dormant(gl_loop *loop, uint32_t id, PyObject *owner);
/* The entry of a number, or NULL where there is none. */
GL_PRIVATE_INLINE gl_fd *gl_fd_find(gl_loop *loop, int fd);
/* The same, made if need be; NULL with OSError (EBADF: nothing is open) or MemoryError. */
GL_PRIVATE gl_fd *gl_fd_get(gl_loop *loop, int fd);
/* RuntimeError if a live transport uses the number (asyncio's words). `named` is what the
 * user passed, for the message; NULL: the number. */
GL_PRIVATE int gl_fd_ensure_no_transport(gl_loop *loop, int fd, PyObject *named);
/* Notes the user of a number, or forgets `transport` there if it is still noted. */
GL_PRIVATE int gl_fd_set_transport(gl_loop *loop, int fd, enum gl_reg_kind kind,
                                   PyObject *transport);
GL_PRIVATE void gl_fd_clear_transport(gl_loop *loop, int fd, PyObject *transport);
/* Notes that a listener begins on a number. */
GL_PRIVATE void gl_fd_set_listener(gl_loop *loop, int fd);
/* Ends the listener of a number, and gives the registry's reference to it; NULL where there is none. */
GL_PRIVATE PyObject *gl_fd_take_listener(gl_loop *loop, int fd);
/* Ends the hold on the sockets that were ready in the last turn. */
GL_PRIVATE void gl_kept_sockets_release(gl_loop *loop);
/* Calls `each` for every entry in the table, while it returns 0. */
typedef int gl_fd_call(gl_fd *f, visitproc visit, void *arg);
GL_PRIVATE int gl_fds_each(gl_fds *fds, gl_fd_call *each, visitproc visit, void *arg);
/* A list of the loop's transports, also of those that the reactor does not know yet or any more. */
GL_PRIVATE PyObject *gl_fd_transports(gl_loop *loop, PyObject *ignored);
/* `watch` go_wrappers what the watch of a number holds, and `drop` ends it. */
GL_PRIVATE int gl_registry_traverse(gl_loop *loop, gl_fd_call *watch, visitproc visit, void *arg);
/* At close: nobody is told any more; the fds themselves are left to their owners. */
GL_PRIVATE void gl_registry_clear(gl_loop *loop, gl_fd_call *drop);

/* ---- receive_buffers.c -------------------------------------------------------- */

/* The bytes object of a completion that came in a buffer, cut to its length. */
GL_PRIVATE PyObject *gl_large_detach(gl_loop *loop, const gl_completion *c);
/* Notes a receive of n bytes. */
GL_PRIVATE_INLINE void gl_large_record_receive(gl_loop *loop, int64_t n);
/* Before a turn. Without memory there are fewer buffers, or none. */
GL_PRIVATE void gl_large_refill(gl_loop *loop);
GL_PRIVATE void gl_large_free(gl_loop *loop);
/* A bytes object to receive much into; then the n bytes that came, NULL with an exception. */
GL_PRIVATE PyObject *gl_large_alloc(gl_loop *loop);
GL_PRIVATE void gl_large_truncate(gl_loop *loop, PyObject **bytes, Py_ssize_t n);
/* GL_SCRATCH_SIZE bytes to receive into, until they are given back; NULL with an exception. */
#define GL_SCRATCH_SIZE (256 * 1024)
GL_PRIVATE uint8_t *gl_scratch_acquire(gl_loop *loop);
GL_PRIVATE void gl_scratch_release(gl_loop *loop, uint8_t *scratch);

/* ---- calls.c and lease.c, at import ------------------------------------------ */

GL_PRIVATE int gl_calls_init(PyObject *module);
GL_PRIVATE int gl_lease_init(PyObject *module);
