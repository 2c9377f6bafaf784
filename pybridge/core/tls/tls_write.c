/*
 * tls_write.c: encrypts the application's plaintext, and writes the records to the stream.
 *
 *     tls_write                write() of the application's transport
 *     tls_write_appdata        SSLProtocol._write_appdata(), for writelines() and pending writes
 *       tls_write_one
 *         tls_encrypt          SSL_write_ex() until it accepts no more
 *           tls_records_begin  a large write: OpenSSL writes into the bytes that are sent
 *         tls_fallback         asyncio's _do_write(), after bytes went to the backlog
 *       tls_write_to_backlog   OpenSSL can't encrypt now
 *       tls_process_outgoing   writes the records to the stream; flow control
 */
#include "tls/private.h"

/* From this number of bytes on, more than one record, creating a BIO that writes to the bytes that
 * are sent costs less than the copy through the outgoing BIO. */
#define GL_TLS_DIRECT_MIN (GL_MAX_TLS_RECORD + 1)

/* Calls write() of the transport under the TLS connection with encrypted bytes.  Runs Python. */
static int
tls_transport_write(gl_tls *t, PyObject *bytes)
{
    PyObject *transport = gl_ref_or_none(t->transport);
    int r = gl_call_method(transport, G.s_write, bytes);
    Py_DECREF(transport);
    return r;
}

GL_PRIVATE int
tls_process_outgoing(gl_tls *t)
{
    if (!tls_has_openssl(t))
        return tls_fallback(t, G.tls.process_outgoing);
    if (!t->ssl_writing_paused) {
        size_t n = bio_pending(t->out);
        if (n > INT_MAX)
            n = INT_MAX;
        PyObject *bytes = NULL;
        if (n != 0) {
            bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n);
            if (bytes == NULL)
                return -1;
        }
        int r = 0;
        if (n && openssl.BIO_read(t->out, PyBytes_AS_STRING(bytes), (int)n) == (int)n &&
            t->transport && t->transport != Py_None)
            r = tls_transport_write(t, bytes);
        Py_XDECREF(bytes);
        if (r < 0)
            return -1;
    }
    Py_ssize_t size = 0;
    if (tls_has_openssl(t))
        size = (Py_ssize_t)bio_pending(t->out) + t->write_buffer_size;
    /* asyncio's method adds the size of the stream's write buffer, which can matter only near the
     * limits. */
    if (!tls_has_openssl(t) || t->ssl_writing_paused ||
        (size >= t->outgoing_high && !t->app_writing_paused) ||
        (size <= t->outgoing_low && t->app_writing_paused))
        return tls_fallback(t, G.tls.control_app_writing);
    return 0;
}

/* Encrypts as many bytes as OpenSSL accepts, and returns their number, or -1 with MemoryError.  If
 * it is less than len, *error, which the caller has set to zero, has the reason.  Requires
 * tls_has_openssl().  The records are in *records, a new reference, or in the outgoing BIO if that
 * is NULL; always there if `records` is NULL or plaintext remains. */
static Py_ssize_t
tls_encrypt(gl_tls *t, const char *data, Py_ssize_t len, struct openssl_error *error,
            PyObject **records)
{
    Py_ssize_t done = 0;
    PyObject *ssl_socket = Py_NewRef(t->ssl_socket);
    SSL *ssl = t->ssl;
    struct tls_records direct = {0};
    GL_LOCK_OBJECT(ssl_socket);
    if (records != NULL && len >= GL_TLS_DIRECT_MIN && len <= INT_MAX / 2)
        tls_records_begin(&direct, ssl, t->out, len);
    openssl.ERR_clear_error();
    while (done < len && error->kind == 0) {
        size_t n = 0;
        int r = openssl.SSL_write_ex(ssl, data + done, (size_t)(len - done), &n);
        if (r == 1)
            done += (Py_ssize_t)n;
        else
            *error = openssl_take_error(ssl, r);
    }
    if (tls_records_end(&direct, ssl, done == len) < 0)
        done = -1;
    GL_UNLOCK_OBJECT();
    if (records != NULL)
        *records = direct.bytes;
    Py_DECREF(ssl_socket);
    return done;
}

GL_PRIVATE Py_ssize_t
tls_backlog_len(gl_tls *t)
{
    if (t->write_backlog == NULL)
        return 0;
    PyObject *backlog = Py_NewRef(t->write_backlog);
    Py_ssize_t n = PyObject_Size(backlog);
    Py_DECREF(backlog);
    return n;
}

/* Returns true if OpenSSL can encrypt now: the backlog is empty, the connection is open, and
 * tls_check_openssl() returns true.  Sets no exception. */
static bool
tls_check_can_encrypt(gl_tls *t)
{
    if (t->write_backlog == NULL)
        return false;
    Py_ssize_t pending = tls_backlog_len(t);
    if (pending < 0)
        PyErr_Clear(); /* asyncio's method will raise the exception again */
    return pending == 0 && t->state == G.tls.wrapped && tls_check_openssl(t);
}

/* Encrypts one bytes-like object; the records stay in the outgoing BIO, or are in *records, as in
 * tls_encrypt().  The bytes that OpenSSL does not accept are appended to the backlog, and asyncio's
 * _do_write() tries again.  -1 with the error of SSL_write_ex(), or with another exception. */
static int
tls_write_one(gl_tls *t, PyObject *data, PyObject **records)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return -1;
    /* Checked again: PyObject_GetBuffer() may have run Python. */
    struct openssl_error error = {0};
    Py_ssize_t len = view.len;
    Py_ssize_t done = 0;
    if (tls_has_openssl(t))
        done = tls_encrypt(t, view.buf, len, &error, records);
    PyObject *rest = NULL;
    if (done >= 0 && done < len)
        rest = PyBytes_FromStringAndSize((char *)view.buf + done, len - done);
    PyBuffer_Release(&view);
    if (done < 0)
        return -1;
    if (done == len)
        return 0;
    if (rest == NULL)
        return -1;
    PyObject *backlog = gl_ref_or_none(t->write_backlog);
    int r = gl_drop_result(PyObject_CallMethodOneArg(backlog, G.s_append, rest));
    Py_DECREF(backlog);
    Py_DECREF(rest);
    if (r < 0)
        return -1;
    t->write_buffer_size += len - done;
    if (error.kind != 0 && !openssl_wants_io(error))
        return gl_drop_result(tls_raise(t, "write", error));
    return tls_fallback(t, G.tls.do_write);
}

/* Calls asyncio's _write_appdata(), which appends the items to the backlog.  Steals `list`, which
 * may be NULL after a failure.  Returns None. */
static PyObject *
tls_write_to_backlog(gl_tls *t, PyObject *list)
{
    if (list == NULL)
        return NULL;
    PyObject *result = PyObject_CallFunctionObjArgs(G.tls.write_appdata, (PyObject *)t, list, NULL);
    Py_DECREF(list);
    return result;
}

GL_PRIVATE PyObject *
tls_write_appdata(gl_tls *t, PyObject *list)
{
    if (!tls_check_can_encrypt(t))
        return tls_write_to_backlog(t, Py_NewRef(list));
    PyObject *items = PySequence_List(list);
    if (items == NULL)
        return NULL;
    int r = 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(items); i++)
        r = PyObject_Size(PyList_GET_ITEM(items, i)) < 0;
    if (r != 0) { /* asyncio's method accepts the items before this one, and raises */
        PyErr_Clear();
        return tls_write_to_backlog(t, items);
    }
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(items); i++) {
        if (!tls_check_can_encrypt(t)) {
            r = gl_drop_result(tls_write_to_backlog(t, PyList_GetSlice(items, i, PY_SSIZE_T_MAX)));
            break;
        }
        r = tls_write_one(t, PyList_GET_ITEM(items, i), NULL);
    }
    Py_DECREF(items);
    if (r == 0)
        r = tls_process_outgoing(t);
    return tls_finish_method(t, r);
}

GL_PRIVATE PyObject *
tls_write(gl_tls *t, PyObject *data)
{
    if (!PyBytes_Check(data) && !PyByteArray_Check(data) && !PyMemoryView_Check(data)) {
        PyObject *name = PyType_GetName(Py_TYPE(data));
        if (name)
            PyErr_Format(PyExc_TypeError, "data: expecting a bytes-like instance, got %U", name);
        Py_XDECREF(name);
        return NULL;
    }
    Py_ssize_t len = PyObject_Size(data);
    if (len < 0)
        return NULL;
    if (len == 0)
        Py_RETURN_NONE;
    struct gl_rule_class *rule = &G.rule[GL_RULE_TLS_TRANSPORT];
    /* A program has replaced write() of asyncio's class, which calls _write_appdata(). */
    if (gl_replaced_methods(GL_RULE_TLS_TRANSPORT, rule->type) != 0) {
        PyObject *app = PyObject_GetAttr((PyObject *)t, G.s__app_transport);
        PyObject *r = NULL;
        if (app != NULL)
            r = PyObject_CallMethodObjArgs((PyObject *)rule->type, G.s_write, app, data, NULL);
        Py_XDECREF(app);
        return r;
    }
    if (!tls_check_can_encrypt(t))
        return tls_write_to_backlog(t, PyTuple_Pack(1, data));
    Py_INCREF(t);
    bool sends = !t->ssl_writing_paused && t->transport != NULL && t->transport != Py_None;
    PyObject *records = NULL;
    int r = tls_write_one(t, data, sends ? &records : NULL);
    if (records != NULL)
        r = tls_transport_write(t, records);
    Py_XDECREF(records);
    if (r == 0)
        r = tls_process_outgoing(t);
    PyObject *result = tls_finish_method(t, r);
    Py_DECREF(t);
    return result;
}
