/*
 * datagrams.h: the public header of datagram transports; datagram.h has their state.
 */
#pragma once

#include "transports/transports.h"

/* Adds the type goloop._core.DatagramTransport to the module, and sets the functions for its
 * registrations (G.reg_ops). */
GL_PRIVATE int gl_datagram_init_type(PyObject *module);
