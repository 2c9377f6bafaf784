/*
 * tls_read.c: records that the stream received become plaintext for the application.
 */
#include "tls/private.h"

/* From so many bytes on the copy into a BIO costs more than a BIO of their own. */
#define GL_TLS_ZERO_COPY_MIN 4096
#define GL_TLS_RECORD_MAX 16384

/* What a stream receives at once is less than INT_MAX. */
static int
tls_buffer_input(BIO *in, const char *data, Py_ssize_t n)
{
    if (n > 0 && openssl.BIO_write(in, data, (int)n) != (int)n) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* Decrypts into [buf, buf + cap); *end says why it stopped, if that is not full.  tls_has_openssl()
 * holds.  What is zero_copy_bio stands in for t->in, which is empty then, and gets what OpenSSL does not take. */
static Py_ssize_t
tls_decrypt(gl_tls *t, uint8_t *buf, size_t cap, struct openssl_error *end)
{
    size_t done = 0;
    int kept = 0;
    PyObject *inner = Py_NewRef(t->inner);
    SSL *ssl = t->ssl;
    BIO *in = t->in, *zero_copy_bio = t->zero_copy_bio;
    t->zero_copy_bio = NULL;
    GL_LOCK_OBJECT(inner); /* as _ssl does: a program may ask the SSLObject from another thread */
    if (zero_copy_bio != NULL) {
        openssl.BIO_up_ref(in);
        openssl.SSL_set0_rbio(ssl, zero_copy_bio);
    }
    openssl.ERR_clear_error();
    *end = (struct openssl_error){0};
    while (done < cap && end->why == 0) {
        size_t n = 0;
        int r = openssl.SSL_read_ex(ssl, buf + done, cap - done, &n);
        if (r == 1)
            done += n;
        else
            *end = openssl_take_error(ssl, r);
    }
    if (zero_copy_bio != NULL) {
        char *rest = NULL;
        long left = openssl.BIO_ctrl(zero_copy_bio, GL_BIO_CTRL_INFO, 0, &rest);
        kept = tls_buffer_input(in, rest, left);
        openssl.SSL_set0_rbio(ssl, in); /* which frees the other */
    }
    GL_UNLOCK_OBJECT();
    Py_DECREF(inner);
    return kept < 0 ? -1 : (Py_ssize_t)done;
}

/* True where OpenSSL has neither data nor an end to tell, but an error. */
static bool
openssl_failed(struct openssl_error end)
{
    return end.why != 0 && end.why != GL_SSL_ERROR_ZERO_RETURN && !openssl_wants_io(end);
}

/* What the peer's close_notify starts. */
static int
tls_peer_closed(gl_tls *t)
{
    if (gl_drop_result(PyObject_CallMethodNoArgs((PyObject *)t, G.s__call_eof_received)) < 0)
        return -1;
    return gl_drop_result(PyObject_CallMethodNoArgs((PyObject *)t, G.s__start_shutdown));
}

static bool
tls_may_deliver(gl_tls *t)
{
    return (t->state == G.tls.wrapped || t->state == G.tls.flushing) && !t->app_reading_paused &&
           t->app_protocol;
}

/* Calls a field with a number. */
static PyObject *
tls_call_number(PyObject *field, Py_ssize_t n)
{
    PyObject *callable = tls_ref_or_none(field), *number = PyLong_FromSsize_t(n);
    PyObject *r = number ? PyObject_CallOneArg(callable, number) : NULL;
    Py_XDECREF(number);
    Py_DECREF(callable);
    return r;
}

static int tls_read_buffered(gl_tls *t);

static int
tls_read_copied(gl_tls *t)
{
    struct openssl_error end = {0};
    while (end.why == 0 && tls_may_deliver(t)) {
        if (t->is_buffer) /* data_received() has put a BufferedProtocol in its place */
            return tls_read_buffered(t);
        if (!tls_can_use_openssl(t)) /* or taken the SSL objects away */
            return tls_fallback(t, G.tls.do_read);
        /* Records are longer than what is in them, so all of it fits: of one OpenSSL may have a part. */
        size_t cap = bio_pending(t->zero_copy_bio ? t->zero_copy_bio : t->in) + 1 +
                     (openssl.SSL_has_pending(t->ssl) ? GL_TLS_RECORD_MAX : 0);
        PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)cap);
        if (bytes == NULL)
            return -1;
        Py_ssize_t n = tls_decrypt(t, (uint8_t *)PyBytes_AS_STRING(bytes), cap, &end);
        if (n <= 0 || openssl_failed(end)) {
            Py_DECREF(bytes);
            /* At once, and for what was decrypted before it too, as in asyncio: a
             * protocol that answers would find its connection broken under its hands. */
            if (n < 0 || openssl_failed(end))
                return n < 0 ? -1 : gl_drop_result(tls_raise(t, "read", end));
            continue;
        }
        if (_PyBytes_Resize(&bytes, n) < 0)
            return -1;
        PyObject *protocol = tls_ref_or_none(t->app_protocol);
        int r = gl_drop_result(PyObject_CallMethodOneArg(protocol, G.s_data_received, bytes));
        Py_DECREF(protocol);
        Py_DECREF(bytes);
        if (r < 0)
            return -1;
    }
    return end.why == GL_SSL_ERROR_ZERO_RETURN ? tls_peer_closed(t) : 0;
}

/* What SSLObject.read(len(buf), buf) would fill of what get_buffer() returns; it refuses what that
 * refuses.  -1 with an exception. */
static Py_ssize_t
tls_app_buffer(gl_tls *t, Py_buffer *view)
{
    PyObject *buf = tls_call_number(t->get_buffer, (Py_ssize_t)bio_pending(t->in));
    Py_ssize_t wants = buf ? PyObject_Size(buf) : -1;
    if (wants >= 0 && PyObject_GetBuffer(buf, view, PyBUF_WRITABLE) < 0) {
        PyErr_Format(PyExc_TypeError,
                     "read() argument 2 must be read-write bytes-like object, "
                     "not %.50s",
                     Py_TYPE(buf)->tp_name);
        wants = -1;
    }
    Py_XDECREF(buf);
    return wants == 0 || (wants > 0 && wants > view->len) ? view->len : wants;
}

static int
tls_read_buffered(gl_tls *t)
{
    struct openssl_error end = {0};
    if (!tls_can_use_openssl(t))
        return tls_fallback(t, G.tls.do_read);
    Py_buffer view;
    Py_ssize_t wants = tls_app_buffer(t, &view), n = 0;
    if (wants < 0)
        return -1;
    if (!tls_may_deliver(t) || !tls_has_openssl(t)) { /* get_buffer() closed or paused */
        PyBuffer_Release(&view);
        return 0;
    }
    if (wants == 0)
        end.why = GL_SSL_ERROR_ZERO_RETURN; /* asyncio takes no room for the end of the stream */
    else
        n = tls_decrypt(t, view.buf, (size_t)wants, &end);
    PyBuffer_Release(&view);
    if (n < 0 || openssl_failed(end))
        return n < 0 ? -1 : gl_drop_result(tls_raise(t, "read", end));
    if (end.why == 0 &&
        gl_drop_result(PyObject_CallMethod((PyObject *)t, GL_METHOD(_read_soon), NULL)) < 0)
        return -1;
    if (n > 0 && gl_drop_result(tls_call_number(t->buffer_updated, n)) < 0)
        return -1;
    return end.why == GL_SSL_ERROR_ZERO_RETURN ? tls_peer_closed(t) : 0;
}

/* Flow control of what is received; SSLProtocol's own method where there is something to do. */
static int
tls_control_reading(gl_tls *t)
{
    if (t->transport == NULL || t->transport == Py_None || !tls_has_openssl(t))
        return 0;
    Py_ssize_t size = (Py_ssize_t)bio_pending(t->in);
    if ((size >= t->incoming_high && !t->ssl_reading_paused) ||
        (size <= t->incoming_low && t->ssl_reading_paused))
        return gl_drop_result(
            PyObject_CallMethod((PyObject *)t, GL_METHOD(_control_ssl_reading), NULL));
    return 0;
}

static int
tls_read_all(gl_tls *t)
{
    if (!t->app_reading_paused) {
        int r = t->is_buffer ? tls_read_buffered(t) : tls_read_copied(t);
        if (r < 0)
            return -1;
        Py_ssize_t backlog = tls_backlog_len(t);
        if (backlog < 0)
            return -1;
        r = backlog > 0 ? tls_fallback(t, G.tls.do_write) : tls_process_outgoing(t);
        if (r < 0)
            return -1;
    }
    return tls_control_reading(t);
}

GL_PRIVATE PyObject *
tls_do_read(gl_tls *t, PyObject *Py_UNUSED(ignored))
{
    if ((t->state != G.tls.wrapped && t->state != G.tls.flushing) || t->read_held)
        Py_RETURN_NONE;
    if (!tls_has_openssl(t))
        return PyObject_CallOneArg(G.tls.do_read, (PyObject *)t);
    Py_INCREF(t);
    PyObject *result = tls_result(t, tls_read_all(t));
    Py_DECREF(t);
    return result;
}

GL_PRIVATE int
tls_receive(PyObject *protocol, const char *data, Py_ssize_t n)
{
    gl_tls *t = (gl_tls *)protocol;
    if (t->state != G.tls.wrapped || !tls_has_openssl(t)) {
        PyObject *bytes = PyBytes_FromStringAndSize(data, n);
        PyObject *r = bytes ? PyObject_CallMethodOneArg(protocol, G.s__received, bytes) : NULL;
        Py_XDECREF(bytes);
        return gl_drop_result(r);
    }
    /* No Python runs from here until OpenSSL reads. */
    bool feed = n >= GL_TLS_ZERO_COPY_MIN && !t->is_buffer && !t->app_reading_paused &&
                bio_pending(t->in) == 0 && openssl_is_unchanged(t->sslobj, t->inner);
    t->zero_copy_bio = feed ? openssl.BIO_new_mem_buf(data, (int)n) : NULL;
    if (t->zero_copy_bio != NULL) /* its end is not the stream's */
        openssl.BIO_ctrl(t->zero_copy_bio, GL_BIO_C_SET_BUF_MEM_EOF_RETURN, -1, NULL);
    else if (tls_buffer_input(t->in, data, n) < 0)
        return -1;
    int r = gl_drop_result(tls_do_read(t, NULL));
    if (t->zero_copy_bio != NULL) { /* nobody reads */
        openssl.BIO_free(t->zero_copy_bio);
        t->zero_copy_bio = NULL;
        if (t->in != NULL && tls_buffer_input(t->in, data, n) < 0)
            return -1;
    }
    return r;
}
