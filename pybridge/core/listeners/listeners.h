/*
 * listeners.h: the accepting sides of servers.
 *
 *   listener.c   the type: accepts connections, for which streams/ makes the transports
 */
#pragma once

#include "streams/streams.h"

/* Adds the type goloop._core.Listener to the module, makes its methods take the loop's lock in a
 * build without the GIL, and sets the functions for its registrations (G.reg_ops). */
GL_PRIVATE int gl_listener_init_type(PyObject *module);
