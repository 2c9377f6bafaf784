/*
 * private.h: declarations of this room's own files.
 */
#pragma once

#include "queue/queue.h"

/* ---- handle.c ----------------------------------------------------------------------------- */

/* Returns the fields after the slots, which have another offset in each type. */
static inline gl_handle_args *
handle_inline(PyObject *h)
{
    if (Py_TYPE(h) == G.handle_type)
        return &((gl_handle *)h)->inl;
    if (Py_TYPE(h) == G.timer_handle_type)
        return &((gl_timer_handle *)h)->inl;
    return &((gl_threadsafe_handle *)h)->inl;
}

/* Slots of all types.  The loop calls handle_traverse() too, for an untracked handle. */
GL_PRIVATE int handle_traverse(PyObject *self, visitproc visit, void *arg);
GL_PRIVATE int handle_clear(PyObject *self);
GL_PRIVATE void handle_dealloc(PyObject *self);
/* Returns true if there are weak references to the handle. */
GL_PRIVATE_INLINE bool handle_has_weakrefs(PyObject *h);
/* Replaces callback and arguments by other objects (stolen, or NULL). */
GL_PRIVATE_INLINE void handle_replace_call(PyObject *self, PyObject *callback, PyObject *args);
/* Creates the context that is due.  -1 with MemoryError. */
GL_PRIVATE int handle_make_context(PyObject *self);
/* Stores the empty context of a handle that has run for the next handle. */
GL_PRIVATE void handle_recycle_context(PyObject *self);

/* ---- handle_views.c ----------------------------------------------------------------------- */

/* Returns the arguments as the value of `_args`; new reference. */
GL_PRIVATE PyObject *handle_get_args(PyObject *self, void *Py_UNUSED(closure));
/* ---- handle_run.c ------------------------------------------------------------------------- */

/* cancel(), cancelled() and _run(), of all types. */
GL_PRIVATE_DATA PyMethodDef handle_methods[4];
/* Calls the callback in its context.  `self` must be kept alive by the caller.
 * -1 if SystemExit or KeyboardInterrupt ends the run. */
GL_PRIVATE int handle_run(gl_loop *loop, PyObject *self);

/* ---- scheduling.c ------------------------------------------------------------------------- */

/* Puts a fresh handle of callable(arg) on the ready queue; `arg` may be NULL. */
GL_PRIVATE_INLINE int push_new_handle(gl_loop *loop, PyObject *callable, PyObject *arg,
                                      PyObject *context);

/* ---- timers.c -------------------------------------------------------------------------------- */

/* Disarms a timer and drops its reference to the handle; the caller has another one.  Called by
 * TimerHandle.cancel(). */
GL_PRIVATE void timers_cancel(gl_timer_handle *h);
