/*
 * listeners.h: the accepting sides of servers.
 *
 *   listener.c   the type: accepts connections, for which streams/ makes the transports
 */
#pragma once

#include "streams/streams.h"

/* Adds the type goloop._core.Listener to the module.  -1 with an exception. */
GL_PRIVATE int gl_listener_init_type(PyObject *module);
