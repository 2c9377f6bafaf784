/*
 * pipe_type.c: the types goloop._core.ReadPipeTransport and WritePipeTransport, which
 * goloop/_internal/net/pipes.py completes.
 *
 * The bases are those of asyncio's pipe transports, so that isinstance tells the same:
 * asyncio.ReadTransport for the one, _FlowControlMixin (and so Transport, of whose
 * reading half nothing works) for the other.  writelines() is the base's.
 */
#include "streams/stream.h"

/* asyncio's pipes give data to any protocol by data_received: set_protocol is the base's. */
static PyMethodDef read_pipe_methods[] = {
    TRANSPORT_METHODS,
    TRANSPORT_READING_METHODS,
    METHOD_SET_PROTOCOL(gl_transport_set_protocol_method),
    {"_close", GL_ONEARG(gl_transport_force_close_method), NULL},
    {"close", GL_FASTKW(close_checked),
     PyDoc_STR("close($self)\n--\n\nClose the transport; no more data is received.")},
    {NULL, NULL, 0, NULL},
};

GL_TAKES_NONE(pipe_write_eof_checked, gl_transport_close_method, "write_eof")

static PyMethodDef write_pipe_methods[] = {
    TRANSPORT_METHODS,
    STREAM_WRITING_METHODS,
    METHOD_CLOSE,
    METHOD_ABORT,
    METHOD_SET_PROTOCOL(gl_transport_set_protocol_method),
    {"_close", GL_ONEARG(gl_transport_force_close_method), NULL},
    {"write", GL_FASTKW(write_pipe_write),
     PyDoc_STR("write($self, data)\n--\n\n"
               "Write some data to the transport.  Does not block.")},
    {"write_eof", GL_FASTKW(pipe_write_eof_checked),
     PyDoc_STR("write_eof($self)\n--\n\nClose the transport once buffered data is sent.")},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef read_pipe_members[] = {
    TRANSPORT_MEMBERS,
    {NULL, 0, 0, 0, NULL},
};

/* _conn_lost: asyncio's count of late writes. */
static PyMemberDef write_pipe_members[] = {
    TRANSPORT_MEMBERS,
    {"_conn_lost", T_UINT, offsetof(gl_stream, late_writes), READONLY, NULL},
    {"_exposed", T_BOOL, offsetof(gl_stream, exposed), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

#define PIPE_ATTRIBUTE                                                                        \
    {"_pipe", (getter)gl_transport_object_getter, (setter)pipe_setter, NULL,                  \
     (void *)offsetof(gl_stream, lease.owner)}

static PyGetSetDef read_pipe_getset[] = {
    TRANSPORT_ATTRIBUTES,
    PIPE_ATTRIBUTE,
    {NULL, NULL, NULL, NULL, NULL},
};

static PyGetSetDef write_pipe_getset[] = {
    TRANSPORT_ATTRIBUTES,
    STREAM_WRITING_ATTRIBUTES,
    PIPE_ATTRIBUTE,
    {NULL, NULL, NULL, NULL, NULL},
};

#define PIPE_SLOTS                                                                            \
    {Py_tp_init, pipe_init}, {Py_tp_traverse, stream_traverse}, {Py_tp_clear, stream_clear},  \
        {Py_tp_finalize, gl_transport_finalize}, {Py_tp_dealloc, gl_transport_dealloc}

static PyType_Slot read_pipe_slots[] = {
    PIPE_SLOTS,
    {Py_tp_doc, PyDoc_STR("The reading end of a pipe as an asyncio.ReadTransport.")},
    {Py_tp_new, read_pipe_new},
    {Py_tp_methods, read_pipe_methods},
    {Py_tp_members, read_pipe_members},
    {Py_tp_getset, read_pipe_getset},
    {0, NULL},
};

static PyType_Slot write_pipe_slots[] = {
    PIPE_SLOTS,
    {Py_tp_doc, PyDoc_STR("The writing end of a pipe as an asyncio.WriteTransport.")},
    {Py_tp_new, write_pipe_new},
    {Py_tp_methods, write_pipe_methods},
    {Py_tp_members, write_pipe_members},
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

/* Behind gl_stream_init_type. */
GL_PRIVATE int
gl_pipe_init_types(PyObject *module)
{
    PyTypeObject *reading =
        gl_transport_make_type(module, &read_pipe_spec, "ReadTransport", NULL, 256 * 1024);
    PyTypeObject *writing =
        reading ? gl_transport_make_type(module, &write_pipe_spec, "_FlowControlMixin", NULL, 0) : NULL;
    int rc = writing ? 0 : -1;
    Py_XDECREF(reading); /* the module has them */
    Py_XDECREF(writing);
    return rc;
}
