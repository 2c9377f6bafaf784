/*
 * packets.h: datagram endpoints and listeners: what reaches the program in whole items.
 *
 *   listener.c   accepts connections; streams/ makes their transports
 */
#pragma once

#include "streams/streams.h"

GL_PRIVATE int gl_datagram_init_type(PyObject *module);
GL_PRIVATE int gl_listener_init_type(PyObject *module);
