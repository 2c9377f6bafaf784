/*
 * tls.h: the data path of TLS.
 *
 *   tls.c      the protocol under a TLS connection, in C
 *   openssl.c  the libssl behind Python's ssl module
 */
#ifndef GOLOOP_TLS_H
#define GOLOOP_TLS_H

#include "transports/transports.h"

/* ---- tls.c ----------------------------------------------------------------------------------- */

/* Why TLS goes through SSLObject's methods, or None where OpenSSL is called directly. */
GL_PRIVATE PyObject *gl_core_tls_fallback_reason(PyObject *Py_UNUSED(module),
                                                 PyObject *Py_UNUSED(ignored));
GL_PRIVATE int gl_tls_init_type(PyObject *module);

#endif /* GOLOOP_TLS_H */
