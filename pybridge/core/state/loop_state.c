/*
 * loop_state.c: may this loop be used, here and now?
 *
 * A loop is closed once and for all; foreign in a process that was forked from the one
 * that made it; and elsewhere while another thread runs it.  Every entry point asks.
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

GL_PRIVATE int
gl_loop_check_own_thread(gl_loop *self)
{
    if (!self->in_turn)
        return 0;
    PyErr_SetString(PyExc_RuntimeError,
                    "Non-thread-safe operation invoked on an event loop other than the "
                    "current one; use loop.call_soon_threadsafe() from another thread");
    return -1;
}

GL_PRIVATE_INLINE bool
gl_loop_is_elsewhere(gl_loop *loop)
{
    return loop->in_turn ||
           (loop->thread_id != 0 && loop->thread_id != PyThread_get_thread_ident());
}
