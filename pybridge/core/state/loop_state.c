/*
 * loop_state.c: whether a loop can be used.
 *
 * A closed loop stays closed, and a loop is foreign in a process that was forked from its own.
 * Entry points that schedule a callback or use the reactor call gl_loop_check_usable().
 */
#include "state/state.h"

GL_PRIVATE_INLINE bool
gl_loop_is_foreign(gl_loop *self)
{
    return self->epoch != gl_library_epoch();
}

GL_PRIVATE int
gl_loop_check_usable(gl_loop *self)
{
    if (self->closed) {
        PyErr_SetString(PyExc_RuntimeError, "Event loop is closed");
        return -1;
    }
    if (self->shared == NULL) {
        PyErr_SetString(PyExc_RuntimeError,
                        "goloop: the event loop is not initialised; call super().__init__() "
                        "first in a subclass of goloop.Loop");
        return -1;
    }
    if (gl_loop_is_foreign(self)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this event loop belongs to the parent process and can't be used "
                        "after fork(); make a new one with goloop.new_event_loop()");
        return -1;
    }
    return 0;
}
