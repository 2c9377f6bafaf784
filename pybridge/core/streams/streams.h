/*
 * streams.h: streams and ends of pipes; stream.h has their state.
 */
#pragma once

#include "transports/transports.h"

GL_PRIVATE int gl_stream_init_type(PyObject *module);
GL_PRIVATE int gl_pipe_init_types(PyObject *module);
/* A transport over an accepted fd, which it takes over (on failure too). */
GL_PRIVATE PyObject *gl_stream_accepted(gl_loop *loop, int fd, const gl_endpoints *ends,
                                    PyObject *protocol, PyObject *server,
                                    PyObject *context);
