/*
 * stream_type.c: the type goloop._core.StreamTransport.
 *
 * It is a subclass of asyncio's _FlowControlMixin, and so of asyncio.Transport:
 * the stdlib's sendfile fallback accepts no other transports.  Nothing of the
 * mix-in's code runs; each of its methods has its counterpart here.
 */
#include "transports/stream.h"

GL_PRIVATE PyObject *
one_argument(const char *method, const char *name, PyObject *const *args, Py_ssize_t nargs,
             PyObject *kwnames)
{
    Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    if (nargs == 1 && nkw == 0)
        return args[0];
    if (nargs == 0 && nkw == 1 &&
        PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), name) == 0)
        return args[0];
    PyErr_Format(PyExc_TypeError, "%s() takes exactly one argument, '%s'", method, name);
    return NULL;
}

static PyObject *
stream_write_method(gl_stream *s, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *data = one_argument("write", "data", args, nargs, kwnames);
    return data ? gl_stream_write(s, data) : NULL;
}

static PyObject *
stream_writelines_method(gl_stream *s, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames)
{
    PyObject *list = one_argument("writelines", "list_of_data", args, nargs, kwnames);
    return list ? stream_writelines_object(s, list) : NULL;
}

static PyObject *
stream_set_protocol_method(gl_stream *s, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames)
{
    PyObject *protocol = one_argument("set_protocol", "protocol", args, nargs, kwnames);
    if (protocol == NULL || stream_set_protocol(s, protocol) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
stream_get_protocol_method(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    return Py_NewRef(s->protocol ? s->protocol : Py_None);
}

static PyObject *
stream_close_method(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    if (stream_close(s) < 0)
        return NULL;
    Py_RETURN_NONE;
}

GL_PRIVATE PyObject *
stream_abort_method(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    if (stream_force_close(s, Py_None) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
stream_is_closing_method(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(s->closing);
}

GL_PRIVATE PyObject *
stream_is_reading_method(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(!s->closing && !s->paused);
}

static PyObject *
stream_force_close_method(gl_stream *s, PyObject *exc)
{
    if (stream_force_close(s, exc) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
stream_fatal_error_method(gl_stream *s, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"exc", "message", NULL};
    PyObject *exc;
    const char *message = "Fatal error on transport";
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|s:_fatal_error", names, &exc, &message) ||
        stream_fatal_error(s, exc, message) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
stream_lost_method(gl_stream *s, PyObject *exc)
{
    if (stream_lost(s, exc) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* For whoever has the socket and is about to use it. */
static PyObject *
stream_flush_method(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    stream_flush_visible((PyObject *)s);
    Py_RETURN_NONE;
}

#define STREAM_NOARGS(name, function, doc) {name, (PyCFunction)function, METH_NOARGS, PyDoc_STR(doc)}
#define STREAM_FAST(name, function, doc)                                                          \
    {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL | METH_KEYWORDS, PyDoc_STR(doc)}
#define STREAM_KEYWORDS(name, function, doc)                                                      \
    {name, (PyCFunction)(void (*)(void))function, METH_VARARGS | METH_KEYWORDS, PyDoc_STR(doc)}

static PyMethodDef stream_methods[] = {
    STREAM_FAST("write", stream_write_method,
         "write($self, data)\n--\n\n"
         "Write some data to the transport.  Does not block."),
    STREAM_FAST("writelines", stream_writelines_method,
         "writelines($self, list_of_data)\n--\n\n"
         "Write a list (or any iterable) of data to the transport."),
    STREAM_NOARGS("write_eof", stream_write_eof,
           "write_eof($self)\n--\n\n"
           "Close the write end once buffered data is sent; reading goes on."),
    STREAM_NOARGS("can_write_eof", stream_can_write_eof,
           "can_write_eof($self)\n--\n\nReturn True: a stream has write_eof()."),
    STREAM_NOARGS("close", stream_close_method,
           "close($self)\n--\n\n"
           "Close the transport once buffered data is sent; no more data is received."),
    STREAM_NOARGS("abort", stream_abort_method,
           "abort($self)\n--\n\nClose the transport at once; buffered data is lost."),
    STREAM_NOARGS("is_closing", stream_is_closing_method,
           "is_closing($self)\n--\n\nReturn True if the transport is closing or closed."),
    STREAM_NOARGS("is_reading", stream_is_reading_method,
           "is_reading($self)\n--\n\nReturn True if the transport is receiving."),
    STREAM_NOARGS("pause_reading", stream_pause_reading,
           "pause_reading($self)\n--\n\nPass no data to the protocol until resume_reading()."),
    STREAM_NOARGS("resume_reading", stream_resume_reading,
           "resume_reading($self)\n--\n\nPass data to the protocol again."),
    STREAM_KEYWORDS("set_write_buffer_limits", stream_set_write_buffer_limits,
             "set_write_buffer_limits($self, high=None, low=None)\n--\n\n"
             "Set the high- and low-water limits for write flow control, in bytes."),
    STREAM_NOARGS("get_write_buffer_limits", stream_get_write_buffer_limits,
           "get_write_buffer_limits($self)\n--\n\nReturn the tuple (low, high)."),
    STREAM_NOARGS("get_write_buffer_size", stream_get_write_buffer_size,
           "get_write_buffer_size($self)\n--\n\n"
           "Return how many bytes the kernel has not taken yet."),
    STREAM_KEYWORDS("get_extra_info", stream_get_extra_info,
             "get_extra_info($self, name, default=None)\n--\n\n"
             "Get optional transport information: 'peername', 'sockname', 'socket'."),
    STREAM_FAST("set_protocol", stream_set_protocol_method,
         "set_protocol($self, protocol)\n--\n\nSet a new protocol."),
    STREAM_NOARGS("get_protocol", stream_get_protocol_method,
           "get_protocol($self)\n--\n\nReturn the current protocol."),
    {"_force_close", (PyCFunction)stream_force_close_method, METH_O, NULL},
    STREAM_KEYWORDS("_fatal_error", stream_fatal_error_method, ""),
    {"_call_connection_lost", (PyCFunction)stream_lost_method, METH_O, NULL},
    STREAM_NOARGS("_maybe_pause_protocol", stream_maybe_pause_method, ""),
    STREAM_NOARGS("_maybe_resume_protocol", stream_maybe_resume_method, ""),
    STREAM_KEYWORDS("_set_write_buffer_limits", stream_set_write_buffer_limits, ""),
    STREAM_NOARGS("_make_empty_waiter", stream_make_empty_waiter,
           "Return a future that is done when all written bytes are in the kernel; "
           "writing is refused until _reset_empty_waiter()."),
    STREAM_NOARGS("_reset_empty_waiter", stream_reset_empty_waiter, ""),
    STREAM_NOARGS("_flush", stream_flush_method, "Send now what waits to be sent."),
    {"_start", (PyCFunction)stream_start_method, METH_O, NULL},
    STREAM_NOARGS("_close_if_sent", stream_close_if_sent_method, ""),
    STREAM_NOARGS("_sync", stream_sync_method, ""),
    STREAM_NOARGS("_deliver_held", stream_deliver_held_method, ""),
    {NULL, NULL, 0, NULL},
};

static const gl_reg_ops stream_ops = {
    .complete = stream_complete,
    .orphan = stream_orphan,
    .blocks = stream_blocks_number,
    .unsent = stream_unsent,
    .flush = stream_flush_visible,
};

static PyMemberDef stream_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(gl_stream, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(gl_stream, weakrefs), READONLY, NULL},
    {"_sock_fd", T_INT, offsetof(gl_stream, fd_shown), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_doc, PyDoc_STR("A connected stream socket as an asyncio.Transport.")},
    {Py_tp_new, stream_new},
    {Py_tp_init, stream_init},
    {Py_tp_repr, stream_repr},
    {Py_tp_traverse, stream_traverse},
    {Py_tp_clear, stream_clear},
    {Py_tp_finalize, stream_finalize},
    {Py_tp_dealloc, stream_dealloc},
    {Py_tp_methods, stream_methods},
    {Py_tp_members, stream_members},
    {Py_tp_getset, stream_getset},
    {0, NULL},
};

static PyType_Spec stream_spec = {
    .name = "goloop._core.StreamTransport",
    .basicsize = sizeof(gl_stream),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = stream_slots,
};

GL_PRIVATE int
check_transport_layout(PyObject *mixin)
{
    static const struct {
        const char *name;
        Py_ssize_t offset;
    } slots[] = {
        {"_extra", offsetof(gl_stream, extra)},
        {"_high_water", offsetof(gl_stream, high_water)},
        {"_loop", offsetof(gl_stream, slot_loop)},
        {"_low_water", offsetof(gl_stream, low_water)},
        {"_protocol_paused", offsetof(gl_stream, slot_protocol_paused)},
    };
    bool good = PyType_Check(mixin) &&
                ((PyTypeObject *)mixin)->tp_basicsize == offsetof(gl_stream, dict) &&
                PyType_IsSubtype((PyTypeObject *)mixin, (PyTypeObject *)G.asyncio_Transport);
    for (size_t i = 0; good && i < Py_ARRAY_LENGTH(slots); i++)
        good = gl_slot_offset(mixin, slots[i].name) == slots[i].offset;
    if (!good) {
        PyErr_SetString(PyExc_ImportError,
                        "goloop: asyncio.Transport of this Python has another layout than "
                        "goloop was written for; use a released CPython 3.11 to 3.14, not a "
                        "debug or free-threaded build");
        return -1;
    }
    return 0;
}

GL_PRIVATE int
gl_stream_init_type(PyObject *module)
{
    PyObject *mixin = gl_import_attr("asyncio.transports", "_FlowControlMixin");
    PyObject *mode = NULL, *native = NULL, *size = NULL;
    int rc = -1;
    if (mixin == NULL || check_transport_layout(mixin) < 0)
        goto done;
    G.asyncio_constants = PyImport_ImportModule("asyncio.constants");
    G.high_default = PyLong_FromLong(GL_HIGH_WATER);
    G.low_default = PyLong_FromLong(GL_HIGH_WATER / 4);
    if (G.asyncio_constants == NULL || G.high_default == NULL ||
        G.low_default == NULL)
        goto done;
    G.reg_ops[GL_REG_STREAM] = &stream_ops;
    G.stream_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &stream_spec, mixin);
    mode = PyObject_GetAttrString(G.asyncio_constants, "_SendfileMode");
    native = mode ? PyObject_GetAttrString(mode, "TRY_NATIVE") : NULL;
    size = PyLong_FromLong(256 * 1024);
    if (G.stream_type == NULL || native == NULL || size == NULL)
        goto done;
    /* What loop.start_tls and loop.sendfile ask a transport for. */
    if (PyObject_SetAttrString((PyObject *)G.stream_type, "_start_tls_compatible", Py_True) < 0 ||
        PyObject_SetAttrString((PyObject *)G.stream_type, "_sendfile_compatible", native) < 0 ||
        PyObject_SetAttrString((PyObject *)G.stream_type, "max_size", size) < 0)
        goto done;
    rc = PyModule_AddType(module, G.stream_type);
done:
    Py_XDECREF(mixin);
    Py_XDECREF(mode);
    Py_XDECREF(native);
    Py_XDECREF(size);
    return rc;
}
