/*
 * tls_handshake.c: one step of a handshake.
 *
 * SSLObject.do_handshake tells by an exception that more has to come, which most steps of a
 * server end with.  Here OpenSSL is asked directly, and that exception is never made.
 *
 *     advance --> True: done      False: the peer's turn      an exception: it has failed
 *          '----> None: not here; SSLObject's own method has to be called
 *
 * The GIL is released meanwhile, as _ssl does: a step computes for some hundred microseconds.
 */
#include "tls/private.h"

/* What Python's callbacks of these raise comes out of _ssl's own method only. */
static bool
handshake_is_watched(gl_tls *t)
{
    static const char *const watchers[] = {"_msg_callback", "keylog_filename"};
    PyObject *context = PyObject_GetAttrString((PyObject *)t, "_sslcontext");
    bool watched = context == NULL;
    for (size_t i = 0; !watched && i < sizeof watchers / sizeof *watchers; i++) {
        PyObject *watcher = PyObject_GetAttrString(context, watchers[i]);
        watched = watcher != Py_None;
        Py_XDECREF(watcher);
    }
    Py_XDECREF(context);
    PyErr_Clear();
    return watched;
}

/* Raises what is wrong, in the words of SSLObject.do_handshake: it finds OpenSSL's queue of
 * errors as the failed call left it, so nothing may come between the two. */
static PyObject *
handshake_raise(gl_tls *t)
{
    PyObject *sslobj = tls_hold(t->sslobj);
    PyObject *r = PyObject_CallMethod(sslobj, "do_handshake", NULL);
    Py_DECREF(sslobj);
    if (r == NULL)
        return NULL;
    Py_DECREF(r);
    Py_RETURN_TRUE;
}

GL_PRIVATE PyObject *
tls_advance_handshake(gl_tls *t, PyObject *Py_UNUSED(ignored))
{
    if (t->stepping) /* another thread, or a callback of the step's, makes the step */
        Py_RETURN_FALSE;
    if (handshake_is_watched(t) || !tls_native(t))
        Py_RETURN_NONE;
    PyObject *inner = Py_NewRef(t->inner); /* Python that runs meanwhile may take it from us */
    SSL *ssl = t->ssl;
    int done, why;
    t->stepping = 1;
    Py_BEGIN_ALLOW_THREADS
    done = openssl.SSL_do_handshake(ssl);
    why = done == 1 ? 0 : openssl.SSL_get_error(ssl, done);
    Py_END_ALLOW_THREADS
    t->stepping = 0;
    PyObject *result;
    if (done == 1)
        result = Py_NewRef(Py_True);
    else if (why == GL_SSL_ERROR_WANT_READ || why == GL_SSL_ERROR_WANT_WRITE)
        result = Py_NewRef(Py_False);
    else
        result = handshake_raise(t);
    Py_DECREF(inner);
    return result;
}
