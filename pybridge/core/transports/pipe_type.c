/*
 * pipe_type.c: the types goloop._core.ReadPipeTransport and WritePipeTransport.
 *
 * The bases are those of asyncio's pipe transports, so that isinstance tells the same:
 * asyncio.ReadTransport for the one, _FlowControlMixin (and so Transport, of whose
 * reading half nothing works) for the other.  writelines() is the base's.
 */
#include "transports/stream.h"

/* asyncio's pipes give data to any protocol by data_received. */
static PyObject *
pipe_set_protocol_method(gl_stream *s, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *protocol = one_argument("set_protocol", "protocol", args, nargs, kwnames);
    if (protocol == NULL)
        return NULL;
    Py_XSETREF(s->protocol, Py_NewRef(protocol));
    Py_RETURN_NONE;
}

#define PIPE_METHODS                                                                            \
    STREAM_NOARGS("is_closing", stream_is_closing_method,                                       \
                  "is_closing($self)\n--\n\nReturn True if the transport is closing or closed."), \
        STREAM_KEYWORDS("get_extra_info", stream_get_extra_info,                                \
                        "get_extra_info($self, name, default=None)\n--\n\n"                     \
                        "Get optional transport information: 'pipe'."),                         \
        STREAM_FAST("set_protocol", pipe_set_protocol_method,                                   \
                    "set_protocol($self, protocol)\n--\n\nSet a new protocol."),                \
        STREAM_NOARGS("get_protocol", stream_get_protocol_method,                               \
                      "get_protocol($self)\n--\n\nReturn the current protocol."),               \
        {"_close", (PyCFunction)stream_force_close_method, METH_O, NULL},                       \
        STREAM_KEYWORDS("_fatal_error", stream_fatal_error_method, ""),                         \
        {"_call_connection_lost", (PyCFunction)stream_lost_method, METH_O, NULL},               \
        {"_start", (PyCFunction)pipe_start_method, METH_O, NULL},                               \
        {"_wake_waiter", (PyCFunction)pipe_wake_waiter_method, METH_O, NULL},                   \
        STREAM_NOARGS("_sync", stream_sync_method, "")

static PyMethodDef read_pipe_methods[] = {
    PIPE_METHODS,
    STREAM_NOARGS("is_reading", stream_is_reading_method,
                  "is_reading($self)\n--\n\nReturn True if the transport is receiving."),
    STREAM_NOARGS("pause_reading", stream_pause_reading,
                  "pause_reading($self)\n--\n\nPass no data to the protocol until "
                  "resume_reading()."),
    STREAM_NOARGS("resume_reading", stream_resume_reading,
                  "resume_reading($self)\n--\n\nPass data to the protocol again."),
    STREAM_NOARGS("close", read_pipe_close_method,
                  "close($self)\n--\n\nClose the transport; no more data is received."),
    STREAM_NOARGS("_deliver_held", stream_deliver_held_method, ""),
    {NULL, NULL, 0, NULL},
};

static PyMethodDef write_pipe_methods[] = {
    PIPE_METHODS,
    STREAM_FAST("write", write_pipe_write_method,
                "write($self, data)\n--\n\n"
                "Write some data to the transport.  Does not block."),
    STREAM_NOARGS("write_eof", write_pipe_eof_method,
                  "write_eof($self)\n--\n\nClose the transport once buffered data is sent."),
    STREAM_NOARGS("can_write_eof", stream_can_write_eof,
                  "can_write_eof($self)\n--\n\nReturn True."),
    STREAM_NOARGS("close", write_pipe_eof_method,
                  "close($self)\n--\n\nClose the transport once buffered data is sent."),
    STREAM_NOARGS("abort", stream_abort_method,
                  "abort($self)\n--\n\nClose the transport at once; buffered data is lost."),
    STREAM_KEYWORDS("set_write_buffer_limits", stream_set_write_buffer_limits,
                    "set_write_buffer_limits($self, high=None, low=None)\n--\n\n"
                    "Set the high- and low-water limits for write flow control, in bytes."),
    STREAM_NOARGS("get_write_buffer_limits", stream_get_write_buffer_limits,
                  "get_write_buffer_limits($self)\n--\n\nReturn the tuple (low, high)."),
    STREAM_NOARGS("get_write_buffer_size", stream_get_write_buffer_size,
                  "get_write_buffer_size($self)\n--\n\n"
                  "Return how many bytes the kernel has not taken yet."),
    STREAM_NOARGS("_maybe_pause_protocol", stream_maybe_pause_method, ""),
    STREAM_NOARGS("_maybe_resume_protocol", stream_maybe_resume_method, ""),
    STREAM_KEYWORDS("_set_write_buffer_limits", stream_set_write_buffer_limits, ""),
    STREAM_NOARGS("_close_if_sent", stream_close_if_sent_method, ""),
    {NULL, NULL, 0, NULL},
};

static PyMemberDef pipe_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(gl_stream, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(gl_stream, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

#define PIPE_ATTRIBUTES                                                                 \
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},         \
        {"_extra", (getter)stream_extra_getter, (setter)stream_extra_setter, NULL, NULL}, \
        {"_fileno", (getter)pipe_fileno_getter, NULL, NULL, NULL},                      \
        {"_pipe", (getter)stream_object_getter, (setter)pipe_setter, NULL,              \
         (void *)offsetof(gl_stream, lease.owner)},                                            \
        STREAM_OBJECT("_loop", loop),                     \
        STREAM_OBJECT("_protocol", protocol), STREAM_FLAG("_closing", closing)

static PyGetSetDef read_pipe_getset[] = {
    PIPE_ATTRIBUTES,
    STREAM_FLAG("_paused", paused),
    {NULL, NULL, NULL, NULL, NULL},
};

static PyGetSetDef write_pipe_getset[] = {
    PIPE_ATTRIBUTES,
    {"_conn_lost", (getter)pipe_late_writes_getter, NULL, NULL, NULL},
    STREAM_FLAG("_protocol_paused", protocol_paused),
    STREAM_OBJECT("_high_water", high_water),
    STREAM_OBJECT("_low_water", low_water),
    {NULL, NULL, NULL, NULL, NULL},
};

#define PIPE_SLOTS                                                                              \
    {Py_tp_new, stream_new}, {Py_tp_repr, pipe_repr}, {Py_tp_traverse, stream_traverse},        \
        {Py_tp_clear, stream_clear}, {Py_tp_finalize, stream_finalize},                         \
        {Py_tp_dealloc, stream_dealloc}, {Py_tp_members, pipe_members}

static PyType_Slot read_pipe_slots[] = {
    PIPE_SLOTS,
    {Py_tp_doc, PyDoc_STR("The reading end of a pipe as an asyncio.ReadTransport.")},
    {Py_tp_init, read_pipe_init},
    {Py_tp_methods, read_pipe_methods},
    {Py_tp_getset, read_pipe_getset},
    {0, NULL},
};

static PyType_Slot write_pipe_slots[] = {
    PIPE_SLOTS,
    {Py_tp_doc, PyDoc_STR("The writing end of a pipe as an asyncio.WriteTransport.")},
    {Py_tp_init, write_pipe_init},
    {Py_tp_methods, write_pipe_methods},
    {Py_tp_getset, write_pipe_getset},
    {0, NULL},
};

#define PIPE_SPEC(type_name, its_slots)                                           \
    {                                                                             \
        .name = "goloop._core." type_name, .basicsize = sizeof(gl_stream),        \
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,   \
        .slots = its_slots,                                                       \
    }

static PyType_Spec read_pipe_spec = PIPE_SPEC("ReadPipeTransport", read_pipe_slots);
static PyType_Spec write_pipe_spec = PIPE_SPEC("WritePipeTransport", write_pipe_slots);

static PyTypeObject *
pipe_make_type(PyObject *module, PyType_Spec *spec, const char *base_name)
{
    PyObject *base = gl_import_attr("asyncio.transports", base_name), *type = NULL;
    if (base == NULL)
        return NULL;
    if (PyType_Check(base) &&
        ((PyTypeObject *)base)->tp_basicsize <= (Py_ssize_t)offsetof(gl_stream, dict) &&
        gl_slot_offset(base, "_extra") == offsetof(gl_stream, extra))
        type = PyType_FromModuleAndSpec(module, spec, base);
    else
        PyErr_Format(PyExc_ImportError,
                     "goloop: asyncio.transports.%s of this Python has another layout than "
                     "goloop was written for",
                     base_name);
    Py_DECREF(base);
    if (type != NULL && PyModule_AddType(module, (PyTypeObject *)type) < 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

/* Behind gl_stream_init_type, which checks the slots of _FlowControlMixin. */
GL_PRIVATE int
gl_pipe_init_types(PyObject *module)
{
    PyTypeObject *reading = pipe_make_type(module, &read_pipe_spec, "ReadTransport");
    PyTypeObject *writing =
        reading ? pipe_make_type(module, &write_pipe_spec, "_FlowControlMixin") : NULL;
    PyObject *size = writing ? PyLong_FromLong(256 * 1024) : NULL;
    int rc = size ? PyObject_SetAttrString((PyObject *)reading, "max_size", size) : -1;
    Py_XDECREF(size);
    Py_XDECREF(reading); /* the module has them */
    Py_XDECREF(writing);
    return rc;
}
