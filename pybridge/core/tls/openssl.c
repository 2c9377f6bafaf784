/*
 * openssl.c: the functions of the libssl that Python's _ssl module uses, and the
 * OpenSSL objects behind Python's.
 *
 * _ssl has no C API.  Its objects begin, on CPython 3.11 to 3.15, free-threaded builds included
 * (whose head is longer), with
 *
 *     _ssl._SSLSocket   head, Socket (weak reference or NULL), SSL *, context, ...
 *     _ssl.MemoryBIO    head, BIO *, eof_written
 *
 * and that is checked for each connection, on objects of exactly these classes behind an
 * ssl.SSLObject with its own methods (state/native_rule.c), for which C stands in: the word
 * behind the SSL * must be the context that made the socket, and the BIO that the SSL
 * names must be the one in the MemoryBIO.  The functions are looked up in the _ssl
 * module's own file (and thereby in what it was linked to); where the whole process finds
 * others by their names, another OpenSSL may be what _ssl calls.  If anything is not as expected
 * TLS goes through SSLObject's methods.
 */
#include "tls/private.h"

#include <dlfcn.h>

/* lint: allow mutable-static: written once, when goloop is imported */
GL_PRIVATE struct gl_openssl openssl;

GL_PRIVATE_INLINE size_t
bio_pending(BIO *bio)
{
    long n = openssl.BIO_ctrl(bio, GL_BIO_CTRL_PENDING, 0, NULL);
    return n > 0 ? (size_t)n : 0;
}

GL_PRIVATE_INLINE struct openssl_error
openssl_take_error(SSL *ssl, int result)
{
    struct openssl_error stop = {.why = openssl.SSL_get_error(ssl, result)};
    if (openssl_wants_io(stop)) /* which it says where no error is queued, and most calls end so */
        return stop;
    stop.code = openssl.ERR_peek_last_error();
    stop.verified = openssl.SSL_get_verify_result(ssl);
    openssl.ERR_clear_error();
    return stop;
}

/* The words of an object's head. */
#define HEAD ((Py_ssize_t)(sizeof(PyObject) / sizeof(void *)))

static inline void *
object_word(PyObject *o, size_t index)
{
    return ((void **)o)[index];
}

GL_PRIVATE PyObject *
openssl_find_objects(PyObject *sslobj, PyObject *incoming, PyObject *outgoing, SSL **ssl, BIO **in,
               BIO **out)
{
    PyObject *inner =
        gl_native(GL_RULE_SSL_OBJECT, sslobj) ? PyObject_GetAttr(sslobj, G.s__sslobj) : NULL;
    bool good = inner != NULL && Py_TYPE(inner) == openssl.socket_type &&
                Py_TYPE(incoming) == openssl.bio_type && Py_TYPE(outgoing) == openssl.bio_type &&
                Py_TYPE(inner)->tp_basicsize >= (HEAD + 4) * (Py_ssize_t)sizeof(void *) &&
                Py_TYPE(incoming)->tp_basicsize == (HEAD + 2) * (Py_ssize_t)sizeof(void *);
    PyObject *context = good ? PyObject_GetAttrString(inner, "context") : NULL;
    good = context != NULL && object_word(inner, HEAD) == NULL &&
           object_word(inner, HEAD + 2) == context;
    if (good) {
        *ssl = object_word(inner, HEAD + 1);
        *in = object_word(incoming, HEAD);
        *out = object_word(outgoing, HEAD);
        good = *ssl && *in && *out && openssl.SSL_get_rbio(*ssl) == *in &&
               openssl.SSL_get_wbio(*ssl) == *out;
    }
    PyErr_Clear();
    Py_XDECREF(context);
    if (!good)
        Py_CLEAR(inner);
    return inner;
}

GL_PRIVATE bool
openssl_is_unchanged(PyObject *sslobj, PyObject *inner)
{
    bool exact = Py_TYPE(sslobj) == G.rule[GL_RULE_SSL_OBJECT].type;
    PyObject *own = exact ? PyObject_GenericGetDict(sslobj, NULL) : NULL;
    /* Mostly it is all that the object has of its own. */
    bool is = own != NULL && PyDict_GetItemWithError(own, G.s__sslobj) == inner &&
              (PyDict_GET_SIZE(own) == 1 || gl_native(GL_RULE_SSL_OBJECT, sslobj));
    Py_XDECREF(own);
    PyErr_Clear();
    return is;
}

GL_PRIVATE const char *
openssl_open(const char *path)
{
    /* The handle is never closed: _ssl stays loaded as long as the process lives. */
    void *lib = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (lib == NULL)
        return "Python's _ssl module is no library of its own, so its OpenSSL can't be named";
    static const char *const before = "another library stands before the OpenSSL of Python's _ssl";
    /* What the whole process finds first, as by LD_PRELOAD, is what _ssl's own calls reach. */
#define LOOKUP(type, name, arguments)                                                              \
    if ((*(void **)&openssl.name = dlsym(lib, #name)) == NULL)                                     \
        return "Python's _ssl module does not let its OpenSSL be called";                          \
    if (dlsym(RTLD_DEFAULT, #name) != NULL && dlsym(RTLD_DEFAULT, #name) != (void *)openssl.name)  \
        return before;
    GL_OPENSSL(LOOKUP)
#undef LOOKUP
    return NULL;
}

/* ---- one connection ----------------------------------------------------------------------- */

GL_PRIVATE void
tls_reset_openssl(gl_tls *t, bool look_again)
{
    t->openssl_resolved = !look_again;
    t->ssl = NULL;
    t->in = t->out = NULL;
    Py_CLEAR(t->inner);
}

GL_PRIVATE void
tls_resolve_openssl(gl_tls *t)
{
    t->openssl_resolved = 1;
    if (!openssl.ready || t->sslobj == NULL || t->incoming == NULL || t->outgoing == NULL)
        return;
    PyObject *sslobj = Py_NewRef(t->sslobj), *incoming = Py_NewRef(t->incoming),
             *outgoing = Py_NewRef(t->outgoing);
    SSL *ssl = NULL;
    BIO *in = NULL, *out = NULL;
    PyObject *inner = openssl_find_objects(sslobj, incoming, outgoing, &ssl, &in, &out);
    /* Looking for it has run Python, which may have set other objects. */
    if (inner != NULL && t->inner == NULL && t->sslobj == sslobj && t->incoming == incoming &&
        t->outgoing == outgoing) {
        t->inner = Py_NewRef(inner);
        t->ssl = ssl;
        t->in = in;
        t->out = out;
    }
    Py_XDECREF(inner);
    Py_DECREF(sslobj);
    Py_DECREF(incoming);
    Py_DECREF(outgoing);
}

GL_PRIVATE bool
tls_can_use_openssl(gl_tls *t)
{
    if (tls_has_openssl(t) && !openssl_is_unchanged(t->sslobj, t->inner))
        tls_reset_openssl(t, false);
    return tls_has_openssl(t);
}

GL_PRIVATE PyObject *
tls_result(gl_tls *t, int r)
{
    if (r == 0)
        return Py_NewRef(Py_None);
    /* asyncio: any Exception on the way out is fatal for the connection. */
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return NULL;
    PyObject *exc = gl_take_exception();
    PyObject *told = PyObject_CallMethod((PyObject *)t, GL_METHOD(_fatal_error), "Os", exc,
                                         "Fatal error on SSL protocol");
    Py_DECREF(exc);
    return told;
}

GL_PRIVATE PyObject *
tls_raise(gl_tls *t, const char *method, struct openssl_error stop)
{
    return PyObject_CallMethod((PyObject *)t, GL_METHOD(_raise_openssl), "siklzz", method, stop.why,
                               stop.code, stop.verified, openssl.ERR_reason_error_string(stop.code),
                               openssl.X509_verify_cert_error_string(stop.verified));
}
