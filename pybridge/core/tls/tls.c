/*
 * tls.c: TLSEngine, the C base class of goloop's TLSProtocol.
 *
 * asyncio's SSLProtocol (a state machine with handshake, shutdown, flow control and
 * their timeouts) does the work that is done once per connection, in Python.  goloop's
 * TLSProtocol inherits from TLSEngine first, which does the work per record:
 *
 *     received bytes --BIO--> SSL --SSL_read--> bytes --> data_received
 *     write(data)    --SSL_write--> SSL --BIO_read--> one bytes --> the stream's queue
 *     (a large write --SSL_write--> one bytes, by tls_records.c)
 *
 *     stream_read.c -> tls_receive -> tls_do_read -> tls_decrypt -> data_received()
 *     app transport -> tls_write -> tls_write_one -> tls_encrypt
 *                   -> tls_process_outgoing -> stream_write
 *
 * The attributes that C and SSLProtocol use (the state, the pauses, the backlog) are fields
 * of this object, which SSLProtocol's Python reads and writes through descriptors.  So each
 * has one value, and C needs no attribute lookup.
 *
 * If OpenSSL can't be called directly (openssl_open() returns the reason), and for anything
 * except the plain data flow, SSLProtocol's own methods are called.  An error is read right after
 * the call that failed, and goloop._internal.tls.errors creates the exception that _ssl would
 * have raised.
 *
 * Each callback of the protocol can close or abort the connection or replace the SSL objects, and
 * so can Python that OpenSSL calls (a key log, a message callback).  Therefore each call has its
 * own references, and the state is checked again afterwards.
 */
#include "tls/private.h"

/* Implements SSLProtocol._process_outgoing(). */
static PyObject *
tls_process_outgoing_method(gl_tls *t, PyObject *Py_UNUSED(ignored))
{
    return gl_none_or_null(tls_process_outgoing(t));
}

/* Makes one step of a handshake.  SSLObject.do_handshake() raises an exception when more bytes are
 * needed, as after most steps of a server.  This function calls OpenSSL directly, and creates no
 * exception in this case.
 *
 *     advance --> True: done      False: more bytes are needed      an exception: failed
 *          |----> False: another step is running, in another thread or in an outer call
 *          '----> None: not possible here; SSLObject's own method has to be called
 *
 * None is returned also if a program's callbacks observe the handshake (`has_callbacks`).
 *
 * The GIL is released during the step, as _ssl does, since a step computes for some hundred
 * microseconds.  `handshake_running` keeps other calls of C for this connection away from OpenSSL.
 * If the program calls the SSLObject meanwhile, the effect is the same as during a call of _ssl's
 * do_handshake().  Without a GIL, the functions of _ssl that compute have a lock of their own.
 * They do not lock the Python object; only its getters do. */
static PyObject *
tls_advance_handshake(gl_tls *t, PyObject *has_callbacks)
{
    if (t->handshake_running) /* the step is made by another thread, or is calling Python */
        Py_RETURN_FALSE;
    if (has_callbacks != Py_False || !tls_check_openssl(t))
        Py_RETURN_NONE;
    PyObject *ssl_socket = Py_NewRef(t->ssl_socket); /* Python may replace the field meanwhile */
    SSL *ssl = t->ssl;
    struct openssl_error error = {0};
    int done;
    t->handshake_running = 1;
    Py_BEGIN_ALLOW_THREADS
    done = openssl.SSL_do_handshake(ssl);
    if (done != 1)
        error = openssl_take_error(ssl, done); /* on this thread, whose error queue has it */
    Py_END_ALLOW_THREADS
    t->handshake_running = 0;
    Py_DECREF(ssl_socket);
    if (done != 1 && !openssl_wants_io(error))
        return tls_raise(t, "do_handshake", error);
    return PyBool_FromLong(done == 1);
}

/* ---- the type ----------------------------------------------------------------------- */

/* tp_new: a connection without SSL objects.  NULL with RuntimeError before _begin_tls(). */
static PyObject *
tls_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwds))
{
    if (G.tls.wrapped == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "TLSEngine can be created only after import goloop");
        return NULL;
    }
    return type->tp_alloc(type, 0);
}

/* tp_traverse: visits all objects of GL_TLS_OBJECTS, the loop and the _SSLSocket. */
static int
tls_traverse(gl_tls *t, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(t));
    Py_VISIT(t->ssl_socket);
#define VISIT(field) Py_VISIT(t->field);
    GL_TLS_OBJECTS(VISIT)
#undef VISIT
    Py_VISIT(t->loop);
    GL_OWNER_LOOP_VISIT(t);
    return 0;
}

/* tp_clear: drops all objects, the OpenSSL objects too. */
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

/* tp_dealloc: drops all objects. */
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

/* Setter of `_sslobj`, `_incoming` and `_outgoing`.  Clears the OpenSSL objects, so that the next
 * use looks for those of the new object. */
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

/* Getter of `_sslobj`, `_incoming` and `_outgoing`: the object, or None. */
static PyObject *
tls_get_ssl_part(gl_tls *t, void *offset)
{
    PyObject *value = *(PyObject **)((char *)t + (intptr_t)offset);
    return gl_ref_or_none(value);
}

/* An attribute whose change invalidates the OpenSSL objects. */
#define SSL_PART(name, field)                                                                      \
    {name, (getter)tls_get_ssl_part, (setter)tls_set_ssl_part, NULL,                               \
     (void *)offsetof(gl_tls, field)}

/* Getter of `_loop`; AttributeError if it is not set. */
static PyObject *
tls_get_loop(gl_tls *t, void *Py_UNUSED(closure))
{
    if (t->loop == NULL)
        PyErr_SetString(PyExc_AttributeError, "_loop");
    return Py_XNewRef(t->loop);
}

/* Setter of `_loop`.  The first loop becomes the owner loop, whose lock guards the connection. */
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
    FLAG(read_deferred),
    FLAG(read_failed),
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
     PyDoc_STR("_write($self, data, /)\n--\n\nWrite plaintext: write() of the app's transport.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot tls_slots[] = {
    {Py_tp_doc, PyDoc_STR("The C base class of goloop._internal.tls.protocol.TLSProtocol.")},
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

/* _core._open_openssl(file): looks up OpenSSL's functions in the file of the module _ssl, which is
 * None if it has no file.  Returns None, or the reason why OpenSSL is not called directly.  Called
 * at import: later a fork may have left ld.so's lock locked for good. */
static PyObject *
core_open_openssl(PyObject *Py_UNUSED(module), PyObject *file)
{
    if (openssl.ready)
        Py_RETURN_NONE;
    const char *path = PyUnicode_Check(file) ? PyUnicode_AsUTF8(file) : NULL;
    PyErr_Clear();
    const char *reason = openssl_open(path);
    if (reason == NULL && !tls_records_init())
        reason = "there is no memory for a BIO method";
    openssl.ready = reason == NULL;
    if (reason == NULL)
        Py_RETURN_NONE;
    return PyUnicode_FromString(reason);
}

/* _core._begin_tls(types, classes, objects): initialises TLS.  `objects` are stored in G.tls.  A
 * later call replaces all of it, for an import of tls.py after an interrupted one. */
static PyObject *
core_begin_tls(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *object, *transport;
    Py_INCREF(args); /* never released, since the objects are borrowed from it */
    if (!PyArg_ParseTuple(args, "(O!O!)(OO)(OOOOOOO)", &PyType_Type, &openssl.socket_type,
                          &PyType_Type, &openssl.bio_type, &object, &transport, &G.tls.do_read,
                          &G.tls.do_write, &G.tls.process_outgoing, &G.tls.write_appdata,
                          &G.tls.control_app_writing, &G.tls.flushing, &G.tls.wrapped) ||
        gl_rule_set_class(GL_RULE_SSL_OBJECT, object) < 0 ||
        gl_rule_set_class(GL_RULE_TLS_TRANSPORT, transport) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef tls_functions[] = {
    {"_open_openssl", core_open_openssl, METH_O,
     PyDoc_STR("For goloop/_internal/loop/library.py.")},
    {"_begin_tls", core_begin_tls, METH_VARARGS,
     PyDoc_STR("For goloop/_internal/tls/protocol.py.")},
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
