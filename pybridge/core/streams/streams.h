/*
 * streams.h: streams and ends of pipes; stream.h has their state.
 */
#pragma once

#include "transports/transports.h"

GL_PRIVATE int gl_stream_init_type(PyObject *module);
/* Whether it is a class of stream transports, which a program can replace; else TypeError. */
GL_PRIVATE bool gl_stream_class(PyObject *cls);
/* A transport over an accepted fd, which it takes over (on failure too). */
GL_PRIVATE PyObject *gl_stream_accepted(PyTypeObject *type, gl_loop *loop, int fd,
                                        const gl_endpoints *ends, PyObject *protocol,
                                        PyObject *server, PyObject *context);
