/*
 * private.h: what the files of this room alone share.
 */
#ifndef GOLOOP_TLS_PRIVATE_H
#define GOLOOP_TLS_PRIVATE_H

#include "tls/tls.h"

typedef struct ssl_st SSL;
typedef struct bio_st BIO;

#define GL_SSL_ERROR_WANT_READ 2
#define GL_SSL_ERROR_WANT_WRITE 3
#define GL_SSL_ERROR_ZERO_RETURN 6
#define GL_BIO_CTRL_PENDING 10

/* The functions of libssl: written once, at the first use, and read by all threads (GIL). */
struct gl_openssl {
    bool tried;
    const char *reason;       /* why it can't be used; NULL: it can */
    int (*SSL_read_ex)(SSL *, void *, size_t, size_t *);
    int (*SSL_write_ex)(SSL *, const void *, size_t, size_t *);
    int (*SSL_get_error)(const SSL *, int);
    BIO *(*SSL_get_rbio)(const SSL *);
    BIO *(*SSL_get_wbio)(const SSL *);
    int (*BIO_read)(BIO *, void *, int);
    int (*BIO_write)(BIO *, const void *, int);
    long (*BIO_ctrl)(BIO *, int, long, void *);
    void (*ERR_clear_error)(void);
    PyTypeObject *socket_type, *bio_type; /* _ssl._SSLSocket and _ssl.MemoryBIO */
};
GL_PRIVATE_DATA struct gl_openssl openssl;

/* ---- openssl.c ------------------------------------------------------------------------------- */

/* True if OpenSSL can be called directly. */
GL_PRIVATE bool openssl_ready(void);
/* The _ssl._SSLSocket behind an ssl.SSLObject, owned, with its SSL * and the two BIO *, all
 * of which live as long as it does; NULL, without an exception, where they are not found
 * where they should be. */
GL_PRIVATE PyObject *openssl_behind(PyObject *sslobj, PyObject *incoming, PyObject *outgoing,
                                    SSL **ssl, BIO **in, BIO **out);
GL_PRIVATE_INLINE size_t bio_pending(BIO *bio);

#endif /* GOLOOP_TLS_PRIVATE_H */
