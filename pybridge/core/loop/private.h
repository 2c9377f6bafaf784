/*
 * private.h: what the files of this room alone share.
 */
#ifndef GOLOOP_LOOP_PRIVATE_H
#define GOLOOP_LOOP_PRIVATE_H

#include "loop/loop.h"

/* ---- call_soon.c ----------------------------------------------------------------------------- */

GL_PRIVATE PyObject *loop_timer_handle_cancelled(gl_loop *Py_UNUSED(self),
                                                 PyObject *Py_UNUSED(handle));
GL_PRIVATE PyObject *loop_call_at(gl_loop *self, PyObject *const *args, Py_ssize_t nargs,
                                  PyObject *kwnames);
GL_PRIVATE PyObject *loop_call_later(gl_loop *self, PyObject *const *args, Py_ssize_t nargs,
                                     PyObject *kwnames);
GL_PRIVATE PyObject *loop_time(gl_loop *Py_UNUSED(self), PyObject *Py_UNUSED(ignored));
GL_PRIVATE PyObject *loop_call_soon_threadsafe(gl_loop *self, PyObject *const *args,
                                               Py_ssize_t nargs, PyObject *kwnames);
GL_PRIVATE PyObject *loop_call_soon(gl_loop *self, PyObject *const *args, Py_ssize_t nargs,
                                    PyObject *kwnames);

/* ---- turn.c ---------------------------------------------------------------------------------- */

/* Loop._run(): iterations until stop() or an exception that leaves. */
GL_PRIVATE PyObject *loop__run(gl_loop *self, PyObject *Py_UNUSED(ignored));
/* At close: frees what undelivered completions carry. */
GL_PRIVATE void dispatch_drop(gl_loop *loop);

#endif /* GOLOOP_LOOP_PRIVATE_H */
