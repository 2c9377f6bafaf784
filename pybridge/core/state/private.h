/*
 * private.h: what the files of this room alone share.
 */
#ifndef GOLOOP_STATE_PRIVATE_H
#define GOLOOP_STATE_PRIVATE_H

#include "state/state.h"

/* ---- handle.c --------------------------------------------------------------------------------- */

static inline gl_handle_args *
handle_inline(PyObject *h)
{
    if (Py_TYPE(h) == G.handle_type)
        return &((gl_handle *)h)->inl;
    return Py_TYPE(h) == G.timer_handle_type ? &((gl_timer_handle *)h)->inl
                                              : &((gl_threadsafe_handle *)h)->inl;
}

GL_PRIVATE int handle_traverse(PyObject *self, visitproc visit, void *arg);
GL_PRIVATE_INLINE bool handle_has_weakrefs(PyObject *h);
/* Puts other objects (owned, or NULL) in the place of callback and arguments. */
GL_PRIVATE_INLINE void handle_replace_call(PyObject *self, PyObject *callback, PyObject *args);
/* Makes the context that is due.  -1 with MemoryError. */
GL_PRIVATE int handle_make_context(PyObject *self);
/* Lets the context of a handle that has run serve the next. */
GL_PRIVATE void handle_spare_context(PyObject *self);

/* ---- handle_views.c ---------------------------------------------------------------------------- */

/* The arguments as `_args` has them; new reference. */
GL_PRIVATE PyObject *handle_get_args(PyObject *self, void *Py_UNUSED(closure));
/* The tables of the types. */
GL_PRIVATE_DATA PyGetSetDef *const handle_getset;
GL_PRIVATE_DATA PyGetSetDef *const timer_handle_getset;
GL_PRIVATE_DATA PyMemberDef *const handle_members;

/* ---- handle_run.c ----------------------------------------------------------------------------- */

/* cancel(), cancelled() and _run(), of all types. */
GL_PRIVATE_DATA PyMethodDef handle_methods[4];
/* Calls the callback in its context.  `self` must be kept alive by the caller.
 * -1 where SystemExit or KeyboardInterrupt has to leave the loop. */
GL_PRIVATE int handle_run(gl_loop *loop, PyObject *self);

/* ---- lease.c ---------------------------------------------------------------------------------- */

/* One fewer of a socket's users.  Where the socket was closed meanwhile this ends it, which runs
 * Python; what is raised there goes to sys.unraisablehook. */
GL_PRIVATE void socket_release(PyObject *sock);
/* Ends a hold; closes the socket where its owner has closed it meanwhile.  Runs Python then. */
GL_PRIVATE void socket_let_go(gl_held *held);

/* ---- metrics.c -------------------------------------------------------------------------------- */

/* The entry was pushed whose wait is measured. */
GL_PRIVATE void ready_probe_pushed(gl_ready *q);

/* ---- python_stack.c --------------------------------------------------------------------------- */

typedef struct python_frame {
    char function[192], file[256]; /* UTF-8 */
    int line;                     /* 0: not known */
} python_frame;

/* The frames of a thread, innermost first, without the GIL: it may run on, or end.  How many; 0
 * where they can't be told. */
GL_PRIVATE int python_stack(PyThreadState *ts, python_frame *to, int room);
/* The thread that has the GIL, or NULL where that can't be told.  Without the GIL. */
GL_PRIVATE PyThreadState *python_gil_holder(void);

/* ---- registry.c ------------------------------------------------------------------------------ */

/* Calls `each` for every entry in the table, while it returns 0. */
GL_PRIVATE int fds_each(gl_fds *fds, int (*each)(gl_fd *, visitproc, void *), visitproc visit,
                        void *arg);

/* ---- scheduling.c ----------------------------------------------------------------------------- */

/* Puts a fresh handle of callable(arg) on the ready queue; `arg` may be NULL. */
GL_PRIVATE_INLINE int push_new_handle(gl_loop *loop, PyObject *callable, PyObject *arg,
                                      PyObject *context);

/* ---- timers.c -------------------------------------------------------------------------------- */

/* Called by TimerHandle.cancel(); the handle is alive (the caller's reference). */
GL_PRIVATE void timers_cancel(gl_timer_handle *h);

#endif /* GOLOOP_STATE_PRIVATE_H */
