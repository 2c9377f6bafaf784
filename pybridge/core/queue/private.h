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

/* Implements tp_traverse; called by the ready queue too, for an untracked handle. */
GL_PRIVATE int handle_traverse(PyObject *self, visitproc visit, void *arg);
/* Implements tp_clear: drops the references in all slots and the arguments.  In a build without the
 * GIL, handle_free_memory() drops the second reference to the loop.  Returns 0. */
GL_PRIVATE int handle_clear(PyObject *self);
/* Implements tp_dealloc; a long chain of handles does not overflow the stack. */
GL_PRIVATE void handle_dealloc(PyObject *self);
/* Replaces callback and arguments by other objects, which it steals (NULL: none), and drops the old
 * ones afterwards, since that can run Python. */
GL_PRIVATE_INLINE void handle_replace_call(PyObject *self, PyObject *callback, PyObject *args);
/* Creates the handle's empty context if it is due.  -1 with MemoryError.  May run the garbage
 * collector. */
GL_PRIVATE int handle_make_context(PyObject *self);
/* Stores the context of a handle that has run for the next handle, if it is empty, only the handle
 * refers to it, and none is stored yet.  Does nothing in a build without the GIL.  Called while the
 * loop runs, after the call of a handle without other references. */
GL_PRIVATE void handle_recycle_context(PyObject *self);

/* ---- handle_views.c ----------------------------------------------------------------------- */

/* Getter of `_args`: a new tuple of the inline arguments, or the stored object, a new reference.
 * NULL with AttributeError if Python has deleted it, or with MemoryError. */
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

/* Appends a new Handle of callable(arg) to the ready queue; `arg` may be NULL (no argument),
 * `context` too (a copy of the current one). */
GL_PRIVATE_INLINE int push_new_handle(gl_loop *loop, PyObject *callable, PyObject *arg,
                                      PyObject *context);

/* ---- timers.c -------------------------------------------------------------------------------- */

/* Disarms the timer and drops the table's reference to the handle, to which the caller has another
 * one.  An id that Go has seen is retired until gl_timers_free_retired().  Does nothing if the
 * timer is not armed, or if its loop is closed. */
GL_PRIVATE void timers_cancel(gl_timer_handle *h);
