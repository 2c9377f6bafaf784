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
 * `stepping` keeps the loop's own threads out.  Other calls that a program makes of the SSLObject
 * meanwhile are what they are beside _ssl's do_handshake(): without a GIL that has a lock of its
 * own for those that compute, and the object's, which its getters take, is not held amid them.
 */
#include "tls/private.h"

/* What Python's callbacks of these raise comes out of _ssl's own method only; that of SNI may put
 * a context with such callbacks in this one's place. */
static bool
handshake_is_watched(gl_tls *t)
{
    static const char *const watchers[] = {"_msg_callback", "keylog_filename", "sni_callback"};
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

GL_PRIVATE PyObject *
tls_advance_handshake(gl_tls *t, PyObject *Py_UNUSED(ignored))
{
    if (t->stepping) /* another thread, or a callback of the step's, makes the step */
        Py_RETURN_FALSE;
    if (handshake_is_watched(t) || !tls_stands_in(t))
        Py_RETURN_NONE;
    PyObject *inner = Py_NewRef(t->inner); /* Python that runs meanwhile may take it from us */
    SSL *ssl = t->ssl;
    struct openssl_stop stop = {0};
    int done;
    t->stepping = 1;
    Py_BEGIN_ALLOW_THREADS
    done = openssl.SSL_do_handshake(ssl);
    if (done != 1)
        stop = openssl_stopped(ssl, done); /* this thread's, like its queue of errors */
    Py_END_ALLOW_THREADS
    t->stepping = 0;
    Py_DECREF(inner);
    if (done != 1 && !tls_waits(stop))
        return tls_raise(t, "do_handshake", stop);
    return PyBool_FromLong(done == 1);
}
