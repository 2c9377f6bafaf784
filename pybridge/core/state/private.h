/*
 * private.h: what the files of this room alone share.
 */
#ifndef GOLOOP_STATE_PRIVATE_H
#define GOLOOP_STATE_PRIVATE_H

#include "state/state.h"

/* ---- handle.c -------------------------------------------------------------------------------- */

/* Calls the callback in its context.  `self` must be kept alive by the caller.
 * -1 where SystemExit or KeyboardInterrupt has to leave the loop. */
GL_PRIVATE int handle_run(gl_loop *loop, PyObject *self);
GL_PRIVATE int handle_traverse(PyObject *self, visitproc visit, void *arg);
GL_PRIVATE_INLINE bool handle_has_weakrefs(PyObject *h);

/* ---- registry.c ------------------------------------------------------------------------------ */

/* Calls `each` for every entry in the table, while it returns 0. */
GL_PRIVATE int fds_each(gl_fds *fds, int (*each)(gl_fd *, visitproc, void *), visitproc visit,
                        void *arg);

/* ---- timers.c -------------------------------------------------------------------------------- */

/* Called by TimerHandle.cancel(); the handle is alive (the caller's reference). */
GL_PRIVATE void timers_cancel(gl_timer_handle *h);

#endif /* GOLOOP_STATE_PRIVATE_H */
