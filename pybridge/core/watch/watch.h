/*
 * watch.h: watching descriptors and signals.
 *
 *   watch.c         add_reader and its kin; waiting for an fd once
 *   sockop.c        sock_recv, sock_recv_into, sock_sendall as coroutines
 *   signal_notes.c  what the wakeup fd's pipe says, and the handlers that are for it
 */
#pragma once

#include "tasks/tasks.h"

/* The methods of the Loop that each has. */
GL_PRIVATE_DATA PyMethodDef *const gl_watch_methods;
GL_PRIVATE_DATA PyMethodDef *const gl_sockop_methods;

GL_PRIVATE int gl_signal_notes_init_type(PyObject *module);
GL_PRIVATE int gl_sockop_init_type(PyObject *module);

/* One completion of a watch. */
GL_PRIVATE int gl_watch_complete(gl_loop *loop, int fd, const gl_completion *c);
/* Tells Go what other threads have asked for. */
GL_PRIVATE void gl_watches_join_late(gl_loop *loop);
/* Takes the number away from its watch before a transport or listener is registered.  What
 * it held is put in `out`, to be given to gl_watch_drop once no state is half-way. */
GL_PRIVATE void gl_watch_release(gl_loop *loop, int fd, gl_watch *out);
