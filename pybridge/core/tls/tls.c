/*
 * tls.c: the data path of TLS, native.
 *
 * asyncio's SSLProtocol (a state machine with handshake, shutdown, flow control and
 * their timeouts) stays in charge: what runs once per connection is its Python.
 * goloop's TLSProtocol puts this type before it, and what runs per record is here:
 *
 *     received bytes --BIO_write--> SSL --SSL_read--> scratch --> data_received
 *     write(data)    --SSL_write--> SSL --BIO_read--> one bytes --> the stream's queue
 *
 * The attributes that both halves use (the state, the pauses, the backlog) are fields
 * of this object, which SSLProtocol's Python reads and writes through descriptors: so
 * there is one truth, and no attribute look-up here.
 *
 * Where OpenSSL can't be called directly (openssl.c tells why), and for whatever is
 * not plain data flow (errors above all), SSLProtocol's own methods are called: they
 * raise what they always raised.
 *
 * Any of the protocol's callbacks may close or abort the connection, or take the SSL
 * objects away, and so may Python that OpenSSL calls (a key log, a message callback): own
 * references are held over each call and the state is looked at again after it.
 */
#include "tls/private.h"

#define GL_TLS_CHUNK (256 * 1024)

typedef struct gl_tls {
    PyObject_HEAD
    PyObject *state;                 /* an SSLProtocolState */
    PyObject *app_protocol;
    PyObject *transport;
    PyObject *sslobj;
    PyObject *incoming, *outgoing;   /* MemoryBIO */
    PyObject *write_backlog;         /* deque */
    PyObject *get_buffer, *buffer_updated; /* the app protocol's, bound */
    Py_ssize_t write_buffer_size;    /* bytes in the backlog */
    Py_ssize_t incoming_high, incoming_low, outgoing_high, outgoing_low;
    char app_reading_paused, ssl_reading_paused, ssl_writing_paused, app_writing_paused;
    char is_buffer;
    /* What is behind sslobj and the BIOs, once it was looked up.  `inner` is not ssl's
     * but ours: whoever puts another object in its place takes nothing away from us. */
    PyObject *inner;                 /* the _ssl._SSLSocket; keeps the three below alive */
    SSL *ssl;
    BIO *in, *out;
    char looked_up;
} gl_tls;

static uint8_t *
tls_scratch_take(void)
{
    uint8_t *p = G.tls_spare;
    G.tls_spare = NULL;
    if (p == NULL && (p = PyMem_RawMalloc(GL_TLS_CHUNK)) == NULL)
        PyErr_NoMemory();
    return p;
}

static void
tls_scratch_give(uint8_t *p)
{
    if (G.tls_spare == NULL)
        G.tls_spare = p;
    else
        PyMem_RawFree(p);
}

static int
tls_py_init(void)
{
    if (G.tls.s_append)
        return 0;
    PyObject *mod = PyImport_ImportModule("asyncio.sslproto");
    PyObject *cls = mod ? PyObject_GetAttrString(mod, "SSLProtocol") : NULL;
    PyObject *states = mod ? PyObject_GetAttrString(mod, "SSLProtocolState") : NULL;
    Py_XDECREF(mod);
    if (cls == NULL || states == NULL ||
        (G.tls.do_read = PyObject_GetAttrString(cls, "_do_read")) == NULL ||
        (G.tls.do_write = PyObject_GetAttrString(cls, "_do_write")) == NULL ||
        (G.tls.process_outgoing = PyObject_GetAttrString(cls, "_process_outgoing")) == NULL ||
        (G.tls.write_appdata = PyObject_GetAttrString(cls, "_write_appdata")) == NULL ||
        (G.tls.control_app_writing = PyObject_GetAttrString(cls, "_control_app_writing")) ==
            NULL ||
        (G.tls.wrapped = PyObject_GetAttrString(states, "WRAPPED")) == NULL ||
        (G.tls.flushing = PyObject_GetAttrString(states, "FLUSHING")) == NULL ||
        (G.tls.s_call_eof = PyUnicode_InternFromString("_call_eof_received")) == NULL ||
        (G.tls.s_start_shutdown = PyUnicode_InternFromString("_start_shutdown")) == NULL ||
        (G.tls.s_dispatch = PyUnicode_InternFromString("_received")) == NULL ||
        (G.tls.s_do_read = PyUnicode_InternFromString("_do_read")) == NULL) {
        Py_XDECREF(cls);
        Py_XDECREF(states);
        return -1;
    }
    Py_DECREF(cls);
    Py_DECREF(states);
    G.tls.s_append = PyUnicode_InternFromString("append");
    return G.tls.s_append ? 0 : -1;
}

/* Forgets what was found; whoever is inside of OpenSSL has a reference of its own. */
static void
tls_forget(gl_tls *t, bool look_again)
{
    t->looked_up = !look_again;
    t->ssl = NULL;
    t->in = t->out = NULL;
    Py_CLEAR(t->inner);
}

static void
tls_look_up(gl_tls *t)
{
    t->looked_up = 1;
    if (!openssl_ready() || t->sslobj == NULL || t->incoming == NULL || t->outgoing == NULL)
        return;
    PyObject *sslobj = Py_NewRef(t->sslobj), *incoming = Py_NewRef(t->incoming),
             *outgoing = Py_NewRef(t->outgoing);
    SSL *ssl = NULL;
    BIO *in = NULL, *out = NULL;
    PyObject *inner = openssl_behind(sslobj, incoming, outgoing, &ssl, &in, &out);
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

/* True where ssl, in and out can be used, until Python runs again. */
static inline bool
tls_native(gl_tls *t)
{
    if (!t->looked_up)
        tls_look_up(t);
    return t->ssl != NULL;
}

/* Calls and drops the result; 0 or -1. */
static int
tls_call(PyObject *result)
{
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* ---- outgoing ------------------------------------------------------------------- */

static int
tls_transport_write(gl_tls *t, PyObject *bytes)
{
    PyObject *transport = Py_NewRef(t->transport);
    PyObject *r;
    if (Py_TYPE(transport) == G.stream_class)
        r = gl_stream_write((gl_stream *)transport, bytes);
    else
        r = PyObject_CallMethod(transport, "write", "O", bytes);
    Py_DECREF(transport);
    return tls_call(r);
}

/* Hands the records that OpenSSL has made to the transport; then flow control. */
static int
tls_process_outgoing(gl_tls *t)
{
    if (!tls_native(t))
        return tls_call(PyObject_CallOneArg(G.tls.process_outgoing, (PyObject *)t));
    if (!t->ssl_writing_paused) {
        size_t n = bio_pending(t->out);
        if (n > INT_MAX)
            n = INT_MAX;
        if (n) {
            PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n);
            if (bytes == NULL)
                return -1;
            int got = openssl.BIO_read(t->out, PyBytes_AS_STRING(bytes), (int)n);
            int r = 0;
            if (got == (int)n && t->transport && t->transport != Py_None)
                r = tls_transport_write(t, bytes);
            Py_DECREF(bytes);
            if (r < 0)
                return -1;
        }
    }
    if (!tls_native(t))
        return tls_call(PyObject_CallOneArg(G.tls.control_app_writing, (PyObject *)t));
    Py_ssize_t size = (Py_ssize_t)bio_pending(t->out) + t->write_buffer_size;
    if ((size >= t->outgoing_high && !t->app_writing_paused) ||
        (size <= t->outgoing_low && t->app_writing_paused))
        return tls_call(PyObject_CallOneArg(G.tls.control_app_writing, (PyObject *)t));
    return 0;
}

/* Encrypts as much as OpenSSL takes; the number of bytes.  tls_native() holds. */
static Py_ssize_t
tls_encrypt(gl_tls *t, const char *data, Py_ssize_t len)
{
    Py_ssize_t done = 0;
    PyObject *inner = Py_NewRef(t->inner);
    SSL *ssl = t->ssl;
    openssl.ERR_clear_error();
    while (done < len) {
        size_t n = 0;
        if (openssl.SSL_write_ex(ssl, data + done, (size_t)(len - done), &n) != 1)
            break;
        done += (Py_ssize_t)n;
    }
    Py_DECREF(inner);
    return done;
}

static int
tls_backlog_append(gl_tls *t, PyObject *data, Py_ssize_t done, Py_ssize_t len)
{
    PyObject *rest;
    if (done == 0) {
        rest = Py_NewRef(data);
    } else {
        PyObject *view = PyMemoryView_FromObject(data);
        PyObject *flat = view ? PyObject_CallMethod(view, "cast", "s", "B") : NULL;
        rest = flat ? PySequence_GetSlice(flat, done, len) : NULL;
        Py_XDECREF(flat);
        Py_XDECREF(view);
    }
    if (rest == NULL)
        return -1;
    PyObject *backlog = Py_NewRef(t->write_backlog ? t->write_backlog : Py_None);
    int r = tls_call(PyObject_CallMethodOneArg(backlog, G.tls.s_append, rest));
    Py_DECREF(backlog);
    Py_DECREF(rest);
    if (r == 0)
        t->write_buffer_size += len - done;
    return r;
}

/* The length of the backlog, or -1. */
static Py_ssize_t
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
tls_writable(gl_tls *t)
{
    Py_ssize_t waiting = t->write_backlog ? tls_backlog_len(t) : 1;
    if (waiting < 0)
        PyErr_Clear(); /* the Python method will meet it again */
    return waiting == 0 && t->state == G.tls.wrapped && tls_native(t);
}

/* Encrypts one object; what OpenSSL does not take goes to the backlog. */
static int
tls_write_one(gl_tls *t, PyObject *data)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return -1;
    /* Taking the buffer may have run Python: what it left is Python's to write to. */
    Py_ssize_t len = view.len, done = tls_native(t) ? tls_encrypt(t, view.buf, len) : 0;
    PyBuffer_Release(&view);
    if (done == len)
        return 0;
    if (tls_backlog_append(t, data, done, len) < 0)
        return -1;
    /* The Python method meets the same condition again, and names it. */
    return tls_call(PyObject_CallOneArg(G.tls.do_write, (PyObject *)t));
}

/* asyncio: any Exception on the way out is fatal for the connection. */
static PyObject *
tls_fatal(gl_tls *t)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return NULL;
    PyObject *exc = gl_take_exception();
    PyObject *r = PyObject_CallMethod((PyObject *)t, "_fatal_error", "Os", exc,
                                      "Fatal error on SSL protocol");
    Py_DECREF(exc);
    return r;
}

static PyObject *
tls_write_appdata(gl_tls *t, PyObject *list)
{
    if (!tls_writable(t)) {
        return PyObject_CallFunctionObjArgs(G.tls.write_appdata, (PyObject *)t, list, NULL);
    }
    PyObject *items = PySequence_Fast(list, "writelines() takes an iterable of bytes");
    if (items == NULL)
        return NULL;
    int r = 0;
    for (Py_ssize_t i = 0; r == 0 && i < PySequence_Fast_GET_SIZE(items); i++) {
        PyObject *data = Py_NewRef(PySequence_Fast_GET_ITEM(items, i));
        if (tls_writable(t)) {
            r = tls_write_one(t, data);
        } else {
            Py_ssize_t len = PyObject_Size(data);
            r = len < 0 ? -1 : tls_backlog_append(t, data, 0, len);
        }
        Py_DECREF(data);
    }
    Py_DECREF(items);
    if (r == 0)
        r = tls_process_outgoing(t);
    if (r < 0)
        return tls_fatal(t);
    Py_RETURN_NONE;
}

/* The transport's write(). */
static PyObject *
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
    if (!tls_writable(t)) {
        PyObject *one = PyTuple_Pack(1, data);
        if (one == NULL)
            return NULL;
        PyObject *r = PyObject_CallFunctionObjArgs(G.tls.write_appdata, (PyObject *)t, one, NULL);
        Py_DECREF(one);
        return r;
    }
    Py_INCREF(t);
    PyObject *result = Py_None;
    Py_INCREF(result);
    if (tls_write_one(t, data) < 0 || tls_process_outgoing(t) < 0) {
        Py_DECREF(result);
        result = tls_fatal(t);
    }
    Py_DECREF(t);
    return result;
}

static PyObject *
tls_do_write(gl_tls *t, PyObject *Py_UNUSED(ignored))
{
    return PyObject_CallOneArg(G.tls.do_write, (PyObject *)t);
}

static PyObject *
tls_process_outgoing_method(gl_tls *t, PyObject *Py_UNUSED(ignored))
{
    if (tls_process_outgoing(t) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- incoming ----------------------------------------------------------------------- */

enum tls_read_end { TLS_MORE, TLS_DRY, TLS_CLOSED, TLS_BROKEN };

/* Decrypts into [buf, buf + cap); *end says why it stopped.  tls_native() holds. */
static Py_ssize_t
tls_decrypt(gl_tls *t, uint8_t *buf, size_t cap, enum tls_read_end *end)
{
    size_t done = 0;
    PyObject *inner = Py_NewRef(t->inner);
    SSL *ssl = t->ssl;
    openssl.ERR_clear_error();
    *end = TLS_MORE;
    while (done < cap) {
        size_t n = 0;
        int r = openssl.SSL_read_ex(ssl, buf + done, cap - done, &n);
        if (r == 1) {
            done += n;
            continue;
        }
        switch (openssl.SSL_get_error(ssl, r)) {
        case GL_SSL_ERROR_WANT_READ:
        case GL_SSL_ERROR_WANT_WRITE:
            *end = TLS_DRY;
            break;
        case GL_SSL_ERROR_ZERO_RETURN:
            *end = TLS_CLOSED;
            break;
        default:
            *end = TLS_BROKEN;
        }
        break;
    }
    Py_DECREF(inner);
    return (Py_ssize_t)done;
}

/* Raises what is wrong, in the words of SSLObject.read: it finds OpenSSL's queue of
 * errors as the failed call left it, so nothing may come between the two. */
static int
tls_raise_broken(gl_tls *t)
{
    PyObject *sslobj = Py_NewRef(t->sslobj ? t->sslobj : Py_None);
    PyObject *r = PyObject_CallMethod(sslobj, "read", "n", (Py_ssize_t)GL_TLS_CHUNK);
    Py_DECREF(sslobj);
    if (r) {
        Py_DECREF(r);
        PyErr_SetString(PyExc_ConnectionError, "the TLS connection is broken");
    }
    return -1;
}

/* What the peer's close_notify starts. */
static int
tls_peer_closed(gl_tls *t)
{
    if (tls_call(PyObject_CallMethodNoArgs((PyObject *)t, G.tls.s_call_eof)) < 0)
        return -1;
    return tls_call(PyObject_CallMethodNoArgs((PyObject *)t, G.tls.s_start_shutdown));
}

static bool
tls_reads(gl_tls *t)
{
    return (t->state == G.tls.wrapped || t->state == G.tls.flushing) &&
           !t->app_reading_paused && t->app_protocol && t->app_protocol != Py_None;
}

static int tls_read_buffered(gl_tls *t);

static int
tls_read_copied(gl_tls *t)
{
    enum tls_read_end end = TLS_MORE;
    while (end == TLS_MORE && tls_reads(t)) {
        if (t->is_buffer) /* data_received() has put a BufferedProtocol in its place */
            return tls_read_buffered(t);
        if (!tls_native(t)) /* or taken the SSL objects away */
            return tls_call(PyObject_CallOneArg(G.tls.do_read, (PyObject *)t));
        uint8_t *scratch = tls_scratch_take();
        if (scratch == NULL)
            return -1;
        Py_ssize_t n = tls_decrypt(t, scratch, GL_TLS_CHUNK, &end);
        if (end == TLS_BROKEN) {
            /* At once, and for what was decrypted before it too, as in asyncio: a
             * protocol that answers would find its connection broken under its hands. */
            tls_scratch_give(scratch);
            return tls_raise_broken(t);
        }
        PyObject *bytes = n > 0 ? PyBytes_FromStringAndSize((const char *)scratch, n) : NULL;
        tls_scratch_give(scratch);
        if (n > 0) {
            PyObject *r = NULL;
            if (bytes) {
                PyObject *protocol = Py_NewRef(t->app_protocol ? t->app_protocol : Py_None);
                r = PyObject_CallMethodOneArg(protocol, G.s_data_received, bytes);
                Py_DECREF(protocol);
                Py_DECREF(bytes);
            }
            if (tls_call(r) < 0)
                return -1;
        }
    }
    return end == TLS_CLOSED ? tls_peer_closed(t) : 0;
}

static int
tls_read_buffered(gl_tls *t)
{
    enum tls_read_end end = TLS_MORE;
    if (!tls_native(t))
        return tls_call(PyObject_CallOneArg(G.tls.do_read, (PyObject *)t));
    PyObject *hint = PyLong_FromSize_t(bio_pending(t->in));
    PyObject *getter = Py_NewRef(t->get_buffer ? t->get_buffer : Py_None);
    PyObject *buf = hint ? PyObject_CallOneArg(getter, hint) : NULL;
    Py_DECREF(getter);
    Py_XDECREF(hint);
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
        end = TLS_CLOSED; /* asyncio takes no room for the end of the stream */
    else
        n = tls_decrypt(t, view.buf, (size_t)view.len, &end);
    PyBuffer_Release(&view);
    if (end == TLS_BROKEN)
        return tls_raise_broken(t);
    if (end == TLS_MORE) {
        /* The buffer is full: the rest in the next iteration, as asyncio does. */
        PyObject *o = PyObject_GetAttr((PyObject *)t, G.s__loop);
        PyObject *again = PyObject_GetAttr((PyObject *)t, G.tls.s_do_read);
        PyObject *res = o && again ? PyObject_CallMethodOneArg(o, G.s_call_soon, again) : NULL;
        Py_XDECREF(again);
        Py_XDECREF(o);
        if (tls_call(res) < 0)
            return -1;
    }
    if (n > 0) {
        PyObject *count = PyLong_FromSsize_t(n);
        PyObject *updated = Py_NewRef(t->buffer_updated ? t->buffer_updated : Py_None);
        PyObject *res = count ? PyObject_CallOneArg(updated, count) : NULL;
        Py_DECREF(updated);
        Py_XDECREF(count);
        if (tls_call(res) < 0)
            return -1;
    }
    return end == TLS_CLOSED ? tls_peer_closed(t) : 0;
}

/* SSLProtocol._control_ssl_reading. */
static int
tls_control_reading(gl_tls *t)
{
    if (t->transport == NULL || t->transport == Py_None || !tls_native(t))
        return 0;
    Py_ssize_t size = (Py_ssize_t)bio_pending(t->in);
    const char *method = NULL;
    if (size >= t->incoming_high && !t->ssl_reading_paused) {
        t->ssl_reading_paused = 1;
        method = "pause_reading";
    } else if (size <= t->incoming_low && t->ssl_reading_paused) {
        t->ssl_reading_paused = 0;
        method = "resume_reading";
    }
    if (method == NULL)
        return 0;
    PyObject *transport = Py_NewRef(t->transport);
    PyObject *r = PyObject_CallMethod(transport, method, NULL);
    Py_DECREF(transport);
    return tls_call(r);
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
        if (backlog > 0)
            r = tls_call(PyObject_CallOneArg(G.tls.do_write, (PyObject *)t));
        else
            r = tls_process_outgoing(t);
        if (r < 0)
            return -1;
    }
    return tls_control_reading(t);
}

static PyObject *
tls_do_read(gl_tls *t, PyObject *Py_UNUSED(ignored))
{
    if (t->state != G.tls.wrapped && t->state != G.tls.flushing)
        Py_RETURN_NONE;
    if (!tls_native(t))
        return PyObject_CallOneArg(G.tls.do_read, (PyObject *)t);
    Py_INCREF(t);
    PyObject *result;
    if (tls_read_all(t) < 0) {
        result = tls_fatal(t);
    } else {
        result = Py_NewRef(Py_None);
    }
    Py_DECREF(t);
    return result;
}

/* Called by the stream transport with what it received, instead of get_buffer and
 * buffer_updated.  -1 with an exception. */
static int
tls_receive(PyObject *protocol, const char *data, Py_ssize_t n)
{
    gl_tls *t = (gl_tls *)protocol;
    if (tls_native(t)) {
        while (n > 0) {
            int part = n > INT_MAX ? INT_MAX : (int)n;
            if (openssl.BIO_write(t->in, data, part) != part) {
                PyErr_NoMemory();
                return -1;
            }
            data += part;
            n -= part;
        }
    } else {
        PyObject *bytes = PyBytes_FromStringAndSize(data, n);
        PyObject *incoming = Py_NewRef(t->incoming ? t->incoming : Py_None);
        PyObject *r = bytes ? PyObject_CallMethod(incoming, "write", "O", bytes) : NULL;
        Py_DECREF(incoming);
        Py_XDECREF(bytes);
        if (tls_call(r) < 0)
            return -1;
    }
    if (t->state == G.tls.wrapped)
        return tls_call(tls_do_read(t, NULL));
    return tls_call(PyObject_CallMethodNoArgs((PyObject *)t, G.tls.s_dispatch));
}

/* ---- the type ----------------------------------------------------------------------- */

static PyObject *
tls_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwds))
{
    if (tls_py_init() < 0)
        return NULL;
    return type->tp_alloc(type, 0);
}

static int
tls_traverse(gl_tls *t, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(t));
    Py_VISIT(t->state);
    Py_VISIT(t->app_protocol);
    Py_VISIT(t->transport);
    Py_VISIT(t->sslobj);
    Py_VISIT(t->inner);
    Py_VISIT(t->incoming);
    Py_VISIT(t->outgoing);
    Py_VISIT(t->write_backlog);
    Py_VISIT(t->get_buffer);
    Py_VISIT(t->buffer_updated);
    return 0;
}

static int
tls_clear(gl_tls *t)
{
    tls_forget(t, false);
    Py_CLEAR(t->state);
    Py_CLEAR(t->app_protocol);
    Py_CLEAR(t->transport);
    Py_CLEAR(t->sslobj);
    Py_CLEAR(t->incoming);
    Py_CLEAR(t->outgoing);
    Py_CLEAR(t->write_backlog);
    Py_CLEAR(t->get_buffer);
    Py_CLEAR(t->buffer_updated);
    return 0;
}

static void
tls_dealloc(gl_tls *t)
{
    PyTypeObject *type = Py_TYPE(t);
    PyObject_GC_UnTrack(t);
    (void)tls_clear(t);
    type->tp_free((PyObject *)t);
    Py_DECREF(type);
}

/* A new SSLObject or BIO: what was found behind the old one is void. */
static int
tls_set_ssl_part(gl_tls *t, PyObject *value, void *offset)
{
    PyObject **field = (PyObject **)((char *)t + (intptr_t)offset);
    PyObject *old = *field;
    *field = Py_XNewRef(value);
    tls_forget(t, true);
    Py_XDECREF(old);
    return 0;
}

static PyObject *
tls_get_ssl_part(gl_tls *t, void *offset)
{
    PyObject *value = *(PyObject **)((char *)t + (intptr_t)offset);
    return Py_NewRef(value ? value : Py_None);
}

#define SSL_PART(name, field)                                                                 \
    {name, (getter)tls_get_ssl_part, (setter)tls_set_ssl_part, NULL,                          \
     (void *)offsetof(gl_tls, field)}

static PyGetSetDef tls_getset[] = {
    SSL_PART("_sslobj", sslobj),
    SSL_PART("_incoming", incoming),
    SSL_PART("_outgoing", outgoing),
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef tls_members[] = {
    {"_state", T_OBJECT, offsetof(gl_tls, state), 0, NULL},
    {"_app_protocol", T_OBJECT, offsetof(gl_tls, app_protocol), 0, NULL},
    {"_transport", T_OBJECT, offsetof(gl_tls, transport), 0, NULL},
    {"_write_backlog", T_OBJECT, offsetof(gl_tls, write_backlog), 0, NULL},
    {"_app_protocol_get_buffer", T_OBJECT, offsetof(gl_tls, get_buffer), 0, NULL},
    {"_app_protocol_buffer_updated", T_OBJECT, offsetof(gl_tls, buffer_updated), 0, NULL},
    {"_app_protocol_is_buffer", T_BOOL, offsetof(gl_tls, is_buffer), 0, NULL},
    {"_app_reading_paused", T_BOOL, offsetof(gl_tls, app_reading_paused), 0, NULL},
    {"_ssl_reading_paused", T_BOOL, offsetof(gl_tls, ssl_reading_paused), 0, NULL},
    {"_ssl_writing_paused", T_BOOL, offsetof(gl_tls, ssl_writing_paused), 0, NULL},
    {"_app_writing_paused", T_BOOL, offsetof(gl_tls, app_writing_paused), 0, NULL},
    {"_write_buffer_size", T_PYSSIZET, offsetof(gl_tls, write_buffer_size), 0, NULL},
    {"_incoming_high_water", T_PYSSIZET, offsetof(gl_tls, incoming_high), 0, NULL},
    {"_incoming_low_water", T_PYSSIZET, offsetof(gl_tls, incoming_low), 0, NULL},
    {"_outgoing_high_water", T_PYSSIZET, offsetof(gl_tls, outgoing_high), 0, NULL},
    {"_outgoing_low_water", T_PYSSIZET, offsetof(gl_tls, outgoing_low), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef tls_methods[] = {
    {"_do_read", (PyCFunction)tls_do_read, METH_NOARGS, NULL},
    {"_do_write", (PyCFunction)tls_do_write, METH_NOARGS, NULL},
    {"_process_outgoing", (PyCFunction)tls_process_outgoing_method, METH_NOARGS, NULL},
    {"_write_appdata", (PyCFunction)tls_write_appdata, METH_O, NULL},
    {"_write", (PyCFunction)tls_write, METH_O,
     PyDoc_STR("_write($self, data, /)\n--\n\nThe write() of the application's transport.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot tls_slots[] = {
    {Py_tp_doc, PyDoc_STR("The native half of goloop.tls.TLSProtocol.")},
    {Py_tp_new, tls_new},
    {Py_tp_traverse, tls_traverse},
    {Py_tp_clear, tls_clear},
    {Py_tp_dealloc, tls_dealloc},
    {Py_tp_methods, tls_methods},
    {Py_tp_getset, tls_getset},
    {Py_tp_members, tls_members},
    {0, NULL},
};

static PyType_Spec tls_spec = {
    .name = "goloop._core.TLSEngine",
    .basicsize = sizeof(gl_tls),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = tls_slots,
};

GL_PRIVATE int
gl_tls_init_type(PyObject *module)
{
    G.native_receive = tls_receive;
    G.native_protocol = (PyTypeObject *)PyType_FromSpec(&tls_spec);
    return G.native_protocol ? PyModule_AddType(module, G.native_protocol) : -1;
}

GL_PRIVATE PyObject *
gl_core_tls_fallback_reason(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (openssl_ready())
        Py_RETURN_NONE;
    return PyUnicode_FromString(openssl.reason);
}
