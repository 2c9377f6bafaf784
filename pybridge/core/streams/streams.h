/*
 * streams.h: streams and ends of pipes; stream.h has their state.
 */
#pragma once

#include "transports/transports.h"

/* Adds the types StreamTransport and ReadPipeTransport to the module.  -1 with an exception. */
GL_PRIVATE int gl_stream_init_type(PyObject *module);
/* Returns true if the argument is a class of stream transports (a program may replace the class);
 * else false with TypeError. */
GL_PRIVATE bool gl_stream_class(PyObject *cls);
/* A connection that Go has accepted. */
typedef struct gl_accepted {
    int fd;
    const gl_endpoints *ends; /* valid during the call */
} gl_accepted;
/* Creates the transport of an accepted connection, a new reference.  The fd then belongs to the
 * transport.  NULL with an exception, and the fd is closed, unless a socket object has become its
 * owner. */
GL_PRIVATE PyObject *gl_stream_accepted(PyTypeObject *type, gl_loop *loop,
                                        const gl_accepted *accepted, PyObject *protocol,
                                        PyObject *server, PyObject *context);
