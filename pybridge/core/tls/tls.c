/*
 * tls.c: the data path of TLS, native.
 *
 * asyncio's SSLProtocol (a state machine with handshake, shutdown, flow control and
 * their timeouts) stays in charge: what runs once per connection is its Python.
 * goloop's TLSProtocol puts this type before it, and what runs per record is here:
 *
 *     received bytes --BIO--> SSL --SSL_read--> bytes --> data_received
 *     write(data)    --SSL_write--> SSL --BIO_read--> one bytes --> the stream's queue
 *
 * The attributes that both halves use (the state, the pauses, the backlog) are fields
 * of this object, which SSLProtocol's Python reads and writes through descriptors: so
 * there is one truth, and no attribute look-up here.
 *
 * Where OpenSSL can't be called directly (openssl_open() tells why), and for whatever is
 * not plain data flow, SSLProtocol's own methods are called.  An error is taken from the call
 * that failed, and goloop._internal.net.tls_errors words it as _ssl would have.
 *
 * Any of the protocol's callbacks may close or abort the connection, or take the SSL
 * objects away, and so may Python that OpenSSL calls (a key log, a message callback): own
 * references are held over each call and the state is looked at again after it.
 */
#include "tls/private.h"

static PyObject *
tls_process_outgoing_method(gl_tls *t, PyObject *Py_UNUSED(ignored))
{
    return tls_process_outgoing(t) < 0 ? NULL : Py_NewRef(Py_None);
}

/* One step of a handshake.  SSLObject.do_handshake tells by an exception that more has to come,
 * which most steps of a server end with.  Here OpenSSL is asked directly, and that exception is never
 * made.
 *
 *     advance --> True: done      False: the peer's turn      an exception: it has failed
 *          '----> None: not here; SSLObject's own method has to be called
 *
 * So it is where Python's callbacks watch the handshake.  The GIL is released meanwhile, as _ssl does: a
 * step computes for some hundred microseconds.  `handshake_running` keeps the loop's own threads out.  Other
 * calls that a program makes of the SSLObject meanwhile are what they are beside _ssl's
 * do_handshake(): without a GIL that has a lock of its own for those that compute, and the object's,
 * which its getters take, is not held amid them. */
static PyObject *
tls_advance_handshake(gl_tls *t, PyObject *watched)
{
    if (t->handshake_running) /* another thread, or a callback of the step's, makes the step */
        Py_RETURN_FALSE;
    if (watched != Py_False || !tls_can_use_openssl(t))
        Py_RETURN_NONE;
    PyObject *inner = Py_NewRef(t->inner); /* Python that runs meanwhile may take it from us */
    SSL *ssl = t->ssl;
    struct openssl_error stop = {0};
    int done;
    t->handshake_running = 1;
    Py_BEGIN_ALLOW_THREADS
    done = openssl.SSL_do_handshake(ssl);
    if (done != 1)
        stop = openssl_take_error(ssl, done); /* this thread's, like its queue of errors */
    Py_END_ALLOW_THREADS
    t->handshake_running = 0;
    Py_DECREF(inner);
    if (done != 1 && !openssl_wants_io(stop))
        return tls_raise(t, "do_handshake", stop);
    return PyBool_FromLong(done == 1);
}

/* ---- the type ----------------------------------------------------------------------- */

static PyObject *
tls_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwds))
{
    if (G.tls.wrapped == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "goloop is not imported yet");
        return NULL;
    }
    return type->tp_alloc(type, 0);
}

static int
tls_traverse(gl_tls *t, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(t));
    Py_VISIT(t->inner);
#define VISIT(field) Py_VISIT(t->field);
    GL_TLS_OBJECTS(VISIT)
#undef VISIT
    Py_VISIT(t->loop);
    GL_OWNER_LOOP_VISIT(t);
    return 0;
}

static int
tls_clear(gl_tls *t)
{
    tls_reset_openssl(t, false);
#define CLEAR(field) Py_CLEAR(t->field);
    GL_TLS_OBJECTS(CLEAR)
#undef CLEAR
    Py_CLEAR(t->loop);
    return 0;
}

static void
tls_dealloc(gl_tls *t)
{
    PyTypeObject *type = Py_TYPE(t);
    PyObject_GC_UnTrack(t);
    (void)tls_clear(t);
    GL_OWNER_LOOP_CLEAR(t);
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
    tls_reset_openssl(t, true);
    Py_XDECREF(old);
    return 0;
}

static PyObject *
tls_get_ssl_part(gl_tls *t, void *offset)
{
    PyObject *value = *(PyObject **)((char *)t + (intptr_t)offset);
    return Py_NewRef(value ? value : Py_None);
}

#define SSL_PART(name, field)                                                                      \
    {name, (getter)tls_get_ssl_part, (setter)tls_set_ssl_part, NULL,                               \
     (void *)offsetof(gl_tls, field)}

static PyObject *
tls_get_loop(gl_tls *t, void *Py_UNUSED(closure))
{
    if (t->loop == NULL)
        PyErr_SetString(PyExc_AttributeError, "_loop");
    return Py_XNewRef(t->loop);
}

/* The first loop that is set is the connection's. */
static int
tls_set_loop(gl_tls *t, PyObject *loop, void *Py_UNUSED(closure))
{
#ifdef GL_FREE_THREADED
    if (t->owner_loop.loop == NULL && loop != NULL && gl_loop_check(loop))
        gl_owner_loop_set(&t->owner_loop, Py_NewRef(loop));
#endif
    Py_XSETREF(t->loop, Py_XNewRef(loop));
    return 0;
}

static PyGetSetDef tls_getset[] = {
    {"_loop", (getter)tls_get_loop, (setter)tls_set_loop, NULL, NULL},
    SSL_PART("_sslobj", sslobj),
    SSL_PART("_incoming", incoming),
    SSL_PART("_outgoing", outgoing),
    {NULL, NULL, NULL, NULL, NULL},
};

#define OBJECT(name, field) {name, T_OBJECT, offsetof(gl_tls, field), 0, NULL}
#define FLAG(name) {"_" #name, T_BOOL, offsetof(gl_tls, name), 0, NULL}
#define SIZE(name, field) {name, T_PYSSIZET, offsetof(gl_tls, field), 0, NULL}
static PyMemberDef tls_members[] = {
    OBJECT("_state", state),
    OBJECT("_app_protocol", app_protocol),
    OBJECT("_transport", transport),
    OBJECT("_write_backlog", write_backlog),
    OBJECT("_app_protocol_get_buffer", get_buffer),
    OBJECT("_app_protocol_buffer_updated", buffer_updated),
    {"_app_protocol_is_buffer", T_BOOL, offsetof(gl_tls, is_buffer), 0, NULL},
    FLAG(read_held),
    FLAG(app_reading_paused),
    FLAG(ssl_reading_paused),
    FLAG(ssl_writing_paused),
    FLAG(app_writing_paused),
    SIZE("_write_buffer_size", write_buffer_size),
    SIZE("_incoming_high_water", incoming_high),
    SIZE("_incoming_low_water", incoming_low),
    SIZE("_outgoing_high_water", outgoing_high),
    SIZE("_outgoing_low_water", outgoing_low),
    {NULL, 0, 0, 0, NULL},
};
#undef OBJECT
#undef FLAG
#undef SIZE

static PyMethodDef tls_methods[] = {
    {"_advance_handshake", GL_ONEARG(tls_advance_handshake), NULL},
    {"_do_read", GL_NOARGS(tls_do_read), NULL},
    {"_process_outgoing", GL_NOARGS(tls_process_outgoing_method), NULL},
    {"_write_appdata", GL_ONEARG(tls_write_appdata), NULL},
    {"_write", GL_ONEARG(tls_write),
     PyDoc_STR("_write($self, data, /)\n--\n\nThe write() of the application's transport.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot tls_slots[] = {
    {Py_tp_doc, PyDoc_STR("The native half of goloop._internal.net.tls.TLSProtocol.")},
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

/* _core._begin_tls(file, types, classes, objects) -> why OpenSSL is not called directly, or None;
 * once.  The file is _ssl's, None where it is no library of its own, or False: it is not to be
 * called; the objects are those of G.tls. */
static PyObject *
core_begin_tls(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *file, *object, *transport;
    if (G.tls.wrapped != NULL)
        Py_RETURN_NONE;
    if (!PyArg_ParseTuple(args, "O(O!O!)(OO)(OOOOOOO)", &file, &PyType_Type, &openssl.socket_type,
                          &PyType_Type, &openssl.bio_type, &object, &transport, &G.tls.do_read,
                          &G.tls.do_write, &G.tls.process_outgoing, &G.tls.write_appdata,
                          &G.tls.control_app_writing, &G.tls.flushing, &G.tls.wrapped) ||
        gl_rule_begin(GL_RULE_SSL_OBJECT, object) < 0 ||
        gl_rule_begin(GL_RULE_TLS_TRANSPORT, transport) < 0)
        return NULL;
    Py_INCREF(args); /* for good: the objects are borrowed from it */
    if (file == Py_False)
        Py_RETURN_NONE;
    const char *path = PyUnicode_Check(file) ? PyUnicode_AsUTF8(file) : NULL;
    PyErr_Clear();
    const char *reason = openssl_open(path);
    openssl.ready = reason == NULL;
    return reason ? PyUnicode_FromString(reason) : Py_NewRef(Py_None);
}

static PyMethodDef tls_functions[] = {
    {"_begin_tls", core_begin_tls, METH_VARARGS, PyDoc_STR("For goloop/_internal/net/tls.py.")},
    {NULL, NULL, 0, NULL},
};

GL_PRIVATE int
gl_tls_init_type(PyObject *module)
{
    G.native_receive = tls_receive;
    G.native_protocol = (PyTypeObject *)PyType_FromSpec(&tls_spec);
    if (G.native_protocol == NULL || PyModule_AddType(module, G.native_protocol) < 0 ||
        GL_GUARD_TYPE(G.native_protocol, gl_tls, owner_loop, NULL, GL_GUARD_CALLS) < 0)
        return -1;
    return PyModule_AddFunctions(module, tls_functions);
}
