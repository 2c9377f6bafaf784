/*
 * watch.h: watching descriptors and signals, and looking up names.
 *
 *   watch.c         add_reader and its kin; waiting for an fd once
 *   sockop.c        sock_recv, sock_recv_into, sock_sendall as coroutines
 *   signal_notes.c  what the wakeup fd's pipe says, and the handlers that are for it
 *   resolve.c       getaddrinfo on threads of the Go library's C part
 */
#ifndef GOLOOP_WATCH_H
#define GOLOOP_WATCH_H

#include "tasks/tasks.h"

/* ---- watch.c ------------------------------------------------------------------- */

/* Takes the number away from its watch before a transport or listener is registered.  What
 * it held is put in `out`, to be given to gl_watch_drop once no state is half-way. */
GL_PRIVATE void gl_watch_release(gl_loop *loop, int fd, gl_watch *out);
/* Tells Go what other threads have asked for. */
GL_PRIVATE void gl_watches_join_late(gl_loop *loop);

/* ---- resolve.c ------------------------------------------------------------------------------- */

/* _resolve(host, port, flags, family, type, proto): host and port are bytes or None. */
GL_PRIVATE PyObject *gl_loop_resolve(gl_loop *self, PyObject *const *args, Py_ssize_t nargs);
GL_PRIVATE int gl_resolved(gl_loop *loop, const gl_completion *c);

/* ---- signal_notes.c -------------------------------------------------------------------------- */

GL_PRIVATE int gl_signal_notes_init_type(PyObject *module);

/* ---- sockop.c -------------------------------------------------------------------------------- */

GL_PRIVATE PyObject *gl_loop_sock_sendall(gl_loop *self, PyObject *const *args, Py_ssize_t nargs,
                                          PyObject *kwnames);
GL_PRIVATE PyObject *gl_loop_sock_recv_into(gl_loop *self, PyObject *const *args, Py_ssize_t nargs,
                                            PyObject *kwnames);
GL_PRIVATE PyObject *gl_loop_sock_recv(gl_loop *self, PyObject *const *args, Py_ssize_t nargs,
                                       PyObject *kwnames);
/* asyncio.iscoroutine must say yes: the type is registered as an abstract Coroutine. */
GL_PRIVATE int gl_sockop_init_type(PyObject *module);

/* ---- watch.c --------------------------------------------------------------------------------- */

/* _forget_wait(fd, future): a wait that was given up; the place is emptied if the
 * future still has it. */
GL_PRIVATE PyObject *gl_loop_forget_wait(gl_loop *self, PyObject *const *args, Py_ssize_t nargs);
GL_PRIVATE PyObject *gl_loop_wait_writable(gl_loop *self, PyObject *arg);
GL_PRIVATE PyObject *gl_loop_wait_readable(gl_loop *self, PyObject *arg);
/* A Future that is done when the fd is ready once; `sock` is the socket whose number it is,
 * or NULL. */
GL_PRIVATE PyObject *gl_wait_fd(gl_loop *loop, int fd, int which, PyObject *sock);
GL_PRIVATE PyObject *gl_loop_ensure_fd_no_transport(gl_loop *self, PyObject *arg);
/* One completion of a watch. */
GL_PRIVATE int gl_watch_complete(gl_loop *loop, int fd, const gl_completion *c);

/* Methods of the Loop. */
GL_PRIVATE PyObject *gl_loop_add_reader(gl_loop *self, PyObject *const *args, Py_ssize_t n,
                                     PyObject *kwnames);
GL_PRIVATE PyObject *gl_loop__add_reader(gl_loop *self, PyObject *const *args, Py_ssize_t n);
GL_PRIVATE PyObject *gl_loop_remove_reader(gl_loop *self, PyObject *const *args, Py_ssize_t n,
                                        PyObject *kwnames);
GL_PRIVATE PyObject *gl_loop__remove_reader(gl_loop *self, PyObject *fd);
GL_PRIVATE PyObject *gl_loop_add_writer(gl_loop *self, PyObject *const *args, Py_ssize_t n,
                                     PyObject *kwnames);
GL_PRIVATE PyObject *gl_loop__add_writer(gl_loop *self, PyObject *const *args, Py_ssize_t n);
GL_PRIVATE PyObject *gl_loop_remove_writer(gl_loop *self, PyObject *const *args, Py_ssize_t n,
                                        PyObject *kwnames);
GL_PRIVATE PyObject *gl_loop__remove_writer(gl_loop *self, PyObject *fd);

#endif /* GOLOOP_WATCH_H */
