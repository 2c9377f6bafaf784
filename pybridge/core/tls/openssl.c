/*
 * openssl.c: the functions of the libssl that Python's _ssl module uses, and the
 * OpenSSL objects of Python's SSL objects.
 *
 * _ssl has no C API.  Its objects begin, on CPython 3.11 to 3.15, including free-threaded builds
 * (whose head is longer), with
 *
 *     _ssl._SSLSocket   head, Socket (weak reference or NULL), SSL *, context, ...
 *     _ssl.MemoryBIO    head, BIO *, eof_written
 *
 * This layout is checked for each connection.  The objects must be exactly of these classes and
 * belong to an ssl.SSLObject with its own methods (state/native_rule.c), which C then does not
 * call.  The word after the SSL * must be the context that created the socket, and the SSL must
 * have the BIO of the MemoryBIO.
 *
 * The functions are looked up in the file of the _ssl module, and so in the libraries that it is
 * linked to.  If a lookup in the whole process finds another function, _ssl may call another
 * OpenSSL.  If anything differs, TLS uses SSLObject's methods.
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
    struct openssl_error error = {.kind = openssl.SSL_get_error(ssl, result)};
    if (openssl_wants_io(error)) /* the usual end of a call; the error queue is empty then */
        return error;
    error.code = openssl.ERR_peek_last_error();
    error.verify_result = openssl.SSL_get_verify_result(ssl);
    openssl.ERR_clear_error();
    return error;
}

/* The number of words of an object's head. */
#define HEAD ((Py_ssize_t)(sizeof(PyObject) / sizeof(void *)))

/* Reads the word at this index of an object, counted from the start of its head. */
static inline void *
object_word(PyObject *o, size_t index)
{
    return ((void **)o)[index];
}

GL_PRIVATE struct openssl_objects
openssl_find_objects(PyObject *sslobj, PyObject *incoming, PyObject *outgoing)
{
    struct openssl_objects found = {0};
    PyObject *socket = NULL;
    if (gl_is_native(GL_RULE_SSL_OBJECT, sslobj))
        socket = PyObject_GetAttr(sslobj, G.s__sslobj);
    bool valid = socket != NULL && Py_TYPE(socket) == openssl.socket_type &&
                 Py_TYPE(incoming) == openssl.bio_type && Py_TYPE(outgoing) == openssl.bio_type &&
                 Py_TYPE(socket)->tp_basicsize >= (HEAD + 4) * (Py_ssize_t)sizeof(void *) &&
                 Py_TYPE(incoming)->tp_basicsize == (HEAD + 2) * (Py_ssize_t)sizeof(void *);
    PyObject *context = valid ? PyObject_GetAttrString(socket, "context") : NULL;
    valid = context != NULL && object_word(socket, HEAD) == NULL &&
            object_word(socket, HEAD + 2) == context;
    if (valid) {
        found.ssl = object_word(socket, HEAD + 1);
        found.in = object_word(incoming, HEAD);
        found.out = object_word(outgoing, HEAD);
        valid = found.ssl && found.in && found.out && openssl.SSL_get_rbio(found.ssl) == found.in &&
                openssl.SSL_get_wbio(found.ssl) == found.out;
    }
    PyErr_Clear();
    Py_XDECREF(context);
    if (!valid)
        Py_CLEAR(socket);
    found.ssl_socket = socket;
    return found;
}

GL_PRIVATE bool
openssl_is_unchanged(PyObject *sslobj, PyObject *ssl_socket)
{
    if (Py_TYPE(sslobj) != G.rule[GL_RULE_SSL_OBJECT].type)
        return false;
    PyObject *dict = PyObject_GenericGetDict(sslobj, NULL);
    /* Usually _sslobj is the only attribute in the instance's dict, so no method is replaced. */
    bool unchanged = dict != NULL && PyDict_GetItemWithError(dict, G.s__sslobj) == ssl_socket &&
                     (PyDict_GET_SIZE(dict) == 1 || gl_is_native(GL_RULE_SSL_OBJECT, sslobj));
    Py_XDECREF(dict);
    PyErr_Clear();
    return unchanged;
}

GL_PRIVATE const char *
openssl_open(const char *path)
{
    /* The handle is never closed, since _ssl stays loaded until the process ends. */
    void *lib = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (lib == NULL)
        return "Python's _ssl module is not a shared library, so its OpenSSL can't be found";
    static const char *const other = "another library overrides the OpenSSL of Python's _ssl";
    /* The calls of _ssl reach the function that the process finds first, as by LD_PRELOAD. */
#define LOOKUP(type, name, arguments)                                                              \
    if ((*(void **)&openssl.name = dlsym(lib, #name)) == NULL)                                     \
        return "the OpenSSL of Python's _ssl module does not export " #name "()";                  \
    if (dlsym(RTLD_DEFAULT, #name) != NULL && dlsym(RTLD_DEFAULT, #name) != (void *)openssl.name)  \
        return other;
    GL_OPENSSL(LOOKUP)
#undef LOOKUP
    return NULL;
}

/* ---- one connection ----------------------------------------------------------------------- */

GL_PRIVATE void
tls_reset_openssl(gl_tls *t, bool resolve_again)
{
    t->openssl_resolved = !resolve_again;
    t->ssl = NULL;
    t->in = NULL;
    t->out = NULL;
    Py_CLEAR(t->ssl_socket);
}

GL_PRIVATE void
tls_resolve_openssl(gl_tls *t)
{
    t->openssl_resolved = 1;
    if (!openssl.ready || t->sslobj == NULL || t->incoming == NULL || t->outgoing == NULL)
        return;
    PyObject *sslobj = Py_NewRef(t->sslobj);
    PyObject *incoming = Py_NewRef(t->incoming);
    PyObject *outgoing = Py_NewRef(t->outgoing);
    struct openssl_objects found = openssl_find_objects(sslobj, incoming, outgoing);
    /* Checked again: the search has run Python, which may have set other objects. */
    if (found.ssl_socket != NULL && t->ssl_socket == NULL && t->sslobj == sslobj &&
        t->incoming == incoming && t->outgoing == outgoing) {
        t->ssl_socket = Py_NewRef(found.ssl_socket);
        t->ssl = found.ssl;
        t->in = found.in;
        t->out = found.out;
    }
    Py_XDECREF(found.ssl_socket);
    Py_DECREF(sslobj);
    Py_DECREF(incoming);
    Py_DECREF(outgoing);
}

GL_PRIVATE_INLINE bool
tls_has_openssl(gl_tls *t)
{
    if (!t->openssl_resolved)
        tls_resolve_openssl(t);
    return gl_replaced_methods(GL_RULE_SSL_OBJECT, G.rule[GL_RULE_SSL_OBJECT].type) == 0 &&
           t->ssl != NULL && !t->handshake_running;
}

GL_PRIVATE bool
tls_check_openssl(gl_tls *t)
{
    if (tls_has_openssl(t) && !openssl_is_unchanged(t->sslobj, t->ssl_socket))
        tls_reset_openssl(t, false);
    return tls_has_openssl(t);
}

/* Ends the transport under the TLS connection with `exc`, after _fatal_error() has failed.  Keeps
 * the exception of that call. */
static void
tls_end_transport(gl_tls *t, PyObject *exc)
{
    PyObject *failure = gl_take_exception();
    PyObject *transport = gl_ref_or_none(t->transport);
    if (PyObject_TypeCheck(transport, G.stream_type))
        gl_transport_end((gl_transport *)transport, exc);
    else if (transport != Py_None && gl_call_method(transport, G.s__force_close, exc) < 0)
        PyErr_WriteUnraisable(transport); /* of another package, or of an outer TLS connection */
    Py_DECREF(transport);
    gl_restore_exception(failure);
}

GL_PRIVATE PyObject *
tls_finish_method(gl_tls *t, int r)
{
    if (r == 0)
        return Py_NewRef(Py_None);
    /* As in asyncio, any Exception is fatal for the connection. */
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return NULL;
    if (PyErr_ExceptionMatches(PyExc_MemoryError))
        t->plaintext_lost = 1;
    PyObject *exc = gl_take_exception();
    PyObject *result = PyObject_CallMethod((PyObject *)t, GL_METHOD(_fatal_error), "Os", exc,
                                           "Fatal error on SSL protocol");
    if (result == NULL)
        tls_end_transport(t, exc);
    Py_DECREF(exc);
    return result;
}

GL_PRIVATE PyObject *
tls_raise(gl_tls *t, const char *method, struct openssl_error error)
{
    return PyObject_CallMethod((PyObject *)t, GL_METHOD(_raise_openssl), "siklzz", method,
                               error.kind, error.code, error.verify_result,
                               openssl.ERR_reason_error_string(error.code),
                               openssl.X509_verify_cert_error_string(error.verify_result));
}
