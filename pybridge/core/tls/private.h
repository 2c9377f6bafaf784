/*
 * private.h: declarations that only the files of this room share.
 */
#pragma once

#include "tls/tls.h"

/* ---- openssl.c ------------------------------------------------------------------------------- */

typedef struct ssl_st SSL;
typedef struct bio_st BIO;
typedef struct bio_method_st BIO_METHOD;
/* The functions of a BIO_METHOD for BIO_write() and BIO_ctrl(). */
typedef int (*gl_bio_write)(BIO *, const char *, int);
typedef long (*gl_bio_ctrl)(BIO *, int, long, void *);

/* Numbers of OpenSSL's public headers, by OpenSSL's names. */
#define GL_SSL_ERROR_WANT_READ 2
#define GL_SSL_ERROR_WANT_WRITE 3
#define GL_SSL_ERROR_ZERO_RETURN 6
#define GL_BIO_CTRL_INFO 3
#define GL_BIO_CTRL_PENDING 10
#define GL_BIO_CTRL_FLUSH 11
#define GL_BIO_C_SET_BUF_MEM_EOF_RETURN 130
#define GL_BIO_TYPE_SOURCE_SINK 0x0400
#define GL_MAX_TLS_RECORD 16384

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
    X(void, SSL_set0_wbio, (SSL *, BIO *))                        \
    X(BIO_METHOD *, BIO_meth_new, (int, const char *))            \
    X(int, BIO_meth_set_write, (BIO_METHOD *, gl_bio_write))      \
    X(int, BIO_meth_set_ctrl, (BIO_METHOD *, gl_bio_ctrl))        \
    X(BIO *, BIO_new, (const BIO_METHOD *))                       \
    X(void, BIO_set_init, (BIO *, int))                           \
    X(void, BIO_set_data, (BIO *, void *))                        \
    X(void *, BIO_get_data, (BIO *))                              \
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
    bool ready; /* the functions can be called directly */
#define X(type, name, arguments) type(*name) arguments;
    GL_OPENSSL(X)
#undef X
    BIO_METHOD *records_method; /* of the BIOs of tls_records.c */
    PyTypeObject *socket_type;  /* _ssl._SSLSocket */
    PyTypeObject *bio_type;     /* _ssl.MemoryBIO */
};
GL_PRIVATE_DATA struct gl_openssl openssl;

/* Looks up the functions in the file of the module _ssl; `path` is NULL if _ssl has no file of its
 * own.  Returns NULL, or the reason why the functions can't be called. */
GL_PRIVATE const char *openssl_open(const char *path);
/* OpenSSL's objects of one ssl.SSLObject.  `ssl_socket` is owned and keeps the other objects
 * alive. */
struct openssl_objects {
    PyObject *ssl_socket; /* the _ssl._SSLSocket; NULL: not found */
    SSL *ssl;
    BIO *in;
    BIO *out;
};
/* Finds the OpenSSL objects of an ssl.SSLObject and its two MemoryBIOs.  `ssl_socket` of the result
 * is a new reference, or NULL, without an exception, if the Python objects do not have the expected
 * layout.  Runs Python. */
GL_PRIVATE struct openssl_objects openssl_find_objects(PyObject *sslobj, PyObject *incoming,
                                                       PyObject *outgoing);
/* The error of a call that did not succeed.  It is read right after the call.  The call is not
 * repeated to get the error again: OpenSSL need not fail twice, and may go on with data that it has
 * rejected. */
struct openssl_error {
    int kind;           /* an SSL_ERROR_ number; 0: no error */
    unsigned long code; /* the last entry of the thread's error queue, which is empty now */
    long verify_result; /* the result of the verification of the peer's certificate */
};
/* Reads and clears the error of the call that has just returned `result`, in the same thread.  The
 * kind is 0 if the call did not fail. */
GL_PRIVATE_INLINE struct openssl_error openssl_take_error(SSL *ssl, int result);
/* Returns true if the SSLObject still has `ssl_socket` and its own methods, so that C may call
 * OpenSSL instead of them.  Sets no exception. */
GL_PRIVATE bool openssl_is_unchanged(PyObject *sslobj, PyObject *ssl_socket);
/* Returns the number of bytes in a memory BIO. */
GL_PRIVATE_INLINE size_t bio_pending(BIO *bio);

/* ---- one connection (openssl.c) -------------------------------------------------------------- */

/* Attributes that both C and asyncio's SSLProtocol use. */
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

/* The state of one connection.  The GIL guards it, and the thread of its loop uses it. */
typedef struct gl_tls {
    PyObject_HEAD
#define X(name) PyObject *name;
    GL_TLS_OBJECTS(X)
#undef X
    Py_ssize_t write_buffer_size; /* bytes in the backlog */
    Py_ssize_t incoming_high, incoming_low;
    Py_ssize_t outgoing_high, outgoing_low;
    char app_reading_paused, ssl_reading_paused;
    char ssl_writing_paused, app_writing_paused;
    char is_buffer;      /* the app protocol is a BufferedProtocol */
    char read_deferred;  /* received data waits until the handshake's waiter has run */
    char read_failed;    /* a call of the app protocol, or OpenSSL, has failed while reading */
    char plaintext_lost; /* a read failed for want of memory: nothing after it is delivered */
    /* The OpenSSL objects of sslobj and the BIOs.  `ssl_socket` is a reference of this object, so
     * that they stay alive if a program replaces the SSL objects. */
    PyObject *ssl_socket; /* the _ssl._SSLSocket */
    SSL *ssl;
    BIO *in, *out;
    BIO *zero_copy_bio;     /* reads from the stream's receive buffer; NULL: not used */
    char openssl_resolved;  /* tls_resolve_openssl() has run since the last reset */
    char handshake_running; /* SSL_do_handshake() is running, without the GIL */
    PyObject *loop;         /* SSLProtocol's _loop, which a program can set */
    GL_OWNER_LOOP
} gl_tls;

/* Clears the OpenSSL objects; a function that is calling OpenSSL has its own reference.
 * `resolve_again`: the next use looks for them again; else C never uses them again. */
GL_PRIVATE void tls_reset_openssl(gl_tls *t, bool resolve_again);
/* Finds the OpenSSL objects of the connection and stores them; `ssl` stays NULL if they can't be
 * used.  Runs Python.  Sets no exception. */
GL_PRIVATE void tls_resolve_openssl(gl_tls *t);

/* Returns true if C can use ssl, in and out until Python runs again.  After a change of the SSL
 * objects it looks for these fields first, which runs Python.  Only one thread at a time may use
 * OpenSSL's objects, so the result is false during a step of the handshake. */
GL_PRIVATE_INLINE bool tls_has_openssl(gl_tls *t);

/* Called right before C does the work of a method of the SSLObject: returns true if
 * tls_has_openssl() and the SSLObject still has its own methods.  If a program has replaced one,
 * clears the OpenSSL objects, so that asyncio's SSLProtocol calls the method, and C never uses the
 * OpenSSL objects of this SSLObject again. */
GL_PRIVATE bool tls_check_openssl(gl_tls *t);

/* Calls a method of asyncio's SSLProtocol, one of G.tls.  -1 with its exception. */
static inline int
tls_fallback(gl_tls *t, PyObject *method)
{
    return gl_drop_result(PyObject_CallOneArg(method, (PyObject *)t));
}

/* Converts 0 or -1 to the result of a method: None, or, for an Exception, the result of
 * _fatal_error(), which closes the connection; if it fails, C closes it.  After a MemoryError, with
 * which plaintext may be lost, no more plaintext is delivered.  Returns NULL for another
 * BaseException, which stays set, and for an exception of _fatal_error(). */
GL_PRIVATE PyObject *tls_finish_method(gl_tls *t, int r);

/* Returns true if the call did not fail, and can be repeated when more bytes have been received or
 * sent. */
static inline bool
openssl_wants_io(struct openssl_error error)
{
    return error.kind == GL_SSL_ERROR_WANT_READ || error.kind == GL_SSL_ERROR_WANT_WRITE;
}

/* Raises the exception that _ssl's method of that name would raise for the error; returns NULL. */
GL_PRIVATE PyObject *tls_raise(gl_tls *t, const char *method, struct openssl_error error);

/* ---- tls_records.c --------------------------------------------------------------------------- */

/* The records that OpenSSL writes while a BIO of tls_records_begin() is its output.  All of them
 * are in `bytes`, or all of them are in `out`. */
struct tls_records {
    PyObject *bytes; /* owned; its first `len` bytes are records.  NULL: OpenSSL writes to `out` */
    Py_ssize_t len;
    BIO *out;      /* the connection's outgoing memory BIO */
    bool replaced; /* OpenSSL's output is not `out` now */
};

/* Makes the method of these BIOs, when goloop is imported; false without memory. */
GL_PRIVATE bool tls_records_init(void);
/* Replaces OpenSSL's output `out` by a bytes object for the records of `len` bytes of plaintext, at
 * most INT_MAX / 2.  Does nothing if `out` is not the output or bytes wait in it, or without
 * memory.  Sets no exception. */
GL_PRIVATE void tls_records_begin(struct tls_records *r, SSL *ssl, BIO *out, Py_ssize_t len);
/* Makes `out` the output again.  `keep`: leaves the records in `bytes`, cut to their length; else
 * moves them to `out`.  -1 with MemoryError; the records are lost then. */
GL_PRIVATE int tls_records_end(struct tls_records *r, SSL *ssl, bool keep);

/* ---- tls_write.c and tls_read.c -------------------------------------------------------------- */

/* Writes OpenSSL's new records to the transport, unless its writing is paused, then applies flow
 * control to the application's writes.  If OpenSSL can't be used, it calls asyncio's method
 * instead.  Runs Python. */
GL_PRIVATE int tls_process_outgoing(gl_tls *t);
/* Returns the number of entries of the write backlog. */
GL_PRIVATE Py_ssize_t tls_backlog_len(gl_tls *t);
/* Implements SSLProtocol._write_appdata(): encrypts the items of an iterable and writes the
 * records.  Items that can't be encrypted now go to the backlog.  Returns None, or NULL as
 * tls_finish_method() or with the exception of an item. */
GL_PRIVATE PyObject *tls_write_appdata(gl_tls *t, PyObject *list);
/* Implements SSLProtocol._do_read(): decrypts and delivers received bytes, unless the connection is
 * closed, `read_deferred` or `plaintext_lost`.  Returns None, or as tls_finish_method(). */
GL_PRIVATE PyObject *tls_do_read(gl_tls *t, PyObject *Py_UNUSED(ignored));
/* Implements write() of the application's transport: encrypts a bytes-like object and writes the
 * records, or appends the object to the backlog.  If a program has replaced write() of asyncio's
 * class, it calls that.  NULL with TypeError (not bytes-like), or as tls_finish_method(). */
GL_PRIVATE PyObject *tls_write(gl_tls *t, PyObject *data);
/* Processes `n` bytes that the stream transport received, in place of get_buffer() and
 * buffer_updated().  `data` is valid during the call only.  During the handshake and the shutdown,
 * or without OpenSSL, it passes the bytes to _received() in Python. */
GL_PRIVATE int tls_receive(PyObject *protocol, const char *data, Py_ssize_t n);
