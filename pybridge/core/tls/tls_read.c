/*
 * tls_read.c: decrypts the records that the stream received, and calls the application's protocol.
 *
 *     tls_receive              from stream_read.c: bytes that the stream received
 *       tls_buffer_input       copies them into the incoming BIO
 *     tls_do_read              also SSLProtocol._do_read()
 *       tls_read_all
 *         tls_read_copied      Protocol: data_received(bytes)
 *         tls_read_buffered    BufferedProtocol: get_buffer(), buffer_updated()
 *           tls_decrypt        SSL_read_ex() until it needs more bytes
 *           tls_handle_peer_close    after the peer's close_notify
 *         tls_control_reading  pauses or resumes reading of the stream
 */
#include "tls/private.h"

/* From this number of bytes on, creating a BIO that reads from the receive buffer costs less than
 * copying the bytes into the incoming BIO. */
#define GL_TLS_ZERO_COPY_MIN 4096

/* Copies received bytes into the incoming BIO; n is less than INT_MAX.  -1 with MemoryError. */
static int
tls_buffer_input(BIO *in, const char *data, Py_ssize_t n)
{
    if (n > 0 && openssl.BIO_write(in, data, (int)n) != (int)n) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* Decrypts into [buf, buf + cap).  Returns the number of bytes, or -1 with MemoryError.  If the
 * buffer is not full, *error has the reason.  Requires tls_has_openssl().  A zero-copy BIO replaces
 * t->in, which is empty then, for the time of this call; bytes that OpenSSL has not read are copied
 * to t->in at the end. */
static Py_ssize_t
tls_decrypt(gl_tls *t, uint8_t *buf, size_t cap, struct openssl_error *error)
{
    size_t done = 0;
    int copied = 0;
    PyObject *ssl_socket = Py_NewRef(t->ssl_socket);
    SSL *ssl = t->ssl;
    BIO *in = t->in;
    BIO *zero_copy_bio = t->zero_copy_bio;
    t->zero_copy_bio = NULL;
    GL_LOCK_OBJECT(ssl_socket); /* as _ssl does: another thread may call the SSLObject */
    if (zero_copy_bio != NULL) {
        openssl.BIO_up_ref(in);
        openssl.SSL_set0_rbio(ssl, zero_copy_bio);
    }
    openssl.ERR_clear_error();
    *error = (struct openssl_error){0};
    while (done < cap && error->kind == 0) {
        size_t n = 0;
        int r = openssl.SSL_read_ex(ssl, buf + done, cap - done, &n);
        if (r == 1)
            done += n;
        else
            *error = openssl_take_error(ssl, r);
    }
    if (zero_copy_bio != NULL) {
        char *rest = NULL;
        long left = openssl.BIO_ctrl(zero_copy_bio, GL_BIO_CTRL_INFO, 0, &rest);
        copied = tls_buffer_input(in, rest, left);
        openssl.SSL_set0_rbio(ssl, in); /* frees zero_copy_bio */
    }
    GL_UNLOCK_OBJECT();
    Py_DECREF(ssl_socket);
    if (copied < 0)
        return -1;
    return (Py_ssize_t)done;
}

/* Returns true if the call failed: neither the end of the stream nor a need for more bytes. */
static bool
openssl_failed(struct openssl_error error)
{
    return error.kind != 0 && error.kind != GL_SSL_ERROR_ZERO_RETURN && !openssl_wants_io(error);
}

/* Handles the peer's close_notify: calls eof_received() and starts the shutdown. */
static int
tls_handle_peer_close(gl_tls *t)
{
    if (gl_drop_result(PyObject_CallMethodNoArgs((PyObject *)t, G.s__call_eof_received)) < 0)
        return -1;
    return gl_drop_result(PyObject_CallMethodNoArgs((PyObject *)t, G.s__start_shutdown));
}

/* Ends a series of reads: if `error`, the last one, is the peer's close_notify, handles it. */
static int
tls_end_reads(gl_tls *t, struct openssl_error error)
{
    if (error.kind == GL_SSL_ERROR_ZERO_RETURN)
        return tls_handle_peer_close(t);
    return 0;
}

/* Returns true if the application's protocol can get data: the connection is open and reading is
 * not paused. */
static bool
tls_may_deliver(gl_tls *t)
{
    return (t->state == G.tls.wrapped || t->state == G.tls.flushing) && !t->app_reading_paused &&
           t->app_protocol;
}

/* Calls the callable in a field, get_buffer() or buffer_updated(), with the number n.  Returns its
 * result, a new reference. */
static PyObject *
tls_call_number(PyObject *field, Py_ssize_t n)
{
    PyObject *callable = gl_ref_or_none(field);
    PyObject *number = PyLong_FromSsize_t(n);
    PyObject *r = number ? PyObject_CallOneArg(callable, number) : NULL;
    Py_XDECREF(number);
    Py_DECREF(callable);
    return r;
}

static int tls_read_buffered(gl_tls *t);

/* Returns the upper limit of the number of plaintext bytes that OpenSSL can return now.  A record
 * is longer than its plaintext; in addition OpenSSL may have a part of one record. */
static size_t
tls_plaintext_max(gl_tls *t)
{
    BIO *in = t->zero_copy_bio ? t->zero_copy_bio : t->in;
    size_t max = bio_pending(in) + 1;
    if (openssl.SSL_has_pending(t->ssl))
        max += GL_MAX_TLS_RECORD;
    return max;
}

/* Delivers the first n bytes of a new bytes object, whose reference it steals: feeds a
 * StreamReader, or calls data_received(). */
static int
tls_deliver(gl_tls *t, PyObject *bytes, Py_ssize_t n)
{
    PyObject *protocol = gl_ref_or_none(t->app_protocol);
    int r = gl_stream_reader_feed(t->loop, protocol, PyBytes_AS_STRING(bytes), n);
    if (r == 0 && _PyBytes_Resize(&bytes, n) < 0)
        r = -1;
    if (r == 0)
        r = gl_call_method(protocol, G.s_data_received, bytes);
    Py_DECREF(protocol);
    Py_XDECREF(bytes);
    return Py_MIN(r, 0);
}

/* Reads for a Protocol: calls data_received() until OpenSSL needs more bytes, or the protocol
 * pauses or closes.  If OpenSSL can't be used any more, it calls asyncio's method instead.  -1 with
 * the exception of the protocol, or of OpenSSL for a bad record. */
static int
tls_read_copied(gl_tls *t)
{
    struct openssl_error error = {0};
    while (error.kind == 0 && tls_may_deliver(t)) {
        if (t->is_buffer) /* data_received() has set a BufferedProtocol */
            return tls_read_buffered(t);
        if (!tls_check_openssl(t)) /* data_received() has replaced the SSL objects */
            return tls_fallback(t, G.tls.do_read);
        size_t cap = tls_plaintext_max(t);
        PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)cap);
        if (bytes == NULL)
            return -1;
        Py_ssize_t n = tls_decrypt(t, (uint8_t *)PyBytes_AS_STRING(bytes), cap, &error);
        if (n <= 0 || openssl_failed(error)) {
            Py_DECREF(bytes);
            if (n < 0)
                return -1;
            /* An error discards the bytes that were decrypted before it, as in asyncio: a
             * protocol that answers them would write to a broken connection. */
            if (openssl_failed(error))
                return gl_drop_result(tls_raise(t, "read", error));
            continue;
        }
        if (tls_deliver(t, bytes, n) < 0)
            return -1;
    }
    return tls_end_reads(t, error);
}

/* Calls get_buffer(), acquires `view` of its result, which the caller releases, and returns the
 * number of bytes that SSLObject.read(len(buf), buf) would fill in.  -1 with the exception that
 * SSLObject.read() would raise; there is no view then. */
static Py_ssize_t
tls_app_buffer(gl_tls *t, Py_buffer *view)
{
    PyObject *buf = tls_call_number(t->get_buffer, (Py_ssize_t)bio_pending(t->in));
    Py_ssize_t size = buf ? PyObject_Size(buf) : -1;
    if (size >= 0 && PyObject_GetBuffer(buf, view, PyBUF_WRITABLE) < 0) {
        PyErr_Format(PyExc_TypeError,
                     "read() argument 2 must be read-write bytes-like object, "
                     "not %.50s",
                     Py_TYPE(buf)->tp_name);
        size = -1;
    }
    Py_XDECREF(buf);
    if (size == 0 || (size > 0 && size > view->len))
        return view->len;
    return size;
}

/* Reads for a BufferedProtocol: fills one buffer, calls buffer_updated(), and schedules another
 * read if the buffer is full.  An empty buffer ends the connection, as in asyncio.  Reads nothing
 * if get_buffer() has paused or closed the connection.  If OpenSSL can't be used, it calls
 * asyncio's method instead. */
static int
tls_read_buffered(gl_tls *t)
{
    struct openssl_error error = {0};
    if (!tls_check_openssl(t))
        return tls_fallback(t, G.tls.do_read);
    Py_buffer view;
    Py_ssize_t size = tls_app_buffer(t, &view);
    Py_ssize_t n = 0;
    if (size < 0)
        return -1;
    if (!tls_may_deliver(t) || !tls_has_openssl(t)) { /* get_buffer() closed or paused */
        PyBuffer_Release(&view);
        return 0;
    }
    if (size == 0)
        error.kind = GL_SSL_ERROR_ZERO_RETURN; /* an empty buffer is the end, as in asyncio */
    else
        n = tls_decrypt(t, view.buf, (size_t)size, &error);
    PyBuffer_Release(&view);
    if (n < 0)
        return -1;
    if (openssl_failed(error))
        return gl_drop_result(tls_raise(t, "read", error));
    if (error.kind == 0 &&
        gl_drop_result(PyObject_CallMethod((PyObject *)t, GL_METHOD(_schedule_read), NULL)) < 0)
        return -1;
    if (n > 0 && gl_drop_result(tls_call_number(t->buffer_updated, n)) < 0)
        return -1;
    return tls_end_reads(t, error);
}

/* Applies flow control to received bytes: calls SSLProtocol's method if the stream's reading has to
 * be paused or resumed. */
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

/* Decrypts and delivers all received bytes, then writes pending output, unless the application has
 * paused reading.  In any case applies flow control to received bytes. */
static int
tls_read_all(gl_tls *t)
{
    if (!t->app_reading_paused) {
        int r;
        if (t->is_buffer)
            r = tls_read_buffered(t);
        else
            r = tls_read_copied(t);
        if (r < 0)
            return -1;
        Py_ssize_t backlog = tls_backlog_len(t);
        if (backlog < 0)
            return -1;
        if (backlog > 0)
            r = tls_fallback(t, G.tls.do_write);
        else
            r = tls_process_outgoing(t);
        if (r < 0)
            return -1;
    }
    return tls_control_reading(t);
}

GL_PRIVATE PyObject *
tls_do_read(gl_tls *t, PyObject *Py_UNUSED(ignored))
{
    if ((t->state != G.tls.wrapped && t->state != G.tls.flushing) || t->read_deferred ||
        t->plaintext_lost)
        Py_RETURN_NONE;
    Py_INCREF(t);
    PyObject *result;
    if (tls_has_openssl(t))
        result = tls_finish_method(t, tls_read_all(t));
    else
        result = PyObject_CallOneArg(G.tls.do_read, (PyObject *)t);
    if (result == NULL)
        t->read_failed = 1; /* _fatal_error() sets it for other exceptions */
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
    /* No Python runs from here until OpenSSL reads, so that `data` stays valid. */
    t->zero_copy_bio = NULL;
    if (n >= GL_TLS_ZERO_COPY_MIN && !t->is_buffer && !t->app_reading_paused &&
        bio_pending(t->in) == 0 && openssl_is_unchanged(t->sslobj, t->ssl_socket))
        t->zero_copy_bio = openssl.BIO_new_mem_buf(data, (int)n);
    if (t->zero_copy_bio != NULL) /* an empty BIO means: more bytes are needed, not the end */
        openssl.BIO_ctrl(t->zero_copy_bio, GL_BIO_C_SET_BUF_MEM_EOF_RETURN, -1, NULL);
    else if (tls_buffer_input(t->in, data, n) < 0)
        return -1;
    int r = gl_drop_result(tls_do_read(t, NULL));
    if (t->zero_copy_bio != NULL) { /* tls_decrypt() was not called */
        openssl.BIO_free(t->zero_copy_bio);
        t->zero_copy_bio = NULL;
        if (t->in != NULL && tls_buffer_input(t->in, data, n) < 0)
            return -1;
    }
    return r;
}
