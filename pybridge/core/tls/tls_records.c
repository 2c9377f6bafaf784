/*
 * tls_records.c: a BIO through which OpenSSL writes records into a bytes object.
 *
 * The outgoing MemoryBIO clears its memory before OpenSSL writes to it, and its content is copied
 * once more into the bytes that the stream sends.  For a large write, a BIO of this file takes its
 * place, and OpenSSL writes each record to the bytes object itself.
 *
 * If the object is full, for example because the peer asked for short records, its content moves to
 * the outgoing BIO, and so do all later records of the call.  So the order of the records never
 * depends on the way.
 */
#include "tls/private.h"

/* A record adds to its plaintext a head of 5 bytes, an IV, a MAC and padding. */
#define GL_TLS_RECORD_OVERHEAD 128

/* Moves the records from the bytes object to the outgoing BIO; later ones are written there.  False
 * without memory; the records are lost then.  Sets no exception. */
static bool
records_move(struct tls_records *r)
{
    int len = (int)r->len;
    bool moved = len == 0 || openssl.BIO_write(r->out, PyBytes_AS_STRING(r->bytes), len) == len;
    Py_CLEAR(r->bytes);
    return moved;
}

/* BIO_write(): appends n bytes.  Returns n, or -1 without memory. */
static int
records_write(BIO *bio, const char *data, int n)
{
    struct tls_records *r = openssl.BIO_get_data(bio);
    if (r->bytes != NULL && n <= PyBytes_GET_SIZE(r->bytes) - r->len) {
        memcpy(PyBytes_AS_STRING(r->bytes) + r->len, data, (size_t)n);
        r->len += n;
        return n;
    }
    if (r->bytes != NULL && !records_move(r))
        return -1;
    return openssl.BIO_write(r->out, data, n);
}

/* BIO_ctrl(): OpenSSL flushes its output after a message of a handshake; 0 for all else. */
static long
records_ctrl(BIO *Py_UNUSED(bio), int command, long Py_UNUSED(number), void *Py_UNUSED(pointer))
{
    return command == GL_BIO_CTRL_FLUSH;
}

GL_PRIVATE bool
tls_records_init(void)
{
    openssl.records_method = openssl.BIO_meth_new(GL_BIO_TYPE_SOURCE_SINK, "goloop records");
    return openssl.records_method != NULL &&
           openssl.BIO_meth_set_write(openssl.records_method, records_write) == 1 &&
           openssl.BIO_meth_set_ctrl(openssl.records_method, records_ctrl) == 1;
}

GL_PRIVATE void
tls_records_begin(struct tls_records *r, SSL *ssl, BIO *out, Py_ssize_t len)
{
    *r = (struct tls_records){.out = out};
    if (bio_pending(out) != 0 || openssl.SSL_get_wbio(ssl) != out)
        return;
    Py_ssize_t records = len / GL_MAX_TLS_RECORD + 1;
    BIO *bio = openssl.BIO_new(openssl.records_method);
    if (bio == NULL)
        return;
    r->bytes = PyBytes_FromStringAndSize(NULL, len + records * GL_TLS_RECORD_OVERHEAD);
    if (r->bytes == NULL) {
        PyErr_Clear();
        openssl.BIO_free(bio);
        return;
    }
    openssl.BIO_set_data(bio, r);
    openssl.BIO_set_init(bio, 1);
    openssl.BIO_up_ref(out); /* the reference that OpenSSL drops now */
    openssl.SSL_set0_wbio(ssl, bio);
    r->replaced = true;
}

GL_PRIVATE int
tls_records_end(struct tls_records *r, SSL *ssl, bool keep)
{
    if (r->replaced)
        openssl.SSL_set0_wbio(ssl, r->out); /* frees the BIO of tls_records_begin() */
    if (r->bytes == NULL)
        return 0;
    if (keep)
        return _PyBytes_Resize(&r->bytes, r->len);
    if (!records_move(r)) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}
