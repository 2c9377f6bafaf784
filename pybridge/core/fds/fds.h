/*
 * fds.h: descriptors and their users.
 *
 *   calls.c            the system calls on leased descriptors
 *   lease.c            the right to use a descriptor; lease.h draws its states
 *   registry.c         registrations (stream, listener, watch) by id, and the users of each fd
 *   receive_buffers.c  buffers for large receives
 *
 * gl_reg_ops has the functions by which this room calls the rooms below it:
 *
 *   complete       handles one completion of a live registration.  Returns 0, or -1 if an exception
 *                  ends the run of the loop.  The caller keeps `owner` alive
 *   unregister_on_loop_close   deregisters before Loop.close() ends the reactor, because a
 *                  finalizer must not call Go afterwards
 *   blocks_number  of a transport: true while it is open, so that its fd number can't be watched
 *   queued_bytes   of a stream: the number of bytes that the kernel has not accepted yet.  Runs no
 *                  Python
 *   is_dormant     true if no completion can call a method of the owner
 */
#pragma once

#include "fds/lease.h"

/* A registration with the reactor, indexed by its id [loop; never during a turn]. */
typedef struct gl_reg {
    PyObject *owner; /* the transport or listener, owned while registered; NULL for a watch */
    uint32_t gen;    /* the generation; completions of another one are ignored */
    uint32_t kind;   /* gl_reg_kind */
    int fd;          /* the fd number, by which gl_fd_find() finds a watch */
} gl_reg;

/* The users of an fd number [GIL]. */
typedef struct gl_fd {
    PyObject *transport;    /* borrowed: a gl_stream or gl_datagram, or NULL */
    struct gl_watch *watch; /* watch.c: owned, kept until the loop closes; or NULL */
    uint8_t kind;           /* gl_reg_kind of the transport; without a transport
                             * GL_REG_LISTENER if a listener was registered for the number */
} gl_fd;

/* The table of fd numbers is a tree: its size depends on the open fds, not on the highest number.
 * Entries do not move until the loop closes. */
#define GL_FD_LEAF 64
#define GL_FD_BRANCH 512
typedef struct gl_fd_leaf {
    gl_fd fd[GL_FD_LEAF];
} gl_fd_leaf;
typedef struct gl_fd_branch {
    gl_fd_leaf *leaf[GL_FD_BRANCH];
} gl_fd_branch;

/* ---- registry.c -------------------------------------------------------------- */

/* Stores a registration under the id that Go chose, and takes a new reference to `owner`, which may
 * be NULL.  `fd` is the number.  -1 with MemoryError. */
GL_PRIVATE int gl_reg_set(gl_loop *loop, uint32_t id, uint32_t gen, uint32_t kind, PyObject *owner,
                          int fd);
/* Removes a registration and returns its reference, which may be NULL.  Later completions of the
 * registration are ignored.  Does nothing for an older generation. */
GL_PRIVATE PyObject *gl_reg_take(gl_loop *loop, uint32_t id, uint32_t gen);
/* Removes a registration and drops its reference, which may run Python.  Does nothing for an older
 * generation. */
GL_PRIVATE void gl_reg_clear(gl_loop *loop, uint32_t id, uint32_t gen);
/* For the garbage collector: returns true if `owner` is registered under this id and no completion
 * can call it.  The registry's reference to it then counts as a reference of the owner to itself,
 * so the owner is garbage as soon as the program has dropped it. */
GL_PRIVATE bool gl_reg_is_dormant(gl_loop *loop, uint32_t id, PyObject *owner);
/* Returns the entry of a number in the table, or NULL. */
GL_PRIVATE_INLINE gl_fd *gl_fd_find(gl_loop *loop, int fd);
/* Like gl_fd_find(), but creates a missing entry.  NULL with OSError (EBADF: the number is not
 * open) or MemoryError. */
GL_PRIVATE gl_fd *gl_fd_find_or_make(gl_loop *loop, int fd);
/* Returns -1 with RuntimeError and asyncio's message if an open transport uses the number, else 0.
 * `named` is the object for the message; NULL: the number. */
GL_PRIVATE int gl_fd_ensure_no_transport(gl_loop *loop, int fd, PyObject *named);
/* Sets a transport as the user of a number.  The reference is borrowed.  -1 as
 * gl_fd_find_or_make(). */
GL_PRIVATE int gl_fd_set_transport(gl_loop *loop, int fd, enum gl_reg_kind kind,
                                   PyObject *transport);
/* Removes `transport` as the user of a number, if it still is the user. */
GL_PRIVATE void gl_fd_clear_transport(gl_loop *loop, int fd, PyObject *transport);
/* Sets a listener as the user of a number, unless a transport uses the number.  Sets no exception:
 * if the entry can't be created, a watch of the number fails too. */
GL_PRIVATE void gl_fd_set_listener(gl_loop *loop, int fd);
/* Deregisters the listener of a number in Go and in the registry, and returns the registry's
 * reference to the listener, which the caller drops; NULL if there is none. */
GL_PRIVATE PyObject *gl_fd_take_listener(gl_loop *loop, int fd);
/* Stops keeping the sockets open that were ready in the last turn.  Those that were closed
 * meanwhile are really closed now, which runs Python.  Keeps the current exception. */
GL_PRIVATE void gl_kept_sockets_release(gl_loop *loop);
/* Calls `each` for every entry in the table, until it returns another value than 0.  Returns that
 * value, or 0. */
typedef int gl_fd_call(gl_fd *f, visitproc visit, void *arg);
GL_PRIVATE int gl_fds_each(gl_fds *fds, gl_fd_call *each, visitproc visit, void *arg);
/* _all_transports(): returns a list of the loop's transports, registered or not; NULL with
 * MemoryError. */
GL_PRIVATE PyObject *gl_fd_transports(gl_loop *loop, PyObject *ignored);
/* Visits all references of the registry, except to dormant owners; `watch` visits the references of
 * a watch.  Returns the first result other than 0, as a tp_traverse does. */
GL_PRIVATE int gl_registry_traverse(gl_loop *loop, gl_fd_call *watch, visitproc visit, void *arg);
/* Clears the tables when the loop closes, without a notification of Go: frees the watches by
 * `drop`, and drops the references to owners and kept sockets.  The fds stay open, because they
 * belong to their owners.  Runs Python. */
GL_PRIVATE void gl_registry_clear(gl_loop *loop, gl_fd_call *drop);

/* ---- receive_buffers.c -------------------------------------------------------- */

/* Takes the lent buffer of a DATA completion, a bytes object that Go has filled, out of the loop
 * and returns it, shortened to the received length.  The caller owns it.  NULL with MemoryError. */
GL_PRIVATE PyObject *gl_large_detach(gl_loop *loop, const gl_completion *c);
/* Records a receive of n bytes.  A large one makes the loop lend buffers to Go from the next turn
 * on, and chooses their size. */
GL_PRIVATE_INLINE void gl_large_record_receive(gl_loop *loop, int64_t n);
/* Fills the lent buffers before a turn, and frees them after GL_LARGE_IDLE turns without use.
 * Without memory fewer buffers are lent, or none; sets no exception. */
GL_PRIVATE void gl_large_refill(gl_loop *loop);
/* Frees the lent buffers.  After the next large receive they are filled again. */
GL_PRIVATE void gl_large_free(gl_loop *loop);
/* Returns the size of the next large receive by C. */
GL_PRIVATE Py_ssize_t gl_large_size(gl_loop *loop);
/* Allocates a bytes object, with undefined contents, for a large receive by C; NULL with
 * MemoryError. */
GL_PRIVATE PyObject *gl_large_alloc(gl_loop *loop);
/* Cuts an object of gl_large_alloc() to the n received bytes; n <= 0: to none.  Chooses the size of
 * the next large buffers from n.  Sets *bytes to NULL with MemoryError. */
GL_PRIVATE void gl_large_truncate(gl_loop *loop, PyObject **bytes, Py_ssize_t n);
/* The size of the scratch buffer, into which C receives. */
#define GL_SCRATCH_SIZE (256 * 1024)
/* Takes the loop's scratch buffer of GL_SCRATCH_SIZE bytes, or allocates one if it is in use.  NULL
 * with MemoryError.  The caller returns it with gl_scratch_release(). */
GL_PRIVATE uint8_t *gl_scratch_acquire(gl_loop *loop);
/* Returns a buffer of gl_scratch_acquire() to the loop. */
GL_PRIVATE void gl_scratch_release(gl_loop *loop, uint8_t *scratch);

/* ---- calls.c and lease.c ------------------------------------------------------ */

/* Selects the operating system's calls and adds _ask_system() to the module. */
GL_PRIVATE int gl_calls_init(PyObject *module);
/* Checks the layouts of sockets and files, at import.  Unknown layouts are no error. */
GL_PRIVATE int gl_lease_init(PyObject *module);
