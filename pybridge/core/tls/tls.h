/*
 * tls.h: the data path of TLS.
 *
 *   tls.c            the protocol under a TLS connection, in C: its type, a step of a handshake
 *   tls_write.c      plaintext to records
 *   tls_read.c       records to plaintext
 *   openssl.c        the libssl behind Python's ssl module
 */
#pragma once

#include "streams/streams.h"

/* _core.TLSEngine and _core.tls_fallback_reason. */
GL_PRIVATE int gl_tls_init_type(PyObject *module);
