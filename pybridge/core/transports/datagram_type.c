/*
 * datagram_type.c: the type goloop._core.DatagramTransport.
 *
 * Its bases are asyncio's, as of asyncio's own: _FlowControlMixin, whose methods of
 * the write limits and of extra info it inherits, and DatagramTransport.
 */
#include "transports/datagram.h"

#define DATAGRAM_SAME_SLOT(field)                                                             \
    _Static_assert(offsetof(gl_datagram, field) == offsetof(gl_stream, field),                \
                   "the slots of asyncio's base classes")
DATAGRAM_SAME_SLOT(extra);
DATAGRAM_SAME_SLOT(high_water);
DATAGRAM_SAME_SLOT(slot_loop);
DATAGRAM_SAME_SLOT(low_water);
DATAGRAM_SAME_SLOT(slot_protocol_paused);
DATAGRAM_SAME_SLOT(dict);

/* ---- methods ------------------------------------------------------------------------ */

/* sendto(data, addr=None) */
static PyObject *
datagram_sendto_method(gl_datagram *d, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames)
{
    if (kwnames == NULL && (nargs == 1 || nargs == 2))
        return datagram_sendto(d, args[0], nargs == 2 ? args[1] : Py_None);
    PyObject *found[2] = {nargs > 0 ? args[0] : NULL, nargs > 1 ? args[1] : NULL};
    Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    bool good = nargs <= 2;
    for (Py_ssize_t k = 0; good && k < nkw; k++) {
        PyObject *key = PyTuple_GET_ITEM(kwnames, k);
        int i = PyUnicode_CompareWithASCIIString(key, "data") == 0   ? 0
                : PyUnicode_CompareWithASCIIString(key, "addr") == 0 ? 1
                                                                     : -1;
        good = i >= 0 && found[i] == NULL;
        if (good)
            found[i] = args[nargs + k];
    }
    if (!good || found[0] == NULL) {
        PyErr_SetString(PyExc_TypeError, "sendto() takes the arguments 'data' and 'addr'");
        return NULL;
    }
    return datagram_sendto(d, found[0], found[1] ? found[1] : Py_None);
}

static PyObject *
datagram_set_protocol_method(gl_datagram *d, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames)
{
    PyObject *protocol = one_argument("set_protocol", "protocol", args, nargs, kwnames);
    if (protocol == NULL)
        return NULL;
    Py_XSETREF(d->protocol, Py_NewRef(protocol));
    Py_RETURN_NONE;
}

static PyObject *
datagram_get_protocol_method(gl_datagram *d, PyObject *Py_UNUSED(ignored))
{
    return Py_NewRef(d->protocol ? d->protocol : Py_None);
}

static PyObject *
datagram_close_method(gl_datagram *d, PyObject *Py_UNUSED(ignored))
{
    if (datagram_close(d) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
datagram_abort_method(gl_datagram *d, PyObject *Py_UNUSED(ignored))
{
    if (datagram_force_close(d, Py_None) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
datagram_is_closing_method(gl_datagram *d, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(d->closing);
}

static PyObject *
datagram_is_reading_method(gl_datagram *d, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(!d->closing && !d->paused);
}

static PyObject *
datagram_get_write_buffer_size(gl_datagram *d, PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromSsize_t(d->queued);
}

static PyObject *
datagram_force_close_method(gl_datagram *d, PyObject *exc)
{
    if (datagram_force_close(d, exc) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
datagram_fatal_error_method(gl_datagram *d, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"exc", "message", NULL};
    PyObject *exc;
    const char *message = "Fatal error on transport";
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|s:_fatal_error", names, &exc, &message) ||
        datagram_fatal_error(d, exc, message) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
datagram_lost_method(gl_datagram *d, PyObject *exc)
{
    if (datagram_lost(d, exc) < 0)
        return NULL;
    Py_RETURN_NONE;
}

#define DATAGRAM_NOARGS(name, function, doc)                                                  \
    {name, (PyCFunction)function, METH_NOARGS, PyDoc_STR(doc)}
#define DATAGRAM_FAST(name, function, doc)                                                    \
    {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL | METH_KEYWORDS, PyDoc_STR(doc)}

static PyMethodDef datagram_methods[] = {
    DATAGRAM_FAST("sendto", datagram_sendto_method,
                  "sendto($self, data, addr=None)\n--\n\n"
                  "Send a datagram, to the remote address where addr is None.  Does not block."),
    DATAGRAM_NOARGS("close", datagram_close_method,
                    "close($self)\n--\n\n"
                    "Close the transport once what is queued is sent; no more is received."),
    DATAGRAM_NOARGS("abort", datagram_abort_method,
                    "abort($self)\n--\n\nClose the transport at once; what is queued is lost."),
    DATAGRAM_NOARGS("is_closing", datagram_is_closing_method,
                    "is_closing($self)\n--\n\n"
                    "Return True if the transport is closing or closed."),
    DATAGRAM_NOARGS("is_reading", datagram_is_reading_method,
                    "is_reading($self)\n--\n\nReturn True if the transport is receiving."),
    DATAGRAM_NOARGS("pause_reading", datagram_pause_reading,
                    "pause_reading($self)\n--\n\n"
                    "Pass nothing to the protocol until resume_reading()."),
    DATAGRAM_NOARGS("resume_reading", datagram_resume_reading,
                    "resume_reading($self)\n--\n\nPass datagrams to the protocol again."),
    DATAGRAM_NOARGS("get_write_buffer_size", datagram_get_write_buffer_size,
                    "get_write_buffer_size($self)\n--\n\n"
                    "Return how many bytes the kernel has not taken yet."),
    DATAGRAM_FAST("set_protocol", datagram_set_protocol_method,
                  "set_protocol($self, protocol)\n--\n\nSet a new protocol."),
    DATAGRAM_NOARGS("get_protocol", datagram_get_protocol_method,
                    "get_protocol($self)\n--\n\nReturn the current protocol."),
    {"_force_close", (PyCFunction)datagram_force_close_method, METH_O, NULL},
    {"_fatal_error", (PyCFunction)(void (*)(void))datagram_fatal_error_method,
     METH_VARARGS | METH_KEYWORDS, NULL},
    {"_call_connection_lost", (PyCFunction)datagram_lost_method, METH_O, NULL},
    {"_start", (PyCFunction)datagram_start_method, METH_O, NULL},
    DATAGRAM_NOARGS("_sync", datagram_sync_method, ""),
    DATAGRAM_NOARGS("_deliver_held", datagram_deliver_held_method, ""),
    {NULL, NULL, 0, NULL},
};

/* ---- attributes that other code reads --------------------------------------------------- */

static PyObject *
datagram_conn_lost_getter(gl_datagram *d, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(d->conn_lost);
}

static PyObject *
datagram_flag_getter(gl_datagram *d, void *offset)
{
    return PyBool_FromLong(*((bool *)((char *)d + (uintptr_t)offset)));
}

static PyObject *
datagram_object_getter(gl_datagram *d, void *offset)
{
    PyObject *o = *(PyObject **)((char *)d + (uintptr_t)offset);
    return Py_NewRef(o ? o : Py_None);
}

#define DATAGRAM_FLAG(name, field)                                                            \
    {name, (getter)datagram_flag_getter, NULL, NULL, (void *)offsetof(gl_datagram, field)}
#define DATAGRAM_OBJECT(name, field)                                                          \
    {name, (getter)datagram_object_getter, NULL, NULL, (void *)offsetof(gl_datagram, field)}

static PyGetSetDef datagram_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"_conn_lost", (getter)datagram_conn_lost_getter, NULL, NULL, NULL},
    DATAGRAM_FLAG("_closing", closing),
    DATAGRAM_FLAG("_paused", paused),
    DATAGRAM_OBJECT("_sock", lease.owner),
    DATAGRAM_OBJECT("_protocol", protocol),
    DATAGRAM_OBJECT("_address", address),
    {NULL, NULL, NULL, NULL, NULL},
};

static const gl_reg_ops datagram_ops = {
    .complete = datagram_complete,
    .orphan = datagram_orphan,
    .blocks = datagram_blocks_number,
};

static PyMemberDef datagram_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(gl_datagram, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(gl_datagram, weakrefs), READONLY, NULL},
    {"_sock_fd", T_INT, offsetof(gl_datagram, fd_shown), READONLY, NULL},
    {"_buffer_size", T_PYSSIZET, offsetof(gl_datagram, queued), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *
datagram_repr(PyObject *self)
{
    gl_datagram *d = (gl_datagram *)self;
    const char *state = d->lease.number < 0 ? " closed" : d->closing ? " closing" : "";
    PyObject *name = PyType_GetName(Py_TYPE(self)), *text = NULL;
    if (name == NULL)
        return NULL;
    if (d->loop == NULL || d->loop->closed)
        text = PyUnicode_FromFormat("<%U%s fd=%d>", name, state, d->fd_shown);
    else
        text = PyUnicode_FromFormat("<%U%s fd=%d read=%s write=<%s, bufsize=%zd>>", name, state,
                                    d->fd_shown, datagram_reading_wanted(d) ? "polling" : "idle",
                                    d->blocked ? "polling" : "idle", d->queued);
    Py_DECREF(name);
    return text;
}

/* ---- the type --------------------------------------------------------------------------- */

static PyType_Slot datagram_slots[] = {
    {Py_tp_doc, PyDoc_STR("A datagram socket as an asyncio.DatagramTransport.")},
    {Py_tp_new, datagram_new},
    {Py_tp_init, datagram_init},
    {Py_tp_repr, datagram_repr},
    {Py_tp_traverse, datagram_traverse},
    {Py_tp_clear, datagram_clear},
    {Py_tp_finalize, datagram_finalize},
    {Py_tp_dealloc, datagram_dealloc},
    {Py_tp_methods, datagram_methods},
    {Py_tp_members, datagram_members},
    {Py_tp_getset, datagram_getset},
    {0, NULL},
};

static PyType_Spec datagram_spec = {
    .name = "goloop._core.DatagramTransport",
    .basicsize = sizeof(gl_datagram),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = datagram_slots,
};

GL_PRIVATE int
gl_datagram_init_type(PyObject *module)
{
    PyObject *mixin = gl_import_attr("asyncio.transports", "_FlowControlMixin");
    PyObject *plain = mixin ? gl_import_attr("asyncio", "DatagramTransport") : NULL;
    PyObject *bases = plain ? PyTuple_Pack(2, mixin, plain) : NULL;
    PyObject *size = PyLong_FromUnsignedLong(GL_PACKET_MAX);
    int rc = -1;
    G.reg_ops[GL_REG_DATAGRAM] = &datagram_ops;
    if (bases != NULL && size != NULL && check_transport_layout(mixin) == 0)
        G.datagram_type =
            (PyTypeObject *)PyType_FromModuleAndSpec(module, &datagram_spec, bases);
    if (G.datagram_type != NULL &&
        PyObject_SetAttrString((PyObject *)G.datagram_type, "max_size", size) == 0)
        rc = PyModule_AddType(module, G.datagram_type);
    Py_XDECREF(size);
    Py_XDECREF(bases);
    Py_XDECREF(plain);
    Py_XDECREF(mixin);
    return rc;
}
