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
/* Replaces callback and arguments by other objects (stolen, or NULL), and drops the old ones. */
GL_PRIVATE_INLINE void handle_replace_call(PyObject *self, PyObject *callback, PyObject *args);
/* Creates the handle's empty context if it is due.  -1 with MemoryError. */
GL_PRIVATE int handle_make_context(PyObject *self);
/* Stores the context of a handle that has run, if it is empty and has no other user, for the next
 * handle. */
GL_PRIVATE void handle_recycle_context(PyObject *self);

/* ---- handle_views.c ----------------------------------------------------------------------- */

/* Getter of `_args`: returns the arguments, a new reference; NULL with AttributeError if Python has
 * deleted them, or with MemoryError. */
GL_PRIVATE PyObject *handle_get_args(PyObject *self, void *Py_UNUSED(closure));
/* ---- handle_run.c ------------------------------------------------------------------------- */

/* cancel(), cancelled() and _run(), of all types. */
GL_PRIVATE_DATA PyMethodDef handle_methods[4];
/* Runs a handle of any type that is not cancelled: calls the callback in its context, or a
 * program's replacement of _run(), and reports an exception.  The caller keeps the handle alive.
 * -1 if an exception ends the run of the loop: SystemExit, KeyboardInterrupt, or an exception of
 * the exception handler. */
GL_PRIVATE int handle_run(gl_loop *loop, PyObject *self);

/* ---- scheduling.c ------------------------------------------------------------------------- */

/* Appends a new Handle of callable(arg) to the ready queue; `arg` and `context` may be NULL.  -1
 * with an exception. */
GL_PRIVATE_INLINE int push_new_handle(gl_loop *loop, PyObject *callable, PyObject *arg,
                                      PyObject *context);

/* ---- timers.c -------------------------------------------------------------------------------- */

/* Disarms a timer and drops its reference to the handle; the caller has another one.  Called by
 * TimerHandle.cancel(). */
GL_PRIVATE void timers_cancel(gl_timer_handle *h);
