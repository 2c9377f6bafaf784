/*
 * private.h: what the files of this room alone share.
 */
#pragma once

#include "tls/tls.h"

/* ---- openssl.c ------------------------------------------------------------------------------- */

typedef struct ssl_st SSL;
typedef struct bio_st BIO;

#define GL_SSL_ERROR_WANT_READ 2
#define GL_SSL_ERROR_WANT_WRITE 3
#define GL_SSL_ERROR_ZERO_RETURN 6
#define GL_BIO_CTRL_INFO 3
#define GL_BIO_CTRL_PENDING 10
#define GL_BIO_C_SET_BUF_MEM_EOF_RETURN 130

/* The functions of libssl and libcrypto. */
/* clang-format off */
#define GL_OPENSSL(X)                                             \
    X(int, SSL_read_ex, (SSL *, void *, size_t, size_t *))        \
    X(int, SSL_write_ex, (SSL *, const void *, size_t, size_t *)) \
    X(int, SSL_do_handshake, (SSL *))                             \
    X(int, SSL_get_error, (const SSL *, int))                     \
    X(int, SSL_has_pending, (const SSL *))                        \
    X(BIO *, SSL_get_rbio, (const SSL *))                         \
    X(BIO *, SSL_get_wbio, (const SSL *))                         \
    X(void, SSL_set0_rbio, (SSL *, BIO *))                        \
    X(BIO *, BIO_new_mem_buf, (const void *, int))                \
    X(int, BIO_up_ref, (BIO *))                                   \
    X(int, BIO_free, (BIO *))                                     \
    X(int, BIO_read, (BIO *, void *, int))                        \
    X(int, BIO_write, (BIO *, const void *, int))                 \
    X(long, BIO_ctrl, (BIO *, int, long, void *))                 \
    X(void, ERR_clear_error, (void))                              \
    X(unsigned long, ERR_peek_last_error, (void))                 \
    X(const char *, ERR_reason_error_string, (unsigned long))     \
    X(long, SSL_get_verify_result, (const SSL *))                 \
    X(const char *, X509_verify_cert_error_string, (long))
/* clang-format on */

/* Written once, when goloop is imported, and read by all threads. */
struct gl_openssl {
    bool ready; /* it can be called directly */
#define X(type, name, arguments) type(*name) arguments;
    GL_OPENSSL(X)
#undef X
    PyTypeObject *socket_type, *bio_type; /* _ssl._SSLSocket and _ssl.MemoryBIO */
};
GL_PRIVATE_DATA struct gl_openssl openssl;

/* Looks the functions up in the file of _ssl, NULL where it has none; NULL, or why they can't be
 * called. */
GL_PRIVATE const char *openssl_open(const char *path);
/* The _ssl._SSLSocket behind an ssl.SSLObject, owned, with its SSL * and the two BIO *, all
 * of which live as long as it does; NULL, without an exception, where they are not found
 * where they should be. */
GL_PRIVATE PyObject *openssl_find_objects(PyObject *sslobj, PyObject *incoming, PyObject *outgoing,
                                    SSL **ssl, BIO **in, BIO **out);
/* What a call left that did not succeed.  It is taken at once, and the call is not made again to
 * hear it once more: OpenSSL need not fail twice, and may go on with what it has refused. */
struct openssl_error {
    int why;            /* an SSL_ERROR_ number; 0: nothing has stopped */
    unsigned long code; /* the last in the thread's queue of errors, which is empty now */
    long verified;      /* what came of the peer's certificate */
};
GL_PRIVATE_INLINE struct openssl_error openssl_take_error(SSL *ssl, int result);
/* Whether what was found is there still, and may be called in place of the object's methods. */
GL_PRIVATE bool openssl_is_unchanged(PyObject *sslobj, PyObject *inner);
/* The bytes in a BIO. */
GL_PRIVATE_INLINE size_t bio_pending(BIO *bio);

/* ---- one connection (openssl.c) -------------------------------------------------------------- */

/* The attributes that both halves use. */
/* clang-format off */
#define GL_TLS_OBJECTS(X)                             \
    X(state) /* an SSLProtocolState */                \
    X(app_protocol)                                   \
    X(transport)                                      \
    X(sslobj)                                         \
    X(incoming)                                       \
    X(outgoing) /* MemoryBIO */                       \
    X(write_backlog) /* deque */                      \
    X(get_buffer)                                     \
    X(buffer_updated) /* the app protocol's, bound */
/* clang-format on */

/* Of one connection; guarded by the GIL, and used by the thread that runs its loop. */
typedef struct gl_tls {
    PyObject_HEAD
#define X(name) PyObject *name;
    GL_TLS_OBJECTS(X)
#undef X
    Py_ssize_t write_buffer_size; /* bytes in the backlog */
    Py_ssize_t incoming_high, incoming_low, outgoing_high, outgoing_low;
    char app_reading_paused, ssl_reading_paused, ssl_writing_paused, app_writing_paused;
    char is_buffer;
    char read_held; /* what comes waits until the handshake's waiter has run */
    /* What is behind sslobj and the BIOs, once it was looked up.  `inner` is not ssl's
     * but ours: whoever puts another object in its place takes nothing away from us. */
    PyObject *inner; /* the _ssl._SSLSocket; keeps the three below alive */
    SSL *ssl;
    BIO *in, *out;
    BIO *zero_copy_bio; /* what was received lately, where OpenSSL can read it */
    char openssl_resolved;
    char handshake_running;  /* a handshake's step is under way, without the GIL */
    PyObject *loop; /* SSLProtocol's _loop, as anybody may set it */
    GL_OWNER_LOOP
} gl_tls;

/* Forgets what was found; whoever is inside of OpenSSL has a reference of its own. */
GL_PRIVATE void tls_reset_openssl(gl_tls *t, bool look_again);
/* Finds what is behind the SSL objects; ssl stays NULL where that can't be. */
GL_PRIVATE void tls_resolve_openssl(gl_tls *t);

/* True where ssl, in and out can be used, until Python runs again.  OpenSSL's objects are for one
 * thread at a time. */
static inline bool
tls_has_openssl(gl_tls *t)
{
    if (!t->openssl_resolved)
        tls_resolve_openssl(t);
    return gl_replaced(GL_RULE_SSL_OBJECT, G.rule[GL_RULE_SSL_OBJECT].type) == 0 &&
           t->ssl != NULL && !t->handshake_running;
}

/* The same right before a method of the SSLObject is stood in for: the object itself may have
 * another one by now, and keeps asyncio's way then. */
GL_PRIVATE bool tls_can_use_openssl(gl_tls *t);

/* SSLProtocol's own method, one of G.tls. */
static inline int
tls_fallback(gl_tls *t, PyObject *method)
{
    return gl_drop_result(PyObject_CallOneArg(method, (PyObject *)t));
}

/* A field to be called: it may be replaced or deleted meanwhile. */
static inline PyObject *
tls_ref_or_none(PyObject *field)
{
    return Py_NewRef(field ? field : Py_None);
}

/* A method's result: None, or what follows from the exception that is set where r is -1. */
GL_PRIVATE PyObject *tls_result(gl_tls *t, int r);

/* True where OpenSSL has not failed, and goes on once more has come. */
static inline bool
openssl_wants_io(struct openssl_error stop)
{
    return stop.why == GL_SSL_ERROR_WANT_READ || stop.why == GL_SSL_ERROR_WANT_WRITE;
}

/* Raises what _ssl's method of that name raises; always NULL. */
GL_PRIVATE PyObject *tls_raise(gl_tls *t, const char *method, struct openssl_error stop);

/* ---- tls_write.c and tls_read.c -------------------------------------------------------------- */

/* Hands the records that OpenSSL has made to the transport; then flow control. */
GL_PRIVATE int tls_process_outgoing(gl_tls *t);
/* The length of the backlog, or -1. */
GL_PRIVATE Py_ssize_t tls_backlog_len(gl_tls *t);
/* SSLProtocol's methods that TLSEngine has in C. */
GL_PRIVATE PyObject *tls_write_appdata(gl_tls *t, PyObject *list);
GL_PRIVATE PyObject *tls_do_read(gl_tls *t, PyObject *Py_UNUSED(ignored));
/* The application's transport's write(). */
GL_PRIVATE PyObject *tls_write(gl_tls *t, PyObject *data);
/* Called by the stream transport with what it received, instead of get_buffer and
 * buffer_updated.  -1 with an exception. */
GL_PRIVATE int tls_receive(PyObject *protocol, const char *data, Py_ssize_t n);
