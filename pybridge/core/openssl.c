/*
 * openssl.c: the functions of the libssl that Python's _ssl module uses, and the
 * OpenSSL objects behind Python's.
 *
 * _ssl has no C API.  Its objects begin, on CPython 3.11 to 3.14, with
 *
 *     _ssl._SSLSocket   head, Socket (weak reference or NULL), SSL *, context, ...
 *     _ssl.MemoryBIO    head, BIO *, eof_written
 *
 * and that is checked for each connection, on objects of exactly these classes: the word
 * behind the SSL * must be the context that made the socket, and the BIO that the SSL
 * names must be the one in the MemoryBIO.  The functions are looked up in the _ssl
 * module's own file (and thereby in what it was linked to), never by name in the whole
 * process, where another OpenSSL may be.  If anything is not as expected the reason is
 * kept and TLS goes through SSLObject's methods.
 */
#include "core.h"

#include <dlfcn.h>

typedef struct ssl_st SSL;
typedef struct bio_st BIO;

#define GL_SSL_ERROR_WANT_READ 2
#define GL_SSL_ERROR_WANT_WRITE 3
#define GL_SSL_ERROR_ZERO_RETURN 6
#define GL_BIO_CTRL_PENDING 10

static struct {
    bool tried;
    const char *reason;       /* why it can't be used; NULL: it can */
    int (*SSL_read_ex)(SSL *, void *, size_t, size_t *);
    int (*SSL_write_ex)(SSL *, const void *, size_t, size_t *);
    int (*SSL_get_error)(const SSL *, int);
    BIO *(*SSL_get_rbio)(const SSL *);
    BIO *(*SSL_get_wbio)(const SSL *);
    int (*BIO_read)(BIO *, void *, int);
    int (*BIO_write)(BIO *, const void *, int);
    long (*BIO_ctrl)(BIO *, int, long, void *);
    void (*ERR_clear_error)(void);
    PyTypeObject *socket_type, *bio_type; /* _ssl._SSLSocket and _ssl.MemoryBIO */
} openssl = {.reason = "not tried yet"};

static inline size_t
bio_pending(BIO *bio)
{
    long n = openssl.BIO_ctrl(bio, GL_BIO_CTRL_PENDING, 0, NULL);
    return n > 0 ? (size_t)n : 0;
}

static inline void *
object_word(PyObject *o, size_t index)
{
    return ((void **)o)[index];
}

/* The _ssl._SSLSocket behind an ssl.SSLObject, owned, with its SSL * and the two BIO *, all
 * of which live as long as it does; NULL, without an exception, where they are not found
 * where they should be. */
static PyObject *
openssl_behind(PyObject *sslobj, PyObject *incoming, PyObject *outgoing, SSL **ssl, BIO **in,
               BIO **out)
{
    PyObject *inner = PyObject_GetAttrString(sslobj, "_sslobj");
    bool good = inner != NULL && Py_TYPE(inner) == openssl.socket_type &&
                Py_TYPE(incoming) == openssl.bio_type && Py_TYPE(outgoing) == openssl.bio_type &&
                Py_TYPE(inner)->tp_basicsize >= 6 * (Py_ssize_t)sizeof(void *) &&
                Py_TYPE(incoming)->tp_basicsize == 4 * (Py_ssize_t)sizeof(void *);
    PyObject *context = good ? PyObject_GetAttrString(inner, "context") : NULL;
    good = context != NULL && object_word(inner, 2) == NULL && object_word(inner, 4) == context;
    if (good) {
        *ssl = object_word(inner, 3);
        *in = object_word(incoming, 2);
        *out = object_word(outgoing, 2);
        good = *ssl && *in && *out && openssl.SSL_get_rbio(*ssl) == *in &&
               openssl.SSL_get_wbio(*ssl) == *out;
    }
    PyErr_Clear();
    Py_XDECREF(context);
    if (!good)
        Py_CLEAR(inner);
    return inner;
}

static const char *
openssl_load(void)
{
    const char *forced = getenv("GOLOOP_TLS");
    if (forced && strcmp(forced, "stdlib") == 0)
        return "GOLOOP_TLS=stdlib asks for SSLObject's own methods";
    PyObject *mod = PyImport_ImportModule("_ssl");
    PyObject *file = mod ? PyObject_GetAttrString(mod, "__file__") : NULL;
    const char *path = file ? PyUnicode_AsUTF8(file) : NULL;
    /* The handle is never closed: _ssl stays loaded as long as the process lives. */
    void *lib = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    openssl.socket_type = mod ? (PyTypeObject *)PyObject_GetAttrString(mod, "_SSLSocket") : NULL;
    openssl.bio_type = mod ? (PyTypeObject *)PyObject_GetAttrString(mod, "MemoryBIO") : NULL;
    PyErr_Clear();
    Py_XDECREF(file);
    Py_XDECREF(mod);
    if (lib == NULL)
        return "Python's _ssl module is no library of its own, so its OpenSSL can't be named";
#define LOOKUP(name)                                                                          \
    if ((*(void **)&openssl.name = dlsym(lib, #name)) == NULL)                                \
        return "Python's _ssl module does not let its OpenSSL be called";
    LOOKUP(SSL_read_ex)
    LOOKUP(SSL_write_ex)
    LOOKUP(SSL_get_error)
    LOOKUP(SSL_get_rbio)
    LOOKUP(SSL_get_wbio)
    LOOKUP(BIO_read)
    LOOKUP(BIO_write)
    LOOKUP(BIO_ctrl)
    LOOKUP(ERR_clear_error)
#undef LOOKUP
    return NULL;
}

/* True if OpenSSL can be called directly. */
static bool
openssl_ready(void)
{
    if (!openssl.tried) {
        openssl.reason = openssl_load();
        openssl.tried = true;
    }
    return openssl.reason == NULL;
}
