/*
 * tls.h: the data path of TLS connections.
 *
 *   tls.c            the type TLSEngine, the base class of a TLS connection's protocol; handshakes
 *   tls_write.c      encrypts plaintext into records
 *   tls_read.c       decrypts records into plaintext
 *   openssl.c        the functions and objects of the libssl that Python's ssl module uses
 */
#pragma once

#include "streams/streams.h"

/* Creates the type _core.TLSEngine, to which streams pass received bytes directly
 * (G.native_protocol and G.native_receive), and adds the functions of tls.c to the module; at
 * import. */
GL_PRIVATE int gl_tls_init_type(PyObject *module);
