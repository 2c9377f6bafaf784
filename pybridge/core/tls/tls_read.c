/*
 * tls_read.c: records that the stream received become plaintext for the application.
 */
#include "tls/private.h"

#define GL_TLS_CHUNK (256 * 1024)

static uint8_t *
tls_scratch_take(void)
{
    uint8_t *p = __atomic_exchange_n(&G.tls_spare, NULL, __ATOMIC_ACQUIRE);
    if (p == NULL && (p = PyMem_RawMalloc(GL_TLS_CHUNK)) == NULL)
        PyErr_NoMemory();
    return p;
}

static void
tls_scratch_give(uint8_t *p)
{
    PyMem_RawFree(__atomic_exchange_n(&G.tls_spare, p, __ATOMIC_ACQ_REL));
}

/* Decrypts into [buf, buf + cap); *end says why it stopped, if that is not full.  tls_native()
 * holds. */
static Py_ssize_t
tls_decrypt(gl_tls *t, uint8_t *buf, size_t cap, struct openssl_stop *end)
{
    size_t done = 0;
    PyObject *inner = Py_NewRef(t->inner);
    SSL *ssl = t->ssl;
    GL_LOCK_OBJECT(inner); /* as _ssl does: a program may ask the SSLObject from another thread */
    openssl.ERR_clear_error();
    *end = (struct openssl_stop){0};
    while (done < cap && end->why == 0) {
        size_t n = 0;
        int r = openssl.SSL_read_ex(ssl, buf + done, cap - done, &n);
        if (r == 1)
            done += n;
        else
            *end = openssl_stopped(ssl, r);
    }
    GL_UNLOCK_OBJECT();
    Py_DECREF(inner);
    return (Py_ssize_t)done;
}

/* True where OpenSSL has neither data nor an end to tell, but an error. */
static bool
tls_broken(struct openssl_stop end)
{
    return end.why != 0 && end.why != GL_SSL_ERROR_ZERO_RETURN && !tls_waits(end);
}

/* What the peer's close_notify starts. */
static int
tls_peer_closed(gl_tls *t)
{
    if (gl_done(PyObject_CallMethodNoArgs((PyObject *)t, G.s__call_eof_received)) < 0)
        return -1;
    return gl_done(PyObject_CallMethodNoArgs((PyObject *)t, G.s__start_shutdown));
}

static bool
tls_reads(gl_tls *t)
{
    return (t->state == G.tls.wrapped || t->state == G.tls.flushing) &&
           !t->app_reading_paused && t->app_protocol && t->app_protocol != Py_None;
}

/* Calls a field with a number. */
static PyObject *
tls_call_number(PyObject *field, Py_ssize_t n)
{
    PyObject *callable = tls_hold(field), *number = PyLong_FromSsize_t(n);
    PyObject *r = number ? PyObject_CallOneArg(callable, number) : NULL;
    Py_XDECREF(number);
    Py_DECREF(callable);
    return r;
}

static int tls_read_buffered(gl_tls *t);

static int
tls_read_copied(gl_tls *t)
{
    struct openssl_stop end = {0};
    while (end.why == 0 && tls_reads(t)) {
        if (t->is_buffer) /* data_received() has put a BufferedProtocol in its place */
            return tls_read_buffered(t);
        if (!tls_stands_in(t)) /* or taken the SSL objects away */
            return tls_by_asyncio(t, G.tls.do_read);
        uint8_t *scratch = tls_scratch_take();
        if (scratch == NULL)
            return -1;
        Py_ssize_t n = tls_decrypt(t, scratch, GL_TLS_CHUNK, &end);
        if (tls_broken(end)) {
            /* At once, and for what was decrypted before it too, as in asyncio: a
             * protocol that answers would find its connection broken under its hands. */
            tls_scratch_give(scratch);
            return gl_done(tls_raise(t, "read", end));
        }
        PyObject *bytes = n > 0 ? PyBytes_FromStringAndSize((const char *)scratch, n) : NULL;
        tls_scratch_give(scratch);
        if (n > 0) {
            PyObject *protocol = tls_hold(t->app_protocol);
            int r = bytes ? gl_done(PyObject_CallMethodOneArg(protocol, G.s_data_received, bytes))
                          : -1;
            Py_DECREF(protocol);
            Py_XDECREF(bytes);
            if (r < 0)
                return -1;
        }
    }
    return end.why == GL_SSL_ERROR_ZERO_RETURN ? tls_peer_closed(t) : 0;
}

static int
tls_read_buffered(gl_tls *t)
{
    struct openssl_stop end = {0};
    if (!tls_stands_in(t))
        return tls_by_asyncio(t, G.tls.do_read);
    PyObject *buf = tls_call_number(t->get_buffer, (Py_ssize_t)bio_pending(t->in));
    if (buf == NULL)
        return -1;
    Py_buffer view;
    int r = PyObject_GetBuffer(buf, &view, PyBUF_WRITABLE);
    Py_DECREF(buf);
    if (r < 0)
        return -1;
    if (!tls_reads(t) || !tls_native(t)) { /* get_buffer() closed or paused */
        PyBuffer_Release(&view);
        return 0;
    }
    Py_ssize_t n = 0;
    if (view.len == 0)
        end.why = GL_SSL_ERROR_ZERO_RETURN; /* asyncio takes no room for the end of the stream */
    else
        n = tls_decrypt(t, view.buf, (size_t)view.len, &end);
    PyBuffer_Release(&view);
    if (tls_broken(end))
        return gl_done(tls_raise(t, "read", end));
    if (end.why == 0) {
        /* The buffer is full: the rest in the next iteration, as asyncio does. */
        PyObject *o = PyObject_GetAttr((PyObject *)t, G.s__loop);
        PyObject *again = o ? PyObject_GetAttr((PyObject *)t, G.s__do_read) : NULL;
        PyObject *res = again ? PyObject_CallMethodOneArg(o, G.s_call_soon, again) : NULL;
        Py_XDECREF(again);
        Py_XDECREF(o);
        if (gl_done(res) < 0)
            return -1;
    }
    if (n > 0 && gl_done(tls_call_number(t->buffer_updated, n)) < 0)
        return -1;
    return end.why == GL_SSL_ERROR_ZERO_RETURN ? tls_peer_closed(t) : 0;
}

/* Flow control of what is received; SSLProtocol's own method where there is something to do. */
static int
tls_control_reading(gl_tls *t)
{
    if (t->transport == NULL || t->transport == Py_None || !tls_native(t))
        return 0;
    Py_ssize_t size = (Py_ssize_t)bio_pending(t->in);
    if ((size >= t->incoming_high && !t->ssl_reading_paused) ||
        (size <= t->incoming_low && t->ssl_reading_paused))
        return gl_done(PyObject_CallMethod((PyObject *)t, "_control_ssl_reading", NULL));
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
        r = backlog > 0 ? tls_by_asyncio(t, G.tls.do_write) : tls_process_outgoing(t);
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
    if (!tls_native(t))
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
    if (t->state != G.tls.wrapped || !tls_native(t)) {
        PyObject *bytes = PyBytes_FromStringAndSize(data, n);
        PyObject *r = bytes ? PyObject_CallMethodOneArg(protocol, G.s__received, bytes) : NULL;
        Py_XDECREF(bytes);
        return gl_done(r);
    }
    while (n > 0) {
        int part = n > INT_MAX ? INT_MAX : (int)n;
        if (openssl.BIO_write(t->in, data, part) != part) {
            PyErr_NoMemory();
            return -1;
        }
        data += part;
        n -= part;
    }
    return gl_done(tls_do_read(t, NULL));
}
