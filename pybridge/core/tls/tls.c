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
 * not plain data flow, SSLProtocol's own methods are called.  An error is taken from the call
 * that failed, and goloop._internal.net.tls_errors words it as _ssl would have.
 *
 * Any of the protocol's callbacks may close or abort the connection, or take the SSL
 * objects away, and so may Python that OpenSSL calls (a key log, a message callback): own
 * references are held over each call and the state is looked at again after it.
 */
#include "tls/private.h"

/* SSLProtocol's methods and states, and what of them is goloop's, once. */
static int
tls_import_once(void)
{
    if (G.tls.s_append)
        return 0;
    PyObject *cls = gl_import_attr("asyncio.sslproto", "SSLProtocol");
    PyObject *states = cls ? gl_import_attr("asyncio.sslproto", "SSLProtocolState") : NULL;
    PyObject *ours = states ? gl_import_attr("goloop._internal.net.tls", "TLSProtocol") : NULL;
    const struct {
        PyObject **at, *of; /* of NULL: the name itself */
        const char *name;
    } wanted[] = {
        {&G.tls.do_read, cls, "_do_read"}, {&G.tls.do_write, cls, "_do_write"},
        {&G.tls.process_outgoing, cls, "_process_outgoing"},
        {&G.tls.write_appdata, cls, "_write_appdata"},
        {&G.tls.control_app_writing, ours, "_control_app_writing"},
        {&G.tls.wrapped, states, "WRAPPED"}, {&G.tls.flushing, states, "FLUSHING"},
        {&G.tls.s_call_eof, NULL, "_call_eof_received"},
        {&G.tls.s_start_shutdown, NULL, "_start_shutdown"},
        {&G.tls.s_dispatch, NULL, "_received"}, {&G.tls.s_do_read, NULL, "_do_read"},
        {&G.tls.s_append, NULL, "append"}, /* last: all are there */
    };
    PyObject *object = ours ? gl_import_attr("ssl", "SSLObject") : NULL;
    PyObject *transport = object ? gl_import_attr("goloop._internal.net.tls", "SSLTransport") : NULL;
    int r = transport == NULL || gl_rule_begin(GL_RULE_SSL_OBJECT, object) < 0 ||
                    gl_rule_begin(GL_RULE_TLS_TRANSPORT, transport) < 0
                ? -1
                : 0;
    Py_XDECREF(transport);
    Py_XDECREF(object);
    for (size_t i = 0; r == 0 && i < sizeof wanted / sizeof *wanted; i++) {
        PyObject *value = wanted[i].of ? PyObject_GetAttrString(wanted[i].of, wanted[i].name)
                                       : PyUnicode_InternFromString(wanted[i].name);
        PyObject *before = *wanted[i].at;
        __atomic_store_n(wanted[i].at, value, __ATOMIC_RELEASE);
        Py_XDECREF(before);
        r = value ? 0 : -1;
    }
    Py_XDECREF(cls);
    Py_XDECREF(states);
    Py_XDECREF(ours);
    return r;
}

static int
tls_import(void)
{
    if (__atomic_load_n(&G.tls.s_append, __ATOMIC_ACQUIRE))
        return 0;
    GL_LOCK(tls_mutex);
    int rc = tls_import_once(); /* lint: allow python-under-mutex: all of these are loaded */
    GL_UNLOCK(tls_mutex);
    return rc;
}

static PyObject *
tls_process_outgoing_method(gl_tls *t, PyObject *Py_UNUSED(ignored))
{
    return tls_process_outgoing(t) < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- the type ----------------------------------------------------------------------- */

static PyObject *
tls_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwds))
{
    if (tls_import() < 0)
        return NULL;
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
#ifdef GL_FREE_THREADED
    Py_VISIT(t->home.loop);
#endif
    return 0;
}

static int
tls_clear(gl_tls *t)
{
    tls_forget(t, false);
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
#ifdef GL_FREE_THREADED
    Py_CLEAR(t->home.loop);
#endif
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
    if (t->home.loop == NULL && loop != NULL && gl_loop_check(loop))
        gl_home_set(&t->home, Py_NewRef(loop));
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
    OBJECT("_state", state), OBJECT("_app_protocol", app_protocol),
    OBJECT("_transport", transport), OBJECT("_write_backlog", write_backlog),
    OBJECT("_app_protocol_get_buffer", get_buffer),
    OBJECT("_app_protocol_buffer_updated", buffer_updated),
    {"_app_protocol_is_buffer", T_BOOL, offsetof(gl_tls, is_buffer), 0, NULL},
    FLAG(read_held), FLAG(app_reading_paused), FLAG(ssl_reading_paused),
    FLAG(ssl_writing_paused), FLAG(app_writing_paused),
    SIZE("_write_buffer_size", write_buffer_size),
    SIZE("_incoming_high_water", incoming_high), SIZE("_incoming_low_water", incoming_low),
    SIZE("_outgoing_high_water", outgoing_high), SIZE("_outgoing_low_water", outgoing_low),
    {NULL, 0, 0, 0, NULL},
};
#undef OBJECT
#undef FLAG
#undef SIZE

static PyMethodDef tls_methods[] = {
    {"_advance_handshake", GL_NOARGS(tls_advance_handshake), NULL},
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

/* Why TLS goes through SSLObject's methods, or None where OpenSSL is called directly. */
static PyObject *
core_tls_fallback_reason(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (openssl_ready())
        Py_RETURN_NONE;
    return PyUnicode_FromString(openssl.reason);
}

static PyMethodDef tls_functions[] = {
    {"tls_fallback_reason", core_tls_fallback_reason, METH_NOARGS,
     PyDoc_STR("tls_fallback_reason(): why OpenSSL is not called directly, or None.")},
    {NULL, NULL, 0, NULL},
};

GL_PRIVATE int
gl_tls_init_type(PyObject *module)
{
    G.native_receive = tls_receive;
    G.native_protocol = (PyTypeObject *)PyType_FromSpec(&tls_spec);
    if (G.native_protocol == NULL || PyModule_AddType(module, G.native_protocol) < 0 ||
        GL_GUARD_TYPE(G.native_protocol, gl_tls, home, NULL, GL_GUARD_CALLS) < 0)
        return -1;
    return PyModule_AddFunctions(module, tls_functions);
}
