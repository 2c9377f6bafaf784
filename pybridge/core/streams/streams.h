/*
 * streams.h: streams and ends of pipes; stream.h has their state.
 */
#pragma once

#include "transports/transports.h"

/* Adds the types StreamTransport and ReadPipeTransport to the module, sets the functions for their
 * registrations (G.reg_ops), and makes the default write limits. */
GL_PRIVATE int gl_stream_init_type(PyObject *module);
/* Returns true if the argument is a class of stream transports (a program may replace the class);
 * else false with TypeError. */
GL_PRIVATE bool gl_stream_class(PyObject *cls);
/* Feeds n received bytes (n > 0) to the StreamReader of a StreamReaderProtocol, as data_received()
 * would, if both follow the native rule.  `loop` is the loop of the transport, or any object.  1 if
 * the bytes were fed, or dropped because the reader is gone; 0: nothing has changed, and the caller
 * calls data_received(); -1 with the exception that data_received() would raise. */
GL_PRIVATE int gl_stream_reader_feed(PyObject *loop, PyObject *protocol, const char *data,
                                     Py_ssize_t n);
/* Returns true if gl_stream_reader_feed() is worth a try for the protocol. */
static inline bool
gl_may_feed_reader(PyObject *protocol)
{
    return Py_TYPE(protocol) == G.rule[GL_RULE_STREAM_PROTOCOL].type;
}
/* Drops the references to the pieces that Go has sent, of all streams written to since the last
 * turn.  The caller has the shared lock. */
GL_PRIVATE void gl_streams_release_sent(gl_loop *loop);
/* A connection that Go has accepted. */
typedef struct gl_accepted {
    int fd;
    const gl_endpoints *ends; /* valid during the call */
} gl_accepted;
/* Creates the transport of an accepted connection, a new reference.  The fd then belongs to the
 * transport.  On failure the fd is closed, unless a socket object has become its owner. */
GL_PRIVATE PyObject *gl_stream_accepted(PyTypeObject *type, gl_loop *loop,
                                        const gl_accepted *accepted, PyObject *protocol,
                                        PyObject *server, PyObject *context);
