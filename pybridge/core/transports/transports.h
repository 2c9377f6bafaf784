/*
 * transports.h: streams, pipes, datagram endpoints and listeners.
 */
#ifndef GOLOOP_TRANSPORTS_H
#define GOLOOP_TRANSPORTS_H

#include "state/state.h"
#include "tasks/tasks.h"
#include "watch/watch.h"

GL_PRIVATE int gl_stream_init_type(PyObject *module);
GL_PRIVATE int gl_pipe_init_types(PyObject *module);
GL_PRIVATE int gl_listener_init_type(PyObject *module);
GL_PRIVATE int gl_clients_init_type(PyObject *module);
GL_PRIVATE int gl_datagram_init_type(PyObject *module);

#endif /* GOLOOP_TRANSPORTS_H */
