/*
 * tls_write.c: plaintext that the application writes becomes records, and these the
 * stream's bytes.
 */
#include "tls/private.h"

static int
tls_transport_write(gl_tls *t, PyObject *bytes)
{
    PyObject *transport = tls_ref_or_none(t->transport);
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
        PyObject *bytes = n ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n) : NULL;
        if (n && bytes == NULL)
            return -1;
        int r = 0;
        if (n && openssl.BIO_read(t->out, PyBytes_AS_STRING(bytes), (int)n) == (int)n &&
            t->transport && t->transport != Py_None)
            r = tls_transport_write(t, bytes);
        Py_XDECREF(bytes);
        if (r < 0)
            return -1;
    }
    Py_ssize_t size = tls_has_openssl(t) ? (Py_ssize_t)bio_pending(t->out) + t->write_buffer_size : 0;
    /* What waits below counts too, and the method adds it: it matters where that is much. */
    if (!tls_has_openssl(t) || t->ssl_writing_paused ||
        (size >= t->outgoing_high && !t->app_writing_paused) ||
        (size <= t->outgoing_low && t->app_writing_paused))
        return tls_fallback(t, G.tls.control_app_writing);
    return 0;
}

/* Encrypts as much as OpenSSL takes; the number of bytes.  *end says why it is not all.
 * tls_has_openssl() holds. */
static Py_ssize_t
tls_encrypt(gl_tls *t, const char *data, Py_ssize_t len, struct openssl_error *end)
{
    Py_ssize_t done = 0;
    PyObject *inner = Py_NewRef(t->inner);
    SSL *ssl = t->ssl;
    GL_LOCK_OBJECT(inner);
    openssl.ERR_clear_error();
    while (done < len && end->why == 0) {
        size_t n = 0;
        int r = openssl.SSL_write_ex(ssl, data + done, (size_t)(len - done), &n);
        if (r == 1)
            done += (Py_ssize_t)n;
        else
            *end = openssl_take_error(ssl, r);
    }
    GL_UNLOCK_OBJECT();
    Py_DECREF(inner);
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

/* True if data can go to OpenSSL at once. */
static bool
tls_can_encrypt_now(gl_tls *t)
{
    Py_ssize_t waiting = t->write_backlog ? tls_backlog_len(t) : 1;
    if (waiting < 0)
        PyErr_Clear(); /* the Python method will meet it again */
    return waiting == 0 && t->state == G.tls.wrapped && tls_can_use_openssl(t);
}

/* Encrypts one object; what OpenSSL does not take goes to the backlog. */
static int
tls_write_one(gl_tls *t, PyObject *data)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return -1;
    /* Taking the buffer may have run Python: what it left is Python's to write to. */
    struct openssl_error end = {0};
    Py_ssize_t len = view.len, done = tls_has_openssl(t) ? tls_encrypt(t, view.buf, len, &end) : 0;
    PyObject *rest =
        done < len ? PyBytes_FromStringAndSize((char *)view.buf + done, len - done) : NULL;
    PyBuffer_Release(&view);
    if (done == len)
        return 0;
    if (rest == NULL)
        return -1;
    PyObject *backlog = tls_ref_or_none(t->write_backlog);
    int r = gl_drop_result(PyObject_CallMethodOneArg(backlog, G.s_append, rest));
    Py_DECREF(backlog);
    Py_DECREF(rest);
    if (r < 0)
        return -1;
    t->write_buffer_size += len - done;
    if (end.why != 0 && !openssl_wants_io(end))
        return gl_drop_result(tls_raise(t, "write", end));
    return tls_fallback(t, G.tls.do_write);
}

/* Puts what can't go to OpenSSL at once into the backlog; takes over the reference. */
static PyObject *
tls_write_to_backlog(gl_tls *t, PyObject *list)
{
    PyObject *result =
        list ? PyObject_CallFunctionObjArgs(G.tls.write_appdata, (PyObject *)t, list, NULL) : NULL;
    Py_XDECREF(list);
    return result;
}

GL_PRIVATE PyObject *
tls_write_appdata(gl_tls *t, PyObject *list)
{
    if (!tls_can_encrypt_now(t))
        return tls_write_to_backlog(t, Py_NewRef(list));
    PyObject *items = PySequence_List(list);
    if (items == NULL)
        return NULL;
    int r = 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(items); i++)
        r = PyObject_Size(PyList_GET_ITEM(items, i)) < 0;
    if (r != 0) { /* asyncio's own method takes what is before that item, and raises */
        PyErr_Clear();
        return tls_write_to_backlog(t, items);
    }
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(items); i++) {
        if (!tls_can_encrypt_now(t)) {
            r = gl_drop_result(tls_write_to_backlog(t, PyList_GetSlice(items, i, PY_SSIZE_T_MAX)));
            break;
        }
        r = tls_write_one(t, PyList_GET_ITEM(items, i));
    }
    Py_DECREF(items);
    if (r == 0)
        r = tls_process_outgoing(t);
    return tls_result(t, r);
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
    if (gl_replaced(GL_RULE_TLS_TRANSPORT, rule->type) != 0) { /* which calls _write_appdata */
        PyObject *app = PyObject_GetAttr((PyObject *)t, G.s__app_transport), *r = NULL;
        if (app != NULL)
            r = PyObject_CallMethodObjArgs((PyObject *)rule->type, G.s_write, app, data, NULL);
        Py_XDECREF(app);
        return r;
    }
    if (!tls_can_encrypt_now(t))
        return tls_write_to_backlog(t, PyTuple_Pack(1, data));
    Py_INCREF(t);
    int r = tls_write_one(t, data);
    PyObject *result = tls_result(t, r == 0 ? tls_process_outgoing(t) : -1);
    Py_DECREF(t);
    return result;
}
