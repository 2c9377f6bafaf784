/*
 * loop.h: the Loop type, native half of goloop.Loop.
 *
 *   loop_type.c  construction, attributes, the table of methods, closing
 *   call_soon.c  call_soon, call_soon_threadsafe, call_later, call_at and time
 *   turn.c       one iteration: turn, ready queue, completions
 */
#pragma once

#include "tls/tls.h"
#include "watch/watch.h"

/* Creates the type Loop with the methods of all rooms, begins its native rule, and makes its
 * methods take the loop's lock in a build without the GIL; at import. */
GL_PRIVATE int gl_loop_init_type(PyObject *module);
